"""Predictions as lines of text: tab-separated fields, or one JSON object per line.

``dcnn predict MODEL TEXT`` needs this and the predictor only, so that it starts in a moment.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from dcnn.artifact import Label
from dcnn.errors import UserError
from dcnn.predictor import Prediction, Predictor

# What would break a line or its fields, or control a terminal.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def check_top(top: int, multi_label: bool) -> None:
    """Refuse ``--top`` for a multi-label model.

    Raises:
        UserError: the model is multi-label and more than one label is asked for.
    """
    if multi_label and top > 1:
        raise UserError(
            f"--top {top} is for single-label models; this one is multi-label and gives every "
            "label that reaches its threshold; --json has the probabilities of all labels"
        )


def abstention_summary(abstained: int, texts: int, below: float) -> str:
    """One sentence on how many texts got no label."""
    return (
        f"{abstained:,} of {texts:,} texts have no label: their highest probability is below "
        f"{below:g}"
    )


@dataclass(frozen=True)
class LineForm:
    """How a prediction becomes a line.

    Attributes:
        as_json: whether it is a JSON object.
        top: how many labels per text, for a single-label model.
        abstains: whether a text may be left without a label.
        separator: separates the labels of a field, for a multi-label model.
    """

    as_json: bool = False
    top: int = 1
    abstains: bool = False
    separator: str = "|"

    def check(self, classes: Sequence[Label], multi_label: bool) -> None:
        """Check that the labels can be written so.

        Raises:
            UserError: the separator is unusable, or part of a label of a multi-label model.
        """
        if not multi_label or self.as_json:
            return
        if not self.separator or _CONTROLS.search(self.separator):
            raise UserError(
                f"--labels-separator {self.separator!r} must be one or more printable characters, "
                "such as '|'"
            )
        for label in classes:
            if self.separator in str(label):
                raise UserError(
                    f"the label {str(label)!r} contains the separator {self.separator!r}; "
                    "choose another with --labels-separator, or use --json"
                )

    def write(
        self, stream: TextIO, predictor: Predictor, texts: Sequence[str], abstain_below: float = 0.0
    ) -> int:
        """Classify ``texts`` and write one line for each; returns how many got no label."""
        predictions = predictor.predict(texts, abstain_below)
        for prediction in predictions:
            print(self.line(prediction), file=stream)
        return sum(prediction.abstained for prediction in predictions)

    def line(self, prediction: Prediction) -> str:
        """One line, without its line break."""
        if self.as_json:
            return json.dumps(self._values(prediction))
        return "\t".join(
            _CONTROLS.sub(" ", field) for field in [*self._fields(prediction), prediction.text]
        )

    def _fields(self, prediction: Prediction) -> list[str]:
        if prediction.over_threshold is not None:
            given = prediction.ranked_labels
            return [
                self.separator.join(str(label) for label, _ in given),
                self.separator.join(f"{probability:.6f}" for _, probability in given),
            ]
        return [
            field
            for label, probability in prediction.ranked[: self.top]
            for field in ("" if prediction.abstained else str(label), f"{probability:.6f}")
        ]

    def _values(self, prediction: Prediction) -> dict[str, object]:
        ranked = prediction.ranked
        probabilities = {str(label): probability for label, probability in ranked}
        if prediction.over_threshold is not None:
            return {
                "text": prediction.text,
                "labels": list(prediction.labels),
                "probabilities": probabilities,
            }
        return {
            "text": prediction.text,
            "label": None if prediction.abstained else prediction.label,
            **({"abstained": prediction.abstained} if self.abstains else {}),
            "probability": prediction.probability,
            "top": [{"label": label, "probability": p} for label, p in ranked[: self.top]],
            "probabilities": probabilities,
        }
