"""Reading users' labelled texts: CSV, TSV, JSON Lines and plain text, compressed or not.

Rows come one by one (``read_rows``, for prediction) or all together and checked
(``read_labelled``, for training and evaluation). Whatever a file can have wrong is a
``DataError`` that gives the file, the line, the value and the remedy. Labels lose the white
space around them and are brought to Unicode normal form C, so that two that look alike are one;
texts stay as they are, and may be empty.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from dcnn.data.columns import (
    LABEL_NAMES,
    LABEL_OPTION,
    TEXT_OPTION,
    WEIGHT_OPTION,
    Columns,
    choose_columns,
)
from dcnn.data.messages import did_you_mean, shown, shown_names
from dcnn.data.records import PLAIN, PLAIN_COLUMN, SEPARATORS, Record, Table, open_table, read_table
from dcnn.errors import DataError
from dcnn.files import bare_suffix
from dcnn.text.sentences import Ints

_SAMPLED_ROWS = 100
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class TableOptions:
    """How to read a table.

    Attributes:
        text_column: the column of the texts; ``None`` is to guess it.
        label_column: the column of the labels; ``None`` is to guess it.
        weight_column: the column of the examples' weights; ``None`` is no weights.
        encoding: of the file's text.
        header: whether CSV and TSV start with the columns' names; else they are "1", "2", ...
    """

    text_column: str | None = None
    label_column: str | None = None
    weight_column: str | None = None
    encoding: str = "utf-8"
    header: bool = True


_DEFAULTS = TableOptions()


@dataclass(frozen=True, slots=True)
class Row:
    """One text, with its label and weight where they are read, and the line where it starts."""

    text: str
    label: str | None
    weight: float | None
    line: int


@dataclass(frozen=True)
class LabelledTexts:
    """A whole file of examples, as training and evaluation take it.

    Attributes:
        texts: one an example.
        labels: one an example.
        weights: float32, one an example, or ``None``.
        source: the file they come from, for messages.
        lines: where each example starts in that file.
    """

    texts: list[str]
    labels: list[str]
    weights: npt.NDArray[np.float32] | None
    source: str
    lines: list[int]

    def class_numbers(self, classes: Sequence[str]) -> Ints:
        """The place of each label among ``classes``, which hold them all."""
        numbers = {label: number for number, label in enumerate(classes)}
        return np.array([numbers[label] for label in self.labels])

    def select(self, indices: Sequence[int]) -> "LabelledTexts":
        """The examples at ``indices``, in that order."""
        return LabelledTexts(
            texts=[self.texts[i] for i in indices],
            labels=[self.labels[i] for i in indices],
            weights=None if self.weights is None else self.weights[list(indices)],
            source=self.source,
            lines=[self.lines[i] for i in indices],
        )


def read_rows(path: Path, options: TableOptions = _DEFAULTS, *, labels: bool) -> Iterator[Row]:
    """Read a table row by row, in bounded memory.

    Args:
        path: the file; its suffix names its format.
        options: how to read it.
        labels: whether the label column is read; without it, it need not exist.

    Raises:
        DataError: the file, a column or a row cannot be used. It comes while the rows are taken.
    """
    with open_table(path, options.encoding, header=options.header) as table:
        yield from _rows(path, options, table, labels=labels)


def read_texts(path: Path, stream: BinaryIO, options: TableOptions = _DEFAULTS) -> Iterator[Row]:
    """Read the texts of a table from an open stream, row by row.

    Args:
        path: its name, for the format and for messages; nothing is opened.
        stream: its bytes, not compressed.
        options: how to read it.

    Raises:
        DataError: a column or a row cannot be used. It comes while the rows are taken.
    """
    table = read_table(path, stream, options.encoding, header=options.header)
    yield from _rows(path, options, table, labels=False)


def _rows(path: Path, options: TableOptions, table: Table, *, labels: bool) -> Iterator[Row]:
    columns, records = _choose(path, options, table, labels=labels)
    # A name that was guessed for its place alone may be the first row of the data.
    may_lack_header = (
        bare_suffix(path) in SEPARATORS
        and options.label_column is None
        and (columns.label or "").lower() not in LABEL_NAMES
    )
    for record in records:
        text = _text(path, record, columns.text)
        label = None if columns.label is None else _label(path, record, columns.label)
        if label is not None and label == columns.label and may_lack_header:
            raise DataError(
                f"{path}, line {record.line}: {shown(label)} is a label here and the name of "
                "the column at the top, so the file seems to have no header; pass --no-header, "
                f"or name the column with {LABEL_OPTION}"
            )
        yield Row(
            text=text,
            label=label,
            weight=None if columns.weight is None else _weight(path, record, columns.weight),
            line=record.line,
        )


def read_labelled(path: Path, options: TableOptions = _DEFAULTS) -> LabelledTexts:
    """Read all the examples of a file, at least one.

    Raises:
        DataError: the file, a column or a row cannot be used, or every weight is zero.
    """
    rows = list(read_rows(path, options, labels=True))
    weights = None
    if options.weight_column is not None:
        weights = np.array([row.weight for row in rows], dtype=np.float32)
        if not weights.any():
            raise DataError(
                f"{path}: every weight in column {shown(options.weight_column)} is 0; "
                f"give at least one example a weight above 0, or leave out {WEIGHT_OPTION}"
            )
    return LabelledTexts(
        texts=[row.text for row in rows],
        labels=[row.label for row in rows if row.label is not None],
        weights=weights,
        source=str(path),
        lines=[row.line for row in rows],
    )


def check_training_labels(examples: LabelledTexts, *, splits: bool) -> None:
    """Check that a classifier can learn from these labels.

    Args:
        examples: the training set.
        splits: whether a dev set is held out from it, so that every label is needed twice.

    Raises:
        DataError: there is one label only, or a label to be split has a single example.
    """
    counts = Counter(examples.labels)
    if len(counts) == 1:
        raise DataError(
            f"{examples.source}: every row has the label {shown(examples.labels[0])}, and there is "
            f"nothing to tell apart; add rows with another label, or choose with {LABEL_OPTION}"
        )
    single = [label for label, count in counts.items() if count == 1]
    if splits and single:
        line = examples.lines[examples.labels.index(single[0])]
        others = f" (one of {len(single)} such labels)" if len(single) > 1 else ""
        raise DataError(
            f"{examples.source}, line {line}: the label {shown(single[0])} has a single "
            f"example{others}, too few for both training and the dev set held out from it; "
            "add examples, drop the label, or give a dev file"
        )


def check_known_labels(examples: LabelledTexts, known: Collection[str]) -> None:
    """Check that a dev or test set has only labels that the classifier can give.

    Args:
        examples: the dev or test set.
        known: the labels of the training set.

    Raises:
        DataError: a label is not known.
    """
    unknown = set(examples.labels).difference(known)
    for label, line in zip(examples.labels, examples.lines, strict=True):
        if label in unknown:
            raise DataError(
                f"{examples.source}, line {line}: the label {shown(label)} is not in the training "
                f"set, which has {shown_names(known)}; correct it, drop the row, or train with it"
                f"{did_you_mean(label, known)}"
            )


def _choose(
    path: Path, options: TableOptions, table: Table, *, labels: bool
) -> tuple[Columns, Iterator[Record]]:
    """The columns to read, and all the records: those looked at to guess come first again."""
    plain = bare_suffix(path) == PLAIN
    if plain and labels:
        raise DataError(
            f"{path}: plain text has no labels; "
            "give a .csv, .tsv or .jsonl file with a text and a label column"
        )
    wanted = {TEXT_OPTION: options.text_column, WEIGHT_OPTION: options.weight_column}
    if plain and options.text_column is None:
        wanted[TEXT_OPTION] = PLAIN_COLUMN
    if labels:
        wanted[LABEL_OPTION] = options.label_column
    looked_at: list[Record] = []

    def sample() -> list[Mapping[str, object]]:
        looked_at.extend(islice(table.records, _SAMPLED_ROWS))
        return [record.values for record in looked_at]

    columns = choose_columns(path, table.columns, wanted, sample, table.hint)
    return columns, chain(looked_at, table.records)


def _value(path: Path, record: Record, column: str) -> object:
    try:
        return record.values[column]
    except KeyError:
        keys = shown_names(record.values) if record.values else "none at all"
        raise DataError(
            f"{path}, line {record.line}: the key {shown(column)} is missing; the keys here are "
            f"{keys}{did_you_mean(column, record.values)}"
        ) from None


def _text(path: Path, record: Record, column: str) -> str:
    value = _value(path, record, column)
    if not isinstance(value, str):
        raise DataError(
            f"{path}, line {record.line}: the text in {shown(column)} is {shown(value)}; "
            "it must be a string"
        )
    return _whole(path, record, value)


def _label(path: Path, record: Record, column: str) -> str:
    value = _value(path, record, column)
    match value:
        case str():
            label = unicodedata.normalize("NFC", _whole(path, record, value).strip())
        case bool():
            label = "true" if value else "false"
        case int():
            label = str(value)
        case float() if math.isfinite(value):
            label = repr(value)
        case _:
            raise DataError(
                f"{path}, line {record.line}: the label in {shown(column)} is {shown(value)}; "
                "it must be a string, a number, true or false"
            )
    if not label:
        raise DataError(
            f"{path}, line {record.line}: the label in {shown(column)} is empty; "
            "give the row a label or drop it"
        )
    return label


def _whole(path: Path, record: Record, value: str) -> str:
    r"""``value`` itself, if it has no half of a pair such as JSON's ``\ud83d\ude00``."""
    if not value.isascii() and (half := _LONE_SURROGATE.search(value)):
        raise DataError(
            f"{path}, line {record.line}: {half[0]!r} is half of a surrogate pair and no "
            "character; write the whole pair or leave it out"
        )
    return value


def _weight(path: Path, record: Record, column: str) -> float:
    value = _value(path, record, column)
    weight = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            weight = float(value)
        except (ValueError, OverflowError):
            weight = math.nan
    if not 0 <= weight <= _LARGEST_WEIGHT:
        raise DataError(
            f"{path}, line {record.line}: the weight in {shown(column)} is {shown(value)}; "
            "it must be a finite number of 0 or more"
        )
    return weight
