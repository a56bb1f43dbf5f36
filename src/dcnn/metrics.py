"""Scores of probabilities: accuracy, F1, thresholds, calibration.

Thresholds: each label of a multi-label model has its own, the one with the best F1 on dev. A label
that dev rarely shows gets the threshold that is best for all labels together, by micro F1.

Calibration: networks trained for many epochs are overconfident. Dividing all logits by one number,
the temperature, corrects most of that without changing a label (Guo et al., 2017). It maximizes the
likelihood of the dev set and is found by bisection, as the slope of the negative log-likelihood in
1/T is monotonic. A dev set without an error would have a temperature of 0, so the truth of N
examples is smoothed to 1 - 1/(N + 2), as Platt does: the temperature stays finite, a tiny dev set
changes little, and a large one is hardly affected.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.ops.reference import sigmoid, softmax

Bools = NDArray[np.bool_]
Doubles = NDArray[np.float64]

MIN_POSITIVES = 5  # examples on dev for a label's own threshold
DEFAULT_THRESHOLD = 0.5
BINS = 15
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0


@dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of one class; ``support`` is the number of its true examples."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Evaluation:
    """The scores of single-label predictions.

    ``macro_f1`` is over the classes that are true or predicted at least once; rows of ``confusion``
    are true, columns predicted.
    """

    accuracy: float
    macro_f1: float
    per_class: tuple[ClassScore, ...]
    confusion: NDArray[np.int64]
    calibration_error: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return _plain(self, "per_class") | {"confusion": self.confusion.tolist()}


@dataclass(frozen=True)
class LabelEvaluation:
    """The scores of multi-label predictions.

    The F1 of a label that never occurs and is never predicted is 0. ``subset_accuracy`` is the
    share of texts with all their labels and no other.
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
        return _plain(self, "per_label")


def _plain(scores: object, table: str) -> dict[str, Any]:
    """The fields of ``scores``, with the class scores in its ``table`` by label."""
    values = vars(scores)
    rows = [asdict(score) for score in values[table]]
    return values | {table: {row.pop("label"): row for row in rows}}


def evaluate(
    truth: NDArray[Any], probabilities: NDArray[Any], labels: Sequence[object]
) -> Evaluation:
    """Score ``probabilities`` (N, classes) against class numbers ``truth`` (N,)."""
    predicted = probabilities.argmax(axis=1)
    confusion = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(confusion, (truth, predicted), 1)
    hits, support, chosen = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    scores = _class_scores(labels, hits, support, chosen)
    occurring = [score.f1 for score, some in zip(scores, support + chosen > 0, strict=True) if some]
    error = calibration_error(reliability(probabilities.max(axis=1), predicted == truth))
    accuracy = float(hits.sum() / len(truth))
    return Evaluation(accuracy, float(np.mean(occurring)), scores, confusion, error)


def evaluate_labels(
    truth: NDArray[Any],
    probabilities: NDArray[Any],
    thresholds: Sequence[float],
    labels: Sequence[object],
) -> LabelEvaluation:
    """Score ``probabilities`` (N, labels) against ``truth`` (N, labels) of 0 and 1."""
    true, predicted = truth > 0, apply_thresholds(probabilities, thresholds)
    counts = [counted.sum(axis=0) for counted in (true & predicted, true, predicted)]
    scores = _class_scores(labels, *counts)
    (micro,) = _class_scores(["all"], *(count.sum(keepdims=True) for count in counts))
    bins = reliability(*confidences(probabilities, truth, multi_label=True))
    return LabelEvaluation(
        micro_f1=micro.f1,
        micro_precision=micro.precision,
        micro_recall=micro.recall,
        macro_f1=float(np.mean([score.f1 for score in scores])),
        subset_accuracy=float((true == predicted).all(axis=1).mean()),
        per_label=scores,
        calibration_error=calibration_error(bins),
    )


def micro_f1(true: Bools, predicted: Bools) -> float:
    """F1 over all labels of all texts together; 0 where there are none."""
    total = int(true.sum() + predicted.sum())
    return 2 * int((true & predicted).sum()) / total if total else 0.0


def _class_scores(
    labels: Sequence[object], hits: NDArray[Any], support: NDArray[Any], predicted: NDArray[Any]
) -> tuple[ClassScore, ...]:
    """Scores from counts per class; a precision, recall or F1 of nothing is 0."""
    shares = [(hits, predicted), (hits, support), (2 * hits, support + predicted)]
    ratios = [(part / np.maximum(whole, 1)).tolist() for part, whole in shares]
    rows = zip(labels, *ratios, support.tolist(), strict=True)
    return tuple(ClassScore(str(label), *scores) for label, *scores in rows)


@dataclass(frozen=True)
class Abstention:
    """Coverage, and accuracy when answered (none if nothing is), of a model that may abstain."""

    abstain_below: float
    coverage: float
    accuracy: float | None


def abstain(truth: NDArray[Any], probabilities: NDArray[Any], below: float) -> Abstention:
    """Score the examples whose best probability is not under ``below``."""
    # In double precision: in float32 a limit such as 0.9 would be slightly lower.
    answered = probabilities.max(axis=1).astype(np.float64) >= below
    hits = probabilities.argmax(axis=1) == truth
    accuracy = float(hits[answered].mean()) if answered.any() else None
    return Abstention(below, float(answered.mean()), accuracy)


def apply_thresholds(probabilities: NDArray[Any], thresholds: Sequence[float]) -> Bools:
    """(N, labels): which labels are predicted."""
    # In double precision: float32 has no number for most thresholds.
    predicted: Bools = probabilities.astype(np.float64) >= np.asarray(thresholds, np.float64)
    return predicted


