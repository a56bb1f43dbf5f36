"""The compiled layer against the reference and the torch backend: values, positions, gradients."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from dcnn.ops import native, reference, torch_backend

if not native.available():
    pytest.skip(native.reason(), allow_module_level=True)
from dcnn.ops import native_backend

# float32 sums of a few dozen terms of size one, against float64.
VALUES = {"atol": 2e-5, "rtol": 1e-4}
GRADIENTS = {"atol": 1e-4, "rtol": 1e-4}

CASES = st.fixed_dictionaries(
    {
        "lengths": st.lists(st.integers(1, 40), min_size=1, max_size=4),
        "maps_below": st.integers(1, 3),
        "maps": st.integers(1, 4),
        "half_rows": st.integers(1, 13),
        "width": st.integers(1, 19),  # one, two and three vectors a filter
        "fold": st.booleans(),
        "padding": st.integers(0, 3),
        "ties": st.booleans(),
        "k": st.sampled_from(["one", "some", "all"]),
        "seed": st.integers(0, 9999),
    }
)
AWKWARD = {
    "lengths": [1],
    "maps_below": 1,
    "maps": 1,
    "half_rows": 1,
    "width": 1,
    "fold": True,
    "padding": 0,
    "ties": False,
    "k": "all",
    "seed": 0,
}


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


def draw_layer(case):
    """Random inputs of one layer; few distinct values if ties are wanted."""
    generator = np.random.default_rng(case["seed"])
    lengths = np.array(case["lengths"])
    rows = 2 * case["half_rows"] if case["fold"] else 2 * case["half_rows"] - 1

    def draw(*shape):
        if case["ties"]:
            return generator.integers(-1, 2, shape).astype(np.float32)
        return generator.normal(size=shape).astype(np.float32)

    x = draw(len(lengths), case["maps_below"], rows, lengths.max() + case["padding"])
    for sentence, length in zip(x, lengths, strict=True):
        sentence[:, :, length:] = np.nan  # padding means nothing and must not be read
    filters = draw(case["maps"], case["maps_below"], rows, case["width"])
    bias = draw(case["maps"], rows // 2 if case["fold"] else rows)
    limits = lengths + case["width"] - 1
    k = {"one": np.ones_like(limits), "some": (limits + 1) // 2, "all": limits}[case["k"]]
    return x, lengths, filters, bias, k


def double(arrays):
    return [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]


def gradients(layer, arrays, fold):
    """Values, positions and the gradients of a random projection, as numpy arrays."""
    x, lengths, filters, bias, k = map(torch.from_numpy, arrays)
    x = x.masked_fill(x.isnan(), 0)
    leaves = [tensor.clone().requires_grad_() for tensor in (x, filters, bias)]
    values, positions = layer(leaves[0], lengths, leaves[1], leaves[2], k, fold)
    weights = torch.randn(values.shape[-4:], generator=torch.Generator().manual_seed(0))
    (values * weights).sum().backward()
    return [tensor.detach().numpy() for tensor in (values, positions, *(le.grad for le in leaves))]


@given(CASES)
@example(AWKWARD)
@example(AWKWARD | {"lengths": [60], "width": 5, "k": "some"})  # 64 columns: all pairs compared
@example(AWKWARD | {"lengths": [61, 90], "width": 5, "k": "some", "ties": True})  # bit by bit
@example(AWKWARD | {"lengths": [2], "half_rows": 24, "maps": 6, "width": 7, "k": "some"})
def test_native_layer_equals_the_reference(case):
    arrays = draw_layer(case)
    expected, expected_positions = reference.layer(*double(arrays), case["fold"])
    values, positions = native.layer(*arrays, case["fold"])
    np.testing.assert_array_equal(positions, expected_positions)
    np.testing.assert_allclose(values, expected, **VALUES)


@given(CASES)
@example(AWKWARD)
@example(AWKWARD | {"lengths": [61, 90], "width": 5, "k": "some", "ties": True})
def test_native_gradients_equal_torchs(case):
    arrays = draw_layer(case)
    expected = gradients(torch_backend.layer, double(arrays), case["fold"])
    computed = gradients(native_backend.layer, arrays, case["fold"])
    np.testing.assert_array_equal(computed[1], expected[1])
    for got, wanted in zip(computed, expected, strict=True):
        np.testing.assert_allclose(got, wanted, **GRADIENTS)


LENGTHS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 27, 28, 29, 59, 60, 61, 255, 256, 257, 4096]


@pytest.mark.parametrize("length", LENGTHS)  # four columns more: 8, 32 and 64 are block edges
@pytest.mark.parametrize("ties", [True, False])
def test_lengths_at_block_edges_on_every_instruction_set(length, ties, instruction_set):
    case = AWKWARD | {"lengths": [length, 1], "maps_below": 2, "maps": 3, "half_rows": 5}
    for k in ("one", "some", "all"):
        arrays = draw_layer(case | {"width": 5, "k": k, "ties": ties})
        expected, expected_positions = reference.layer(*double(arrays), True)
        values, positions = native.layer(*arrays, True)
        np.testing.assert_array_equal(positions, expected_positions)
        np.testing.assert_allclose(values, expected, **VALUES)


def test_gradients_on_every_instruction_set(instruction_set):
    for width in (1, 8, 9, 17):
        case = AWKWARD | {"lengths": [30, 1, 7], "maps_below": 2, "maps": 3, "half_rows": 5}
        arrays = draw_layer(case | {"width": width, "k": "some"})
        expected = gradients(torch_backend.layer, double(arrays), True)
        for got, wanted in zip(
            gradients(native_backend.layer, arrays, True), expected, strict=True
        ):
            np.testing.assert_allclose(got, wanted, **GRADIENTS)


@pytest.mark.parametrize("length", [5, 100])
def test_minus_zero_ties_with_zero(length):
    # The products are too small for a float32 and become zero, with a sign where fused with a sum.
    x = np.full((1, 1, 1, length), 1e-30, np.float32)
    x[..., ::2] *= -1
    tiny = np.full((1, 1, 1, 1), 1e-30, np.float32)
    bias = np.zeros((1, 1), np.float32)
    _, positions = native.layer(x, np.array([length]), tiny, bias, np.array([3]), False)
    assert positions.ravel().tolist() == [0, 1, 2]


@pytest.mark.parametrize("length", [6, 100])
def test_what_is_not_a_number_is_kept_and_not_pooled_away(length):
    x = np.zeros((1, 1, 1, length), np.float32)
    x[..., [1, 4]] = np.nan, -np.nan
    one = np.ones((1, 1, 1, 1), np.float32)
    values, positions = native.layer(x, np.array([length]), one, one[0, 0], np.array([3]), False)
    assert positions.ravel().tolist() == [0, 1, 4]
    assert np.isnan(values.ravel()).tolist() == [False, True, True]


@pytest.mark.parametrize("threads", [2, 3, 64])
def test_threads_change_no_bit_forward(threads):
    case = AWKWARD | {"lengths": list(range(1, 30)), "maps": 3, "half_rows": 5, "width": 4}
    arrays = draw_layer(case | {"k": "some"})
    alone = native.layer(*arrays, True)
    for one, many in zip(alone, native.layer(*arrays, True, threads=threads), strict=True):
        np.testing.assert_array_equal(one, many)


def test_as_many_threads_give_the_same_gradients_bit_for_bit():
    case = AWKWARD | {"lengths": list(range(1, 30)), "maps": 3, "half_rows": 5, "width": 4}
    arrays = draw_layer(case | {"k": "some"})
    torch.set_num_threads(2)
    try:
        first, second = (gradients(native_backend.layer, arrays, True) for _ in range(2))
    finally:
        torch.set_num_threads(1)
    for got, again in zip(first, second, strict=True):
        np.testing.assert_array_equal(got, again)
    for got, alone in zip(first, gradients(native_backend.layer, arrays, True), strict=True):
        np.testing.assert_allclose(got, alone, **GRADIENTS)


def test_a_mapped_axis_is_an_axis_of_runs():
    case = AWKWARD | {"lengths": [9, 4], "maps": 2, "half_rows": 3, "width": 4}
    runs = [draw_layer(case | {"seed": seed}) for seed in (0, 1)]
    apart = [gradients(native_backend.layer, arrays, True) for arrays in runs]
    mapped = torch.func.vmap(lambda *inputs: native_backend.layer(*inputs, True, 12))
    stacked = [np.stack(parts) for parts in zip(*runs, strict=True)]
    together = gradients(lambda *inputs: mapped(*inputs[:-1]), stacked, True)
    for both, parts in zip(together, zip(*apart, strict=True), strict=True):
        np.testing.assert_array_equal(both, np.stack(parts))


def test_lengths_and_k_out_of_bounds_are_refused():
    x, lengths, filters, bias, _ = draw_layer(AWKWARD | {"lengths": [4], "width": 2})
    for wrong_lengths, wrong_k in ((lengths + 1, 1), (lengths * 0, 1), (lengths, 6), (lengths, 0)):
        with pytest.raises(ValueError, match="lengths must lie between 1 and the columns"):
            native.layer(x, wrong_lengths, filters, bias, np.array([wrong_k]), True)
    with pytest.raises(ValueError, match="3 rows cannot be folded in pairs"):
        native.layer(x[:, :, :1].repeat(3, 2), lengths, filters[:, :, :1].repeat(3, 2), bias,
                     lengths, True)  # fmt: skip
    with pytest.raises(ValueError, match="do not agree"):
        native.layer(x, lengths, filters.repeat(2, 1), bias, lengths, True)


def test_tanh_is_accurate_everywhere(instruction_set):
    x = np.concatenate([np.linspace(-12, 12, 400_001), 10.0 ** np.arange(-38, 38), [np.inf]])
    x = np.concatenate([x, -x, [0.0]]).astype(np.float32)
    exact = np.tanh(x.astype(np.float64))
    np.testing.assert_allclose(native.tanh(x), exact, atol=2e-7)
    near_zero = np.abs(x) < 0.2
    np.testing.assert_allclose(native.tanh(x)[near_zero], exact[near_zero], rtol=1e-6, atol=0)
    assert np.isnan(native.tanh(np.array([np.nan], np.float32))).all()
