"""One parity suite: every backend gives what the reference gives, values, positions, gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from dcnn.ops import reference, torch_backend

CASES = st.fixed_dictionaries(
    {
        "lengths": st.lists(st.integers(1, 12), min_size=1, max_size=4),
        "maps_below": st.integers(1, 3),
        "maps": st.integers(1, 3),
        "half_rows": st.integers(1, 3),
        "width": st.integers(1, 6),
        "fold": st.booleans(),
        "padding": st.integers(0, 3),
        "ties": st.booleans(),
        "seed": st.integers(0, 9999),
    }
)


def draw_layer(case, data):
    """Random inputs of one layer, in float64; few distinct values if ties are wanted."""
    generator = np.random.default_rng(case["seed"])
    lengths = np.array(case["lengths"])
    rows = 2 * case["half_rows"]

    def draw(*shape):
        if case["ties"]:
            return generator.integers(-1, 2, shape).astype(float)
        return generator.normal(size=shape)

    x = draw(len(lengths), case["maps_below"], rows, lengths.max() + case["padding"])
    filters = draw(case["maps"], case["maps_below"], rows, case["width"])
    bias = draw(case["maps"], rows // 2 if case["fold"] else rows)
    limits = lengths + case["width"] - 1
    k = np.array([data.draw(st.integers(1, int(limit))) for limit in limits])
    return x, lengths, filters, bias, k


@given(CASES, st.data())
def test_torch_layer_equals_the_reference(case, data):
    arrays = draw_layer(case, data)
    expected, expected_positions = reference.layer(*arrays, case["fold"])
    values, positions = torch_backend.layer(*map(torch.from_numpy, arrays), case["fold"])
    np.testing.assert_allclose(values.numpy(), expected, atol=1e-12)
    np.testing.assert_array_equal(positions.numpy(), expected_positions)


@given(CASES, st.data())
def test_torch_convolutions_equal_the_reference(case, data):
    x, _, filters, _, _ = draw_layer(case, data)
    xt, ft = torch.from_numpy(x), torch.from_numpy(filters)
    expected = reference.wide_convolution(x, filters)
    np.testing.assert_allclose(torch_backend.wide_convolution(xt, ft), expected, atol=1e-12)
    np.testing.assert_allclose(torch_backend.wide_convolution_fft(xt, ft), expected, atol=1e-12)
    if x.shape[-1] >= filters.shape[-1]:
        np.testing.assert_allclose(
            torch_backend.narrow_convolution(xt, ft),
            reference.narrow_convolution(x, filters),
            atol=1e-12,
        )
    else:
        with pytest.raises(ValueError, match="a narrow convolution of width"):
            torch_backend.narrow_convolution(xt, ft)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 255, 256, 257, 1025])
@pytest.mark.parametrize("fold", [True, False])
def test_float32_at_awkward_lengths(length, fold):
    generator = np.random.default_rng(length)
    lengths = np.array([length, max(1, length // 2), 1])
    x = generator.normal(size=(3, 2, 6, length)).astype(np.float32)
    filters = generator.normal(size=(3, 2, 6, 5)).astype(np.float32)
    bias = generator.normal(size=(3, 3 if fold else 6)).astype(np.float32)
    k = lengths + 4  # k = width: everything is kept
    for chosen in (k, np.ones_like(k), np.maximum(k // 2, 1)):
        expected, _ = reference.layer(
            *(a.astype(np.float64) if a.dtype == np.float32 else a for a in (x, lengths, filters)),
            bias.astype(np.float64),
            chosen,
            fold,
        )
        arrays = (x, lengths, filters, bias, chosen)
        values, _ = torch_backend.layer(*map(torch.from_numpy, arrays), fold)
        np.testing.assert_allclose(values.numpy(), expected, atol=2e-5)


@settings(max_examples=20)  # finite differences take a pass a number
@given(CASES.filter(lambda case: not case["ties"]), st.data())
def test_gradients_equal_finite_differences(case, data):
    x, lengths, filters, bias, k = map(torch.from_numpy, draw_layer(case, data))
    inputs = tuple(t.requires_grad_() for t in (x, filters, bias))

    def values(x, filters, bias):
        return torch_backend.layer(x, lengths, filters, bias, k, case["fold"])[0]

    assert gradcheck(values, inputs, eps=1e-7, atol=1e-5)


def distinct(*shape):
    """Values that are no two alike, so that a small step changes no choice of k-max."""
    generator = torch.Generator().manual_seed(0)
    count = int(np.prod(shape))
    return torch.randperm(count, generator=generator).double().view(shape).requires_grad_()


def test_gradients_of_every_operator_equal_finite_differences():
    x, filters = distinct(2, 2, 4, 6), distinct(3, 2, 4, 3)
    for convolution in (
        torch_backend.wide_convolution,
        torch_backend.wide_convolution_fft,
        torch_backend.narrow_convolution,
    ):
        assert gradcheck(convolution, (x, filters))
    assert gradcheck(torch_backend.fold, (x,))
    lengths, k = torch.tensor([6, 4]), torch.tensor([3, 2])
    assert gradcheck(lambda c: torch_backend.k_max(c, lengths, k)[0], (x,))


@given(CASES, st.data())
def test_padding_gets_no_gradient(case, data):
    x, lengths, filters, bias, k = map(torch.from_numpy, draw_layer(case, data))
    x.requires_grad_()
    torch_backend.layer(x, lengths, filters, bias, k, case["fold"])[0].sum().backward()
    for sentence, length in enumerate(lengths):
        assert not x.grad[sentence, :, :, length:].any()
