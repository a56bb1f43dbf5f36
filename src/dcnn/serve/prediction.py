"""``/v1/predict`` and ``/v1/predict-file``: predictions as plain values.

An uploaded file stays in memory: no part of a request is ever a path on this machine. The whole
file is read before the response starts, so that an error in its last line is an error response
instead of half an answer.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from starlette.exceptions import HTTPException

from dcnn.data.columns import TEXT_OPTION
from dcnn.data.readers import Row, TableOptions, read_texts
from dcnn.errors import DataError
from dcnn.files import COMPRESSIONS
from dcnn.predictor import Prediction, Predictor
from dcnn.serve.protocol import Limits, json_bytes
from dcnn.serve.registry import ServedModel
from dcnn.serve.schemas import PredictionResponse

CHUNK = 256  # rows predicted together and sent together
LONGEST_NAME = 80
ENCODINGS = ("utf-8", "utf-16", "latin-1", "cp1252")

# The readers name options of the command line; here they are query parameters.
_PARAMETERS = {
    TEXT_OPTION: "text_column",
    "--encoding ": "encoding=",
    "--no-header": "header=false",
}


@dataclass(frozen=True)
class PredictOptions:
    """What a prediction contains beyond the default, as in ``dcnn predict --json``.

    Attributes:
        top: how many labels to list, most probable first; no list if None.
        abstain_below: a text whose best probability is below this gets no label.
    """

    top: int | None = None
    abstain_below: float | None = None

    def check(self, predictor: Predictor) -> None:
        """Find before any work what a multi-label model cannot do.

        Raises:
            HTTPException: ``top`` is above 1.
            UserError: it is to abstain.
        """
        if predictor.multi_label and self.top is not None and self.top > 1:
            raise HTTPException(
                422,
                f"top={self.top} is for single-label models; this model is multi-label and gives "
                "every label that reaches its threshold; the field probabilities has them all",
            )
        if self.abstain_below is not None:
            predictor.check_abstains(self.abstain_below)

    def predict(self, predictor: Predictor, texts: Sequence[str]) -> list[PredictionResponse]:
        """The predictions of some texts."""
        predictions = predictor.predict(texts, self.abstain_below or 0.0)
        return [self._response(prediction) for prediction in predictions]

    def _response(self, prediction: Prediction) -> PredictionResponse:
        response = prediction_response(prediction)
        if self.abstain_below is not None:
            response["abstained"] = prediction.abstained
            if prediction.abstained:
                response["label"] = None
        if self.top is not None:
            ranked = prediction.ranked[: self.top]
            response["top"] = [{"label": label, "probability": p} for label, p in ranked]
        return response


def prediction_response(prediction: Prediction) -> PredictionResponse:
    """A prediction without its text."""
    response: PredictionResponse = {
        "label": prediction.label,
        "probability": prediction.probability,
        "probabilities": {str(label): p for label, p in prediction.ranked},
    }
    if prediction.over_threshold is not None:
        response["labels"] = prediction.over_threshold
    return response


def predict_texts(model: ServedModel, texts: Sequence[str], options: PredictOptions) -> bytes:
    """The response of ``/v1/predict``."""
    return json_bytes({"model": model.name, "predictions": options.predict(model.predictor, texts)})


def predict_rows(model: ServedModel, rows: Sequence[Row], options: PredictOptions) -> bytes:
    """Lines of the response of ``/v1/predict-file``: one JSON object per row."""
    predictions = options.predict(model.predictor, [row.text for row in rows])
    lines = [
        json_bytes({"line": row.place.number, "text": row.text, **prediction}) + b"\n"
        for row, prediction in zip(rows, predictions, strict=True)
    ]
    return b"".join(lines)


def chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The rows in parts of ``CHUNK``."""
    return (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))


def read_upload(name: str, content: bytes, options: TableOptions, limits: Limits) -> list[Row]:
    """The rows of an uploaded file.

    Raises:
        HTTPException: the file cannot be read, or has too many texts or one that is too long.
    """
    # The name is only ever printed: its last part, shortened, without control characters.
    last = PurePosixPath(name.replace("\\", "/")).name
    path = Path("".join(c for c in last if c.isprintable())[-LONGEST_NAME:] or "the file")
    if path.suffix.lower() in COMPRESSIONS:
        raise HTTPException(422, f"{path}: compressed files are not accepted; decompress it first")
    rows: list[Row] = []
    try:
        for row in read_texts(path, io.BytesIO(content), options):
            if len(row.text) > limits.characters:
                raise HTTPException(
                    422,
                    f"{row.place}: the text has {len(row.text):,} characters, more than "
                    f"{limits.characters:,}; shorten it",
                )
            rows.append(row)
            if len(rows) > limits.file_rows:
                raise HTTPException(
                    422, f"{path} has more than {limits.file_rows:,} texts; split the file"
                )
    except DataError as error:
        message = str(error)
        for option, parameter in _PARAMETERS.items():
            message = message.replace(option, parameter)
        raise HTTPException(422, message) from None
    return rows
