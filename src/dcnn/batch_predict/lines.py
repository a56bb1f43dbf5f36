"""Predictions as lines of text: tab-separated fields, CSV, or one JSON object per line.

``dcnn predict MODEL TEXT`` needs this and the predictor only, so that it starts in a moment.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from dcnn.errors import UserError
from dcnn.predictor import Prediction, Predictor

# What would break a line or its fields, or control a terminal.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def abstention_summary(abstained: int, texts: int, below: float, predictor: Predictor) -> str:
    """One sentence on how many texts got no label."""
    label = predictor.abstention.get("out_of_scope")
    outside = "" if label is None else f", or it is that of {label}, which is out of scope"
    return (
        f"{abstained:,} of {texts:,} texts have no label: their highest probability is below "
        f"{below:g}{outside}"
    )


def write_csv(stream: TextIO, rows: Iterable[Sequence[str]]) -> None:
    """Write rows of fields, quoted where needed."""
    import csv

    csv.writer(stream, lineterminator="\n").writerows(rows)


@dataclass(frozen=True)
class OutputFormat:
    """How predictions are written, as lines or as columns."""

    as_json: bool = False
    top: int = 1  # labels per text, for a single-label model
    abstain_below: float | None = None  # a text whose best probability is lower gets no label
    separator: str = "|"  # between the labels of a field, for a multi-label model
    as_csv: bool = False

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
        if not self.separator or _CONTROLS.search(self.separator):
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
        """The names of the columns before the text, labels and probabilities in turn."""
        if predictor.multi_label:
            return ["labels", "probabilities"]
        count = min(self.top, len(predictor.classes))
        ends = ["", *(f"_{rank}" for rank in range(2, count + 1))]
        return [name + end for end in ends for name in ("label", "probability")]

    def write(self, stream: TextIO, predictor: Predictor, texts: Sequence[str]) -> int:
        """Classify ``texts`` and write one line for each; returns how many got no label."""
        predictions = predictor.predict(texts, self.abstain_below or 0.0)
        if self.as_csv:
            write_csv(stream, map(self._fields, predictions))
        else:
            for prediction in predictions:
                print(self.line(prediction), file=stream)
        return sum(prediction.abstained for prediction in predictions)

    def line(self, prediction: Prediction) -> str:
        """One line, without its line break."""
        if self.as_json:
            return json.dumps(self._values(prediction))
        return "\t".join(_CONTROLS.sub(" ", field) for field in self._fields(prediction))

    def _fields(self, prediction: Prediction) -> list[str]:
        if prediction.over_threshold is not None:
            pairs = [(str(label), f"{p:.6f}") for label, p in prediction.ranked_labels]
            fields = [self.separator.join(pair[part] for pair in pairs) for part in (0, 1)]
        else:
            fields = []
            for label, probability in prediction.ranked[: self.top]:
                fields += ["" if prediction.abstained else str(label), f"{probability:.6f}"]
        return [*fields, prediction.text]

    def _values(self, prediction: Prediction) -> dict[str, object]:
        values: dict[str, object] = {"text": prediction.text}
        if prediction.over_threshold is not None:
            values["labels"] = list(prediction.labels)
        else:
            values["label"] = None if prediction.abstained else prediction.label
            if self.abstain_below is not None:
                values["abstained"] = prediction.abstained
            top = [{"label": label, "probability": p} for label, p in prediction.ranked[: self.top]]
            values |= {"probability": prediction.probability, "top": top}
        return values | {"probabilities": {str(label): p for label, p in prediction.ranked}}
