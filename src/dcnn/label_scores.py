"""How well sets of labels fit the truth, and from which probability on a label is given.

Every label has a threshold of its own: the one with the best F1 on dev. A label that dev hardly
shows gets the one threshold that is best for all labels together, by micro F1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.calibration import calibration_error, confidences, reliability
from dcnn.evaluation import ClassScore

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
            reliability(*confidences(probabilities, truth, many=True))
        ),
    )


def micro_f1(right: Bools, given: Bools) -> float:
    """F1 over all labels of all texts together; nought where there are none."""
    together = int(right.sum() + given.sum())
    return 2 * int((right & given).sum()) / together if together else 0.0


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """Part over whole, and zero where there is no whole."""
    ratio: NDArray[np.float64] = np.zeros(len(part))
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio
