"""From logits to probabilities: what is above the fully connected layer.

Softmax where every text has one label; sigmoid, label by label, where a text may have several.


Whether probabilities can be believed: calibration error, reliability, and a temperature.

A network that has learned for many epochs is right less often than it is sure. Dividing all logits
by one number, the temperature, mends most of that without changing a single label (Guo et al.,
2017). It is the number that makes the dev set most likely, found by bisection: the slope of the
negative log-likelihood in 1/T only ever grows.

A dev set that is classified without a fault would have a temperature of nought. So the truth of N
examples is taken as sure to 1 - 1/(N + 2) only, as Platt does: the temperature stays finite, a dev
set of a handful changes little, and one of thousands feels nothing of it.


How well predictions fit the truth: accuracy, F1, confusion and calibration, in numpy.

How well sets of labels fit the truth, and from which probability on a label is given.

Every label has a threshold of its own: the one with the best F1 on dev. A label that dev hardly
shows gets the one threshold that is best for all labels together, by micro F1.

"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.floating[Any])


def softmax(logits: NDArray[Number]) -> NDArray[Number]:
    """Probabilities along the last axis, which add up to one."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities: NDArray[Number] = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probabilities


def sigmoid(logits: NDArray[Number]) -> NDArray[Number]:
    """The probability of every label on its own; no exponential overflows."""
    small = np.exp(-np.abs(logits))  # in (0, 1]
    probabilities: NDArray[Number] = np.where(logits >= 0, np.ones_like(small), small) / (1 + small)
    return probabilities


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


def calibrate(
    logits: NDArray[Any], targets: NDArray[Any], *, multi_label: bool = False
) -> Calibration:
    """Find the temperature for ``logits`` (N, labels).

    Args:
        logits: of the dev set, one example or more.
        targets: (N, labels) distributions; with ``multi_label`` noughts and ones.
        multi_label: whether a text may have several labels, each with a probability of its own.
    """
    scores: Doubles = logits.astype(np.float64)
    truth: Doubles = targets.astype(np.float64)
    temperature = _temperature(scores, truth, multi_label)
    before, after = (_measured(scores / one, truth, multi_label) for one in (1.0, temperature))
    return Calibration(temperature, before[0], after[0], before[1], after[1])


def confidences(
    probabilities: NDArray[Any], truth: NDArray[Any], *, multi_label: bool = False
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """What ``reliability`` takes: a confidence a prediction, and whether it is right.

    With one label a text that is the most probable label. With many, every label of every text is
    a prediction that it applies.

    Args:
        probabilities: (N, labels).
        truth: (N, labels) distributions, or noughts and ones.
        multi_label: whether a text may have several labels.
    """
    if multi_label:
        return probabilities.ravel(), truth.ravel() > 0
    return probabilities.max(axis=1), probabilities.argmax(axis=1) == truth.argmax(axis=1)


def _temperature(logits: Doubles, truth: Doubles, multi_label: bool) -> float:
    doubt = 1 / (len(logits) + 2)
    others = 2 if multi_label else logits.shape[1]
    # The doubt goes to the other labels; with several labels, to the other answer of each.
    believed = truth * (1 - doubt) + (1 - truth) * doubt / (others - 1)
    head: Callable[[Any], Any] = sigmoid if multi_label else softmax

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


def _measured(logits: Doubles, truth: Doubles, multi_label: bool) -> tuple[float, float]:
    """Calibration error and mean negative log-likelihood."""
    if multi_label:
        losses = np.logaddexp(0, logits) - truth * logits
        probabilities: Any = sigmoid(logits)
    else:
        shifted = logits - logits.max(axis=1, keepdims=True)
        losses = truth * (np.log(np.exp(shifted).sum(axis=1, keepdims=True)) - shifted)
        probabilities = softmax(logits)
    bins = reliability(*confidences(probabilities, truth, multi_label=multi_label))
    return calibration_error(bins), float(losses.sum(axis=1).mean())


@dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of one class; ``support`` is how often it is the truth."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Evaluation:
    """The scores of a set of predictions.

    Attributes:
        accuracy: share of examples whose most probable class is the true one.
        macro_f1: mean of the classes' F1, over those that are the truth or predicted at least once.
        per_class: scores of each class.
        confusion: (classes, classes) counts; row the truth, column the prediction.
        calibration_error: expected calibration error over equal-width bins of confidence.
    """

    accuracy: float
    macro_f1: float
    per_class: tuple[ClassScore, ...]
    confusion: NDArray[np.int64]
    calibration_error: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "per_class": {
                score.label: {
                    "precision": score.precision,
                    "recall": score.recall,
                    "f1": score.f1,
                    "support": score.support,
                }
                for score in self.per_class
            },
            "confusion": self.confusion.tolist(),
            "calibration_error": self.calibration_error,
        }


def evaluate(
    truth: NDArray[Any], probabilities: NDArray[Any], labels: Sequence[object]
) -> Evaluation:
    """Score ``probabilities`` (N, classes) against class numbers ``truth`` (N,)."""
    predicted = probabilities.argmax(axis=1)
    confusion = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(confusion, (truth, predicted), 1)

    hits = confusion.diagonal()
    support, chosen = confusion.sum(axis=1), confusion.sum(axis=0)
    precision = _ratio(hits, chosen)
    recall = _ratio(hits, support)
    f1 = _ratio(2 * hits, support + chosen)
    occurs = support + chosen > 0
    return Evaluation(
        accuracy=float(hits.sum() / len(truth)),
        macro_f1=float(f1[occurs].mean()),
        per_class=tuple(
            ClassScore(str(label), float(p), float(r), float(f), int(n))
            for label, p, r, f, n in zip(labels, precision, recall, f1, support, strict=True)
        ),
        confusion=confusion,
        calibration_error=calibration_error(
            reliability(probabilities.max(axis=1), predicted == truth)
        ),
    )


