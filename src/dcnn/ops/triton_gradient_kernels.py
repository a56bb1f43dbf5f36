"""The kernels of ``dcnn.ops.triton_backend`` on the way down; names as in ``triton_kernels``."""

import triton.language as tl

from dcnn.ops.triton_kernels import compiled


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
