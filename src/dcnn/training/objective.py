"""The objective (Sect. 5.1): cross-entropy of the predicted and the true distribution.

Where a text may have several labels, each is a yes or no of its own, and the objective is the sum
of their cross-entropies.

Its L2 term is applied by the optimiser, as decay, a parameter group at a time.


Looking at the dev set with a network in training: accuracy and loss, and all its logits.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call

from dcnn.data.batching import Examples, Floats, prediction_batches
from dcnn.errors import DataError
from dcnn.metrics import apply_thresholds, common_threshold, micro_f1, sigmoid
from dcnn.models import SentenceModel
from dcnn.text.vocabulary import Sentences


def target_distributions(
    targets: NDArray[Any], classes: int, label_smoothing: float = 0.0
) -> Floats:
    """Class numbers (N,) or soft targets (N, classes) as distributions (N, classes) in float32.

    Hard targets give ``label_smoothing`` of their mass away to all classes alike.
    """
    if targets.ndim == 2:
        return targets.astype(np.float32)
    distributions = np.full((len(targets), classes), label_smoothing / classes, np.float32)
    distributions[np.arange(len(targets)), targets] += 1 - label_smoothing
    return distributions


def cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean over the batch, weighted if ``weights`` (B,) are given.

    The weights are not normalised over the batch: an example counts the same whatever its mates.
    """
    losses = -(targets * torch.log_softmax(logits, dim=-1)).sum(dim=-1)  # (B,)
    return (losses if weights is None else losses * weights).mean()


def repeat_for_ensemble(of_sentences: Tensor, n_ensemble: int) -> Tensor:
    """(B, ...) as (B * members, ...): what each member of an ensemble is told is the same."""
    return of_sentences if n_ensemble == 1 else of_sentences.repeat_interleave(n_ensemble, dim=0)


def smoothed_indicators(targets: NDArray[Any], label_smoothing: float = 0.0) -> Floats:
    """Noughts and ones (N, labels), each moved towards a half by ``label_smoothing``."""
    smoothed: Floats = (targets * (1 - label_smoothing) + label_smoothing / 2).astype(np.float32)
    return smoothed


def binary_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """The sum over the labels, and the mean over the batch, weighted as in ``cross_entropy``."""
    each = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    losses = each.sum(dim=-1)  # (B,)
    return (losses if weights is None else losses * weights).mean()


def example_weights(
    targets: NDArray[Any], classes: int, balanced: bool, weights: Floats | None
) -> Floats | None:
    """Sample weights times class weights, scaled to a mean of one; none if all are alike.

    Args:
        targets: (N,) class numbers or (N, classes) soft targets.
        classes: number of labels.
        balanced: whether each class shall count the same in total, however frequent it is.
        weights: (N,) the user's sample weights, or none.
    """
    if weights is None and not balanced:
        return None
    product = np.ones(len(targets)) if weights is None else weights.astype(np.float64)
    if balanced:
        distributions = target_distributions(targets, classes).astype(np.float64)
        mass = (product[:, None] * distributions).sum(axis=0)  # (classes,)
        product = product * (distributions @ (1 / np.maximum(mass, np.finfo(float).tiny)))
    if not product.any():
        raise DataError("every training example has weight 0; give at least one a weight above 0")
    scaled: Floats = (product / product.mean()).astype(np.float32)
    return scaled


def class_factors(mass: Floats, examples: int, balanced: bool) -> Floats | None:
    """What an example's own weight is multiplied with, by class; as ``example_weights`` does.

    Args:
        mass: (classes,) the sum of the weights of each class's examples.
        examples: how many there are.
        balanced: whether each class shall count the same in total.

    Returns:
        (classes,) float64, or none if all are one.
    """
    if balanced:
        some = mass > 0  # a class without examples weighs nothing
        return examples / np.count_nonzero(some) * some / np.where(some, mass, 1)
    factors = np.full(len(mass), examples / mass.sum())
    return None if (factors == 1).all() else factors


@torch.no_grad()
def evaluate_weights(
    model: SentenceModel, weights: Mapping[str, Tensor], examples: Examples, device: torch.device
) -> tuple[float, float]:
    """Accuracy and mean cross-entropy of ``model`` with ``weights`` on ``examples``."""
    targets = target_distributions(examples.targets, model.head.out_features)
    hits = torch.zeros((), device=device)
    loss = torch.zeros((), device=device)
    for batch in prediction_batches(examples.sentences):
        ids, lengths = torch.from_numpy(batch.ids), torch.from_numpy(batch.lengths)
        logits = functional_call(model, dict(weights), (ids.to(device), lengths.to(device)))
        truth = torch.from_numpy(targets[batch.order]).to(device)
        hits += (logits.argmax(dim=1) == truth.argmax(dim=1)).sum()
        loss += cross_entropy(logits, truth) * len(batch.order)
    number = max(len(examples), 1)  # of several processes, one may have none
    return float(hits) / number, float(loss) / number


@torch.no_grad()
def logits_of(
    model: SentenceModel, sentences: Sentences, weights: Mapping[str, Tensor] | None = None
) -> NDArray[np.float32]:
    """(sentences, labels) of ``model``, where it is; with ``weights`` in the place of its own."""
    device = model.head.weight.device
    weights = dict(model.state_dict() if weights is None else weights)
    logits = np.empty((len(sentences), model.head.out_features), np.float32)
    for batch in prediction_batches(sentences):
        ids, lengths = torch.from_numpy(batch.ids), torch.from_numpy(batch.lengths)
        found = functional_call(model, weights, (ids.to(device), lengths.to(device)))
        logits[batch.order] = found.cpu().numpy()
    return logits


def evaluate_label_weights(
    model: SentenceModel, weights: Mapping[str, Tensor], examples: Examples
) -> tuple[float, float, float]:
    """Subset accuracy, mean loss and micro F1 on ``examples`` whose texts may have several labels.

    Labels are given from the one probability on that has the best micro F1: the thresholds proper
    are chosen at the end.
    """
    logits = logits_of(model, examples.sentences, weights)
    truth, probabilities = examples.targets > 0, sigmoid(logits)
    given = apply_thresholds(probabilities, [common_threshold(truth, probabilities)])
    losses = np.logaddexp(0, logits.astype(np.float64)) - truth * logits
    return (
        float((truth == given).all(axis=1).mean()),
        float(losses.sum(axis=1).mean()),
        micro_f1(truth, given),
    )
