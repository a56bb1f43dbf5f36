"""``dcnn predict``: a line or row out for every text in, in order, in bounded memory."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dcnn.commands.prediction_lines import LineForm, check_top, left_without_label
from dcnn.errors import DataError, DcnnError, UserError
from dcnn.files import standard_output, write_atomically
from dcnn.predictor import Predictor

if TYPE_CHECKING:  # texts that are arguments need no reader of files
    from dcnn.data.readers import TableOptions

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
    columnar = _check_output(source, output, as_json)
    bad: list[DataError] = []
    predictor = Predictor.load(model)
    abstains = abstain_below is not None
    form = LineForm(as_json, top, abstains, labels_separator)
    check_top(top, predictor.multi_label)
    if not columnar:
        form.check(predictor.classes, predictor.multi_label)
    if abstain_below is not None:
        predictor.check_abstains(abstain_below)
    seen = abstained = 0
    with _destination(output, predictor, form, abstain_below or 0.0) as write:
        for chunk in _chunks(_texts(texts, source, columns, bad if skip_bad_shards else None)):
            abstained += write(chunk)
            seen += len(chunk)
    if abstain_below is not None:
        print(f"dcnn: {left_without_label(abstained, seen, abstain_below)}", file=sys.stderr)
    if bad:
        files = "1 file" if len(bad) == 1 else f"{len(bad)} files"
        raise DcnnError(f"{source}: left out {files} as said above; all the others are predicted")


def _check_output(source: Path | None, output: Path | None, as_json: bool) -> bool:
    """Refuse what cannot be written; returns whether it is a file of columns."""
    if output is None:
        return False
    from dcnn.batch_predict.files import check_columnar, is_columnar
    from dcnn.data.readers import is_shard

    if source is not None and is_shard(source, output):
        if output.resolve() == source.resolve():
            raise UserError(f"--output {output} is the file of --input; name another one")
        raise UserError(
            f"--output {output} would be one of the files of --input {source}; "
            "name one that is elsewhere"
        )
    if not is_columnar(output):
        return False
    check_columnar(output, as_json)
    return True


def _texts(
    texts: Sequence[str],
    source: Path | None,
    columns: "TableOptions | None",
    bad: list[DataError] | None,
) -> Iterable[str]:
    if texts:
        return texts
    from dcnn.data.readers import TableOptions

    columns = columns or TableOptions()
    if source is not None:
        return _texts_of_files(source, columns, bad)
    return _lines_on_stdin(columns.encoding)


def _texts_of_files(
    source: Path, columns: "TableOptions", bad: list[DataError] | None
) -> Iterator[str]:
    from dcnn.data.readers import BadShardError, read_rows

    def leave_out(error: DataError) -> None:
        if bad is not None:
            bad.append(error)
        print(f"dcnn: {error}; left out", file=sys.stderr)

    try:
        for row in read_rows(
            source, columns, labels=False, on_bad_shard=None if bad is None else leave_out
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


Write = Callable[[Sequence[str]], int]  # returns how many of the texts got no label


@contextmanager
def _destination(
    output: Path | None, predictor: Predictor, form: LineForm, abstain_below: float
) -> Iterator[Write]:
    if output is None:
        stdout = standard_output("name a file with --output")
        yield _lines_to(stdout, predictor, form, abstain_below)
        stdout.flush()
        return
    from dcnn.batch_predict.files import ColumnForm, columnar_writer, is_columnar

    with write_atomically(output) as stream:
        if is_columnar(output):
            columns = ColumnForm.of(predictor, form.top, abstain_below)
            with columnar_writer(stream, output.suffix.lower(), columns) as write:
                yield lambda texts: write(texts, predictor.probabilities(texts))
            return
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="\n")
        yield _lines_to(text, predictor, form, abstain_below)
        text.flush()
        text.detach()


def _lines_to(stream: TextIO, predictor: Predictor, form: LineForm, abstain_below: float) -> Write:
    def write(texts: Sequence[str]) -> int:
        predictions = predictor.predict(texts, abstain_below)
        for prediction in predictions:
            print(form.line(prediction), file=stream)
        return sum(prediction.abstained for prediction in predictions)

    return write