@dataclass(frozen=True)
class Answered:
    """What is left where a model may abstain.

    Attributes:
        abstain_below: the least probability of an answer.
        coverage: share of the examples that are answered.
        accuracy: share of those that are answered rightly; none if none is.
    """

    abstain_below: float
    coverage: float
    accuracy: float | None


def abstain(truth: NDArray[Any], probabilities: NDArray[Any], below: float) -> Answered:
    """Leave out the examples whose best probability is under ``below``, and score the rest."""
    # As Python compares: in float32 a limit such as 0.9 would be a little less than it says.
    answered = probabilities.max(axis=1).astype(np.float64) >= below
    hits = probabilities.argmax(axis=1) == truth
    accuracy = float(hits[answered].mean()) if answered.any() else None
    return Answered(below, float(answered.mean()), accuracy)


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """Part over whole, and zero where there is no whole."""
    ratio: NDArray[np.float64] = np.zeros(len(part))
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio


FEWEST_POSITIVES = 5  # on dev, for a threshold of a label's own
UNDECIDED = 0.5

Bools = NDArray[np.bool_]


def choose_thresholds(truth: NDArray[Any], probabilities: NDArray[Any]) -> tuple[float, ...]:
    """A threshold for each label; both arrays are (N, labels), ``truth`` of noughts and ones."""
    positives = truth.sum(axis=0)
    common = common_threshold(truth, probabilities)
    return tuple(
        _best_threshold(truth[:, label], probabilities[:, label])
        if positives[label] >= FEWEST_POSITIVES
        else common
        for label in range(truth.shape[1])
    )


def common_threshold(truth: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """The one threshold for all labels that has the best micro F1."""
    return _best_threshold(truth.ravel(), probabilities.ravel()) if truth.any() else UNDECIDED


def over(probabilities: NDArray[Any], thresholds: Sequence[float]) -> Bools:
    """(N, labels): which labels are given."""
    # As Python compares: float32 has no number for most thresholds.
    given: Bools = probabilities.astype(np.float64) >= np.asarray(thresholds, np.float64)
    return given


def _best_threshold(truth: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Between two probabilities (N,), where F1 is the best; of several the nearest to a half."""
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order].astype(np.float64)
    hits = np.cumsum(truth[order])
    chosen = np.arange(1, len(ranked) + 1)
    f1 = 2 * hits / (chosen + truth.sum())
    below = np.append(ranked[1:], 0.0)
    thresholds = (ranked + below) / 2
    cuts = np.flatnonzero(ranked > below)  # equal probabilities are on one side
    best = cuts[f1[cuts] == f1[cuts].max()] if len(cuts) else np.array([], np.int64)
    if not len(best):
        return UNDECIDED
    return float(thresholds[best[np.abs(thresholds[best] - UNDECIDED).argmin()]])


@dataclass(frozen=True)
class LabelEvaluation:
    """The scores of sets of labels.

    Attributes:
        micro_f1: F1 over all labels of all texts together.
        micro_precision: precision of the same.
        micro_recall: recall of the same.
        macro_f1: mean of the labels' F1; a label that never occurs and is never given has 0.
        subset_accuracy: share of the texts that get all their labels and no other.
        per_label: scores of each label.
        calibration_error: expected calibration error of all probabilities of all labels.
    """

    micro_f1: float
    micro_precision: float
    micro_recall: float
    macro_f1: float
    subset_accuracy: float
    per_label: tuple[ClassScore, ...]
    calibration_error: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "micro_f1": self.micro_f1,
            "micro_precision": self.micro_precision,
            "micro_recall": self.micro_recall,
            "macro_f1": self.macro_f1,
            "subset_accuracy": self.subset_accuracy,
            "per_label": {
                score.label: {
                    "precision": score.precision,
                    "recall": score.recall,
                    "f1": score.f1,
                    "support": score.support,
                }
                for score in self.per_label
            },
            "calibration_error": self.calibration_error,
        }


def evaluate_labels(
    truth: NDArray[Any],
    probabilities: NDArray[Any],
    thresholds: Sequence[float],
    labels: Sequence[object],
) -> LabelEvaluation:
    """Score ``probabilities`` (N, labels) against ``truth`` (N, labels) of noughts and ones."""
    right, given = truth > 0, over(probabilities, thresholds)
    hits, support, chosen = (
        counted.sum(axis=0).astype(np.float64) for counted in (right & given, right, given)
    )
    precision, recall = _ratio(hits, chosen), _ratio(hits, support)
    f1 = _ratio(2 * hits, support + chosen)
    totals = [np.array([counted.sum()]) for counted in (hits, support, chosen)]
    return LabelEvaluation(
        micro_f1=float(_ratio(2 * totals[0], totals[1] + totals[2])[0]),
        micro_precision=float(_ratio(totals[0], totals[2])[0]),
        micro_recall=float(_ratio(totals[0], totals[1])[0]),
        macro_f1=float(f1.mean()),
        subset_accuracy=float((right == given).all(axis=1).mean()),
        per_label=tuple(
            ClassScore(str(label), float(p), float(r), float(f), int(n))
            for label, p, r, f, n in zip(labels, precision, recall, f1, support, strict=True)
        ),
        calibration_error=calibration_error(
            reliability(*confidences(probabilities, truth, multi_label=True))
        ),
    )


def micro_f1(right: Bools, given: Bools) -> float:
    """F1 over all labels of all texts together; nought where there are none."""
    together = int(right.sum() + given.sum())
    return 2 * int((right & given).sum()) / together if together else 0.0
