"""Adagrad for all parameters of all runs on a GPU, in two kernels: the norms, then the update.

Written as separate torch operations the same update reads and writes the embeddings some twenty
times, which for a large vocabulary costs more than the network itself; and a launch for every
parameter would cost more than the update of most of them.


What stands at both ends of a stack's step on a GPU: padded words below, the loss above.

Each is one kernel in place of a dozen. Sentences, targets and order live on the device.

"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

_BLOCK = 1024


@triton.jit
def _block_squares(gradient, squares, run, block, size, BLOCK: tl.constexpr):
    offset = block * BLOCK + tl.arange(0, BLOCK)
    at = run.to(tl.int64) * size + offset
    g = tl.load(gradient + at, mask=offset < size, other=0.0)
    tl.atomic_add(squares + run, tl.sum(g * g, axis=0), sem="relaxed")


@triton.jit
def _squares(gradients, squares, SIZES: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the squares of one run's gradients, a block of one parameter at a time."""
    block, run = tl.program_id(0), tl.program_id(1)
    for number in tl.static_range(len(SIZES)):
        blocks = (SIZES[number] + BLOCK - 1) // BLOCK
        if (block >= 0) & (block < blocks):
            _block_squares(gradients[number], squares, run, block, SIZES[number], BLOCK)
        block -= blocks


