"""Text files as records: CSV, TSV, JSON Lines and plain text, decoded and checked as a stream.

A record knows the line where it starts, for messages: a quoted CSV field may span several lines.
Only LF and CRLF end a line, and in CSV also CR, which old spreadsheets write: form feeds, U+0085
and U+2028 belong to the text. A line of more than 64 Mi characters and a row of CSV of more than 16
Mi are refused, to bound memory: a quote that is never closed would take in the rest of the file.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from dcnn.data.columns import SAMPLED_ROWS, Columns, check_unique, did_you_mean, shown, shown_names
from dcnn.data.labels import Place
from dcnn.errors import DataError
from dcnn.files import bare_suffix, open_bytes

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
JSON_LINES = (".jsonl", ".ndjson", ".jsonlines", ".json")
PLAIN = ".txt"
PLAIN_COLUMN = "text"

MAX_LINE = 64 * 2**20  # characters of a line
MAX_ROW = 16 * 2**20  # characters of a row of CSV, which may have many lines
MAX_BLANK_ROWS = 1000  # before the first row of a table without a header

_UNUSABLE = re.compile("[\0\ud800-\udfff]")
_OTHER_SEPARATOR = {
    ";": "; the file looks separated by semicolons: write it again with commas",
    "\t": "; the file looks separated by tabs: name it .tsv",
    ",": "; the file looks separated by commas: name it .csv",
}
_USUAL_CAUSE = {
    ",": "; the usual cause is a text that holds a comma or a line break and is not quoted",
    "\t": "; the usual cause is a tab or a line break inside a text: replace it by a space",
}

_Item = TypeVar("_Item")
_Lines = Iterator[tuple[int, str]]  # with their numbers
_Fields = tuple[int, list[str]]  # the line where a row starts, and its fields


class NoRowsError(DataError):
    """A file without a single row: an error if it is the only file, skipped among shards."""


class Record(NamedTuple):
    """One record: where it starts, and its values by column."""

    place: Place
    values: Mapping[str, object]

    def value(self, column: str) -> object:
        """The value in a column, which an object of JSON may lack."""
        try:
            return self.values[column]
        except KeyError:
            keys = shown_names(self.values) if self.values else "none at all"
            raise DataError(
                f"{self.place}: the key {shown(column)} is missing; the keys here are "
                f"{keys}{did_you_mean(column, self.values)}"
            ) from None


@dataclass(frozen=True)
class LineTable:
    """An open text file."""

    columns: list[str]  # nameless ones are empty strings
    records: Iterator[Record]
    hint: str = ""  # what a file with a single column looks like instead
    typed: bool = False  # whether 1 and "1" differ: they do in JSON, not in CSV
    _sampled: list[Record] = field(default_factory=list)

    def sample(self) -> list[Mapping[str, object]]:
        """The first rows, to guess the columns from."""
        self._sampled.extend(islice(self.records, SAMPLED_ROWS))
        return [record.values for record in self._sampled]

    def rows(self, _: Columns, *, keep: bool = False) -> Iterator[Record]:  # noqa: ARG002
        """All rows, once; they have all columns."""
        return chain(self._sampled, self.records)

    @property
    def types(self) -> dict[str, Any]:
        """The columns; text has no types."""
        return dict.fromkeys(self.columns)


@contextmanager
def open_lines(
    path: Path, encoding: str, *, header: bool, stream: BinaryIO | None = None
) -> Iterator[LineTable]:
    """Open a text file, plain or compressed, or plain bytes in ``stream`` that ``path`` only names.

    The suffix is that of the format. CSV and TSV without a ``header`` have columns "1", "2", ...
    """
    suffix = bare_suffix(path)
    with open_bytes(path) if stream is None else nullcontext(stream) as opened:
        lines = _read_lines(path, opened, encoding, cr_ends_lines=suffix == ".csv")
        if suffix in SEPARATORS:
            yield _separated(path, suffix, lines, header=header)
            return
        if suffix in JSON_LINES:
            records = _json_records(path, lines)
        else:  # one text per line, empty ones too: prediction n is of line n
            texts = ((Place(str(path), number), _without_end(line)) for number, line in lines)
            records = (Record(place, {PLAIN_COLUMN: text}) for place, text in texts)
        first = _first(path, records)
        yield LineTable(list(first.values), chain([first], records), typed=suffix in JSON_LINES)


def _first(path: Path, items: Iterator[_Item]) -> _Item:
    for item in items:
        return item
    raise NoRowsError(f"{path} is empty; give a file with at least one row")


def _read_lines(path: Path, stream: BinaryIO, encoding: str, *, cr_ends_lines: bool) -> _Lines:
    """Checked lines with their ends, and their numbers as an editor counts them from 1.

    A lone CR counts as a line only in a file whose first line ends with one. Elsewhere it is a
    character inside a quoted field, and counting it would shift every later number.
    """
    try:
        # "" takes CR for a line end, "\n" does not; both leave the characters as they are. An
        # invalid byte becomes a lone surrogate, which _check_characters finds and locates.
        newline = "" if cr_ends_lines else "\n"
        reader = io.TextIOWrapper(stream, encoding, "surrogateescape", newline)
    except (LookupError, ValueError):
        raise DataError(
            f"{path}: --encoding {shown(encoding)} is not a text encoding; "
            "use for instance utf-8, utf-16, latin-1 or cp1252"
        ) from None
    number, counted = 1, ""
    with reader:
        try:
            while line := reader.readline(MAX_LINE):
                if len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
                    raise DataError(
                        f"{path}, line {number}: longer than {MAX_LINE} characters; "
                        "is this a text file with line ends?"
                    )
                if not counted:  # the first line
                    if line.startswith(("\udcff\udcfe", "\udcfe\udcff")):
                        raise DataError(f"{path} looks like UTF-16; read it with --encoding utf-16")
                    line = line.removeprefix("\ufeff")
                    counted = "\r" if line.endswith("\r") else "\n"
                if not line.isascii() or "\0" in line:
                    _check_characters(path, reader.encoding, number, line)
                yield number, line
                number += line.endswith(("\n", counted))
        except UnicodeError as error:  # UTF-16 and UTF-32 have faults of more than one byte
            reason = getattr(error, "reason", error)
            raise DataError(
                f"{path}: not valid {reader.encoding} at line {number} or later ({reason}); "
                "name the right encoding, for instance --encoding utf-8"
            ) from error


def _check_characters(path: Path, encoding: str, number: int, line: str) -> None:
    if found := _UNUSABLE.search(line):
        other = "latin-1" if encoding.lower().startswith("utf") else "utf-8"
        fault = (
            f"the byte 0x{ord(found[0]) & 0xFF:02x} is not valid {encoding}; "
            f"name the encoding that the file was written in, for instance --encoding {other}"
        )
        if found[0] == "\0":
            fault = (
                "a NUL byte, which is not text; "
                "remove it, or read a UTF-16 file with --encoding utf-16"
            )
        raise DataError(f"{path}, line {number}, character {found.start() + 1}: {fault}")


def _without_end(line: str) -> str:
    return line[:-1].removesuffix("\r") if line.endswith("\n") else line


def _separated(path: Path, suffix: str, lines: _Lines, *, header: bool) -> LineTable:
    if suffix == ".csv":
        rows = _csv_rows(path, lines)
    else:
        bare = ((number, _without_end(line)) for number, line in lines)
        rows = ((number, [*map(_unquoted, line.split("\t"))]) for number, line in bare if line)
    blank: list[_Fields] = []  # without a header, a blank row may be a text
    line, fields = first = _first(path, rows)
    while _is_blank(fields):
        if not header:
            blank.append(first)
        if len(blank) > MAX_BLANK_ROWS:
            raise DataError(
                f"{path}: the first {MAX_BLANK_ROWS:,} rows are blank; remove the blank lines "
                "at the start of the file"
            )
        line, fields = first = _first(path, rows)
    separator, hint = SEPARATORS[suffix], ""
    if len(fields) == 1:
        marks = (mark for mark in _OTHER_SEPARATOR if mark != separator and mark in fields[0])
        hint = _OTHER_SEPARATOR.get(next(marks, ""), "")
    if header:
        columns = [name.strip() for name in fields]
        check_unique(Place(str(path), line), columns)
    else:
        columns = [str(place) for place in range(1, len(fields) + 1)]
        rows = chain(blank, [first], rows)
    return LineTable(columns, _records(path, columns, rows, hint or _USUAL_CAUSE[separator]), hint)


def _is_blank(fields: list[str]) -> bool:
    return len(fields) <= 1 and not "".join(fields).strip()


def _records(
    path: Path, columns: list[str], rows: Iterator[_Fields], cause: str
) -> Iterator[Record]:
    source, width, some = str(path), len(columns), False
    for line, fields in rows:
        if len(fields) == width:
            some = True
            yield Record(Place(source, line), dict(zip(columns, fields, strict=True)))
        elif not _is_blank(fields):
            count = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
            raise DataError(
                f"{path}, line {line}: {count} in a table of {width} "
                f"(the columns are {shown_names(columns)}){cause}"
            )
    if not some:
        raise NoRowsError(f"{path} has a header but no rows; add at least one row")


def _csv_rows(path: Path, lines: _Lines) -> Iterator[_Fields]:
    # The csv module has one limit for the whole process, 128 Ki characters by default. It is
    # raised and never lowered: another reader may be half-way through its file.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW))
    start: int | None = None
    length, inside = 0, False  # of the row so far, and whether it is inside quotes
    opened = 0  # the line where these opened
    closing = 'close it, and write a quote inside a quoted text as ""'

    def checked() -> Iterator[str]:
        nonlocal start, length, inside, opened
        for number, line in lines:
            start = number if start is None else start
            length += len(line)
            if length > MAX_ROW:
                at, fault = start, f"a row of more than {MAX_ROW:,} characters; shorten it"
                if inside:
                    at, fault = opened, "a quote opens a field here and is not closed within "
                    fault += f"{MAX_ROW:,} characters; {closing}"
                raise DataError(f"{path}, line {at}: {fault}")
            if '"' in line and (quotes := line.replace('""', "").count('"')):
                inside ^= quotes % 2 == 1
                opened = number  # where the last quote of the line is, if one is open after it
            yield line

    reader = csv.reader(checked(), strict=True)
    try:
        for fields in reader:
            if fields and start is not None:
                yield start, fields
            start, length, inside = None, 0, False
    except csv.Error as error:
        if str(error) == "unexpected end of data":
            fault = f"a quote opens a field here and is never closed; {closing}"
            raise DataError(f"{path}, line {opened}: {fault}") from error
        fault = f'not valid CSV ({error}); write a quote inside a quoted text as ""'
        raise DataError(f"{path}, line {start}: {fault}") from error


def _unquoted(field: str) -> str:
    """``field`` without the quotes that a spreadsheet puts around it."""
    inner = field[1:-1]
    if len(field) < 2 or field[0] != '"' or field[-1] != '"' or '"' in inner.replace('""', ""):
        return field
    return inner.replace('""', '"')


def _json_records(path: Path, lines: _Lines) -> Iterator[Record]:
    source = str(path)
    for number, line in lines:
        if not line.strip():
            continue
        try:
            value = json.loads(_without_end(line))
        except (ValueError, RecursionError) as error:  # also numbers and nesting beyond all limits
            fault = str(error)
            if isinstance(error, json.JSONDecodeError):
                fault = f"{error.msg} at character {error.colno}"
            raise DataError(
                f"{path}, line {number}: not valid JSON ({fault}); write one object per line"
            ) from error
        if not isinstance(value, dict):
            raise DataError(
                f"{path}, line {number}: {shown(value)} is not an object; "
                'write one object per line, such as {"text": "...", "label": "..."}'
            )
        yield Record(Place(source, number), value)
