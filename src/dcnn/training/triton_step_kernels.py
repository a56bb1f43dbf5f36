"""The kernels of ``dcnn.training.triton_step``: the batch, the loss and Adagrad.

Apart from it, and without torch: the processes that compile them need not import it.
"""

import triton
import triton.language as tl


@triton.jit
def squares_of(gradients, squares, SIZES: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the squares of one run's gradients, a block of one parameter at a time."""
    block, run = tl.program_id(0), tl.program_id(1)
    for number in tl.static_range(len(SIZES)):
        blocks = (SIZES[number] + BLOCK - 1) // BLOCK
        if (block >= 0) & (block < blocks):
            offset = block * BLOCK + tl.arange(0, BLOCK)
            at = run.to(tl.int64) * SIZES[number] + offset
            g = tl.load(gradients[number] + at, mask=offset < SIZES[number], other=0.0)
            tl.atomic_add(squares + run, tl.sum(g * g, axis=0), sem="relaxed")
        block -= blocks


@triton.jit
def update(
    values, gradients, totals, averages, settings, l2s, squares, progress, steps, runs,
    SIZES: tl.constexpr, DECAYS: tl.constexpr, AVERAGES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of one run's values of one parameter; ``DECAYS`` says of each whether it decays."""
    block, run = tl.program_id(0), tl.program_id(1)
    rate = tl.load(settings + run)
    linear = tl.load(settings + runs + run)
    eps = tl.load(settings + 2 * runs + run)
    decay = tl.load(settings + 3 * runs + run)
    largest_norm = tl.load(settings + 4 * runs + run)
    ema = tl.load(settings + 5 * runs + run)
    step = tl.load(steps)
    rate *= 1 - linear * tl.load(progress + run)
    clip = largest_norm / (tl.sqrt(tl.load(squares + run)) + 1e-6)
    clip = tl.where(clip > 1, 1.0, clip)  # not a minimum, which would lose what is not a number
    ema_weight = 1 - tl.minimum(ema, (1 + step) / (10 + step))
    for number in tl.static_range(len(SIZES)):
        blocks = (SIZES[number] + BLOCK - 1) // BLOCK
        if (block >= 0) & (block < blocks):
            offset = block * BLOCK + tl.arange(0, BLOCK)
            inside = offset < SIZES[number]
            at = run.to(tl.int64) * SIZES[number] + offset
            shrink = 1 - rate * decay * DECAYS[number]
            v = tl.load(values[number] + at, mask=inside) * shrink
            l2 = tl.load(l2s + number * runs + run)
            g = tl.load(gradients[number] + at, mask=inside) * clip + l2 * v
            total = tl.load(totals[number] + at, mask=inside) + g * g
            v -= rate * g / (tl.sqrt(total) + eps)
            tl.store(totals[number] + at, total, mask=inside)
            tl.store(values[number] + at, v, mask=inside)
            if AVERAGES:
                a = tl.load(averages[number] + at, mask=inside)
                tl.store(averages[number] + at, a + ema_weight * (v - a), mask=inside)
        block -= blocks


@triton.jit(do_not_specialize=["columns"])
def gather_examples(
    cursor, order, place_weights, ids, starts, lengths, targets, draws, word_dropout,
    padded, own_lengths, own_targets, own_weights, columns, per_run, stride,
    UNKNOWN: tl.constexpr, DROPS: tl.constexpr, CLASSES: tl.constexpr,
    COLUMNS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One sentence: its words, some of them dropped, its length, target and weight."""
    place = tl.program_id(0).to(tl.int64)
    run = place // per_run
    at_cursor = tl.load(cursor) * tl.num_programs(0) + place
    sentence = tl.load(order + at_cursor)
    length, start = tl.load(lengths + sentence), tl.load(starts + sentence)
    tl.store(own_lengths + place, length)
    tl.store(own_weights + place, tl.load(place_weights + at_cursor))
    column = tl.arange(0, COLUMNS)
    at = place * columns + column
    word = tl.load(ids + start + column, mask=column < length, other=UNKNOWN)
    if DROPS:
        draw = tl.load(draws + at, mask=column < columns, other=1.0)
        word = tl.where(draw < tl.load(word_dropout + run), UNKNOWN, word)
    tl.store(padded + at, word, mask=column < columns)
    label = tl.arange(0, WIDE)
    target = tl.load(targets + run * stride + sentence * CLASSES + label, mask=label < CLASSES)
    tl.store(own_targets + place * CLASSES + label, target, mask=label < CLASSES)


@triton.jit
def cross_entropy(
    logits, targets, weights, losses, gradients, per_run,
    ENSEMBLE: tl.constexpr, CLASSES: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A block of one run: its part of the mean loss, and the gradient of that."""
    run = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)  # of a network's logits of a sentence
    inside = place < per_run
    sentence = (run * per_run + place) // ENSEMBLE
    weight = tl.load(weights + sentence, mask=inside, other=0.0) / per_run
    label = tl.arange(0, WIDE)[None, :]
    is_class = label < CLASSES
    both = inside[:, None] & is_class
    at = (run * per_run + place)[:, None] * CLASSES + label
    z = tl.where(is_class, tl.load(logits + at, mask=both, other=0.0), float("-inf"))
    z -= tl.max(z, axis=1)[:, None]
    powers = tl.exp(z)
    sums = tl.sum(powers, axis=1)
    target = tl.load(targets + sentence[:, None] * CLASSES + label, mask=both, other=0.0)
    surprise = tl.where(is_class, tl.log(sums)[:, None] - z, 0.0)
    loss = tl.sum(weight * tl.sum(target * surprise, axis=1), axis=0)
    tl.store(losses + run * tl.num_programs(1) + tl.program_id(1), loss)
    mass = tl.sum(target, axis=1)[:, None]
    gradient = weight[:, None] * (mass * powers / sums[:, None] - target)
    tl.store(gradients + at, gradient, mask=both)
