"""The kernels of ``dcnn.ops.triton_backend``, which says how they fit together.

Names in capitals are known at compile time. A lane is one row of one map of one sentence, and one
thread computes it; a column is a place in the convolution, a place one in its input; ``m`` is the
width of the filters. Everywhere the rows of a map lie side by side, so that neighbouring lanes read
neighbouring numbers: inputs are (sentences, maps, places, rows), filters (runs, maps, maps below,
m, rows below).

Columns are taken a tile at a time. A tile is a tuple of vectors, with one element per lane, which
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


@compiled
def convolution_gradient(
    gradient_values,
    values,
    positions,
    gradient_c,
    lanes,
    width,
    columns,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Through tanh, each value's gradient to its column, and zero to the others."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    is_lane = lane < lanes
    row, plane = lane % ROWS, (lane // ROWS).to(tl.int64)
    gradient_c += plane * columns * ROWS + row
    kept_at = plane * width * ROWS + row
    for first in range(0, columns, TILE):
        start = first + tl.zeros((LANES,), tl.int32)
        gradients = ()
        for _ in tl.static_range(TILE):
            gradients = gradients + (tl.zeros((LANES,), tl.float32),)
        for slot in range(width):
            at = kept_at + slot * ROWS
            # Values past a sentence's k must not learn: they have no position.
            position = tl.load(positions + at, mask=is_lane, other=-1)
            value = tl.load(values + at, mask=is_lane, other=0.0)
            slope = tl.load(gradient_values + at, mask=is_lane, other=0.0) * (1 - value * value)
            met = ()
            for i in tl.static_range(TILE):
                met = met + (tl.where(position == start + i, slope, gradients[i]),)
            gradients = met
        for i in tl.static_range(TILE):
            inside = is_lane & (start + i < columns)
            tl.store(gradient_c + (start + i) * ROWS, gradients[i], mask=inside)


@compiled
def input_gradient(
    gradient_c,
    lengths,
    filters,
    gradient_x,
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
    """One map below: every map's gradient, filtered back. Folded rows share a gradient."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    below = tl.program_id(1)
    is_lane = lane < lanes
    row, sentence = lane % ROWS_BELOW, (lane // ROWS_BELOW).to(tl.int64)
    length = tl.load(lengths + sentence, mask=is_lane, other=0).to(tl.int32)
    gradient_c += sentence * (MAPS * columns * ROWS) + row % ROWS
    filters += ((sentence // per_run) * (MAPS * MAPS_BELOW) + below) * (M * ROWS_BELOW) + row
    gradient_x += (sentence * MAPS_BELOW + below) * longest * ROWS_BELOW + row

    for first in range(0, longest, TILE):
        start = first + tl.zeros((LANES,), tl.int32)
        sums = ()
        for _ in tl.static_range(TILE):
            sums = sums + (tl.zeros((LANES,), tl.float32),)
        for out_map in range(MAPS):
            weights = ()
            for j in tl.static_range(M):
                at = (out_map * MAPS_BELOW * M + j) * ROWS_BELOW
                weights = weights + (tl.load(filters + at, mask=is_lane, other=0.0),)
            window = ()
            for i in tl.static_range(TILE + M - 1):
                inside = is_lane & (start + i < columns)
                at = (out_map * columns + start + i) * ROWS
                window = window + (tl.load(gradient_c + at, mask=inside, other=0.0),)
            added = ()
            for i in tl.static_range(TILE):
                total = sums[i]
                for j in tl.static_range(M):
                    total += weights[j] * window[i + (M - 1 - j)]
                added = added + (total,)
            sums = added
        for i in tl.static_range(TILE):
            place = start + i
            total = tl.where(place < length, sums[i], 0.0)
            tl.store(gradient_x + place * ROWS_BELOW, total, mask=is_lane & (place < longest))


@compiled
def filter_gradient(
    x,
    gradient_c,
    lengths,
    sums_of_parts,
    longest,
    columns,
    per_run,
    parts,
    MAPS_BELOW: tl.constexpr,
    ROWS_BELOW: tl.constexpr,
    MAPS: tl.constexpr,
    ROWS: tl.constexpr,
    M: tl.constexpr,
    TILE: tl.constexpr,
    SENTENCES: tl.constexpr,
    LANES: tl.constexpr,
):
    """The filters from one map below to rows of all maps, over a part of the sentences of a run.

    A lane is a row of a map here, and one thread adds up all that the part has for its filter and,
    above the first map below, for the bias. A part's sums lie as ``add_parts`` reads them.
    """
    group = tl.program_id(0)
    below = tl.program_id(1)
    lane = tl.program_id(2) * LANES + tl.arange(0, LANES)
    is_lane = lane < MAPS * ROWS_BELOW
    out_map, row = lane // ROWS_BELOW, lane % ROWS_BELOW
    run, part = group // parts, group % parts
    first_sentence = run * per_run + part * SENTENCES
    count = tl.minimum(SENTENCES, per_run - part * SENTENCES)

    sums = ()
    for _ in tl.static_range(M):
        sums = sums + (tl.zeros((LANES,), tl.float32),)
    of_bias = tl.zeros((LANES,), tl.float32)
    for number in range(count):
        sentence = (first_sentence + number).to(tl.int64)
        length = tl.load(lengths + sentence).to(tl.int32)
        plane = x + (sentence * MAPS_BELOW + below) * longest * ROWS_BELOW + row
        gradients_of = gradient_c + (sentence * MAPS + out_map) * columns * ROWS + row % ROWS
        for first in range(0, length + (M - 1), TILE):
            start = first + tl.zeros((LANES,), tl.int32)
            gradients = ()
            for i in tl.static_range(TILE):
                inside = is_lane & (start + i < columns)
                at = (start + i) * ROWS
                gradients = gradients + (tl.load(gradients_of + at, mask=inside, other=0.0),)
            for i in tl.static_range(TILE):
                of_bias += gradients[i]
            window = ()
            for i in tl.static_range(TILE + M - 1):
                place = start + (i - (M - 1))
                inside = is_lane & (place >= 0) & (place < length)
                window = window + (tl.load(plane + place * ROWS_BELOW, mask=inside, other=0.0),)
            added = ()
            for j in tl.static_range(M):
                total = sums[j]
                for i in tl.static_range(TILE):
                    total += gradients[i] * window[i + j]
                added = added + (total,)
            sums = added
    FILTERS: tl.constexpr = MAPS * MAPS_BELOW * M * ROWS_BELOW
    part_sums = sums_of_parts + group.to(tl.int64) * (FILTERS + MAPS * ROWS)
    out = (out_map * MAPS_BELOW + below) * (M * ROWS_BELOW) + row
    for j in tl.static_range(M):
        tl.store(part_sums + out + j * ROWS_BELOW, sums[j], mask=is_lane)
    if below == 0:
        is_own = is_lane & (row < ROWS)  # folded rows share a bias
        tl.store(part_sums + FILTERS + out_map * ROWS + row, of_bias, mask=is_own)


@compiled
def add_parts(
    sums_of_parts,
    gradient_filters,
    gradient_bias,
    parts,
    ROWS_BELOW: tl.constexpr,
    M: tl.constexpr,
    FILTERS: tl.constexpr,
    BIASES: tl.constexpr,
    PARTS: tl.constexpr,
    LANES: tl.constexpr,
):
    """The gradients of one run's filters, turned to (maps, maps below, rows below, m), and bias."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    run = tl.program_id(1).to(tl.int64)
    is_filter, is_bias = lane < FILTERS, (lane >= FILTERS) & (lane < FILTERS + BIASES)
    sums = tl.zeros((PARTS, LANES), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)[:, None]
        inside = (part < parts) & (lane < FILTERS + BIASES)[None, :]
        at = (run * parts + part) * (FILTERS + BIASES) + lane[None, :]
        sums += tl.load(sums_of_parts + at, mask=inside, other=0.0)
    total = tl.sum(sums, axis=0)
    row, j, plane = lane % ROWS_BELOW, lane // ROWS_BELOW % M, lane // (ROWS_BELOW * M)
    turned = (plane * ROWS_BELOW + row) * M + j
    tl.store(gradient_filters + run * FILTERS + turned, total, mask=is_filter)
    tl.store(gradient_bias + run * BIASES + lane - FILTERS, total, mask=is_bias)


@compiled
def gather(
    ids,
    lengths,
    embeddings,
    x,
    ks,
    longest,
    per_run,
    vocabulary,
    count,
    DIM: tl.constexpr,
    DEPTH: tl.constexpr,
    K_TOP: tl.constexpr,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The sentence matrix of one sentence, (places, rows), and the k of each of its layers."""
    sentence = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + sentence).to(tl.int32)
    row = tl.arange(0, ROWS)[None, :]
    table = embeddings + (sentence // per_run) * vocabulary * DIM
    for start in range(0, length, PLACES):
        place = start + tl.arange(0, PLACES)
        inside = place < length
        word = tl.load(ids + sentence * longest + place, mask=inside, other=0).to(tl.int64)[:, None]
        inside = inside[:, None] & (row < DIM)
        values = tl.load(table + word * DIM + row, mask=inside)
        tl.store(x + (sentence * longest + place[:, None]) * DIM + row, values, mask=inside)
    for layer in tl.static_range(1, DEPTH + 1):  # Eq. 4, the ceiling in integers
        k = tl.maximum(((DEPTH - layer) * length + (DEPTH - 1)) // DEPTH, K_TOP)
        tl.store(ks + (layer - 1) * count + sentence, k)


@compiled
def scatter(
    ids,
    lengths,
    gradient_x,
    gradient_embeddings,
    longest,
    per_run,
    vocabulary,
    DIM: tl.constexpr,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Add the gradient of each word of a sentence to that of its embedding."""
    sentence = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + sentence).to(tl.int32)
    row = tl.arange(0, ROWS)[None, :]
    table = gradient_embeddings + (sentence // per_run) * vocabulary * DIM
    for start in range(0, length, PLACES):
        place = start + tl.arange(0, PLACES)
        inside = place < length
        word = tl.load(ids + sentence * longest + place, mask=inside, other=0).to(tl.int64)[:, None]
        inside = inside[:, None] & (row < DIM)
        at = (sentence * longest + place[:, None]) * DIM + row
        gradient = tl.load(gradient_x + at, mask=inside, other=0.0)
        tl.atomic_add(table + word * DIM + row, gradient, mask=inside, sem="relaxed")


@triton.jit
def _feature(number, ROWS: tl.constexpr, K: tl.constexpr):
    """Where a feature, counted by map, row and slot, lies among (maps, slots, rows)."""
    return (number // (ROWS * K) * K + number % K) * ROWS + number // K % ROWS


@compiled
def head(
    pooled,
    dropout,
    weight,
    bias,
    logits,
    per_run,
    MAPS: tl.constexpr,
    ROWS: tl.constexpr,
    K: tl.constexpr,
    CLASSES: tl.constexpr,
    DROPS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):
    """The logits of one sentence."""
    FEATURES: tl.constexpr = MAPS * ROWS * K
    sentence = tl.program_id(0).to(tl.int64)
    run = sentence // per_run
    label = tl.arange(0, WIDE)
    total = tl.zeros((WIDE, BLOCK), tl.float32)
    for start in range(0, FEATURES, BLOCK):
        number = start + tl.arange(0, BLOCK)
        inside = number < FEATURES
        at = sentence * FEATURES + _feature(number, ROWS, K)
        value = tl.load(pooled + at, mask=inside, other=0.0)
        if DROPS:
            value *= tl.load(dropout + sentence * FEATURES + number, mask=inside, other=0.0)
        of_class = (run * CLASSES + label[:, None]) * FEATURES + number[None, :]
        both = (label < CLASSES)[:, None] & inside[None, :]
        total += value[None, :] * tl.load(weight + of_class, mask=both, other=0.0)
    shift = tl.load(bias + run * CLASSES + label, mask=label < CLASSES, other=0.0)
    out = logits + sentence * CLASSES + label
    tl.store(out, tl.sum(total, axis=1) + shift, mask=label < CLASSES)


@compiled
def head_gradient(
    gradient_logits,
    pooled,
    dropout,
    weight,
    gradient_pooled,
    gradient_weight,
    gradient_bias,
    per_run,
    parts,
    MAPS: tl.constexpr,
    ROWS: tl.constexpr,
    K: tl.constexpr,
    CLASSES: tl.constexpr,
    DROPS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
    SENTENCES: tl.constexpr,
):
    """A block of features over a part of the sentences of a run."""
    FEATURES: tl.constexpr = MAPS * ROWS * K
    group = tl.program_id(0)
    run, part = group // parts, group % parts
    number = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = number < FEATURES
    label = tl.arange(0, WIDE)
    both = (label < CLASSES)[:, None] & inside[None, :]
    of_class = (run * CLASSES + label[:, None]) * FEATURES + number[None, :]
    weights = tl.load(weight + of_class, mask=both, other=0.0)
    total = tl.zeros((WIDE, BLOCK), tl.float32)
    of_bias = tl.zeros((WIDE,), tl.float32)
    for offset in range(tl.minimum(SENTENCES, per_run - part * SENTENCES)):
        sentence = (run * per_run + part * SENTENCES + offset).to(tl.int64)
        logit = gradient_logits + sentence * CLASSES + label
        gradient = tl.load(logit, mask=label < CLASSES, other=0.0)
        of_bias += gradient
        of_value = tl.sum(gradient[:, None] * weights, axis=0)
        at = sentence * FEATURES + _feature(number, ROWS, K)
        value = tl.load(pooled + at, mask=inside, other=0.0)
        if DROPS:
            mask = tl.load(dropout + sentence * FEATURES + number, mask=inside, other=0.0)
            value, of_value = value * mask, of_value * mask
        tl.store(gradient_pooled + at, of_value, mask=inside)
        total += gradient[:, None] * value[None, :]
    of_class = (group * CLASSES + label[:, None]) * FEATURES + number[None, :]
    tl.store(gradient_weight + of_class, total, mask=both)
    if tl.program_id(1) == 0:
        tl.store(gradient_bias + group * CLASSES + label, of_bias, mask=label < CLASSES)
