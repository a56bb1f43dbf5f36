"""Every operator of the paper in plain numpy: the truth that the other backends are compared with.

Shapes are those of ``dcnn.ops``. ``dynamic_k`` is Eq. 4 (Sect. 3.3), for ints, numpy arrays and
torch tensors: the length is the sentence's own, never the padded width of its batch, and the
ceiling is taken in integers, since a floating-point quotient can land just above a whole number.
Where the paper is silent:

- a filter is applied as a dot product with the m-gram (Eq. 1 as written: a correlation);
- folding sums rows i and i + d/2, so that both halves are contiguous. Summing neighbours would be
  the same network with its embedding dimensions permuted;
- among equal values k-max keeps the leftmost; NaN ranks above all numbers, so that a broken network
  shows;
- columns past a sentence's length never enter a convolution and never win in pooling, and the
  output is zero past a sentence's own k: tanh(bias) there would leak into the next layer.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Number = TypeVar("Number", bound=np.floating[Any])
Lengths = TypeVar("Lengths", bound=Any)  # an integer, or an array or a tensor of them
Columns = TypeVar("Columns", bound=Any)  # a numpy array or a torch tensor


def dynamic_k(lengths: Lengths, layer: int, depth: int, k_top: int) -> Lengths:
    """Return k at ``layer`` (1 to ``depth``) for one sentence length or an array of them.

    ``native/kernels.h``, ``triton_kernels.gather`` and ``export`` compute the same.

    >>> [dynamic_k(18, layer, depth=3, k_top=3) for layer in (1, 2, 3)]
    [12, 6, 3]
    """
    ceiling: Any = -(lengths * (layer - depth) // depth)
    k: Any = max(k_top, ceiling) if isinstance(ceiling, int) else ceiling.clip(min=k_top)
    return cast("Lengths", k)


def wide_convolution(x: Array, filters: Array) -> Array:
    """Convolve every row with its filters and sum over the maps below (Eq. 1 and 7).

    (B, n, d, s), (o, n, d, m) -> (B, o, d, s + m - 1): at column t the dot product with the m-gram
    that ends at word t; words outside the sentence are zero.
    """
    sentences, _, rows, length = x.shape
    maps, _, _, width = filters.shape
    c = np.zeros((sentences, maps, rows, length + width - 1), np.result_type(x, filters))
    for i in range(width):  # weight i meets word t at column t + m - 1 - i
        start = width - 1 - i
        c[..., start : start + length] += np.einsum("bnds,ond->bods", x, filters[..., i])
    return c


def narrow_convolution(x: Array, filters: Array) -> Array:
    """The columns of the wide convolution whose m-gram lies inside the sentence: s - m + 1."""
    length, width = x.shape[-1], filters.shape[-1]
    if length < width:
        raise ValueError(f"a narrow convolution of width {width} needs {width} words; got {length}")
    return wide_convolution(x, filters)[..., width - 1 : length]


def wide_convolution_fft(x: Array, filters: Array) -> Array:
    """The wide convolution by the convolution theorem (Sect. 5.1); same result, other cost."""
    columns = x.shape[-1] + filters.shape[-1] - 1
    # A correlation is a convolution with the filter turned around.
    spectrum = np.einsum(
        "bndf,ondf->bodf", np.fft.rfft(x, columns), np.fft.rfft(filters[..., ::-1], columns)
    )
    return np.fft.irfft(spectrum, columns).astype(np.result_type(x, filters), copy=False)


def fold(c: Columns) -> Columns:
    """Sum rows in pairs, i and i + d/2 (Sect. 3.6): (..., d, w) -> (..., d/2, w)."""
    half, odd = divmod(c.shape[-2], 2)
    if odd:
        raise ValueError(f"{c.shape[-2]} rows cannot be folded in pairs")
    folded: Columns = c[..., :half, :] + c[..., half:, :]
    return folded


def k_max(c: Array, lengths: Array, k: Array, width: int | None = None) -> tuple[Array, Array]:
    """Keep the k largest values of each row in their original order (Sect. 3.2).

    ``c`` is (B, ..., w); each sentence has its own length in ``lengths`` (B,) and its own k in
    ``k`` (B,), 1 <= k <= length. Returns values and positions (B, ..., K), where K is ``width`` or
    by default the largest k; past a sentence's own k they are 0 and -1.
    """
    if np.any(k < 1) or np.any(k > lengths):
        raise ValueError(f"k={k} must lie between 1 and the lengths {lengths}")
    columns = c.shape[-1]
    per_sentence = (-1,) + (1,) * (c.ndim - 1)
    lengths, k = lengths.reshape(per_sentence), k.reshape(per_sentence)
    width = int(k.max()) if width is None else width
    if width < k.max():
        raise ValueError(f"width={width} is below the largest k, {k.max()}")

    exists = np.arange(columns) < lengths
    order = np.argsort(np.where(exists, -c, np.inf), axis=-1, kind="stable")
    if np.isnan(c).any():  # argsort puts NaN last, behind columns that do not exist
        number = ~np.isnan(c)
        order = np.lexsort((-c, number, np.broadcast_to(~exists, c.shape)), axis=-1)
    order = order[..., :width]
    kept = np.arange(order.shape[-1]) < k
    positions = np.sort(np.where(kept, order, columns), axis=-1)  # those beyond k go last

    values = np.take_along_axis(c, np.minimum(positions, columns - 1), axis=-1)
    values, positions = np.where(kept, values, 0), np.where(kept, positions, -1)
    missing = [(0, 0)] * (c.ndim - 1) + [(0, width - order.shape[-1])]
    return (
        np.pad(values, missing).astype(c.dtype, copy=False),
        np.pad(positions, missing, constant_values=-1),
    )


class LayerPass(NamedTuple):
    """What a layer computed."""

    values: Array  # (B, o, d', K) tanh of the pooled values plus the bias; 0 past a sentence's k
    positions: Array  # (B, o, d', K) columns of the pooled values, ascending; -1 past k
    pooled: Array  # (B, o, d', K) the k largest values of each row; 0 past k
    convolution: Array  # (B, o, d', s + m - 1), after folding


def layer_pass(
    x: Array,
    lengths: Array,
    filters: Array,
    bias: Array,
    k: Array,
    fold_rows: bool,
    width: int | None = None,
) -> LayerPass:
    """Wide convolution, folding, dynamic k-max pooling, bias and tanh, with all steps kept."""
    words = np.arange(x.shape[-1]) < lengths[:, None, None, None]
    c = wide_convolution(np.where(words, x, 0), filters)  # (B, o, d, s + m - 1)
    if fold_rows:
        c = fold(c)  # (B, o, d/2, s + m - 1)
    pooled, positions = k_max(c, lengths + filters.shape[-1] - 1, k, width)  # (B, o, d', K)
    values = np.tanh(pooled + bias[:, :, None])
    values = np.where(positions >= 0, values, 0).astype(pooled.dtype, copy=False)
    return LayerPass(values, positions, pooled, c)


def layer(*arguments: Any, **options: Any) -> tuple[Array, Array]:
    """Values and positions of ``layer_pass``: the layer of ``dcnn.ops``."""
    return layer_pass(*arguments, **options)[:2]


def forward(
    x: Array, lengths: Array, layers: Sequence[tuple[Array, Array]], fold_rows: bool, k_top: int
) -> list[LayerPass]:
    """All layers of a DCNN (Fig. 3), from the lowest to the topmost.

    ``x`` are sentence matrices (B, 1, d, s), ``layers`` the filters and bias of each layer.
    """
    passes: list[LayerPass] = []
    valid = lengths
    for number, (filters, bias) in enumerate(layers, start=1):
        k = dynamic_k(lengths, number, len(layers), k_top)
        passes.append(layer_pass(x, valid, filters, bias, k, fold_rows))
        x, valid = passes[-1].values, k
    return passes


def softmax(logits: NDArray[Number]) -> NDArray[Number]:
    """Probabilities along the last axis, which sum to 1: the head of a single-label model."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities: NDArray[Number] = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probabilities


def sigmoid(logits: NDArray[Number]) -> NDArray[Number]:
    """A probability per label, without overflow: the head of a multi-label model."""
    small = np.exp(-np.abs(logits))  # in (0, 1]
    probabilities: NDArray[Number] = np.where(logits >= 0, np.ones_like(small), small) / (1 + small)
    return probabilities


def compose(ids: Array, bags: tuple[Array, Array], embeddings: Array, ngrams: Array) -> Array:
    """Vectors (ids, d) of words with character n-grams.

    A vector is the word's row of ``embeddings``, or row 0 if its id lies beyond them, plus
    1/sqrt(n) times the sum of its n rows of ``ngrams``. ``bags`` has offsets and buckets; the rows
    of word i are ``buckets[offsets[i]:offsets[i + 1]]``.
    """
    offsets, buckets = bags
    vectors = embeddings[np.where(ids < len(embeddings), ids, 0)]
    for vector, word in zip(vectors, ids.tolist(), strict=True):
        own = buckets[offsets[word] : offsets[word + 1]]
        if len(own):
            vector += ngrams[own].sum(axis=0) / np.sqrt(vector.dtype.type(len(own)))
    return vectors
