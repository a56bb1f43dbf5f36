"""From the lines of a table to its records: CSV, TSV, JSON Lines and plain text.

The file is read as a stream. A record carries the line where it starts, for messages: a quoted
CSV field may span many.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, ClassVar, NamedTuple

from dcnn.data.columns import Columns
from dcnn.data.lines import LONGEST, Line, read_lines
from dcnn.data.messages import shown, shown_names
from dcnn.errors import DataError
from dcnn.files import bare_suffix, open_bytes

SAMPLED_ROWS = 100  # looked at to guess the columns

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
JSON_LINES = (".jsonl", ".ndjson", ".jsonlines", ".json")
PLAIN = ".txt"
PLAIN_COLUMN = "text"

_LOOKS_SEPARATED = {
    ";": "; the file looks separated by semicolons: write it again with commas",
    "\t": "; the file looks separated by tabs: name it .tsv",
    ",": "; the file looks separated by commas: name it .csv",
}


class NoRowsError(DataError):
    """A file without a single row: an error where it is alone, a matter of course among shards."""


class Record(NamedTuple):
    """One record: the line where it starts, and its values by column."""

    line: int
    values: Mapping[str, object]


@dataclass(frozen=True)
class LineTable:
    """An open file of lines.

    Attributes:
        columns: their names; nameless ones are empty strings.
        hint: what a single column looks like instead, or nothing.
        unit: what is counted to say where a record is.
        typed: whether a value has a type of its own: ``1`` and ``"1"`` are two in JSON, one in CSV.
    """

    columns: list[str]
    records: Iterator[Record]
    hint: str = ""
    typed: bool = False
    unit: ClassVar[str] = "line"
    _looked_at: list[Record] = field(default_factory=list)

    def sample(self) -> list[Mapping[str, object]]:
        """The first rows, to guess the columns from."""
        self._looked_at.extend(islice(self.records, SAMPLED_ROWS))
        return [record.values for record in self._looked_at]

    def rows(self, _: Columns) -> Iterator[Record]:
        """All the rows, once: those that were looked at come first again."""
        return chain(self._looked_at, self.records)


class _Fields(NamedTuple):
    line: int
    values: list[str]


@contextmanager
def open_lines(path: Path, encoding: str, *, header: bool) -> Iterator[LineTable]:
    """Open a table of lines, plain or compressed; its suffix names its format.

    Args:
        path: the file.
        encoding: of its text.
        header: whether CSV and TSV start with the names of the columns, else they are numbered
            from "1".

    Raises:
        DataError: the file cannot be read, is empty, or is not what its suffix says.
    """
    with open_bytes(path) as stream:
        yield read_line_table(path, stream, encoding, header=header)


def read_line_table(path: Path, stream: BinaryIO, encoding: str, *, header: bool) -> LineTable:
    """The table of lines in an open stream.

    Args:
        path: its name, for the format and for messages; nothing is opened.
        stream: its bytes, not compressed.
        encoding: of its text.
        header: as in ``open_lines``.

    Raises:
        DataError: it is empty, or is not what its suffix says.
    """
    suffix = bare_suffix(path)
    lines = read_lines(path, stream, encoding, cr_ends_lines=suffix == ".csv")
    if suffix in SEPARATORS:
        return _separated(path, suffix, lines, header=header)
    if suffix in JSON_LINES:
        return _json_lines(path, lines)
    return _plain(path, lines)


def _separated(path: Path, suffix: str, lines: Iterator[Line], *, header: bool) -> LineTable:
    rows = _csv_rows(path, lines) if suffix == ".csv" else _tsv_rows(lines)
    blank, first = _up_to_first(path, rows)
    hint = ""
    if len(first.values) == 1:
        others = (mark for mark in _LOOKS_SEPARATED if mark != SEPARATORS[suffix])
        hint = next((_LOOKS_SEPARATED[mark] for mark in others if mark in first.values[0]), "")
    if header:
        columns = [name.strip() for name in first.values]
        _check_header(path, first.line, columns)
    else:
        columns = [str(place) for place in range(1, len(first.values) + 1)]
        rows = chain(blank, [first], rows)
    if hint:
        cause = hint
    elif suffix == ".csv":
        cause = "; the usual cause is a text that holds a comma or a line break and is not quoted"
    else:
        cause = "; the usual cause is a tab or a line break inside a text: replace it by a space"
    return LineTable(columns, _records(path, columns, rows, cause), hint)


def _plain(path: Path, lines: Iterator[Line]) -> LineTable:
    """One text a line, empty ones too: what is predicted for line n is the n-th prediction."""
    rows = (_Fields(number, [_without_end(line)]) for number, line in lines)
    first = next(rows, None)
    if first is None:
        raise _empty(path)
    columns = [PLAIN_COLUMN]
    return LineTable(columns, _records(path, columns, chain([first], rows), ""))


def _up_to_first(path: Path, rows: Iterator[_Fields]) -> tuple[list[_Fields], _Fields]:
    """The blank rows at the top of a file, and the first row with something in it."""
    blank: list[_Fields] = []
    for row in rows:
        if not _is_blank(row):
            return blank, row
        blank.append(row)
    raise _empty(path)


def _is_blank(row: _Fields) -> bool:
    return len(row.values) <= 1 and not "".join(row.values).strip()


def _empty(path: Path) -> NoRowsError:
    return NoRowsError(f"{path} is empty; give a file with at least one row")


def _check_header(path: Path, line: int, columns: list[str]) -> None:
    twice = [name for name, count in Counter(columns).items() if name and count > 1]
    if twice:
        raise DataError(
            f"{path}, line {line}: more than one column is named {shown_names(twice)}; "
            "give every column a name of its own"
        )


def _records(
    path: Path, columns: list[str], rows: Iterator[_Fields], cause: str
) -> Iterator[Record]:
    width, some = len(columns), False
    for row in rows:
        if len(row.values) == width:
            some = True
            yield Record(row.line, dict(zip(columns, row.values, strict=True)))
        elif not _is_blank(row):
            fields = "1 field" if len(row.values) == 1 else f"{len(row.values)} fields"
            raise DataError(
                f"{path}, line {row.line}: {fields} in a table of {width} "
                f"(the columns are {shown_names(columns)}){cause}"
            )
    if not some:
        raise NoRowsError(f"{path} has a header but no rows; add at least one row")


def _csv_rows(path: Path, lines: Iterator[Line]) -> Iterator[_Fields]:
    # The csv module has one limit for the whole process, 128 Ki characters by default. It is
    # raised here and stays so: to lower it again would break another reader that is half-way
    # through its file, in this thread or in a second one.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    start: int | None = None

    def remembering_the_start() -> Iterator[str]:
        nonlocal start
        for number, line in lines:
            start = number if start is None else start
            yield line

    reader = csv.reader(remembering_the_start(), strict=True)
    try:
        for values in reader:
            if values and start is not None:
                yield _Fields(start, values)
            start = None
    except csv.Error as error:
        raise DataError(f"{path}, line {start}: {_csv_fault(error)}") from error


def _csv_fault(error: csv.Error) -> str:
    """What the csv module found wrong with a record, with the remedy."""
    match str(error):
        case "unexpected end of data":
            return (
                "a quote opens a field here and is never closed; "
                'close it, and write a quote inside a quoted text as ""'
            )
        case fault if "limit" in fault:
            return f"a field is longer than {LONGEST} characters; is a quote never closed?"
        case fault:
            return f'not valid CSV ({fault}); write a quote inside a quoted text as ""'


def _tsv_rows(lines: Iterator[Line]) -> Iterator[_Fields]:
    for number, line in lines:
        if bare := _without_end(line):
            yield _Fields(number, [_unquoted(field) for field in bare.split("\t")])


def _unquoted(field: str) -> str:
    """``field`` without the quotes that a spreadsheet puts around it."""
    inner = field[1:-1]
    if len(field) < 2 or field[0] != '"' or field[-1] != '"' or '"' in inner.replace('""', ""):
        return field
    return inner.replace('""', '"')


def _without_end(line: str) -> str:
    return line[:-1].removesuffix("\r") if line.endswith("\n") else line


def _json_lines(path: Path, lines: Iterator[Line]) -> LineTable:
    records = _json_records(path, lines)
    first = next(records, None)
    if first is None:
        raise _empty(path)
    return LineTable(list(first.values), chain([first], records), typed=True)


def _json_records(path: Path, lines: Iterator[Line]) -> Iterator[Record]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            value = json.loads(_without_end(line))
        except json.JSONDecodeError as error:
            fault = f"{error.msg} at character {error.colno}"
            raise _not_json(path, number, fault) from error
        except (ValueError, RecursionError) as error:  # a number or a nesting beyond all measure
            raise _not_json(path, number, str(error)) from error
        if not isinstance(value, dict):
            raise DataError(
                f"{path}, line {number}: {shown(value)} is not an object; "
                'write one object a line, such as {"text": "...", "label": "..."}'
            )
        yield Record(number, value)


def _not_json(path: Path, number: int, fault: str) -> DataError:
    return DataError(
        f"{path}, line {number}: not valid JSON ({fault}); write one whole object a line"
    )
