"""The kernels of ``dcnn.ops.triton_backend``, which says how they fit together.

Names in capitals are known at compile time. A lane is one row of one sentence, and one thread
computes it, for one or several maps; a column is a position in the convolution, a place a position
in its input; ``m`` is the filter width; ``of_x`` is the gradient of ``x``. Everywhere the rows of
a map lie side by side, so that neighbouring lanes read neighbouring numbers: inputs are (sentences,
maps, places, rows), filters (runs, maps, maps below, m, rows below).

Columns are taken a tile at a time. A tile is a tuple of vectors, with one element per lane, which
the compiler keeps in registers: every number that is read takes part in up to m sums of every map,
or of both rows that fold, that the thread computes. A kernel is compiled for every combination of
the values in capitals. Of these only the tile and the sorting network depend on the sentence
length, so lengths that change from batch to batch make few new kernels.

No convolution tests whether a place is inside its sentence. From one map of an input to the next
there are as many places as the convolution has columns in whole tiles (``stride``), with zeros from
the end of the sentence on, and as many zeros before the first map: a filter that begins before a
sentence, or ends after it, reads zeros. So does a tile that is longer than the gradient of a
convolution.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from triton.language import constexpr

_SIZES = (
    *("lanes", "longest", "width", "stride", "past", "per_run", "at_once", "parts"),
    "vocabulary",
)
_PER_SENTENCE = ("lengths", "ks")  # in upper layers, aligned only if the batch is a multiple of 4


class Layer(NamedTuple):
    """The sizes of a layer."""

    maps_below: int
    rows_below: int
    maps: int
    rows: int
    m: int
    block: int  # lanes per program, one in each of its threads


class Words(NamedTuple):
    """The sizes of the sentence matrix, and what decides k, given its length."""

    dim: int
    rows: int  # ``dim`` rounded up to a power of two
    places: int  # words that a program takes at once
    depth: int
    k_top: int


class Head(NamedTuple):
    """The sizes of the output layer."""

    maps: int
    rows: int
    k: int
    classes: int
    wide: int  # the power of two from ``classes`` on
    block: int  # features that a program takes at once
    drops: bool
    sentences: int = 1  # that a program of the gradient adds up


def compiled(function):
    """``triton.jit`` that makes few variants: what changes from batch to batch makes none."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return triton.jit(
        function,
        do_not_specialize=[name for name in _SIZES if name in names],
        do_not_specialize_on_alignment=[name for name in _PER_SENTENCE if name in names],
    )


@triton.jit
def _zeros(COUNT: constexpr, BLOCK: constexpr):
    tile = ()
    for _ in tl.static_range(COUNT):
        tile = tile + (tl.zeros((BLOCK,), tl.float32),)
    return tile


@triton.jit
def _read(data, start, ROWS: constexpr, COUNT: constexpr):
    """The tile of ``COUNT`` columns from ``start``."""
    data += start * ROWS
    tile = ()
    for i in tl.static_range(COUNT):
        tile = tile + (tl.load(data + i * ROWS),)
    return tile


@triton.jit
def _part(tile, START: constexpr, COUNT: constexpr):
    part = ()
    for i in tl.static_range(COUNT):
        part = part + (tile[START + i],)
    return part


@triton.jit
def _convolved(sums, weights, window, TURNED: constexpr):
    """``sums[i]`` plus the dot product of all weights, in reverse if TURNED, and window[i:]."""
    added = ()
    for i in tl.static_range(len(sums)):
        total = sums[i]
        for j in tl.static_range(len(weights)):
            if TURNED:
                total += weights[j] * window[i + (len(weights) - 1 - j)]
            else:
                total += weights[j] * window[i + j]
        added = added + (total,)
    return added


