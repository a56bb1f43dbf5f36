"""``/v1/predict-file``: a table comes in as bytes, its predictions go out as JSON lines.

The bytes stay in memory: nothing of a request is ever a path on this machine. The whole table is
read first, so that a fault in its last line is told instead of half an answer.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from dcnn.data.columns import TEXT_OPTION
from dcnn.data.readers import Row, TableOptions, read_texts
from dcnn.errors import DataError
from dcnn.files import COMPRESSIONS
from dcnn.serve.answers import json_bytes
from dcnn.serve.limits import Limits
from dcnn.serve.prediction import AnswerForm
from dcnn.serve.refusals import Refusal
from dcnn.serve.registry import ServedModel

CHUNK = 256  # rows predicted together, and sent together
LONGEST_NAME = 80
ENCODINGS = ("utf-8", "utf-16", "latin-1", "cp1252")

# The readers name the options of the command line; here they are parameters of the address.
_PARAMETERS = {
    TEXT_OPTION: "text_column",
    "--encoding ": "encoding=",
    "--no-header": "header=false",
}


def read_upload(name: str, content: bytes, options: TableOptions, limits: Limits) -> list[Row]:
    """The rows of an uploaded file.

    Raises:
        Refusal: the file cannot be used, or has too many texts or too long ones.
    """
    path = _safe_name(name)
    if path.suffix.lower() in COMPRESSIONS:
        raise Refusal(422, f"{path}: compressed files are not read here; send what is inside")
    rows: list[Row] = []
    try:
        for row in read_texts(path, io.BytesIO(content), options):
            if len(row.text) > limits.characters:
                raise Refusal(
                    422,
                    f"{row.place}: the text has {len(row.text):,} characters, more than "
                    f"{limits.characters:,}; shorten it",
                )
            rows.append(row)
            if len(rows) > limits.rows:
                raise Refusal(422, f"{path} has more than {limits.rows:,} texts; send it in parts")
    except DataError as error:
        sentence = str(error)
        for option, parameter in _PARAMETERS.items():
            sentence = sentence.replace(option, parameter)
        raise Refusal(422, sentence) from None
    return rows


def predicted_lines(model: ServedModel, rows: Sequence[Row], form: AnswerForm) -> bytes:
    """A line of JSON for every row."""
    predictions = form.predicted(model.predictor, [row.text for row in rows])
    lines = [
        json_bytes({"line": row.place.number, "text": row.text, **prediction})
        for row, prediction in zip(rows, predictions, strict=True)
    ]
    return b"\n".join(lines) + b"\n"


def chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The rows, some at a time."""
    return (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))


def _safe_name(name: str) -> Path:
    """The last part of a name, cut and without what cannot be printed: it is only ever printed."""
    last = PurePosixPath(name.replace("\\", "/")).name
    return Path("".join(c for c in last if c.isprintable())[-LONGEST_NAME:] or "the file")
