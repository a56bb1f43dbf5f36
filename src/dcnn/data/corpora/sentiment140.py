"""Sentiment140, tweets labelled by their emoticons (Go et al. 2009; Sect. 5.4).

Two forms are read, plain or compressed, and recognized by the first line: the original, six quoted
columns in latin-1 with the label (0 negative, 2 neutral, 4 positive) first and the tweet last; and
two columns in UTF-8, the label (0 or 1) and the tweet. The paper's task has two classes, so
neutral tweets are dropped. Twitter escaped ``&``, ``<`` and ``>`` as HTML does; here they are
unescaped.
"""

import csv
import html
import io
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dcnn.data.columns import shown
from dcnn.data.labels import LabelledTexts
from dcnn.errors import DataError
from dcnn.files import open_bytes

CLASSES = ("negative", "positive")


class _Form(NamedTuple):
    """How a file writes its tweets; the class of a tweet that is dropped is ``None``."""

    columns: int
    encoding: str
    classes: Mapping[str, int | None]
    strict: bool  # about quotes; the original is read as leniently as its other readers do


_FORMS = (
    _Form(6, "latin-1", {"0": 0, "2": None, "4": 1}, strict=False),
    _Form(2, "utf-8", {"0": 0, "1": 1}, strict=True),
)


def read_sentiment140(path: Path, member: str = "") -> LabelledTexts:
    """Read a whole file; ``member`` names the one to read inside a zip archive of several.

    Raises:
        DataError: the file or a row cannot be used.
    """
    tweets = list(iterate_sentiment140(path, member))
    targets = np.array([target for _, target in tweets], np.int64)
    return LabelledTexts([text for text, _ in tweets], targets, CLASSES, source=str(path))


def iterate_sentiment140(path: Path, member: str = "") -> Iterator[tuple[str, int]]:
    """The tweets of a file and their class numbers, one by one."""
    with open_bytes(path, member) as stream:
        where = f"{path} ({member})" if member else str(path)
        first = stream.readline(1 << 20)
        form = _form_of(where, first)
        # A lone CR belongs to the tweet; the csv module wants the characters as they are.
        lines = io.TextIOWrapper(stream, form.encoding, newline="")
        decoded_first = (line.decode(form.encoding) for line in [first])
        reader = csv.reader(chain(decoded_first, lines), strict=form.strict)
        try:
            for row in reader:
                if len(row) != form.columns or row[0] not in form.classes:
                    raise DataError(
                        f"{where}, line {reader.line_num}: expected {form.columns} columns with "
                        f"the label first, one of {', '.join(form.classes)}; got {len(row)} "
                        f"starting with {shown(row[0] if row else '')}; "
                        "download the file again, or fix the line"
                    )
                target = form.classes[row[0]]
                if target is not None:
                    text = row[-1]
                    yield html.unescape(text) if "&" in text else text, target
        except csv.Error as error:
            raise DataError(
                f"{where}, line {reader.line_num}: not valid CSV ({error}); download the file again"
            ) from error
        except UnicodeDecodeError as error:  # after the first line, found a block ahead of the row
            line = f"line {reader.line_num + 1} or later" if reader.line_num else "line 1"
            raise DataError(
                f"{where}, {line}: not valid {error.encoding} ({error.reason}); convert it"
            ) from error


def _form_of(where: str, first: bytes) -> _Form:
    fields: list[str] = []
    with suppress(csv.Error):  # none of the two, then
        fields = next(csv.reader([first.decode("latin-1")]), fields)
    for form in _FORMS:
        if len(fields) == form.columns and fields[0] in form.classes:
            return form
    raise DataError(
        f"{where}, line 1: {shown(first.decode('latin-1'))} is not the first line of a file of "
        'labelled tweets; expected six columns as in "0","id","date","query","user","tweet", '
        "or two as in 0,tweet"
    )
