"""How well predictions fit the truth: accuracy, F1, confusion and calibration, in numpy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.calibration import calibration_error, reliability


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