@compiled
def convolve(
    x, lengths, filters, c, lanes, longest, per_run, LAYER: constexpr, TILE: constexpr,
    MAPS: constexpr,
):  # fmt: skip
    """The wide convolution of MAPS maps: summed over all maps below and over rows that fold.

    Each number that is read is used for all of these maps.
    """
    ROWS_BELOW: constexpr = LAYER.rows_below
    ROWS: constexpr = LAYER.rows
    M: constexpr = LAYER.m
    lane = tl.program_id(0) * LAYER.block + tl.arange(0, LAYER.block)
    first_map = tl.program_id(1) * MAPS
    is_lane = lane < lanes
    lane = tl.minimum(lane, lanes - 1)  # those past the last read what it reads, and write nothing
    columns = longest + (M - 1)
    stride = tl.cdiv(columns, TILE) * TILE
    row, sentence = lane % ROWS, (lane // ROWS).to(tl.int64)
    length = tl.load(lengths + sentence).to(tl.int32)
    x += sentence * (LAYER.maps_below * stride * ROWS_BELOW) + row
    FILTERS: constexpr = LAYER.maps_below * M * ROWS_BELOW  # of a map
    filters += (sentence // per_run) * (LAYER.maps * FILTERS) + row
    c += (sentence * LAYER.maps + first_map) * columns * ROWS + row

    FOLDED: constexpr = ROWS_BELOW // ROWS
    for first in range(0, columns, TILE):
        sums = _zeros(MAPS * TILE, LAYER.block)
        for part in range(LAYER.maps_below * FOLDED):
            below, half = part // FOLDED, part % FOLDED * ROWS
            window_at = x + below * stride * ROWS_BELOW + half
            window = _read(window_at, first - (M - 1), ROWS_BELOW, TILE + M - 1)
            weights_at = filters + below * M * ROWS_BELOW + half
            added = ()
            for i in tl.static_range(MAPS):
                out_map = tl.minimum(first_map + i, LAYER.maps - 1)
                weights = _read(weights_at + out_map * FILTERS, 0, ROWS_BELOW, M)
                added = added + _convolved(_part(sums, i * TILE, TILE), weights, window, False)
            sums = added
        end = tl.where(is_lane, tl.minimum(length + (M - 1), columns) - first, 0)
        for i in tl.static_range(MAPS):
            end = tl.where(first_map + i < LAYER.maps, end, 0)
            for j in tl.static_range(TILE):
                tl.store(c + (i * columns + first + j) * ROWS, sums[i * TILE + j], mask=j < end)


@triton.jit
def _ranked(value):
    """The value that pooling compares: NaN comes first, so that a broken network shows."""
    largest = 3.4028234663852886e38  # of all finite numbers
    return tl.where(value != value, float("inf"), tl.minimum(value, largest))


@triton.jit
def _key(value):
    """An integer key in the order of the values; both zeros have the same key."""
    bits = tl.where(value == 0, 0.0, _ranked(value)).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _kept_by_sorting(c, last, k, ROWS: constexpr, PARTNERS: constexpr):
    """Which of up to 32 columns are the k largest, a bit for each; they are sorted in registers.

    ``PARTNERS`` is a sorting network: at each stage a column and its partner change places if the
    left one is smaller.
    """
    COLUMNS: constexpr = len(PARTNERS[0])
    unordered = ()
    for column in tl.static_range(COLUMNS):
        value = tl.load(c + column * ROWS, mask=column < last, other=float("-inf"))
        unordered = unordered + (_ranked(value),)
    ordered = unordered
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
    threshold = ordered[0]
    for i in tl.static_range(1, COLUMNS):
        threshold = tl.where(i < k, ordered[i], threshold)
    ties = k
    for column in tl.static_range(COLUMNS):
        ties -= (unordered[column] > threshold).to(tl.int32)
    kept = tl.zeros_like(last).to(tl.uint32)
    for column in tl.static_range(COLUMNS):
        equal = unordered[column] == threshold
        is_kept = (unordered[column] > threshold) | (equal & (ties > 0))
        kept |= is_kept.to(tl.uint32) << column
        ties -= equal.to(tl.int32)
    return kept


@triton.jit
def _reaching(c, last, key, columns, ROWS: constexpr):
    """How many columns have at least this key."""
    reaching = tl.zeros_like(last)
    for column in range(columns):
        value = tl.load(c + column * ROWS, mask=column < last, other=float("-inf"))
        reaching += ((column < last) & (_key(value) >= key)).to(tl.int32)
    return reaching


@triton.jit
def _threshold_by_search(c, last, k, columns, ROWS: constexpr):
    """The k-th largest of any number of columns, found bit by bit, and how many are larger."""
    key = tl.full(last.shape, -0x80000000, tl.int64)  # the largest that k values reach
    step = tl.full(last.shape, 0x80000000, tl.int64)
    for _ in range(32):
        key = tl.where(_reaching(c, last, key + step, columns, ROWS) >= k, key + step, key)
        step //= 2
    bits = tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.int32)
    return bits.to(tl.float32, bitcast=True), _reaching(c, last, key + 1, columns, ROWS)


@compiled
def select(
    c, lengths, ks, bias, values, positions, lanes, width, stride, longest, per_run,
    LAYER: constexpr, PARTNERS: constexpr,
):  # fmt: skip
    """k-max pooling, bias and tanh: the values above the k-th largest, and the leftmost equal.

    The values are the next layer's input, with zeros up to its ``stride`` and before the first map.
    """
    ROWS: constexpr = LAYER.rows
    lane = tl.program_id(0) * LAYER.block + tl.arange(0, LAYER.block)
    is_lane = lane < lanes
    columns = longest + (LAYER.m - 1)
    row, plane = lane % ROWS, (lane // ROWS).to(tl.int64)
    sentence = plane // LAYER.maps
    last = tl.load(lengths + sentence, mask=is_lane, other=1 - LAYER.m).to(tl.int32) + (LAYER.m - 1)
    k = tl.load(ks + sentence, mask=is_lane, other=1).to(tl.int32)
    c += plane * columns * ROWS + row
    shift = ((sentence // per_run) * LAYER.maps + plane % LAYER.maps) * ROWS + row
    z = tl.load(bias + shift, mask=is_lane, other=0.0)
    values += plane * stride * ROWS + row
    positions += plane * width * ROWS + row
    if len(PARTNERS) > 0:
        kept = _kept_by_sorting(c, last, k, ROWS, PARTNERS)
        for slot in range(width):
            taken = is_lane & (kept != 0)
            # The leftmost column that is left: the exponent of the lowest bit.
            lowest = (kept & (~kept + 1)).to(tl.float32)
            column = (lowest.to(tl.int32, bitcast=True) >> 23) - 127
            value = tl.load(c + column * ROWS, mask=taken, other=0.0)
            value = 2 * tl.sigmoid(2 * (value + z)) - 1  # tanh
            tl.store(values + slot * ROWS, tl.where(taken, value, 0.0), mask=is_lane)
            tl.store(positions + slot * ROWS, tl.where(taken, column, -1), mask=is_lane)
            kept &= kept - 1
    else:
        threshold, ahead = _threshold_by_search(c, last, k, columns, ROWS)
        ties = k - ahead
        count = tl.zeros_like(last)
        for column in range(tl.max(last, axis=0)):
            value = tl.load(c + column * ROWS, mask=column < last, other=float("-inf"))
            ranked = _ranked(value)
            equal = ranked == threshold
            taken = (column < last) & ((ranked > threshold) | (equal & (ties > 0)))
            taken &= count < width
            ties -= equal.to(tl.int32)
            value = 2 * tl.sigmoid(2 * (value + z)) - 1
            tl.store(values + count * ROWS, value, mask=taken)
            tl.store(positions + count * ROWS, column, mask=taken)
            count += taken.to(tl.int32)
        for slot in range(tl.min(tl.where(is_lane, count, width), axis=0), width):
            free = is_lane & (slot >= count)
            tl.store(values + slot * ROWS, 0.0, mask=free)
            tl.store(positions + slot * ROWS, -1, mask=free)
    for slot in range(width, stride):
        tl.store(values + slot * ROWS, 0.0, mask=is_lane)
    if tl.program_id(0) * LAYER.block < ROWS:
        for slot in range(width - stride, 0):
            tl.store(values + slot * ROWS, 0.0, mask=is_lane & (plane == 0))


@compiled
def convolution_gradient(
    of_values, values, positions, of_c, lanes, width, stride, longest, past, LAYER: constexpr,
    TILE: constexpr,
):  # fmt: skip
    """The gradient of the convolution: that of each pooled value, through tanh, at its column.

    All other columns of all tiles are zero, and so are ``past`` more behind the last map.
    ``stride`` is that of the values.
    """
    ROWS: constexpr = LAYER.rows
    lane = tl.program_id(0) * LAYER.block + tl.arange(0, LAYER.block)
    is_lane = lane < lanes
    columns = longest + (LAYER.m - 1)
    lane = tl.minimum(lane, lanes - 1)
    row, plane = lane % ROWS, (lane // ROWS).to(tl.int64)
    own = tl.cdiv(columns, TILE) * TILE
    of_c += plane * own * ROWS + row
    kept_at = plane * width * ROWS + row
    values += plane * stride * ROWS + row
    for first in range(0, columns, TILE):
        gradients = _zeros(TILE, LAYER.block)
        for slot in range(width):
            at = kept_at + slot * ROWS
            # Values past a sentence's k must not learn: they have no position.
            position = tl.load(positions + at) - first
            value = tl.load(values + slot * ROWS)
            slope = tl.load(of_values + at) * (1 - value * value)
            met = ()
            for i in tl.static_range(TILE):
                met = met + (tl.where(position == i, slope, gradients[i]),)
            gradients = met
        for i in tl.static_range(TILE):
            tl.store(of_c + (first + i) * ROWS, gradients[i], mask=is_lane)
    if (tl.program_id(0) + 1) * LAYER.block > lanes - ROWS:
        for column in range(own, own + past):
            tl.store(of_c + column * ROWS, 0.0, mask=is_lane & (lane >= lanes - ROWS))


@compiled
def input_gradient(
    of_c, lengths, filters, of_x, lanes, longest, stride, per_run, LAYER: constexpr,
    TILE: constexpr, HALVES: constexpr,
):  # fmt: skip
    """The gradient of HALVES halves of maps below, from the gradients of all maps.

    Rows that were folded share a gradient. ``stride`` is that of the convolution's gradient. The
    last tile may read past it, for places that are not written.
    """
    ROWS_BELOW: constexpr = LAYER.rows_below
    ROWS: constexpr = LAYER.rows
    M: constexpr = LAYER.m
    FOLDED: constexpr = ROWS_BELOW // ROWS
    lane = tl.program_id(0) * LAYER.block + tl.arange(0, LAYER.block)
    first_half = tl.program_id(1) * HALVES
    is_lane = lane < lanes
    lane = tl.minimum(lane, lanes - 1)
    row, sentence = lane % ROWS, (lane // ROWS).to(tl.int64)
    length = tl.load(lengths + sentence).to(tl.int32)
    of_c += sentence * (LAYER.maps * stride * ROWS) + row
    FILTERS: constexpr = M * ROWS_BELOW  # between one map and one below
    filters += (sentence // per_run) * (LAYER.maps * LAYER.maps_below * FILTERS) + row
    of_x += sentence * (LAYER.maps_below * longest * ROWS_BELOW) + row

    for first in range(0, longest, TILE):
        sums = _zeros(HALVES * TILE, LAYER.block)
        for out_map in range(LAYER.maps):
            window = _read(of_c + out_map * stride * ROWS, first, ROWS, TILE + M - 1)
            added = ()
            for i in tl.static_range(HALVES):
                half = tl.minimum(first_half + i, LAYER.maps_below * FOLDED - 1)
                plane = out_map * LAYER.maps_below + half // FOLDED
                weights_at = filters + plane * FILTERS + half % FOLDED * ROWS
                weights = _read(weights_at, 0, ROWS_BELOW, M)
                added = added + _convolved(_part(sums, i * TILE, TILE), weights, window, True)
            sums = added
        end = tl.where(is_lane, longest - first, 0)
        for i in tl.static_range(HALVES):
            half = first_half + i
            end = tl.where(half < LAYER.maps_below * FOLDED, end, 0)
            at = of_x + (half // FOLDED * longest + first) * ROWS_BELOW + half % FOLDED * ROWS
            for j in tl.static_range(TILE):
                total = tl.where(j < length - first, sums[i * TILE + j], 0.0)
                tl.store(at + j * ROWS_BELOW, total, mask=j < end)


@compiled
def filter_gradient(
    x, of_c, lengths, sums_of_parts, longest, per_run, at_once, LAYER: constexpr, TILE: constexpr
):
    """The gradients of all filters and biases, summed over a part of the sentences of a run.

    A lane is one row of one map and one map below it. Its thread adds up the gradient of the filter
    of that row, or of both rows that fold, and for the first map below that of the bias. The sums
    of a part are laid out as ``add_parts`` reads them.
    """
    ROWS_BELOW: constexpr = LAYER.rows_below
    ROWS: constexpr = LAYER.rows
    M: constexpr = LAYER.m
    FOLDED: constexpr = ROWS_BELOW // ROWS
    BLOCK: constexpr = LAYER.block  # a shape takes no field of a tuple
    group = tl.program_id(0)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    LANES: constexpr = LAYER.maps_below * LAYER.maps * ROWS
    is_lane = lane < LANES
    lane = tl.minimum(lane, LANES - 1)
    row, out_map = lane % ROWS, lane // ROWS % LAYER.maps
    below = lane // (ROWS * LAYER.maps)
    parts = tl.cdiv(per_run, at_once)
    run, part = group // parts, group % parts
    first_sentence = run * per_run + part * at_once
    stride = tl.cdiv(longest + (M - 1), TILE) * TILE

    sums = _zeros(FOLDED * M, BLOCK)
    of_bias = tl.zeros((BLOCK,), tl.float32)
    for number in range(tl.minimum(at_once, per_run - part * at_once)):
        sentence = (first_sentence + number).to(tl.int64)
        length = tl.load(lengths + sentence).to(tl.int32)
        plane = x + (sentence * LAYER.maps_below + below) * stride * ROWS_BELOW + row
        gradients_at = of_c + (sentence * LAYER.maps + out_map) * stride * ROWS + row
        for first in range(0, length + (M - 1), TILE):
            gradients = _read(gradients_at, first, ROWS, TILE)
            for i in tl.static_range(TILE):
                of_bias += gradients[i]
            added = ()
            for i in tl.static_range(FOLDED):
                window_at = plane + i * ROWS
                window = _read(window_at, first - (M - 1), ROWS_BELOW, TILE + M - 1)
                added = added + _convolved(_part(sums, i * M, M), gradients, window, False)
            sums = added
    FILTERS: constexpr = LAYER.maps * LAYER.maps_below * M * ROWS_BELOW
    part_sums = sums_of_parts + group.to(tl.int64) * (FILTERS + LAYER.maps * ROWS)
    out = (out_map * LAYER.maps_below + below) * (M * ROWS_BELOW) + row
    for i in tl.static_range(FOLDED):
        for j in tl.static_range(M):
            at = part_sums + out + j * ROWS_BELOW + i * ROWS
            tl.store(at, sums[i * M + j], mask=is_lane)
    is_first = is_lane & (below == 0)
    tl.store(part_sums + FILTERS + out_map * ROWS + row, of_bias, mask=is_first)


@compiled
def add_parts(
    sums_of_parts, of_filters, of_bias, parts, LAYER: constexpr, PARTS: constexpr, BLOCK: constexpr
):
    """The gradients of one run's filters, turned to (maps, maps below, rows below, m), and bias."""
    FILTERS: constexpr = LAYER.maps * LAYER.maps_below * LAYER.m * LAYER.rows_below
    BIASES: constexpr = LAYER.maps * LAYER.rows
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    run = tl.program_id(1).to(tl.int64)
    is_filter, is_bias = lane < FILTERS, (lane >= FILTERS) & (lane < FILTERS + BIASES)
    sums = tl.zeros((PARTS, BLOCK), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)[:, None]
        inside = (part < parts) & (lane < FILTERS + BIASES)[None, :]
        at = (run * parts + part) * (FILTERS + BIASES) + lane[None, :]
        sums += tl.load(sums_of_parts + at, mask=inside, other=0.0)
    total = tl.sum(sums, axis=0)
    row, plane = lane % LAYER.rows_below, lane // (LAYER.rows_below * LAYER.m)
    turned = (plane * LAYER.rows_below + row) * LAYER.m + lane // LAYER.rows_below % LAYER.m
    tl.store(of_filters + run * FILTERS + turned, total, mask=is_filter)
    tl.store(of_bias + run * BIASES + lane - FILTERS, total, mask=is_bias)


@triton.jit
def _words(ids, sentence, start, longest, length, vocabulary, WORDS: constexpr):
    """Some words of a sentence: the place of each, whether it has one, and its number."""
    place = start + tl.arange(0, WORDS.places)
    inside = (place >= 0) & (place < length)
    word = tl.load(ids + sentence * longest + place, mask=inside, other=0).to(tl.int64)
    # One that training never saw is the unknown word.
    return place[:, None], inside[:, None], tl.where(word < vocabulary, word, 0)[:, None]


@compiled
def gather(ids, lengths, embeddings, x, ks, longest, stride, per_run, vocabulary, WORDS: constexpr):
    """The sentence matrix of one sentence, (places, rows), and the k of each of its layers."""
    sentence = tl.program_id(0).to(tl.int64)
    run = sentence // per_run
    length = tl.load(lengths + sentence).to(tl.int32)
    row = tl.arange(0, WORDS.rows)[None, :]
    is_row = row < WORDS.dim
    # Before the first sentence there are as many zeros as after each.
    for start in range(tl.where(sentence == 0, longest - stride, 0), stride, WORDS.places):
        place, is_word, word = _words(ids, sentence, start, longest, length, vocabulary, WORDS)
        at = embeddings + (run * vocabulary + word) * WORDS.dim + row
        value = tl.load(at, mask=is_word & is_row, other=0.0)
        to = x + (sentence * stride + place) * WORDS.dim + row
        tl.store(to, value, mask=is_row & (place < stride))
    DEPTH: constexpr = WORDS.depth
    for layer in tl.static_range(1, DEPTH + 1):  # Eq. 4, the ceiling in integers
        k = tl.maximum(((DEPTH - layer) * length + (DEPTH - 1)) // DEPTH, WORDS.k_top)
        tl.store(ks + (layer - 1) * tl.num_programs(0) + sentence, k)


@compiled
def scatter(ids, lengths, of_x, of_embeddings, longest, per_run, vocabulary, WORDS: constexpr):
    """Add the gradient of each word of a sentence to that of its embedding."""
    sentence = tl.program_id(0).to(tl.int64)
    run = sentence // per_run
    length = tl.load(lengths + sentence).to(tl.int32)
    row = tl.arange(0, WORDS.rows)[None, :]
    for start in range(0, length, WORDS.places):
        place, is_word, word = _words(ids, sentence, start, longest, length, vocabulary, WORDS)
        inside = is_word & (row < WORDS.dim)
        at = of_x + (sentence * longest + place) * WORDS.dim + row
        gradient = tl.load(at, mask=inside, other=0.0)
        to = of_embeddings + (run * vocabulary + word) * WORDS.dim + row
        tl.atomic_add(to, gradient, mask=inside, sem="relaxed")


@triton.jit
def _bag(ids, lengths, offsets, longest):
    """The n-grams of one word: where they begin, how many, the word's place, its sentence."""
    place = tl.program_id(0).to(tl.int64)  # among those of all sentences, padding included
    word = tl.load(ids + place).to(tl.int64)
    first = tl.load(offsets + word)
    count = (tl.load(offsets + word + 1) - first).to(tl.int32)
    sentence = place // longest
    inside = place % longest < tl.load(lengths + sentence)
    return first, tl.where(inside, count, 0), place, sentence


@compiled
def gather_ngrams(
    ids, lengths, offsets, buckets, ngrams, x, longest, stride, per_run, n_ngrams, WORDS: constexpr
):
    """Add to one word of one sentence the vectors of its character n-grams, over sqrt(count)."""
    first, count, place, sentence = _bag(ids, lengths, offsets, longest)
    row, part = tl.arange(0, WORDS.rows), tl.arange(0, WORDS.places)
    ngrams += (sentence // per_run) * n_ngrams * WORDS.dim
    PLACES: constexpr = WORDS.places
    ROWS: constexpr = WORDS.rows
    total = tl.zeros((PLACES, ROWS), tl.float32)
    for start in range(0, count, PLACES):
        inside = start + part < count
        bucket = tl.load(buckets + first + start + part, mask=inside, other=0).to(tl.int64)
        both = inside[:, None] & (row < WORDS.dim)[None, :]
        at = bucket[:, None] * WORDS.dim + row[None, :]
        total += tl.load(ngrams + at, mask=both, other=0.0)
    x += (sentence * stride + place % longest) * WORDS.dim + row
    vector = tl.sum(total, axis=0) / tl.sqrt(tl.maximum(count, 1).to(tl.float32))
    tl.store(x, tl.load(x, mask=row < WORDS.dim) + vector, mask=row < WORDS.dim)


@compiled
def scatter_ngrams(
    ids, lengths, offsets, buckets, of_x, of_ngrams, longest, per_run, n_ngrams, WORDS: constexpr
):
    """Add the gradient of one word of one sentence to those of its n-grams."""
    first, count, place, sentence = _bag(ids, lengths, offsets, longest)
    row, part = tl.arange(0, WORDS.rows)[None, :], tl.arange(0, WORDS.places)[:, None]
    of_ngrams += (sentence // per_run) * n_ngrams * WORDS.dim
    gradient = tl.load(of_x + place * WORDS.dim + row, mask=row < WORDS.dim, other=0.0)
    gradient /= tl.sqrt(tl.maximum(count, 1).to(tl.float32))
    PLACES: constexpr = WORDS.places
    ROWS: constexpr = WORDS.rows
    for start in range(0, count, PLACES):
        inside = start + part < count
        bucket = tl.load(buckets + first + start + part, mask=inside, other=0).to(tl.int64)
        added = tl.broadcast_to(gradient, (PLACES, ROWS))
        both = inside & (row < WORDS.dim)
        tl.atomic_add(of_ngrams + bucket * WORDS.dim + row, added, mask=both, sem="relaxed")


@triton.jit
def _feature(at, HEAD: constexpr):
    """The index in (maps, rows, slots) of a feature with this index in (maps, slots, rows)."""
    out_map, row = at // (HEAD.rows * HEAD.k), at % HEAD.rows
    return (out_map * HEAD.rows + row) * HEAD.k + at // HEAD.rows % HEAD.k


@compiled
def head(pooled, dropout, weight, bias, logits, per_run, HEAD: constexpr):
    """The logits of one sentence."""
    FEATURES: constexpr = HEAD.maps * HEAD.rows * HEAD.k
    CLASSES: constexpr = HEAD.classes
    WIDE: constexpr = HEAD.wide
    BLOCK: constexpr = HEAD.block
    sentence = tl.program_id(0).to(tl.int64)
    run = sentence // per_run
    label = tl.arange(0, WIDE)
    total = tl.zeros((WIDE, BLOCK), tl.float32)
    for start in range(0, FEATURES, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside, number = at < FEATURES, _feature(at, HEAD)
        value = tl.load(pooled + sentence * FEATURES + at, mask=inside, other=0.0)
        if HEAD.drops:
            value *= tl.load(dropout + sentence * FEATURES + number, mask=inside, other=0.0)
        of_class = (run * CLASSES + label[:, None]) * FEATURES + number[None, :]
        both = (label < CLASSES)[:, None] & inside[None, :]
        total += value[None, :] * tl.load(weight + of_class, mask=both, other=0.0)
    shift = tl.load(bias + run * CLASSES + label, mask=label < CLASSES, other=0.0)
    out = logits + sentence * CLASSES + label
    tl.store(out, tl.sum(total, axis=1) + shift, mask=label < CLASSES)


@compiled
def head_gradient(
    of_logits, pooled, dropout, weight, of_pooled, of_weight, of_bias, per_run, HEAD: constexpr
):
    """The gradients of the head: a block of features, over a part of the sentences of a run."""
    FEATURES: constexpr = HEAD.maps * HEAD.rows * HEAD.k
    CLASSES: constexpr = HEAD.classes
    WIDE: constexpr = HEAD.wide
    BLOCK: constexpr = HEAD.block
    group = tl.program_id(0)
    parts = tl.cdiv(per_run, HEAD.sentences)
    run, part = group // parts, group % parts
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, number = at < FEATURES, _feature(at, HEAD)
    label = tl.arange(0, WIDE)
    both = (label < CLASSES)[:, None] & inside[None, :]
    of_class = (run * CLASSES + label[:, None]) * FEATURES + number[None, :]
    weights = tl.load(weight + of_class, mask=both, other=0.0)
    weight_total = tl.zeros((WIDE, BLOCK), tl.float32)
    bias_total = tl.zeros((WIDE,), tl.float32)
    for offset in range(tl.minimum(HEAD.sentences, per_run - part * HEAD.sentences)):
        sentence = (run * per_run + part * HEAD.sentences + offset).to(tl.int64)
        logit = of_logits + sentence * CLASSES + label
        gradient = tl.load(logit, mask=label < CLASSES, other=0.0)
        bias_total += gradient
        of_value = tl.sum(gradient[:, None] * weights, axis=0)
        value = tl.load(pooled + sentence * FEATURES + at, mask=inside, other=0.0)
        if HEAD.drops:
            mask = tl.load(dropout + sentence * FEATURES + number, mask=inside, other=0.0)
            value, of_value = value * mask, of_value * mask
        tl.store(of_pooled + sentence * FEATURES + at, of_value, mask=inside)
        weight_total += gradient[:, None] * value[None, :]
    of_class = (group * CLASSES + label[:, None]) * FEATURES + number[None, :]
    tl.store(of_weight + of_class, weight_total, mask=both)
    if tl.program_id(1) == 0:
        tl.store(of_bias + group * CLASSES + label, bias_total, mask=label < CLASSES)
