"""From the bytes of a text file to its lines: decoding, checking, counting.

Only LF and CRLF end a line, and in CSV also CR, which old spreadsheets write: form feeds, U+0085
and U+2028 belong to the text. A line of more than 64 Mi characters is refused, so that memory
stays bounded.


From the lines of a table to its records: CSV, TSV, JSON Lines and plain text.

The file is read as a stream. A record carries the line where it starts, for messages: a quoted
CSV field may span many.


From the values of a record to its text, its label and its weight, each checked.

Labels lose the white space around them and are brought to Unicode normal form C, so that two that
look alike are one; texts stay as they are, and may be empty.

"""

import csv
import io
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, ClassVar, NamedTuple

import numpy as np

from dcnn.data.columns import Columns, did_you_mean, shown, shown_names
from dcnn.errors import DataError
from dcnn.files import bare_suffix, open_bytes

LONGEST = 64 * 2**20  # characters

_UNUSABLE = re.compile("[\0\ud800-\udfff]")
_UTF_16_MARKS = ("\udcff\udcfe", "\udcfe\udcff")


class Line(NamedTuple):
    """A line with its end, and its number from 1."""

    number: int
    text: str


def read_lines(
    path: Path, stream: BinaryIO, encoding: str, *, cr_ends_lines: bool
) -> Iterator[Line]:
    """Checked lines with their ends, and their numbers as an editor counts them.

    A lone CR counts as a line only in a file whose first line ends with one. Elsewhere it is a
    character inside a quoted field, and to count it would put every later number out.

    Args:
        path: the file, for messages.
        stream: its bytes.
        encoding: of its text.
        cr_ends_lines: whether a lone CR ends a line too.

    Raises:
        DataError: the encoding is unknown or not the file's, or a line is too long.
    """
    # "" takes CR for a line end, "\n" does not; both leave the characters as they are.
    newline = "" if cr_ends_lines else "\n"
    number, counted, opening = 1, "\n", True
    with _decoder(path, stream, encoding, newline) as reader:
        while line := _next_line(path, reader, number):
            if opening:
                if line.startswith(_UTF_16_MARKS):
                    raise DataError(f"{path} looks like UTF-16; read it with --encoding utf-16")
                line = line.removeprefix("\ufeff")
                counted = "\r" if line.endswith("\r") else "\n"
                opening = False
            if not line.isascii() or "\0" in line:
                _check_characters(path, reader.encoding, number, line)
            yield Line(number, line)
            number += line.endswith(("\n", counted))


def _decoder(path: Path, stream: BinaryIO, encoding: str, newline: str) -> io.TextIOWrapper:
    try:
        # An invalid byte becomes a lone surrogate, so that _check_characters can say where it is.
        return io.TextIOWrapper(stream, encoding, "surrogateescape", newline)
    except (LookupError, ValueError):
        raise DataError(
            f"{path}: --encoding {shown(encoding)} is not a text encoding; "
            "use for instance utf-8, utf-16, latin-1 or cp1252"
        ) from None


def _next_line(path: Path, reader: io.TextIOWrapper, number: int) -> str:
    try:
        line = reader.readline(LONGEST)
    except UnicodeError as error:  # UTF-16 and UTF-32 have faults that no single byte stands for
        reason = getattr(error, "reason", error)
        raise DataError(
            f"{path}: not valid {reader.encoding} at line {number} or later ({reason}); "
            "name the right encoding, for instance --encoding utf-8"
        ) from error
    if len(line) == LONGEST and not line.endswith(("\n", "\r")):
        raise DataError(
            f"{path}, line {number}: longer than {LONGEST} characters; "
            "is this a text file with line ends?"
        )
    return line


