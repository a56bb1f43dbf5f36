"""``/v1/predict`` and ``/v1/predict-file``: predictions as plain values.

An uploaded file stays in memory: no part of a request is ever a path on this machine. The whole
file is read before the response starts, so that an error in its last line is an error response
instead of half an answer.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from starlette.exceptions import HTTPException

from dcnn.data.columns import TEXT_OPTION
from dcnn.data.readers import Row, TableOptions, read_texts
from dcnn.errors import DataError
from dcnn.files import COMPRESSIONS
from dcnn.predictor import Prediction, Predictor
from dcnn.serve import Limits
from dcnn.serve.protocol import json_bytes
from dcnn.serve.registry import ServedModel
from dcnn.serve.schemas import FileQuery, PredictionResponse, PredictOptions

CHUNK = 256  # rows predicted together and sent together
LONGEST_NAME = 80

# The readers name options of the command line; here they are query parameters.
_PARAMETERS = {
    TEXT_OPTION: "text_column",
    "--encoding ": "encoding=",
    "--no-header": "header=false",
}


def check_options(predictor: Predictor, options: PredictOptions) -> None:
    """Raise an error before any work for what a multi-label model cannot do."""
    if predictor.multi_label and options.top > 1:
        raise HTTPException(
            422,
            f"top={options.top} is for single-label models; this model is multi-label and gives "
            "every label that reaches its threshold; the field probabilities has them all",
        )
    if "abstain_below" in options.model_fields_set:
        predictor.check_abstains(options.abstain_below)


def _predict(
    predictor: Predictor, texts: Sequence[str], options: PredictOptions
) -> list[PredictionResponse]:
    responses = []
    abstains = "abstain_below" in options.model_fields_set
    for prediction in predictor.predict(texts, options.abstain_below):
        response = prediction_response(prediction)
        if abstains:
            response["abstained"] = prediction.abstained
            if prediction.abstained:
                response["label"] = None
        if options.top:
            ranked = prediction.ranked[: options.top]
            response["top"] = [{"label": label, "probability": p} for label, p in ranked]
        responses.append(response)
    return responses


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
    return json_bytes(
        {"model": model.name, "predictions": _predict(model.predictor, texts, options)}
    )


def predict_rows(model: ServedModel, rows: Sequence[Row], options: PredictOptions) -> bytes:
    """Lines of the response of ``/v1/predict-file``: one JSON object per row."""
    predictions = _predict(model.predictor, [row.text for row in rows], options)
    lines = [
        json_bytes({"line": row.place.number, "text": row.text, **prediction}) + b"\n"
        for row, prediction in zip(rows, predictions, strict=True)
    ]
    return b"".join(lines)


def chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The rows in parts of ``CHUNK``."""
    return (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))


def read_upload(content: bytes, query: FileQuery, limits: Limits) -> list[Row]:
    """The rows of an uploaded file; raises HTTPException if it cannot be used."""
    # The name is only ever printed: its last part, shortened, without control characters.
    last = PurePosixPath(query.name.replace("\\", "/")).name
    path = Path("".join(c for c in last if c.isprintable())[-LONGEST_NAME:] or "the file")
    if path.suffix.lower() in COMPRESSIONS:
        raise HTTPException(422, f"{path}: compressed files are not accepted; decompress it first")
    rows: list[Row] = []
    options = TableOptions(query.given("text_column"), encoding=query.encoding, header=query.header)
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
