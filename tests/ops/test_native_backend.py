"""What is the compiled layer's own; that it gives what the others give is in test_parity."""

import numpy as np
import pytest

from dcnn.ops import native

if not native.available():
    pytest.skip(native.reason(), allow_module_level=True)


@pytest.fixture(params=native.INSTRUCTION_SETS)
def instruction_set(request):
    """Each that this machine has, in turn."""
    before = native.instruction_set()
    try:
        native.use_instruction_set(request.param)
    except ValueError:
        pytest.skip(f"this machine has no {request.param}")
    yield request.param
    native.use_instruction_set(before)


@pytest.mark.parametrize("length", [5, 100])
def test_minus_zero_ties_with_zero(length, instruction_set):
    # The products are too small for a float32 and become zero, with a sign where fused with a sum.
    x = np.full((1, 1, 1, length), 1e-30, np.float32)
    x[..., ::2] *= -1
    tiny = np.full((1, 1, 1, 1), 1e-30, np.float32)
    bias = np.zeros((1, 1), np.float32)
    _, positions = native.layer(x, np.array([length]), tiny, bias, np.array([3]), False)
    assert positions.ravel().tolist() == [0, 1, 2]


def test_lengths_and_k_out_of_bounds_are_refused():
    x, filters = np.zeros((1, 1, 2, 4), np.float32), np.zeros((1, 1, 2, 2), np.float32)
    lengths, bias = np.array([4]), np.zeros((1, 1), np.float32)
    for wrong_lengths, wrong_k in ((lengths + 1, 1), (lengths * 0, 1), (lengths, 6), (lengths, 0)):
        with pytest.raises(ValueError, match="lengths must lie between 1 and the columns"):
            native.layer(x, wrong_lengths, filters, bias, np.array([wrong_k]), True)
    with pytest.raises(ValueError, match="3 rows cannot be folded in pairs"):
        native.layer(x[:, :, :1].repeat(3, 2), lengths, filters[:, :, :1].repeat(3, 2), bias,
                     lengths, True)  # fmt: skip
    with pytest.raises(ValueError, match="do not agree"):
        native.layer(x, lengths, filters.repeat(2, 1), bias, lengths, True)


def tanh(x):
    y = np.empty_like(x)
    native.library().dcnn_tanh(native.address(x), native.address(y), x.size)
    return y


def test_tanh_is_accurate_everywhere(instruction_set):
    x = np.concatenate([np.linspace(-12, 12, 400_001), 10.0 ** np.arange(-38, 38), [np.inf]])
    x = np.concatenate([x, -x, [0.0]]).astype(np.float32)
    exact = np.tanh(x.astype(np.float64))
    np.testing.assert_allclose(tanh(x), exact, atol=2e-7)
    near_zero = np.abs(x) < 0.2
    np.testing.assert_allclose(tanh(x)[near_zero], exact[near_zero], rtol=1e-6, atol=0)
    assert np.isnan(tanh(np.array([np.nan], np.float32))).all()
