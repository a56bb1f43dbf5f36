"""Adagrad for all parameters of all runs on a GPU, in two kernels: the norms, then the update.

Written as separate torch operations the same update reads and writes the embeddings some twenty
times, which for a large vocabulary costs more than the network itself; and a launch for every
parameter would cost more than the update of most of them.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

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
