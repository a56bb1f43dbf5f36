"""``dcnn predict``: a line or row out for every text in, in order, in bounded memory."""

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dcnn.errors import DataError, DcnnError, UserError
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
    skip_bad_shards: bool = False,
) -> None:
    """Classify the texts and write one line, or row, for each."""
    if texts and source:
        raise UserError("give texts as arguments or a file with --input, not both")
    if skip_bad_shards and source is None:
        raise UserError("--skip-bad-shards is about the files of --input; give --input")
    _check_output(source, output, as_json)
    bad: list[DataError] = []
    predictor = Predictor.load(model)
    with _destination(output, predictor, as_json, top) as write:
        for chunk in _chunks(_texts(texts, source, columns, bad if skip_bad_shards else None)):
            write(chunk)
    if bad:
        files = "1 file" if len(bad) == 1 else f"{len(bad)} files"
        raise DcnnError(f"{source}: left out {files} as said above; all the others are predicted")


def _check_output(source: Path | None, output: Path | None, as_json: bool) -> None:
    if output is None:
        return
    from dcnn.data.shards import stands_for
    from dcnn.scoring.prediction_files import check_columnar, is_columnar

    if source is not None and stands_for(source, output):
        if output.resolve() == source.resolve():
            raise UserError(f"--output {output} is the file of --input; name another one")
        raise UserError(
            f"--output {output} would be one of the files of --input {source}; "
            "name one that is elsewhere"
        )
    if is_columnar(output):
        check_columnar(output, as_json)


def _texts(
    texts: Sequence[str],
    source: Path | None,
    columns: "TableOptions | None",
    bad: list[DataError] | None,
) -> Iterable[str]:
    if texts:
        return texts
    from dcnn.data.tables import TableOptions

    columns = columns or TableOptions()
    if source is not None:
        return _texts_of_files(source, columns, bad)
    return _lines_on_stdin(columns.encoding)


def _texts_of_files(
    source: Path, columns: "TableOptions", bad: list[DataError] | None
) -> Iterator[str]:
    from dcnn.data.tables import BadShardError, read_rows

    def leave_out(error: DataError) -> None:
        if bad is not None:
            bad.append(error)
        print(f"dcnn: {error}; left out", file=sys.stderr)

    try:
        for row in read_rows(
            source, columns, labels=False, bad_shard=None if bad is None else leave_out
        ):
            yield row.text
    except BadShardError as error:
        raise DataError(
            f"{error}; or pass --skip-bad-shards, to go on without such files"
        ) from error


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


Write = Callable[[Sequence[str]], None]


@contextmanager
def _destination(
    output: Path | None, predictor: Predictor, as_json: bool, top: int
) -> Iterator[Write]:
    if output is None:
        stdout = standard_output("name a file with --output")
        yield _lines_to(stdout, predictor, as_json, top)
        stdout.flush()
        return
    from dcnn.scoring.prediction_files import columnar_writer, is_columnar

    with write_atomically(output) as stream:
        if is_columnar(output):
            with columnar_writer(stream, output.suffix.lower(), predictor.classes, top) as write:
                yield lambda texts: write(texts, predictor.probabilities(texts))
            return
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="\n")
        yield _lines_to(text, predictor, as_json, top)
        text.flush()
        text.detach()


def _lines_to(stream: TextIO, predictor: Predictor, as_json: bool, top: int) -> Write:
    def write(texts: Sequence[str]) -> None:
        for prediction in predictor.predict(texts):
            line = _json_line(prediction, top) if as_json else _tsv_line(prediction, top)
            print(line, file=stream)

    return write


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
