import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dcnn.config import DCNNConfig
from dcnn.ops.reference import dynamic_k


def test_the_example_of_the_paper():
    assert [dynamic_k(18, layer, depth=3, k_top=3) for layer in (1, 2, 3)] == [12, 6, 3]


def test_figure_3_is_held_to_equation_4():
    # The figure's caption gives k = 5 and 3 for seven words and two layers; the equation gives
    # ceil(7 / 2) = 4 at the first layer, and the equation is the definition.
    assert [dynamic_k(7, layer, depth=2, k_top=3) for layer in (1, 2)] == [4, 3]


@given(st.integers(1, 5000), st.integers(1, 8), st.integers(1, 9), st.data())
def test_it_is_equation_4_in_exact_arithmetic(s, depth, k_top, data):
    layer = data.draw(st.integers(1, depth))
    expected = max(k_top, math.ceil(Fraction(depth - layer, depth) * s))
    assert dynamic_k(s, layer, depth, k_top) == expected


@pytest.mark.parametrize("array", [np.array, torch.tensor])
def test_arrays_give_what_ints_give(array):
    lengths = list(range(1, 60))
    ks = dynamic_k(array(lengths), 1, 3, 4)
    assert ks.tolist() == [dynamic_k(s, 1, 3, 4) for s in lengths]


@given(st.integers(1, 200), st.integers(1, 4), st.data())
def test_no_k_exceeds_the_width_it_pools_from(s, depth, data):
    k_top = data.draw(st.integers(1, 6))
    widths = data.draw(st.lists(st.integers(1, 8), min_size=depth, max_size=depth))
    widths[0] = max(widths[0], k_top)
    config = DCNNConfig(dim=16, widths=tuple(widths), maps=(1,) * depth, k_top=k_top)
    valid = s
    for layer in range(1, depth + 1):
        k = dynamic_k(s, layer, depth, config.k_top)
        assert 1 <= k <= valid + widths[layer - 1] - 1
        valid = k
    assert valid == k_top
