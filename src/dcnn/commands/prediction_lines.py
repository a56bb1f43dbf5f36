"""Predictions as lines: fields separated by tabs, or an object of JSON each."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dcnn.artifact import Label
from dcnn.errors import UserError
from dcnn.predictor import Prediction

# What would break a line or its fields, or tell a terminal to do something.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def check_top(top: int, multi_label: bool) -> None:
    """Refuse to rank labels where a text may have several.

    Raises:
        UserError: so it is.
    """
    if multi_label and top > 1:
        raise UserError(
            f"--top {top} is for models that give one label; this one gives every label from its "
            "threshold on; --json tells the probabilities of all"
        )


def left_without_label(abstained: int, texts: int, below: float) -> str:
    """What to say of abstaining when all is done."""
    return (
        f"left {abstained:,} of {texts:,} texts without a label: "
        f"those whose best probability is under {below:g}"
    )


@dataclass(frozen=True)
class LineForm:
    """How a prediction becomes a line.

    Attributes:
        as_json: whether it is an object.
        top: how many labels are told, where a text has one.
        abstains: whether a text may be left without its label.
        separator: parts the labels in a field, where a text may have several.
    """

    as_json: bool = False
    top: int = 1
    abstains: bool = False
    separator: str = "|"

    def check(self, classes: Sequence[Label], multi_label: bool) -> None:
        """Find before any work what such lines cannot say.

        Raises:
            UserError: a label holds the separator, where labels share a field.
        """
        if not multi_label or self.as_json:
            return
        if not self.separator or _CONTROLS.search(self.separator):
            raise UserError(
                f"--labels-separator {self.separator!r} must be a character or more that a field "
                "can hold, such as '|'"
            )
        for label in classes:
            if self.separator in str(label):
                raise UserError(
                    f"the label {str(label)!r} holds {self.separator!r}, which parts labels; "
                    "choose another with --labels-separator, or take --json"
                )

    def line(self, prediction: Prediction) -> str:
        """One line, without its end."""
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
