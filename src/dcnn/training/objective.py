"""The objective (Sect. 5.1): cross-entropy of the predicted and the true distribution.

With multi-label targets every label is a yes or no of its own, and the objective is the sum of
their cross-entropies. The L2 term is part of ``dcnn.training.adagrad``. ``Networks`` computes the
objective and its gradients for R networks at once, on the backend that trains.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, vmap

from dcnn.data.batching import Batch, prediction_batches
from dcnn.models import DCNN, SentenceModel
from dcnn.ops.native_torch import to_tensor
from dcnn.ops.native_training import Learner, Parameter
from dcnn.text.vocabulary import Sentences
from dcnn.training.adagrad import Weights
from dcnn.training.native_run import learner_order

PREDICTED_AT_ONCE = 1 << 14  # sentences times networks on a GPU

# What one run learns from: ids (B, s), lengths (B,) and dropout (B, features) or none; targets
# (B, classes); weights (B,) or none.
RunBatch = tuple[tuple[Tensor, Tensor, Tensor | None], Tensor, Tensor | None]


@dataclass(frozen=True)
class TensorBatch:
    """A batch per run, on the device."""

    ids: Tensor  # (R, B, s)
    lengths: Tensor  # (R, B)
    targets: Tensor  # (R, B, classes)
    weights: Tensor | None  # (R, B)

    def of_run(self, run: int, dropout: Tensor | None) -> RunBatch:
        """The batch of one run, with the run's part of ``dropout`` (R, B, features)."""
        inputs = self.ids[run], self.lengths[run], None if dropout is None else dropout[run]
        return inputs, self.targets[run], None if self.weights is None else self.weights[run]


def as_arrays(batch: RunBatch) -> tuple[list[Any], Any, Any]:
    """A batch on a CPU as a ``Learner`` takes it."""
    inputs, targets, weights = batch
    given = [None if tensor is None else tensor.numpy() for tensor in inputs]
    return given, targets.numpy(), None if weights is None else weights.numpy()


def cross_entropy(
    logits: Tensor, targets: Tensor, weights: Tensor | None = None, multi_label: bool = False
) -> Tensor:
    """(..., B, classes) -> (...,): the mean over the batch, weighted by ``weights`` (..., B).

    The weights are not normalised over the batch: an example counts the same in any batch.
    """
    if multi_label:
        binary = torch.nn.functional.binary_cross_entropy_with_logits
        losses = binary(logits, targets, reduction="none").sum(dim=-1)  # (..., B)
    else:
        losses = -(targets * torch.log_softmax(logits, dim=-1)).sum(dim=-1)
    return (losses if weights is None else losses * weights).mean(dim=-1)


def repeat_for_ensemble(
    targets: Tensor, weights: Tensor | None, n_ensemble: int
) -> tuple[Tensor, Tensor | None]:
    """(..., B, classes) and (..., B) with B * n_ensemble for B: all networks learn the same."""
    if n_ensemble > 1:
        targets = targets.repeat_interleave(n_ensemble, dim=-2)
        weights = None if weights is None else weights.repeat_interleave(n_ensemble, dim=-1)
    return targets, weights


