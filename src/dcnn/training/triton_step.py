"""The parts of a training step on a GPU around the network: batch, loss and Adagrad.

Each is one or two kernels in place of a dozen torch operations: the time of a step of a small
network is decided by the number of kernels, and Adagrad in separate operations would read and write
the embeddings some twenty times. Everything has a leading axis of R runs.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv, next_power_of_2

from dcnn.config import DECAYING
from dcnn.text.vocabulary import UNKNOWN
from dcnn.training import triton_step_kernels as kernels
from dcnn.training.adagrad import Adagrad, Weights
from dcnn.training.resident import ResidentBatches

_BLOCK = 1024


def adagrad(optimizer: Adagrad, gradients: Weights, progress: Tensor) -> Tensor:
    """What ``Adagrad.step`` does on a GPU."""
    values, totals = tuple(optimizer.weights.values()), tuple(optimizer.sums.values())
    sizes, runs = tuple(value[0].numel() for value in values), len(progress)
    grid = (sum(cdiv(size, _BLOCK) for size in sizes), runs)
    dense = tuple(gradients[name].contiguous() for name in optimizer.weights)
    decays = tuple(int(name == DECAYING) for name in optimizer.weights)
    squares = torch.zeros_like(progress)
    kernels.squares_of[grid](dense, squares, SIZES=sizes, BLOCK=_BLOCK)
    kernels.update[grid](
        values, dense, totals, tuple(optimizer.averages.values()) or totals,
        optimizer.settings, optimizer.l2, squares, progress, optimizer.steps, runs,
        SIZES=sizes, DECAYS=decays, AVERAGES=bool(optimizer.averages), BLOCK=_BLOCK,
    )  # fmt: skip
    return squares.sqrt()


def gather_batch(batches: ResidentBatches, columns: int, draws: Tensor | None) -> list[Tensor]:
    """Ids (R, B, columns), lengths (R, B), targets (R, B, classes) and weights (R, B) of a batch.

    A word becomes the unknown word where ``draws`` (R, B, columns) is below its run's word dropout.
    """
    ids, lengths, targets = batches.ids, batches.lengths, batches.targets
    (_, runs, per_run), classes = batches.order.shape, targets.shape[-1]
    padded = ids.new_empty(runs, per_run, columns)
    own_lengths = lengths.new_empty(runs, per_run)
    own_targets = targets.new_empty(runs, per_run, classes)
    own_weights = batches.place_weights.new_empty(runs, per_run)
    kernels.gather_examples[(runs * per_run,)](
        batches.cursor, batches.order, batches.place_weights, ids, batches.starts, lengths, targets,
        batches.place_weights if draws is None else draws, batches.word_dropout,
        padded, own_lengths, own_targets, own_weights, columns, per_run,
        targets.stride(0) if len(targets) > 1 else 0,
        UNKNOWN=UNKNOWN, DROPS=draws is not None, CLASSES=classes,
        COLUMNS=next_power_of_2(columns), WIDE=next_power_of_2(classes),
    )  # fmt: skip
    return [padded, own_lengths, own_targets, own_weights]


class _CrossEntropy(torch.autograd.Function):
    """The losses; their gradients are computed with them and kept."""

    @staticmethod
    def forward(logits: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Losses (R,) and their gradients, as the logits."""
        runs, per_run, classes = logits.shape
        wide = next_power_of_2(classes)
        block = min(max(_BLOCK // wide, 1), next_power_of_2(per_run))
        blocks = cdiv(per_run, block)
        losses, gradients = logits.new_empty(runs, blocks), torch.empty_like(logits)
        kernels.cross_entropy[(runs, blocks)](
            logits, targets, weights, losses, gradients, per_run,
            ENSEMBLE=per_run // targets.shape[1], CLASSES=classes, BLOCK=block, WIDE=wide,
        )  # fmt: skip
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
        """The kept gradients times that of the losses."""
        (gradients,) = ctx.saved_tensors
        return gradients * gradient[:, None, None], None, None


def cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """(R, B * n_ensemble, classes), (R, B, classes), (R, B) -> (R,) the mean loss of each run."""
    losses: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        logits.contiguous(), targets.contiguous(), weights.contiguous()
    )[0]
    return losses
