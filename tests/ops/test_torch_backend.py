"""The operators of the torch backend against the reference; the whole layer is in test_parity."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from dcnn.ops import reference, torch_backend

SHAPES = st.tuples(*[st.integers(1, most) for most in (4, 3, 6, 15)])


@given(SHAPES, st.integers(1, 3), st.integers(1, 6), st.integers(0, 9999))
def test_the_convolution_equals_the_reference(shape, maps, width, seed):
    generator = np.random.default_rng(seed)
    x, filters = generator.normal(size=shape), generator.normal(size=(maps, *shape[1:3], width))
    xt, ft = torch.from_numpy(x), torch.from_numpy(filters)
    expected = reference.wide_convolution(x, filters)
    np.testing.assert_allclose(torch_backend.wide_convolution(xt, ft), expected, atol=1e-12)


def distinct(*shape):
    """Values that are no two alike, so that a small step changes no choice of k-max."""
    generator = torch.Generator().manual_seed(0)
    count = int(np.prod(shape))
    return torch.randperm(count, generator=generator).double().view(shape).requires_grad_()


def test_gradients_of_every_operator_equal_finite_differences():
    x, filters = distinct(2, 2, 4, 6), distinct(3, 2, 4, 3)
    assert gradcheck(torch_backend.wide_convolution, (x, filters))
    assert gradcheck(reference.fold, (x,))
    lengths, k = torch.tensor([6, 4]), torch.tensor([3, 2])
    assert gradcheck(lambda c: torch_backend.k_max(c, lengths, k)[0], (x,))
