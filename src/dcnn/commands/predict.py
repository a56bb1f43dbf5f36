"""``dcnn predict``: a line or row out for every text in, in order, in bounded memory."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dcnn.commands.prediction_lines import LineForm
from dcnn.errors import DataError, DcnnError, UserError
from dcnn.files import standard_output, write_atomically
from dcnn.predictor import Prediction, Predictor

if TYPE_CHECKING:  # texts that are arguments need no reader of files
    from dcnn.data.tables import TableOptions

CHUNK = 4096  # texts predicted together


def run_predict(
    model: Path,
    texts: Sequence[str],
    source: Path | None = None,
    output: Path | None = None,
    columns: "TableOptions | None" = None,
    as_json: bool = False,
    top: int = 1,
    skip_bad_shards: bool = False,
    abstain_below: float | None = None,
    labels_separator: str = LineForm.separator,
) -> None:
    """Classify the texts and write one line, or row, for each."""
    if texts and source:
        raise UserError("give texts as arguments or a file with --input, not both")
    if skip_bad_shards and source is None:
        raise UserError("--skip-bad-shards is about the files of --input; give --input")
    _check_output(source, output, as_json)
    bad: list[DataError] = []
    predictor = Predictor.load(model)
    abstains = abstain_below is not None
    form = LineForm(as_json, top, abstains, labels_separator)
    form.check(predictor.classes, predictor.many)
    seen = abstained = 0
    with _destination(output, predictor, form) as write:
        for chunk in _chunks(_texts(texts, source, columns, bad if skip_bad_shards else None)):
            predictions = predictor.predict(chunk, abstain_below or 0.0)
            write(predictions)
            seen += len(predictions)
            abstained += sum(prediction.abstained for prediction in predictions)
    if abstains:
        print(
            f"dcnn: left {abstained:,} of {seen:,} texts without a label: "
            f"those whose best probability is under {abstain_below:g}",
            file=sys.stderr,
        )
    if bad:
        files = "1 file" if len(bad) == 1 else f"{len(bad)} files"
        raise DcnnError(f"{source}: left out {files} as said above; all the others are predicted")


def _check_output(source: Path | None, output: Path | None, as_json: bool) -> None:
    if output is None:
        return
    from dcnn.commands.prediction_files import check_columnar, is_columnar
    from dcnn.data.shards import stands_for

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


Write = Callable[[Sequence[Prediction]], None]


@contextmanager
def _destination(output: Path | None, predictor: Predictor, form: LineForm) -> Iterator[Write]:
    if output is None:
        stdout = standard_output("name a file with --output")
        yield _lines_to(stdout, form)
        stdout.flush()
        return
    from dcnn.commands.prediction_files import columnar_writer, is_columnar

    many, top = predictor.many, form.top
    with write_atomically(output) as stream:
        if is_columnar(output):
            suffix = output.suffix.lower()
            with columnar_writer(stream, suffix, predictor.classes, top, many) as write:
                yield write
            return
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="\n")
        yield _lines_to(text, form)
        text.flush()
        text.detach()


def _lines_to(stream: TextIO, form: LineForm) -> Write:
    def write(predictions: Sequence[Prediction]) -> None:
        for prediction in predictions:
            print(form.line(prediction), file=stream)

    return write