@triton.jit
def _block_update(
    value,
    gradient,
    total,
    average,
    scalars,
    run,
    block,
    size,
    AVERAGES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    clip, l2, rate, shrink, eps, fresh = scalars
    offset = block * BLOCK + tl.arange(0, BLOCK)
    inside = offset < size
    at = run.to(tl.int64) * size + offset
    v = tl.load(value + at, mask=inside) * shrink
    g = tl.load(gradient + at, mask=inside) * clip + l2 * v
    squares = tl.load(total + at, mask=inside) + g * g
    v -= rate * g / (tl.sqrt(squares) + eps)
    tl.store(total + at, squares, mask=inside)
    tl.store(value + at, v, mask=inside)
    if AVERAGES:
        a = tl.load(average + at, mask=inside)
        tl.store(average + at, a + fresh * (v - a), mask=inside)


@triton.jit
def _update(
    values,
    gradients,
    totals,
    averages,
    settings,
    l2s,
    squares,
    progress,
    steps,
    runs,
    SIZES: tl.constexpr,
    DECAYS: tl.constexpr,
    AVERAGES: tl.constexpr,
    BLOCK: tl.constexpr,
):
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
    fresh = 1 - tl.minimum(ema, (1 + step) / (10 + step))
    for number in tl.static_range(len(SIZES)):
        blocks = (SIZES[number] + BLOCK - 1) // BLOCK
        if (block >= 0) & (block < blocks):
            l2 = tl.load(l2s + number * runs + run)
            shrink = 1 - rate * decay * DECAYS[number]
            _block_update(
                values[number],
                gradients[number],
                totals[number],
                averages[number],
                (clip, l2, rate, shrink, eps, fresh),
                run,
                block,
                SIZES[number],
                AVERAGES,
                BLOCK,
            )
        block -= blocks


def update(
    values: Sequence[Tensor],
    gradients: Sequence[Tensor],
    totals: Sequence[Tensor],
    averages: Sequence[Tensor],
    decays: Sequence[bool],
    settings: Tensor,
    l2: Tensor,
    progress: Tensor,
    steps: Tensor,
) -> None:
    """Update ``values``, ``totals`` and ``averages``, each (R, ...), in place.

    Args:
        values: the parameters.
        gradients: of the loss, one a parameter.
        totals: sums of the squared gradients so far.
        averages: moving averages of the values, or nothing.
        decays: for each parameter whether it decays outside Adagrad.
        settings: (6, R): rate, whether it falls to zero, eps, decay, largest norm, share of the old
            in the average.
        l2: (parameters, R).
        progress: (R,) share of the run that lies behind.
        steps: how many there have been, this one included.
    """
    runs = len(progress)
    sizes = tuple(value[0].numel() for value in values)
    grid = (sum(triton.cdiv(size, _BLOCK) for size in sizes), runs)
    dense = tuple(gradient.contiguous() for gradient in gradients)
    squares = torch.zeros_like(progress)
    _squares[grid](dense, squares, SIZES=sizes, BLOCK=_BLOCK)
    _update[grid](
        tuple(values),
        dense,
        tuple(totals),
        tuple(averages or totals),
        settings,
        l2,
        squares,
        progress,
        steps,
        runs,
        SIZES=sizes,
        DECAYS=tuple(map(int, decays)),
        AVERAGES=bool(averages),
        BLOCK=_BLOCK,
    )


@triton.jit(do_not_specialize=["columns"])
def _pad(
    indices, ids, starts, lengths, draws, dropped, padded, own_lengths, columns, per_run,
    UNKNOWN: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One sentence: its words, some of them lost, and its length."""
    place = tl.program_id(0).to(tl.int64)
    number = tl.load(indices + place)
    sentence = tl.maximum(number, 0)
    length = tl.where(number < 0, 1, tl.load(lengths + sentence))
    start = tl.load(starts + sentence)
    share = tl.load(dropped + place // per_run)
    tl.store(own_lengths + place, length)
    column = tl.arange(0, COLUMNS)
    at = place * columns + column
    word = tl.load(ids + start + column, mask=column < length, other=UNKNOWN)
    word = tl.where(number < 0, UNKNOWN, word)
    lost = tl.load(draws + at, mask=column < columns, other=1.0) < share
    tl.store(padded + at, tl.where(lost, UNKNOWN, word), mask=column < columns)


def padded(
    indices: Tensor,
    ids: Tensor,
    starts: Tensor,
    lengths: Tensor,
    draws: Tensor,
    dropped: Tensor,
    unknown: int,
) -> tuple[Tensor, Tensor]:
    """The ids (R, B, columns) and lengths (R, B) of the sentences at ``indices`` (R, B).

    Args:
        indices: numbers of sentences; a negative one stands for one unknown word.
        ids: all words of all sentences, one after another.
        starts: where each sentence begins.
        lengths: of each sentence.
        draws: (R, B, columns) random numbers; where one is below the run's share a word is lost.
        dropped: (R,) the share of words that a run loses.
        unknown: the word in the place of a lost one, and past the end.
    """
    runs, per_run, columns = draws.shape
    indices, draws = indices.contiguous(), draws.contiguous()
    words = torch.empty_like(draws, dtype=ids.dtype)
    own_lengths = torch.empty_like(indices, dtype=lengths.dtype)
    _pad[(runs * per_run,)](
        indices,
        ids,
        starts,
        lengths,
        draws,
        dropped,
        words,
        own_lengths,
        columns,
        per_run,
        UNKNOWN=unknown,
        COLUMNS=triton.next_power_of_2(columns),
    )
    return words, own_lengths


@triton.jit
def _cross_entropy(
    logits, indices, targets, importance, losses, gradients, per_run, stride,
    CLASSES: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A block of one run: its part of the mean loss over the sentences that exist, its gradient."""
    run = tl.program_id(0).to(tl.int64)
    count = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, per_run, BLOCK):
        place = start + tl.arange(0, BLOCK)
        number = tl.load(indices + run * per_run + place, mask=place < per_run, other=-1)
        count += (number >= 0).to(tl.float32)
    share = 1 / tl.maximum(tl.sum(count, axis=0), 1.0)

    own = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    chosen = tl.load(indices + run * per_run + own, mask=own < per_run, other=-1)
    weight = tl.where(chosen >= 0, share, 0.0)
    chosen = tl.maximum(chosen, 0)
    if WEIGHTED:
        weight *= tl.load(importance + chosen)
    label = tl.arange(0, WIDE)[None, :]
    is_class = label < CLASSES
    inside = (own < per_run)[:, None] & is_class
    at = (run * per_run + own)[:, None] * CLASSES + label
    z = tl.where(is_class, tl.load(logits + at, mask=inside, other=0.0), float("-inf"))
    z -= tl.max(z, axis=1)[:, None]
    powers = tl.exp(z)
    sums = tl.sum(powers, axis=1)
    of_example = targets + run * stride + chosen[:, None] * CLASSES + label
    target = tl.load(of_example, mask=inside, other=0.0)
    surprise = tl.where(is_class, tl.log(sums)[:, None] - z, 0.0)
    loss = tl.sum(weight * tl.sum(target * surprise, axis=1), axis=0)
    tl.store(losses + run * tl.num_programs(1) + tl.program_id(1), loss)
    mass = tl.sum(target, axis=1)[:, None]
    gradient = weight[:, None] * (mass * powers / sums[:, None] - target)
    tl.store(gradients + at, gradient, mask=inside)


class _CrossEntropy(torch.autograd.Function):
    """The losses; their gradient is made on the way and waits."""

    @staticmethod
    def forward(
        logits: Tensor, indices: Tensor, targets: Tensor, importance: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Losses (R,) and their gradients (R, B, classes)."""
        runs, per_run, classes = logits.shape
        wide = triton.next_power_of_2(classes)
        block = min(max(_BLOCK // wide, 1), triton.next_power_of_2(per_run))
        blocks = triton.cdiv(per_run, block)
        losses, gradients = logits.new_empty(runs, blocks), torch.empty_like(logits)
        _cross_entropy[(runs, blocks)](
            logits,
            indices,
            targets,
            logits if importance is None else importance,
            losses,
            gradients,
            per_run,
            targets.stride(0) if len(targets) > 1 else 0,
            CLASSES=classes,
            WEIGHTED=importance is not None,
            BLOCK=block,
            WIDE=wide,
        )
        return losses.sum(dim=1), gradients

    @staticmethod
    def setup_context(ctx: Any, _: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep the gradients."""
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # else zeros are made for the gradients
        ctx.save_for_backward(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Those that wait, times what came down."""
        (gradients,) = ctx.saved_tensors
        return gradients * gradient[:, None, None], None, None, None


def cross_entropy(
    logits: Tensor, indices: Tensor, targets: Tensor, importance: Tensor | None
) -> Tensor:
    """The mean loss of each run, (R,).

    Args:
        logits: (R, B, classes).
        indices: (R, B) numbers of the examples; a negative one does not count.
        targets: (R or 1, N, classes) distributions.
        importance: (N,) how much each example counts, or none.
    """
    losses: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        logits.contiguous(), indices.contiguous(), targets.contiguous(), importance
    )[0]
    return losses
