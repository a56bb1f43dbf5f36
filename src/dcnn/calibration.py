"""Whether probabilities can be believed: calibration error, reliability, and a temperature.

A network that has learned for many epochs is right less often than it is sure. Dividing all logits
by one number, the temperature, mends most of that without changing a single label (Guo et al.,
2017). It is the number that makes the dev set most likely, found by bisection: the slope of the
negative log-likelihood in 1/T only ever grows.

A dev set that is classified without a fault would have a temperature of nought. So the truth of N
examples is taken as sure to 1 - 1/(N + 2) only, as Platt does: the temperature stays finite, a dev
set of a handful changes little, and one of thousands feels nothing of it.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.heads import sigmoid, softmax

BINS = 15
LOWEST, HIGHEST = 0.05, 20.0  # temperatures beyond these say that something else is wrong
_HALVINGS = 60

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Bin:
    """Predictions of like confidence.

    Attributes:
        low: the least confidence of the bin.
        high: where the next one begins.
        count: how many predictions it has.
        confidence: their mean; nought if there are none.
        accuracy: the share of them that is right; nought if there are none.
    """

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def reliability(confidence: NDArray[Any], correct: NDArray[np.bool_]) -> tuple[Bin, ...]:
    """``BINS`` of equal width from 0 to 1, for predictions (N,) and whether each is right."""
    places = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    sums = [
        np.bincount(places, weights=values, minlength=BINS) / np.maximum(counts, 1)
        for values in (confidence, correct)
    ]
    return tuple(
        Bin(place / BINS, (place + 1) / BINS, int(count), float(sure), float(right))
        for place, (count, sure, right) in enumerate(zip(counts, *sums, strict=True))
    )


def calibration_error(bins: tuple[Bin, ...]) -> float:
    """Mean distance between confidence and accuracy over the bins, weighted by their size."""
    total = sum(one.count for one in bins)
    return sum(one.count * abs(one.confidence - one.accuracy) for one in bins) / max(total, 1)


@dataclass(frozen=True)
class Calibration:
    """A temperature, and what it does to the dev set it was found on.

    Attributes:
        temperature: what logits are divided by.
        error_before: calibration error without it.
        error_after: calibration error with it.
        loss_before: mean negative log-likelihood without it.
        loss_after: mean negative log-likelihood with it.
    """

    temperature: float
    error_before: float
    error_after: float
    loss_before: float
    loss_after: float

    def to_dict(self) -> dict[str, float]:
        """Plain values, for the facts of a model folder."""
        return {name: round(value, 6) for name, value in asdict(self).items()}


def calibrate(logits: NDArray[Any], targets: NDArray[Any], *, many: bool = False) -> Calibration:
    """Find the temperature for ``logits`` (N, labels).

    Args:
        logits: of the dev set, one example or more.
        targets: (N, labels) distributions; with ``many`` noughts and ones.
        many: whether a text may have several labels, each with a probability of its own.
    """
    scores: Doubles = logits.astype(np.float64)
    truth: Doubles = targets.astype(np.float64)
    temperature = _temperature(scores, truth, many)
    before, after = (_measured(scores / one, truth, many) for one in (1.0, temperature))
    return Calibration(temperature, before[0], after[0], before[1], after[1])


def confidences(
    probabilities: NDArray[Any], truth: NDArray[Any], *, many: bool = False
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """What ``reliability`` takes: a confidence a prediction, and whether it is right.

    With one label a text that is the most probable label. With many, every label of every text is
    a prediction that it applies.

    Args:
        probabilities: (N, labels).
        truth: (N, labels) distributions, or noughts and ones.
        many: whether a text may have several labels.
    """
    if many:
        return probabilities.ravel(), truth.ravel() > 0
    return probabilities.max(axis=1), probabilities.argmax(axis=1) == truth.argmax(axis=1)


def _temperature(logits: Doubles, truth: Doubles, many: bool) -> float:
    doubt = 1 / (len(logits) + 2)
    others = 2 if many else logits.shape[1]
    # The doubt goes to the other labels; with several labels, to the other answer of each.
    believed = truth * (1 - doubt) + (1 - truth) * doubt / (others - 1)
    head: Callable[[Any], Any] = sigmoid if many else softmax

    def slope(log_inverse: float) -> float:
        """Of the negative log-likelihood, in 1/T."""
        return float(((head(np.exp(log_inverse) * logits) - believed) * logits).sum())

    low, high = -np.log(HIGHEST), -np.log(LOWEST)
    if slope(low) == slope(high):  # logits that are all alike fit any temperature
        return 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


def _measured(logits: Doubles, truth: Doubles, many: bool) -> tuple[float, float]:
    """Calibration error and mean negative log-likelihood."""
    if many:
        losses = np.logaddexp(0, logits) - truth * logits
        probabilities: Any = sigmoid(logits)
    else:
        shifted = logits - logits.max(axis=1, keepdims=True)
        losses = truth * (np.log(np.exp(shifted).sum(axis=1, keepdims=True)) - shifted)
        probabilities = softmax(logits)
    bins = reliability(*confidences(probabilities, truth, many=many))
    return calibration_error(bins), float(losses.sum(axis=1).mean())