def _check_characters(path: Path, encoding: str, number: int, line: str) -> None:
    found = _UNUSABLE.search(line)
    if found is None:
        return
    where = f"{path}, line {number}, character {found.start() + 1}"
    if found[0] == "\0":
        raise DataError(
            f"{where}: a NUL byte, which no text holds; "
            "remove it, or read a UTF-16 file with --encoding utf-16"
        )
    other = "latin-1" if encoding.lower().startswith("utf") else "utf-8"
    raise DataError(
        f"{where}: the byte 0x{ord(found[0]) & 0xFF:02x} is not valid {encoding}; "
        f"name the encoding that the file was written in, for instance --encoding {other}"
    )


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


_LARGEST_WEIGHT = float(np.finfo(np.float32).max)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_KINDS = {str: "a string", bool: "a boolean", int: "an integer", float: "a number with a fraction"}


@dataclass(frozen=True)
class Origin:
    """The file of some rows, and what is counted in it."""

    source: str
    unit: str = "line"

    def at(self, number: int) -> str:
        """Where a row is, for messages."""
        return f"{self.source}, {self.unit} {number}"


class Place(NamedTuple):
    """A record and its file; as a string, where it is."""

    origin: Origin
    record: Record

    def __str__(self) -> str:
        return self.origin.at(self.record.line)


def check_kind(where: Place, label: object, kinds: dict[type, str]) -> None:
    """Check that the label has a type of the labels of other files, and note it in ``kinds``.

    A single file may mix types, as it always could; ``kinds`` holds the first file of each.
    """
    kind = type(label)
    if kind in kinds:
        return
    for other, source in kinds.items():
        if source != where.origin.source:
            raise DataError(
                f"{where}: the label {shown(label)} is {_KINDS[kind]}, where {source} has "
                f"{_KINDS[other]}; write the labels of all files alike"
            )
    kinds[kind] = where.origin.source


def value_of(where: Place, column: str) -> object:
    """What a record has in a column."""
    try:
        return where.record.values[column]
    except KeyError:
        keys = shown_names(where.record.values) if where.record.values else "none at all"
        raise DataError(
            f"{where}: the key {shown(column)} is missing; the keys here are "
            f"{keys}{did_you_mean(column, where.record.values)}"
        ) from None


def text_of(where: Place, column: str) -> str:
    """The text of a record."""
    value = value_of(where, column)
    if not isinstance(value, str):
        raise DataError(
            f"{where}: the text in {shown(column)} is {shown(value)}; it must be a string"
        )
    return _whole(where, value)


def label_of(where: Place, column: str) -> str:
    """The label of a record as a string, never empty."""
    return label_from(where, column, value_of(where, column))


def label_from(where: Place, column: str, value: object) -> str:
    """A value of a column, or a member of it, as a label."""
    match value:
        case str():
            label = unicodedata.normalize("NFC", _whole(where, value).strip())
        case bool():
            label = "true" if value else "false"
        case int():
            label = str(value)
        case float() if math.isfinite(value):
            label = repr(value)
        case _:
            raise DataError(
                f"{where}: the label in {shown(column)} is {shown(value)}; "
                "it must be a string, a number, true or false"
            )
    if not label:
        raise DataError(
            f"{where}: the label in {shown(column)} is empty; give the row a label or drop it, or "
            "pass --labels-separator where rows may have several or none"
        )
    return label


def _whole(where: Place, value: str) -> str:
    r"""``value`` itself, if it has no half of a pair such as JSON's ``\ud83d\ude00``."""
    if not value.isascii() and (half := _LONE_SURROGATE.search(value)):
        raise DataError(
            f"{where}: {half[0]!r} is half of a surrogate pair and no "
            "character; write the whole pair or leave it out"
        )
    return value


def weight_of(where: Place, column: str) -> float:
    """The weight of a record, finite and not negative."""
    value = value_of(where, column)
    weight = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            weight = float(value)
        except (ValueError, OverflowError):
            weight = math.nan
    if not 0 <= weight <= _LARGEST_WEIGHT:
        raise DataError(
            f"{where}: the weight in {shown(column)} is {shown(value)}; "
            "it must be a finite number of 0 or more"
        )
    return weight
