"""Smaller weights: each within half a step of what it was, and nothing else is read back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dcnn.artifact import EMBEDDINGS, SCALES, pack, stored_form, unpack
from dcnn.errors import UserError

# From below float16's smallest number up to what a trained weight never reaches.
magnitudes = st.sampled_from([1e-9, 1e-7, 1e-5, 1e-2, 1.0, 300.0])
tables = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(1, 9)),
    elements=st.floats(-1, 1, width=32),
)


def weights_of(table, scale=1.0):
    return {EMBEDDINGS: (table * np.float32(scale)), "head.bias": table[0] * np.float32(scale)}


@given(tables, magnitudes)
def test_int8_is_within_half_a_scale_per_word(table, scale):
    weights = weights_of(table, scale)
    packed = pack(weights, "int8")
    assert (packed[EMBEDDINGS].dtype, packed[SCALES].dtype) == (np.int8, np.float16)
    assert packed[EMBEDDINGS].min() >= -127
    step = packed[SCALES].astype(np.float64)[:, None]
    error = np.abs(unpack(packed)[EMBEDDINGS].astype(np.float64) - weights[EMBEDDINGS])
    assert (error <= step / 2 * (1 + 1e-12)).all()
    # And the step is no larger than it must be: the 127th part, to float16's precision.
    largest = np.abs(weights[EMBEDDINGS]).max(axis=1, keepdims=True).astype(np.float64)
    assert (step <= largest / 127 * (1 + 2**-10) + 2**-24).all()


@given(tables, magnitudes)
def test_float16_is_the_nearest_half_precision_number(table, scale):
    weights = weights_of(table, scale)
    for name, values in unpack(pack(weights, "float16")).items():
        assert values.dtype == np.float32
        half = values.astype(np.float16)
        np.testing.assert_array_equal(half.astype(np.float32), values)
        step = np.spacing(np.abs(half)).astype(np.float64)
        assert (np.abs(values.astype(np.float64) - weights[name]) <= step / 2).all()


@given(tables)
def test_packing_unpacked_weights_changes_nothing(table):
    for dtype in ("float32", "float16", "int8"):
        once = unpack(pack(weights_of(table), dtype))
        twice = unpack(pack(once, dtype))
        for name in once:
            np.testing.assert_array_equal(once[name], twice[name])


def test_a_word_of_zeros_stays_zero():
    table = np.array([[0, 0], [1, -2]], np.float32)
    restored = unpack(pack(weights_of(table), "int8"))[EMBEDDINGS]
    np.testing.assert_array_equal(restored[0], 0)
    assert restored[1, 1] == pytest.approx(-2, rel=1e-3)


def test_float32_is_not_copied():
    weights = weights_of(np.ones((2, 3), np.float32) / 3)
    assert unpack(pack(weights, "float32"))[EMBEDDINGS] is weights[EMBEDDINGS]


def test_stored_form_describes_the_packed_weights():
    safetensors_names = {np.dtype("f4"): "F32", np.dtype("f2"): "F16", np.dtype("i1"): "I8"}
    weights = weights_of(np.ones((2, 3), np.float32))
    shapes = {name: value.shape for name, value in weights.items()}
    for dtype in ("float32", "float16", "int8"):
        packed = pack(weights, dtype)
        form = {name: (v.shape, safetensors_names[v.dtype]) for name, v in packed.items()}
        assert stored_form(shapes, dtype) == form


@pytest.mark.parametrize(("dtype", "largest"), [("float16", 65600), ("int8", 65600 * 127)])
def test_a_value_that_is_too_large_is_refused(dtype, largest):
    table = np.full((1, 2), largest, np.float32)
    weights = {EMBEDDINGS: table}
    with pytest.raises(UserError, match=r"'embeddings.*float16 ends at 65504.*float32"):
        pack(weights, dtype)