def choose_thresholds(truth: NDArray[Any], probabilities: NDArray[Any]) -> tuple[float, ...]:
    """A threshold per label; both arrays are (N, labels), ``truth`` of 0 and 1."""
    common = common_threshold(truth, probabilities)
    return tuple(
        _best_threshold(true, scores) if true.sum() >= MIN_POSITIVES else common
        for true, scores in zip(truth.T, probabilities.T, strict=True)
    )


def common_threshold(truth: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """The threshold for all labels that has the best micro F1."""
    if not truth.any():
        return DEFAULT_THRESHOLD
    return _best_threshold(truth.ravel(), probabilities.ravel())


def _best_threshold(truth: NDArray[Any], probabilities: NDArray[Any]) -> float:
    """Between two probabilities (N,), where F1 is best; of several the nearest to 0.5."""
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order].astype(np.float64)
    hits = np.cumsum(truth[order])
    chosen = np.arange(1, len(ranked) + 1)
    f1 = 2 * hits / (chosen + truth.sum())
    below = np.append(ranked[1:], 0.0)
    thresholds = (ranked + below) / 2
    cuts = np.flatnonzero(ranked > below)  # equal probabilities are on one side
    if not len(cuts):
        return DEFAULT_THRESHOLD
    best = cuts[f1[cuts] == f1[cuts].max()]
    return float(thresholds[best[np.abs(thresholds[best] - DEFAULT_THRESHOLD).argmin()]])


@dataclass(frozen=True)
class Bin:
    """Predictions with confidences from ``low`` to ``high``: number, mean confidence, accuracy."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def reliability(confidence: NDArray[Any], correct: Bools) -> tuple[Bin, ...]:
    """``BINS`` of equal width from 0 to 1, for predictions (N,) and whether each is correct."""
    places = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    means = [
        np.bincount(places, weights=values, minlength=BINS) / np.maximum(counts, 1)
        for values in (confidence, correct)
    ]
    return tuple(
        Bin(place / BINS, (place + 1) / BINS, int(count), float(mean), float(accuracy))
        for place, (count, mean, accuracy) in enumerate(zip(counts, *means, strict=True))
    )


def calibration_error(bins: Sequence[Bin]) -> float:
    """Mean distance between confidence and accuracy over the bins, weighted by their size."""
    total = sum(one.count for one in bins)
    return sum(one.count * abs(one.confidence - one.accuracy) for one in bins) / max(total, 1)


def confidences(
    probabilities: NDArray[Any], truth: NDArray[Any], *, multi_label: bool = False
) -> tuple[NDArray[Any], Bools]:
    """The confidence of each prediction and whether it is correct, for ``reliability``.

    A single-label prediction is the most probable label. Where multi-label, every label of every
    text is a prediction that it applies. Both arrays are (N, labels).
    """
    if multi_label:
        return probabilities.ravel(), truth.ravel() > 0
    return probabilities.max(axis=1), probabilities.argmax(axis=1) == truth.argmax(axis=1)


@dataclass(frozen=True)
class Calibration:
    """A temperature, with calibration error and mean negative log-likelihood on dev around it."""

    temperature: float
    error_before: float
    error_after: float
    loss_before: float
    loss_after: float

    def to_dict(self) -> dict[str, float]:
        """Plain values, for the metadata of a model folder."""
        return {name: round(value, 6) for name, value in asdict(self).items()}


def calibrate(
    logits: NDArray[Any], targets: NDArray[Any], *, multi_label: bool = False
) -> Calibration:
    """Find the temperature for ``logits`` (N, labels) of a dev set, one example or more.

    ``targets`` are (N, labels) distributions; 0/1 where ``multi_label``.
    """
    scores: Doubles = logits.astype(np.float64)
    truth: Doubles = targets.astype(np.float64)
    temperature = _temperature(scores, truth, multi_label)
    before, after = (_error_and_loss(scores / t, truth, multi_label) for t in (1.0, temperature))
    return Calibration(temperature, before[0], after[0], before[1], after[1])


def _temperature(logits: Doubles, truth: Doubles, multi_label: bool) -> float:
    doubt = 1 / (len(logits) + 2)
    classes = 2 if multi_label else logits.shape[1]  # of one softmax; a sigmoid decides between 2
    smoothed = truth * (1 - doubt) + (1 - truth) * doubt / (classes - 1)
    activation: Callable[[Any], Any] = sigmoid if multi_label else softmax

    def slope(log_inverse: float) -> float:
        """The slope of the negative log-likelihood in 1/T."""
        return float(((activation(np.exp(log_inverse) * logits) - smoothed) * logits).sum())

    low, high = -np.log(MAX_TEMPERATURE), -np.log(MIN_TEMPERATURE)
    if slope(low) == slope(high):  # logits that are all equal fit any temperature
        return 1.0
    for _ in range(60):  # halvings, to the last bit
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


def _error_and_loss(logits: Doubles, truth: Doubles, multi_label: bool) -> tuple[float, float]:
    """Calibration error and mean negative log-likelihood."""
    if multi_label:
        losses = np.logaddexp(0, logits) - truth * logits
        probabilities: Doubles = sigmoid(logits)
    else:
        shifted = logits - logits.max(axis=1, keepdims=True)
        losses = truth * (np.log(np.exp(shifted).sum(axis=1, keepdims=True)) - shifted)
        probabilities = softmax(logits)
    bins = reliability(*confidences(probabilities, truth, multi_label=multi_label))
    return calibration_error(bins), float(losses.sum(axis=1).mean())
