"""The kernels of ``dcnn.ops.triton_backend``, which says how they fit together.

Names in capitals are known at compile time. A lane is one row of one map of one sentence, and one
thread computes it; a column is a place in the convolution, a place one in its input; ``m`` is the
width of the filters. Everywhere the rows of a map lie side by side, so that neighbouring lanes read
neighbouring numbers: inputs are (sentences, maps, places, rows), filters (runs, maps, maps below,
m, rows below).

Columns are taken a tile at a time. A tile is a tuple of vectors, one element of each a lane, which
the compiler keeps in registers: every number that is read takes part in up to m sums. Lengths
change from batch to batch and make few new kernels: what is in capitals does, and of that only the
tile and the sorting network follow the length.
"""

import triton
import triton.language as tl

_SIZES = ("lanes", "longest", "width", "columns", "per_run", "parts", "count")


def compiled(function):
    """``triton.jit`` that makes few variants: sizes that change from batch to batch make none."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return triton.jit(function, do_not_specialize=[name for name in _SIZES if name in names])


@compiled
def convolve(
    x,
    lengths,
    filters,
    c,
    lanes,
    longest,
    columns,
    per_run,
    MAPS_BELOW: tl.constexpr,
    ROWS_BELOW: tl.constexpr,
    MAPS: tl.constexpr,
    ROWS: tl.constexpr,
    M: tl.constexpr,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
):
    """The wide convolution of one map: a sum over all maps below and, where rows fold, of pairs."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    out_map = tl.program_id(1)
    row, sentence = lane % ROWS, (lane // ROWS).to(tl.int64)
    # Past the last lane a sentence has no columns at all.
    length = tl.load(lengths + sentence, mask=lane < lanes, other=1 - M).to(tl.int32)
    x += sentence * (MAPS_BELOW * longest * ROWS_BELOW) + row
    filters += ((sentence // per_run) * MAPS + out_map) * (MAPS_BELOW * M * ROWS_BELOW) + row
    c += (sentence * MAPS + out_map) * columns * ROWS + row

    FOLDED: tl.constexpr = ROWS_BELOW // ROWS
    for first in range(0, columns, TILE):
        start = first + tl.zeros((LANES,), tl.int32)
        sums = ()
        for _ in tl.static_range(TILE):
            sums = sums + (tl.zeros((LANES,), tl.float32),)
        for plane in range(MAPS_BELOW * FOLDED):
            below, half = plane // FOLDED, plane % FOLDED * ROWS
            weights = ()
            for j in tl.static_range(M):
                at = (below * M + j) * ROWS_BELOW + half
                weights = weights + (tl.load(filters + at, mask=lane < lanes, other=0.0),)
            window = ()
            for i in tl.static_range(TILE + M - 1):
                place = start + (i - (M - 1))
                at = (below * longest + place) * ROWS_BELOW + half
                inside = (place >= 0) & (place < length)
                window = window + (tl.load(x + at, mask=inside, other=0.0),)
            added = ()
            for i in tl.static_range(TILE):
                total = sums[i]
                for j in tl.static_range(M):
                    total += weights[j] * window[i + j]
                added = added + (total,)
            sums = added
        for i in tl.static_range(TILE):
            inside = start + i < tl.minimum(length + (M - 1), columns)
            tl.store(c + (start + i) * ROWS, sums[i], mask=inside)


@triton.jit
def _ranked(value):
    """What pooling goes by: what is not a number comes first, so that a broken network shows."""
    return tl.where(value != value, float("inf"), value)


@triton.jit
def _keep(c, bias, values, positions, is_lane, last, threshold, ties, width, ROWS: tl.constexpr):
    """Write the values above the threshold and the leftmost ``ties`` that equal it, in order.

    The pointers are those of a lane's first value.
    """
    taken = tl.zeros_like(last)
    for column in range(tl.max(last, axis=0)):
        value = tl.load(c + column * ROWS, mask=column < last, other=float("-inf"))
        ranked = _ranked(value)
        equal = ranked == threshold
        kept = (column < last) & ((ranked > threshold) | (equal & (ties > 0))) & (taken < width)
        ties -= equal.to(tl.int32)
        value = 2 * tl.sigmoid(2 * (value + bias)) - 1  # tanh
        tl.store(values + taken * ROWS, value, mask=kept)
        tl.store(positions + taken * ROWS, column, mask=kept)
        taken += kept.to(tl.int32)
    for slot in range(tl.min(tl.where(is_lane, taken, width), axis=0), width):
        free = is_lane & (slot >= taken)
        tl.store(values + slot * ROWS, 0.0, mask=free)
        tl.store(positions + slot * ROWS, -1, mask=free)


@compiled
def select(
    c,
    lengths,
    ks,
    bias,
    values,
    positions,
    lanes,
    width,
    columns,
    per_run,
    MAPS: tl.constexpr,
    ROWS: tl.constexpr,
    M: tl.constexpr,
    PARTNERS: tl.constexpr,
    LANES: tl.constexpr,
):
    """k-max pooling, bias and tanh of rows of few columns, which are sorted in registers.

    ``PARTNERS`` is a sorting network: at each stage a column and its partner change places if the
    left one is smaller.
    """
    COLUMNS: tl.constexpr = len(PARTNERS[0])
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    is_lane = lane < lanes
    row, plane = lane % ROWS, (lane // ROWS).to(tl.int64)
    sentence = plane // MAPS
    last = tl.load(lengths + sentence, mask=is_lane, other=1 - M).to(tl.int32) + (M - 1)
    k = tl.load(ks + sentence, mask=is_lane, other=1).to(tl.int32)
    c += plane * columns * ROWS + row

    ordered = ()
    for column in tl.static_range(COLUMNS):
        value = tl.load(c + column * ROWS, mask=column < last, other=float("-inf"))
        ordered = ordered + (_ranked(value),)
    ahead = tl.zeros((LANES,), tl.int32)
    unordered = ordered
    for stage in tl.static_range(len(PARTNERS)):
        following = ()
        for i in tl.static_range(COLUMNS):
            if PARTNERS[stage][i] == i:
                following = following + (ordered[i],)
            elif PARTNERS[stage][i] > i:
                following = following + (tl.maximum(ordered[i], ordered[PARTNERS[stage][i]]),)
            else:
                following = following + (tl.minimum(ordered[i], ordered[PARTNERS[stage][i]]),)
        ordered = following
    threshold = ordered[0]  # the k-th largest
    for i in tl.static_range(1, COLUMNS):
        threshold = tl.where(i < k, ordered[i], threshold)
    for column in tl.static_range(COLUMNS):
        ahead += (unordered[column] > threshold).to(tl.int32)

    shift = ((sentence // per_run) * MAPS + plane % MAPS) * ROWS + row
    z = tl.load(bias + shift, mask=is_lane, other=0.0)
    out = plane * width * ROWS + row
    _keep(c, z, values + out, positions + out, is_lane, last, threshold, k - ahead, width, ROWS)


@triton.jit
def _key(value):
    """An integer that is ordered as the value is; the two zeros are one."""
    bits = tl.where(value == 0, 0.0, _ranked(value)).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@compiled
def select_among_many(
    c,
    lengths,
    ks,
    bias,
    values,
    positions,
    lanes,
    width,
    columns,
    per_run,
    MAPS: tl.constexpr,
    ROWS: tl.constexpr,
    M: tl.constexpr,
    LANES: tl.constexpr,
):
    """As ``select``, for any number of columns: the k-th largest is found bit by bit."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    is_lane = lane < lanes
    row, plane = lane % ROWS, (lane // ROWS).to(tl.int64)
    sentence = plane // MAPS
    last = tl.load(lengths + sentence, mask=is_lane, other=1 - M).to(tl.int32) + (M - 1)
    k = tl.load(ks + sentence, mask=is_lane, other=1).to(tl.int32)
    c += plane * columns * ROWS + row

    key = tl.full((LANES,), -0x80000000, tl.int64)  # the largest that k values reach
    step = tl.full((LANES,), 0x80000000, tl.int64)
    for _ in range(32):
        higher = key + step
        reach = tl.zeros((LANES,), tl.int32)
        for column in range(columns):
            value = tl.load(c + column * ROWS, mask=column < last, other=float("-inf"))
            reach += ((column < last) & (_key(value) >= higher)).to(tl.int32)
        key = tl.where(reach >= k, higher, key)
        step //= 2
    ahead = tl.zeros((LANES,), tl.int32)
    for column in range(columns):
        value = tl.load(c + column * ROWS, mask=column < last, other=float("-inf"))
        ahead += ((column < last) & (_key(value) > key)).to(tl.int32)
    bits = tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.int32)
    threshold = bits.to(tl.float32, bitcast=True)

    shift = ((sentence // per_run) * MAPS + plane % MAPS) * ROWS + row
    z = tl.load(bias + shift, mask=is_lane, other=0.0)
    out = plane * width * ROWS + row
    _keep(c, z, values + out, positions + out, is_lane, last, threshold, k - ahead, width, ROWS)
