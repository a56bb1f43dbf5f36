"""``dcnn predict``: a line out for every text in, in order, in bounded memory."""

import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dcnn.errors import UserError
from dcnn.files import standard_output, write_atomically
from dcnn.predictor import Prediction, Predictor

if TYPE_CHECKING:  # texts that are arguments need no reader of files
    from dcnn.data.tables import TableOptions

CHUNK = 4096  # texts predicted together

# What would break a line or its fields, or tell a terminal to do something.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def run_predict(
    model: Path,
    texts: Sequence[str],
    source: Path | None = None,
    output: Path | None = None,
    columns: "TableOptions | None" = None,
    as_json: bool = False,
    top: int = 1,
) -> None:
    """Classify the texts and write one line for each."""
    if texts and source:
        raise UserError("give texts as arguments or a file with --input, not both")
    if source is not None and output is not None and output.resolve() == source.resolve():
        raise UserError(f"--output {output} is the file of --input; name another one")
    predictor = Predictor.load(model)
    with _destination(output) as stream:
        for chunk in _chunks(_texts(texts, source, columns)):
            for prediction in predictor.predict(chunk):
                line = _json_line(prediction, top) if as_json else _tsv_line(prediction, top)
                print(line, file=stream)


def _texts(
    texts: Sequence[str], source: Path | None, columns: "TableOptions | None"
) -> Iterable[str]:
    if texts:
        return texts
    from dcnn.data.tables import TableOptions, read_rows

    columns = columns or TableOptions()
    if source is not None:
        return (row.text for row in read_rows(source, columns, labels=False))
    return _lines_on_stdin(columns.encoding)


def _lines_on_stdin(encoding: str) -> Iterator[str]:
    if sys.stdin is None:
        raise UserError("standard input is closed; give texts as arguments or with --input")
    if sys.stdin.isatty():
        print("Reading texts from the keyboard, one a line; end with Ctrl-D.", file=sys.stderr)
    try:
        # A stray byte in a stream of texts spoils its own text, not the whole stream.
        lines = io.TextIOWrapper(sys.stdin.buffer, encoding, errors="replace", newline="\n")
        for number, line in enumerate(lines):
            yield line.removeprefix("\ufeff" if number == 0 else "").rstrip("\r\n")
    except (LookupError, ValueError) as error:
        raise UserError(
            f"standard input cannot be read with --encoding {encoding!r} ({error}); "
            "use for instance utf-8 or latin-1"
        ) from error


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(texts)
    while chunk := list(islice(remaining, CHUNK)):
        yield chunk


@contextmanager
def _destination(output: Path | None) -> Iterator[TextIO]:
    if output is None:
        stdout = standard_output("name a file with --output")
        yield stdout
        stdout.flush()
        return
    with write_atomically(output) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="\n")
        yield text
        text.flush()
        text.detach()


def _tsv_line(prediction: Prediction, top: int) -> str:
    fields = [
        field
        for label, probability in prediction.ranked[:top]
        for field in (str(label), f"{probability:.6f}")
    ]
    return "\t".join(_CONTROLS.sub(" ", field) for field in [*fields, prediction.text])


def _json_line(prediction: Prediction, top: int) -> str:
    values = {
        "text": prediction.text,
        "label": prediction.label,
        "probability": prediction.probability,
        "top": [{"label": label, "probability": p} for label, p in prediction.ranked[:top]],
        "probabilities": {str(label): p for label, p in prediction.ranked},
    }
    return json.dumps(values)
