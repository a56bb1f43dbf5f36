"""Predictions as lines of text: tab-separated fields, or one JSON object per line.

``dcnn predict MODEL TEXT`` needs this and the predictor only, so that it starts in a moment.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, TextIO

from dcnn.errors import UserError
from dcnn.files import CONTROLS
from dcnn.predictor import Prediction, Predictor

SEPARATOR = "|"


def probability_columns(classes: Sequence[Any]) -> list[str]:
    """The names of the columns that hold the probability of each class."""
    return [f"probability_of_{label}" for label in classes]


def abstention_summary(abstained: int, texts: int, below: float, predictor: Predictor) -> str:
    """One sentence on how many texts got no label."""
    label = predictor.abstention.get("out_of_scope")
    outside = "" if label is None else f", or it is that of {label}, which is out of scope"
    return (
        f"{abstained:,} of {texts:,} texts have no label: their highest probability is below "
        f"{below:g}{outside}"
    )


class OutputFormat(NamedTuple):
    """How predictions are written, as lines or as columns."""

    as_json: bool = False
    top: int = 1  # labels per text, for a single-label model
    abstain_below: float | None = None  # a text whose best probability is lower gets no label
    separator: str = SEPARATOR  # between the labels of a field, for a multi-label model
    all_labels: bool = False  # whether the probability of every label follows

    def check(self, predictor: Predictor, *, columnar: bool = False) -> None:
        """Raise UserError if the predictions of this model cannot be written so."""
        if not predictor.multi_label:
            return
        if self.top > 1:
            raise UserError(
                f"--top {self.top} is for single-label models; this one is multi-label and gives "
                "every label that reaches its threshold; --json has the probabilities of all labels"
            )
        if self.abstain_below is not None:
            predictor.check_abstains(self.abstain_below)
        if self.as_json or columnar:
            return
        if not self.separator or CONTROLS.search(self.separator):
            raise UserError(
                f"--labels-separator {self.separator!r} must be one or more printable characters, "
                "such as '|'"
            )
        for label in map(str, predictor.classes):
            if self.separator in label:
                raise UserError(
                    f"the label {label!r} contains the separator {self.separator!r}; "
                    "choose another with --labels-separator, or use --json"
                )

    def columns(self, predictor: Predictor) -> list[str]:
        """The names of the columns of a prediction: labels and probabilities in turn."""
        every = probability_columns(predictor.classes) * self.all_labels
        if predictor.multi_label:
            return ["labels", "probabilities", *every]
        count = min(self.top, len(predictor.classes))
        ends = ["", *(f"_{rank}" for rank in range(2, count + 1))]
        return [*(name + end for end in ends for name in ("label", "probability")), *every]

    def write(self, stream: TextIO, predictor: Predictor, texts: Sequence[str]) -> int:
        """Classify ``texts`` and write one line for each; returns how many got no label."""
        predictions = predictor.predict(texts, self.abstain_below or 0.0)
        for prediction in predictions:
            print(self.line(prediction, predictor.classes), file=stream)
        return sum(prediction.abstained for prediction in predictions)

    def line(self, prediction: Prediction, classes: Sequence[Any] = ()) -> str:
        """One line, without its line break."""
        if self.as_json:
            return json.dumps({"text": prediction.text} | self.values(prediction))
        fields = [*self.fields(prediction, classes), prediction.text]
        return "\t".join(CONTROLS.sub(" ", field) for field in fields)

    def fields(self, prediction: Prediction, classes: Sequence[Any]) -> list[str]:
        """The cells of ``columns``."""
        if prediction.over_threshold is not None:
            pairs = [(str(label), f"{p:.6f}") for label, p in prediction.ranked_labels]
            fields = [self.separator.join(pair[part] for pair in pairs) for part in (0, 1)]
        else:
            fields = []
            for label, probability in prediction.ranked[: self.top]:
                fields += ["" if prediction.abstained else str(label), f"{probability:.6f}"]
        if self.all_labels:
            shares = dict(prediction.ranked)
            fields += [f"{shares[label]:.6f}" for label in classes]
        return fields

    def values(self, prediction: Prediction) -> dict[str, object]:
        """What an object of JSON has besides the text; always with all probabilities."""
        values: dict[str, object] = {}
        if prediction.over_threshold is not None:
            values["labels"] = list(prediction.labels)
        else:
            values["label"] = None if prediction.abstained else prediction.label
            if self.abstain_below is not None:
                values["abstained"] = prediction.abstained
            top = [{"label": label, "probability": p} for label, p in prediction.ranked[: self.top]]
            values |= {"probability": prediction.probability, "top": top}
        return values | {"probabilities": {str(label): p for label, p in prediction.ranked}}
