"""From the bytes of a text file to its lines: decoding, checking, counting.

Only LF and CRLF end a line, and in CSV also CR, which old spreadsheets write: form feeds, U+0085
and U+2028 belong to the text. A line of more than 64 Mi characters is refused, so that memory
stays bounded.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dcnn.data.messages import shown
from dcnn.errors import DataError

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
