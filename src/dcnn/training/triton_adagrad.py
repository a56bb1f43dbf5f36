"""One pass of Adagrad over a stacked parameter on a GPU: decay, L2, accumulator, step, average.

Written as separate torch operations the same update reads and writes the embeddings some twenty
times, which for a large vocabulary costs more than the network itself.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _update(
    value,
    gradient,
    total,
    average,
    scalars,
    size,
    runs,
    AVERAGES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A block of one run's values."""
    run = tl.program_id(1)
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offset < size
    at = run.to(tl.int64) * size + offset
    clip = tl.load(scalars + run)
    l2 = tl.load(scalars + runs + run)
    rate = tl.load(scalars + 2 * runs + run)
    shrink = tl.load(scalars + 3 * runs + run)
    eps = tl.load(scalars + 4 * runs + run)
    fresh = tl.load(scalars + 5 * runs + run)

    v = tl.load(value + at, mask=inside) * shrink
    g = tl.load(gradient + at, mask=inside) * clip + l2 * v
    squares = tl.load(total + at, mask=inside) + g * g
    v -= rate * g / (tl.sqrt(squares) + eps)
    tl.store(total + at, squares, mask=inside)
    tl.store(value + at, v, mask=inside)
    if AVERAGES:
        a = tl.load(average + at, mask=inside)
        tl.store(average + at, a + fresh * (v - a), mask=inside)


def update(
    value: Tensor, gradient: Tensor, total: Tensor, average: Tensor | None, scalars: list[Tensor]
) -> None:
    """Update ``value``, ``total`` and ``average`` (R, ...) in place.

    Args:
        value: the parameter.
        gradient: of the loss.
        total: sum of the squared gradients so far.
        average: moving average of the values, or none.
        scalars: six values a run, (R,) each: factor of the gradient, L2, learning rate, factor of
            the value, eps, share of the new value in the average.
    """
    runs = len(value)
    size = value[0].numel()
    _update[(triton.cdiv(size, _BLOCK), runs)](
        value,
        gradient.contiguous(),
        total,
        total if average is None else average,
        torch.stack(scalars),
        size,
        runs,
        AVERAGES=average is not None,
        BLOCK=_BLOCK,
    )
