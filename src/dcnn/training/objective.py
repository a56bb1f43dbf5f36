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

from dcnn import metrics
from dcnn.data.batching import Batch, Floats, prediction_batches
from dcnn.errors import DataError
from dcnn.models import DCNN, SentenceModel
from dcnn.ops.native_training import Learner, Parameter
from dcnn.ops.reference import sigmoid
from dcnn.text.vocabulary import Sentences
from dcnn.training.adagrad import Weights

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


def example_weights(
    targets: NDArray[Any], classes: int, balanced: bool, weights: Floats | None
) -> Floats | None:
    """Sample weights (N,) times class weights, scaled to a mean of one; none if all are alike.

    If ``balanced``, each class counts the same in total, however frequent it is.
    """
    if weights is None and not balanced:
        return None
    product = np.ones(len(targets)) if weights is None else weights.astype(np.float64)
    if balanced:
        tiny = np.finfo(float).tiny
        if targets.ndim == 1:
            mass = np.bincount(targets, product, classes)
            product = product * (1 / np.maximum(mass, tiny))[targets]
        else:
            mass = (product[:, None] * targets).sum(axis=0)  # (classes,)
            product = product * (targets @ (1 / np.maximum(mass, tiny)))
    if not product.any():
        raise DataError("every training example has weight 0; give at least one a weight above 0")
    return np.asarray(product / product.mean(), np.float32)


def class_factors(mass: Floats, examples: int, balanced: bool) -> Floats | None:
    """Factors (classes,) for the weights of examples, as in ``example_weights``; None if all are 1.

    ``mass`` (classes,) is the sum of the weights of each class's examples.
    """
    if balanced:
        some = mass > 0  # a class without examples weighs nothing
        return examples / np.count_nonzero(some) * some / np.where(some, mass, 1)
    factors = np.full(len(mass), examples / mass.sum())
    return None if (factors == 1).all() else factors


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
            mean, gradients = learner.gradients(inputs, targets, weights)
            return torch.tensor(mean), dict(zip(names, gradients, strict=True))
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
    names = ["embeddings", "head.weight", "head.bias"]
    names += [f"layers.{i}.{part}" for i in range(config.depth) for part in ("filters", "bias")]
    if model.bag_offsets is not None and model.bag_buckets is not None:
        names, bags = [*names, "ngrams"], (model.bag_offsets, model.bag_buckets)
    by_place = [parameters[name] for name in names]
    learner = Learner(by_place, config.fold, config.k_top, model.n_ensemble, multi_label, bags)
    return names, learner


def evaluate_logits(
    logits: NDArray[np.float32], targets: NDArray[Any], multi_label: bool = False
) -> tuple[float, float, float | None]:
    """Accuracy, mean loss and, of multi-label targets, micro F1.

    Accuracy of multi-label targets is subset accuracy. All labels have the same threshold here, the
    one with the best micro F1; the final thresholds are chosen at the end of training.
    """
    number = max(len(logits), 1)  # of several processes, one may have no example
    if multi_label:
        scores = logits.astype(np.float64)
        truth, probabilities = targets > 0, sigmoid(logits)
        least = metrics.common_threshold(truth, probabilities)
        given = metrics.apply_thresholds(probabilities, [least])
        losses = np.logaddexp(0, scores) - truth * scores
        hits = (truth == given).all(axis=1)
        f1 = metrics.micro_f1(truth, given)
        return float(hits.sum()) / number, float(losses.sum()) / number, f1
    correct, loss = 0, 0.0
    for rows in metrics.row_blocks(logits):
        expected, part = metrics.target_distributions(targets[rows], logits.shape[1]), logits[rows]
        correct += int((part.argmax(axis=1) == expected.argmax(axis=1)).sum())
        shifted = part.astype(np.float64) - part.max(axis=1, keepdims=True)
        norms = np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        loss += float((expected * (norms - shifted)).sum())
    return correct / number, loss / number, None
