"""The kernels of ``dcnn.ops.triton_backend``, which says how they fit together.

Names in capitals are known at compile time. A column is a place in the convolution, a place one in
its input; ``m`` is the width of the filters.

Sizes change from batch to batch, and a kernel compiled anew for each of them would cost more than
it gains: only what is in capitals, and whether a stride is one, makes another kernel.
"""

import triton
import triton.language as tl

_SIZES = ("rows_below", "rows", "width", "columns", "length_below", "per_run", "parts", "count")
_STRIDES = ("stride_sentence", "stride_map", "stride_row", "stride_column")


def _compiled(function):
    """``triton.jit`` that makes few variants."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return triton.jit(
        function,
        do_not_specialize=[name for name in _SIZES if name in names],
        do_not_specialize_on_alignment=[name for name in _STRIDES if name in names],
    )


@_compiled
def forward(
    x,
    lengths,
    filters,
    bias,
    ks,
    values,
    positions,
    rows_below,
    rows,
    width,
    per_run,
    stride_sentence,
    stride_map,
    stride_row,
    stride_column,
    maps_below: tl.constexpr,
    maps: tl.constexpr,
    M: tl.constexpr,
    FOLD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """A few rows of one map of one sentence, from the input to the pooled values."""
    sentence = tl.program_id(0).to(tl.int64)
    out_map = tl.program_id(1)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    column = tl.arange(0, COLUMNS)
    length = tl.load(lengths + sentence).to(tl.int32)
    k = tl.load(ks + sentence).to(tl.int32)
    run = sentence // per_run

    c = tl.zeros((ROWS, COLUMNS), tl.float32)
    for in_map in range(maps_below):
        plane = x + sentence * stride_sentence + in_map * stride_map
        kernel = filters + ((run * maps + out_map) * maps_below + in_map) * rows_below * M
        for j in tl.static_range(M):
            place = column + j - (M - 1)
            inside = is_row[:, None] & ((place >= 0) & (place < length))[None, :]
            at = row[:, None] * stride_row + place[None, :] * stride_column
            weight = tl.load(kernel + row * M + j, mask=is_row, other=0.0)
            c += weight[:, None] * tl.load(plane + at, mask=inside, other=0.0)
            if FOLD:
                at += rows * stride_row
                weight = tl.load(kernel + (row + rows) * M + j, mask=is_row, other=0.0)
                c += weight[:, None] * tl.load(plane + at, mask=inside, other=0.0)

    valid = (column < length + M - 1)[None, :]
    c = tl.where(valid, c, float("-inf"))
    mine, other = c[:, :, None], c[:, None, :]
    further_left = (column[None, :] < column[:, None])[None, :, :]
    ahead = (other > mine) | ((other == mine) & further_left)
    rank = tl.sum(ahead.to(tl.int32), axis=2)
    kept = (rank < k) & valid & is_row[:, None]
    slot = tl.cumsum(kept.to(tl.int32), axis=1) - 1
    kept = kept & (slot < width)  # NaN has no rank; a run that diverged must not reach the others

    shift = tl.load(bias + (run * maps + out_map) * rows + row, mask=is_row, other=0.0)
    value = 2 * tl.sigmoid(2 * (c + shift[:, None])) - 1  # tanh
    out = ((sentence * maps + out_map) * rows + row) * width
    tl.store(values + out[:, None] + slot, value, mask=kept)
    tl.store(positions + out[:, None] + slot, column[None, :] + 0 * slot, mask=kept)
    slots = tl.arange(0, SLOTS)
    taken = tl.sum(kept.to(tl.int32), axis=1)
    free = is_row[:, None] & (slots[None, :] >= taken[:, None]) & (slots < width)[None, :]
    tl.store(values + out[:, None] + slots[None, :], 0.0, mask=free)
    tl.store(positions + out[:, None] + slots[None, :], -1, mask=free)


@_compiled
def convolution_gradient(
    gradient_values,
    values,
    positions,
    gradient_c,
    gradient_bias,
    count,
    width,
    columns,
    ROWS: tl.constexpr,
    SLOTS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A few of all rows: through tanh, the sum for the bias, and each value to its column."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = (row < count)[:, None]
    slot = tl.arange(0, SLOTS)[None, :]
    at = row[:, None] * width + slot
    inside = is_row & (slot < width)
    position = tl.load(positions + at, mask=inside, other=-1)
    value = tl.load(values + at, mask=inside, other=0.0)
    slope = tl.load(gradient_values + at, mask=inside, other=0.0) * (1 - value * value)
    kept = position >= 0  # values past a sentence's k must not learn: they have no position
    tl.store(gradient_bias + row, tl.sum(tl.where(kept, slope, 0.0), axis=1), mask=row < count)
    column = tl.arange(0, COLUMNS)[None, :]
    out = gradient_c + row[:, None] * columns
    tl.store(out + column, tl.zeros((ROWS, COLUMNS), tl.float32), mask=is_row & (column < columns))
    tl.debug_barrier()  # the zeros of all threads come before the values of any
    tl.store(out + position, slope, mask=kept)


@_compiled
def input_gradient(
    gradient_c,
    lengths,
    filters,
    gradient_x,
    rows_below,
    rows,
    columns,
    per_run,
    stride_sentence,
    stride_map,
    stride_row,
    stride_column,
    length_below,
    maps_below: tl.constexpr,
    maps: tl.constexpr,
    M: tl.constexpr,
    ROWS: tl.constexpr,
    PLACES: tl.constexpr,
):
    """A few rows of one input map of one sentence: every output map's gradient, filtered back."""
    sentence = tl.program_id(0).to(tl.int64)
    in_map = tl.program_id(1)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows_below
    place = tl.arange(0, PLACES)
    length = tl.load(lengths + sentence).to(tl.int32)
    inside = is_row[:, None] & (place < length)[None, :]
    run = sentence // per_run

    total = tl.zeros((ROWS, PLACES), tl.float32)
    for out_map in range(maps):
        kernel = filters + ((run * maps + out_map) * maps_below + in_map) * rows_below * M
        plane = gradient_c + (sentence * maps + out_map) * rows * columns
        for j in tl.static_range(M):
            column = place + (M - 1) - j
            weight = tl.load(kernel + row * M + j, mask=is_row, other=0.0)
            at = (row % rows)[:, None] * columns + column[None, :]  # folded rows share a gradient
            total += weight[:, None] * tl.load(plane + at, mask=inside, other=0.0)
    out = gradient_x + sentence * stride_sentence + in_map * stride_map
    at = row[:, None] * stride_row + place[None, :] * stride_column
    tl.store(out + at, total, mask=is_row[:, None] & (place < length_below)[None, :])


