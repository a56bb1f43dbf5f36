"""The reference operators against definitions written out as plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.ops import reference


def by_definition(x, filters):
    """Eq. 1 and Eq. 7, one number at a time."""
    sentences, maps_below, rows, length = x.shape
    maps, _, _, width = filters.shape
    c = np.zeros((sentences, maps, rows, length + width - 1))
    for b, o, r, t in np.ndindex(*c.shape):
        for n in range(maps_below):
            for i in range(width):
                word = t - width + 1 + i
                if 0 <= word < length:
                    c[b, o, r, t] += filters[o, n, r, i] * x[b, n, r, word]
    return c


def brute_force_k_max(row, k):
    """The k largest in their order; among equals the leftmost."""
    ranked = sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]
    return sorted(ranked)


shapes = st.tuples(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.integers(1, 3)
)


@given(shapes, st.integers(1, 7), st.integers(0, 999))
def test_wide_convolution_is_equation_1_summed_over_maps(shape, width, seed):
    sentences, maps_below, rows, length, maps = shape
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(sentences, maps_below, rows, length))
    filters = generator.normal(size=(maps, maps_below, rows, width))
    expected = by_definition(x, filters)
    np.testing.assert_allclose(reference.wide_convolution(x, filters), expected, atol=1e-12)
    np.testing.assert_allclose(reference.wide_convolution_fft(x, filters), expected, atol=1e-12)


@given(shapes, st.integers(1, 7), st.integers(0, 999))
def test_narrow_convolution_is_a_slice_of_the_wide_one(shape, width, seed):
    sentences, maps_below, rows, length, maps = shape
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(sentences, maps_below, rows, length))
    filters = generator.normal(size=(maps, maps_below, rows, width))
    if length < width:
        with pytest.raises(ValueError, match=f"width {width} needs {width} words; got {length}"):
            reference.narrow_convolution(x, filters)
        return
    narrow = reference.narrow_convolution(x, filters)
    assert narrow.shape[-1] == length - width + 1
    np.testing.assert_allclose(
        narrow[..., 0], np.einsum("bnrs,onrs->bor", x[..., :width], filters), atol=1e-12
    )
    wide = reference.wide_convolution(x, filters)
    np.testing.assert_array_equal(narrow, wide[..., width - 1 : length])


def test_a_filter_is_not_turned_around():
    x = np.array([1.0, 0, 0]).reshape(1, 1, 1, 3)
    filters = np.array([10.0, 20, 30]).reshape(1, 1, 1, 3)
    # The last weight meets the word at the end of its m-gram.
    assert reference.wide_convolution(x, filters).ravel().tolist() == [30, 20, 10, 0, 0]


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 7), st.integers(0, 999))
def test_without_pooling_a_column_is_the_matrix_of_diagonals_times_an_m_gram(
    rows, length, width, seed
):
    """Eq. 5 and 6: a = g(M [w_j; ...; w_{j+m-1}] + b)."""
    generator = np.random.default_rng(seed)
    words = generator.normal(size=(rows, length))
    filters = generator.normal(size=(rows, width))
    bias = generator.normal(size=rows)
    diagonals = np.hstack([np.diag(column) for column in filters.T])  # M: (d, d m)
    outside = np.zeros((rows, width - 1))
    padded = np.hstack([outside, words, outside])
    columns = length + width - 1
    everything = np.array([columns])  # k as large as a row keeps every column
    values, _ = reference.layer(
        words[None, None],
        np.array([length]),
        filters[None, None],
        bias[None],
        everything,
        fold_rows=False,
    )
    for j in range(columns):
        m_gram = padded[:, j : j + width].T.ravel()  # one word above the other
        expected = np.tanh(diagonals @ m_gram + bias)
        np.testing.assert_allclose(values[0, 0, :, j], expected, atol=1e-12)


def test_folding_sums_a_row_with_the_one_half_the_rows_away():
    c = np.arange(12.0).reshape(1, 1, 4, 3)
    assert reference.fold(c).tolist() == [[[[6, 8, 10], [12, 14, 16]]]]


@given(
    st.lists(st.lists(st.integers(-2, 2), min_size=1, max_size=12), min_size=1, max_size=4),
    st.data(),
)
def test_k_max_is_brute_force_with_ties_and_padding(rows, data):
    lengths = np.array([len(row) for row in rows])
    k = np.array([data.draw(st.integers(1, len(row))) for row in rows])
    extra = data.draw(st.integers(0, 3))
    columns = max(lengths) + extra
    c = np.full((len(rows), 1, columns), 9.0)  # what stands in the padding must not win
    for i, row in enumerate(rows):
        c[i, 0, : len(row)] = row
    values, positions = reference.k_max(c, lengths, k, width=int(k.max()) + extra)
    for i, row in enumerate(rows):
        expected = brute_force_k_max(row, k[i])
        assert positions[i, 0].tolist() == expected + [-1] * (k.max() + extra - k[i])
        assert values[i, 0, : k[i]].tolist() == [row[p] for p in expected]
        assert not values[i, 0, k[i] :].any()


def test_k_max_refuses_a_k_that_no_row_can_fill():
    with pytest.raises(ValueError, match="must lie between 1 and the lengths"):
        reference.k_max(np.zeros((1, 2, 3)), np.array([3]), np.array([4]))


def test_k_max_refuses_a_result_narrower_than_k():
    with pytest.raises(ValueError, match="width=1 is below the largest k, 2"):
        reference.k_max(np.zeros((2, 2, 3)), np.array([3, 3]), np.array([1, 2]), width=1)


def test_an_odd_number_of_rows_cannot_be_folded():
    with pytest.raises(ValueError, match="3 rows cannot be folded in pairs"):
        reference.fold(np.zeros((1, 1, 3, 2)))


def test_what_lies_past_k_is_zero_and_not_tanh_of_the_bias():
    x = np.ones((2, 1, 2, 5))
    filters = np.ones((1, 1, 2, 2))
    bias = np.full((1, 1), 0.7)
    values, positions = reference.layer(
        x, np.array([5, 1]), filters, bias, np.array([4, 2]), fold_rows=True
    )
    assert (values[1, 0, 0, 2:] == 0).all()
    assert (positions[1, 0, 0] == [0, 1, -1, -1]).all()
    np.testing.assert_allclose(values[1, 0, 0, :2], np.tanh(2 + 0.7))


def test_float32_stays_float32():
    x = np.ones((1, 1, 2, 3), np.float32)
    filters = np.ones((1, 1, 2, 2), np.float32)
    bias = np.ones((1, 1), np.float32)
    values, _ = reference.layer(x, np.array([3]), filters, bias, np.array([2]), fold_rows=True)
    assert values.dtype == np.float32
    assert reference.wide_convolution_fft(x, filters).dtype == np.float32