class Networks:
    """R networks of one architecture: their losses, gradients and logits.

    The native backend computes the networks one by one, with its own gradients; the others compute
    them together, by ``torch.func.vmap`` and autograd. ``weights`` maps names to tensors (R, ...).
    With ``parameters``, which are ``Adagrad.native``, a DCNN has a ``Learner`` per run, which
    computes a step in one call.
    """

    def __init__(
        self,
        model: SentenceModel,
        weights: Weights,
        backend: str,
        multi_label: bool,
        parameters: Sequence[Mapping[str, Parameter]] = (),
    ) -> None:
        self.model, self.backend, self.multi_label = model, backend, multi_label
        self.weights, self.count = weights, len(next(iter(weights.values())))
        self._together = self.count > 1 and backend != "native"
        for value in weights.values():
            value.requires_grad_(self._together)
        self._leaves = [
            {name: value[run].detach().requires_grad_() for name, value in weights.items()}
            for run in range(0 if self._together else self.count)
        ]
        self.learners: list[tuple[list[str], Learner]] = []
        if (
            isinstance(model, DCNN) and model.projection is None
        ):  # projected words are made in torch
            self.learners = [make_learner(model, of_run, multi_label) for of_run in parameters]
        self._plain: SentenceModel | None = None
        if model.ngrams is not None and model.bag_offsets is not None:
            words = len(model.bag_offsets) - 1
            with torch.device("meta"):  # for its shape alone
                self._plain = type(model)(model.config, words, model.head.out_features)

    def gradients(
        self, batch: TensorBatch, dropout: Tensor | None
    ) -> tuple[Tensor, Weights | list[Weights]]:
        """The losses (R,), and the gradients as ``Adagrad.step`` takes them.

        ``dropout`` (R, B, features) is a mask on the penultimate layer.
        """
        if self._together:
            inputs = (batch.ids, batch.lengths, *(() if dropout is None else (dropout,)))
            logits = vmap(partial(self._call, apart=True))(self.weights, *inputs)
            losses = self._losses(logits, batch.targets, batch.weights)
            return losses.detach(), self._differentiate(losses, self.weights)
        found = [self._gradients_of(run, batch, dropout) for run in range(self.count)]
        losses = torch.stack([loss for loss, _ in found])
        if self.backend == "native":
            return losses, [gradients for _, gradients in found]
        return losses, {name: value[None] for name, value in found[0][1].items()}

    def _gradients_of(
        self, run: int, batch: TensorBatch, dropout: Tensor | None
    ) -> tuple[Tensor, Weights]:
        leaves = self._leaves[run]
        inputs, targets, weights = batch.of_run(run, dropout)
        if self.learners:
            names, learner = self.learners[run]
            given = as_arrays((inputs, targets, weights))
            mean, gradients = learner.gradients(*given, torch.get_num_threads())
            return torch.tensor(mean), dict(zip(names, map(to_tensor, gradients), strict=True))
        loss = self._losses(self._call(leaves, *inputs, apart=True), targets, weights)
        return loss.detach(), self._differentiate(loss, leaves)

    def _losses(self, logits: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """(..., B * n_ensemble, classes), (..., B, classes), (..., B) -> (...,)."""
        if self.backend == "triton" and not self.multi_label:
            from dcnn.training import triton_step

            weights = torch.ones_like(targets[..., 0]) if weights is None else weights
            if self._together:
                return triton_step.cross_entropy(logits, targets, weights)
            return triton_step.cross_entropy(logits[None], targets[None], weights[None])[0]
        targets, weights = repeat_for_ensemble(targets, weights, self.model.n_ensemble)
        return cross_entropy(logits, targets, weights, self.multi_label)

    def _differentiate(self, losses: Tensor, weights: Weights) -> Weights:
        # Each network of an ensemble learns as if alone; its gradient is not divided by n_ensemble.
        each = torch.full_like(losses, self.model.n_ensemble)
        gradients = torch.autograd.grad(losses, list(weights.values()), each)
        return dict(zip(weights, gradients, strict=True))

    def _call(self, weights: Weights, *inputs: Tensor | None, apart: bool = False) -> Tensor:
        model = self.model if self._plain is None or "ngrams" in weights else self._plain
        logits: Tensor = functional_call(model, weights, inputs, {"apart": apart})
        return logits

    @torch.no_grad()
    def logits(self, weights: Weights, ids: Tensor, lengths: Tensor) -> Tensor:
        """(R, B, classes) with ``weights`` of ids (B, s) and lengths (B,)."""
        if self._together:
            return vmap(self._call, in_dims=(0, None, None))(weights, ids, lengths)
        runs = [{name: value[run] for name, value in weights.items()} for run in range(self.count)]
        return torch.stack([self._call(of_run, ids, lengths) for of_run in runs])

    @torch.no_grad()
    def logits_of(self, weights: Weights, sentences: Sentences) -> NDArray[np.float32]:
        """(R, N, classes) with ``weights``, in the order of ``sentences``."""
        device = self.model.head.weight.device
        if "ngrams" in weights:  # compute the vector of each word once, not in every batch
            used, places = np.unique(sentences.ids, return_inverse=True)
            words, sentences = torch.from_numpy(used).to(device), replace(sentences, ids=places)
            runs = [
                self.model.merged({name: value[run] for name, value in weights.items()}, words)
                for run in range(self.count)
            ]
            weights = {name: torch.stack([run[name] for run in runs]) for name in runs[0]}
        logits = np.empty((self.count, len(sentences), self.model.head.out_features), np.float32)
        for batch in self.prediction_batches(sentences):
            ids, lengths = torch.from_numpy(batch.ids), torch.from_numpy(batch.lengths)
            found = self.logits(weights, ids.to(device), lengths.to(device))
            logits[:, batch.order] = found.cpu().numpy()
        return logits

    def prediction_batches(self, sentences: Sentences) -> list[Batch]:
        """Every sentence once, by length, as many at once as the device takes."""
        if self.model.head.weight.device.type == "cpu":
            return list(prediction_batches(sentences))
        size = max(PREDICTED_AT_ONCE // self.count, 1)
        return list(prediction_batches(sentences, size, 16 * size))


def make_learner(
    model: DCNN,
    parameters: Mapping[str, Parameter],
    multi_label: bool = False,
) -> tuple[list[str], Learner]:
    """The parameter names of a DCNN, in the learner's order, and its learner on a CPU.

    A step of the learner is one call. It never wakes torch's threads, which would take the cores
    from those of the native library.
    """
    config, bags = model.config, None
    if model.bag_offsets is not None and model.bag_buckets is not None:
        bags = model.bag_offsets.numpy(), model.bag_buckets.numpy()
    names = learner_order(config.depth, bags is not None)
    by_place = [parameters[name] for name in names]
    learner = Learner(by_place, config.fold, config.k_top, model.n_ensemble, multi_label, bags)
    return names, learner