@_compiled
def filter_gradient(
    x,
    gradient_c,
    lengths,
    gradient_filters,
    rows_below,
    rows,
    columns,
    per_run,
    parts,
    stride_sentence,
    stride_map,
    stride_row,
    stride_column,
    maps_below: tl.constexpr,
    maps: tl.constexpr,
    M: tl.constexpr,
    GRAM: tl.constexpr,
    COLUMNS: tl.constexpr,
    SENTENCES: tl.constexpr,
):
    """The filters from all input maps to one row of one output map, over a part of a run."""
    group = tl.program_id(0)  # a part of the sentences of a run
    out_map = tl.program_id(1)
    row = tl.program_id(2)
    run, part = group // parts, group % parts
    tap = tl.arange(0, GRAM)  # which input map, and which place in the m-gram
    in_map, j = tap // M, tap % M
    is_tap = tap < maps_below * M
    column = tl.arange(0, COLUMNS)
    place = column[None, :] + j[:, None] - (M - 1)

    total = tl.zeros((GRAM, COLUMNS), tl.float32)
    for offset in range(SENTENCES):
        number = part * SENTENCES + offset
        sentence = (run * per_run + tl.minimum(number, per_run - 1)).to(tl.int64)
        length = tl.load(lengths + sentence).to(tl.int32)
        length = tl.where(number < per_run, length, 0)
        at = (sentence * maps + out_map) * rows * columns + (row % rows) * columns + column
        gradient = tl.load(gradient_c + at, mask=column < columns, other=0.0)
        inside = is_tap[:, None] & (place >= 0) & (place < length)
        at_x = in_map[:, None] * stride_map + row * stride_row + place * stride_column
        grams = tl.load(x + sentence * stride_sentence + at_x, mask=inside, other=0.0)
        total += gradient[None, :] * grams
    at = ((group * maps + out_map) * maps_below + in_map) * rows_below * M + row * M + j
    tl.store(gradient_filters + at, tl.sum(total, axis=1), mask=is_tap)
