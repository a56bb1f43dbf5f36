"""Looking at the dev set with a network in training: accuracy and loss, and all its logits."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call

from dcnn.data.batching import Examples, prediction_batches
from dcnn.heads import sigmoid
from dcnn.label_scores import common_threshold, micro_f1, over
from dcnn.models import SentenceModel
from dcnn.text.sentences import Sentences
from dcnn.training.objective import cross_entropy, target_distributions


@torch.no_grad()
def evaluate_weights(
    model: SentenceModel, weights: Mapping[str, Tensor], examples: Examples, device: torch.device
) -> tuple[float, float]:
    """Accuracy and mean cross-entropy of ``model`` with ``weights`` on ``examples``."""
    targets = target_distributions(examples.targets, model.top.out_features)
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
    device = model.top.weight.device
    weights = dict(model.state_dict() if weights is None else weights)
    logits = np.empty((len(sentences), model.top.out_features), np.float32)
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
    given = over(probabilities, [common_threshold(truth, probabilities)])
    losses = np.logaddexp(0, logits.astype(np.float64)) - truth * logits
    return (
        float((truth == given).all(axis=1).mean()),
        float(losses.sum(axis=1).mean()),
        micro_f1(truth, given),
    )
