"""Reading users' labelled texts: a file in any of ``dcnn.data.formats``, or many as shards.

Rows come one by one (``read_rows``, for prediction) or all together and checked
(``read_labelled``, for training and evaluation). Whatever a file can have wrong is a
``DataError`` that gives the file, the line or row, the value and the remedy. How one file tells
the columns of the next is the matter of ``dcnn.data.shard_reader``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from dcnn.data.columns import LABEL_OPTION, WEIGHT_OPTION
from dcnn.data.fields import Origin
from dcnn.data.formats import LINES, open_table
from dcnn.data.label_sets import FLAGS_OPTION, SEPARATOR_OPTION
from dcnn.data.messages import shown
from dcnn.data.records import NoRowsError, read_line_table
from dcnn.data.shard_reader import Row, ShardReader, TableOptions, find_columns
from dcnn.data.shards import find_shards
from dcnn.errors import DataError
from dcnn.files import bare_suffix
from dcnn.text.sentences import Ints

__all__ = [
    "BadShard",
    "BadShardError",
    "LabelledTexts",
    "Row",
    "TableOptions",
    "find_text_column",
    "read_labelled",
    "read_rows",
    "read_texts",
]

_DEFAULTS = TableOptions()


@dataclass(frozen=True)
class LabelledTexts:
    """A whole file of examples, as training and evaluation take it.

    Attributes:
        texts: one an example.
        labels: one an example; none at all where examples have sets of them.
        weights: float32, one an example, or ``None``.
        source: the file, folder or pattern they come from, for messages.
        lines: where each example starts in its file.
        origins: the file of each example; none if it is ``source``, in lines.
        label_sets: the labels of each example, where it may have several or none.
    """

    texts: list[str]
    labels: list[str]
    weights: npt.NDArray[np.float32] | None
    source: str
    lines: list[int]
    origins: list[Origin] | None = None
    label_sets: list[tuple[str, ...]] | None = None

    @property
    def many(self) -> bool:
        """Whether an example may have several labels."""
        return self.label_sets is not None

    @property
    def each(self) -> Iterator[tuple[str, ...]]:
        """The labels of each example, however many it may have."""
        yield from (
            ((label,) for label in self.labels) if self.label_sets is None else self.label_sets
        )

    def where(self, index: int) -> str:
        """Where an example is, for messages."""
        origin = Origin(self.source) if self.origins is None else self.origins[index]
        return origin.at(self.lines[index])

    def class_numbers(self, classes: Sequence[str]) -> Ints:
        """The place of each label among ``classes``, which hold them all."""
        numbers = {label: number for number, label in enumerate(classes)}
        return np.array([numbers[label] for label in self.labels])

    def indicators(self, classes: Sequence[str]) -> npt.NDArray[np.float32]:
        """(N, classes) one where a label of ``classes``, which hold them all, applies."""
        numbers = {label: number for number, label in enumerate(classes)}
        found = np.zeros((len(self.texts), len(classes)), np.float32)
        for row, labels in zip(found, self.each, strict=True):
            row[[numbers[label] for label in labels]] = 1
        return found

    def select(self, indices: Sequence[int]) -> "LabelledTexts":
        """The examples at ``indices``, in that order."""
        return LabelledTexts(
            texts=[self.texts[i] for i in indices],
            labels=[] if self.many else [self.labels[i] for i in indices],
            weights=None if self.weights is None else self.weights[list(indices)],
            source=self.source,
            lines=[self.lines[i] for i in indices],
            origins=None if self.origins is None else [self.origins[i] for i in indices],
            label_sets=None if self.label_sets is None else [self.label_sets[i] for i in indices],
        )


class BadShardError(DataError):
    """One of several files cannot be used."""


BadShard = Callable[[DataError], None]


def read_rows(
    path: Path,
    options: TableOptions = _DEFAULTS,
    *,
    labels: bool,
    bad_shard: BadShard | None = None,
) -> Iterator[Row]:
    """Read a table row by row, in bounded memory.

    Args:
        path: the file, whose suffix names its format; or a folder or a pattern of many.
        options: how to read it.
        labels: whether the label column is read; without it, it need not exist.
        bad_shard: told what is wrong with a shard, which is then left out whole: each is read to
            its end before its first row comes. Without it the first error is raised.

    Raises:
        DataError: the file, a column or a row cannot be used. It comes while the rows are taken.
        BadShardError: so it is, and the file is one of several.
    """
    if labels:
        _check_ways(options)
    shards = find_shards(path)
    reader = ShardReader(options, labels)
    some = False
    for shard in shards:
        if bad_shard is not None and _is_bad(reader, shard, bad_shard):
            continue
        try:
            for row in reader.rows(shard):
                some = True
                yield row
        except DataError as error:
            if len(shards) == 1:
                raise
            if not isinstance(error, NoRowsError):
                raise BadShardError(str(error)) from error
    if not some:
        raise DataError(f"{path}: no rows can be read from any of its {len(shards)} files")


def find_text_column(shards: Sequence[Path], options: TableOptions = _DEFAULTS) -> str | None:
    """The column that all shards are read by: that of the first of them that can be read."""
    for shard in shards:
        try:
            with open_table(shard, options.encoding, header=options.header) as table:
                return find_columns(shard, options, table, labels=False).text
        except DataError:  # whoever reads it will say what is wrong
            continue
    return options.text_column


def read_texts(path: Path, stream: BinaryIO, options: TableOptions = _DEFAULTS) -> Iterator[Row]:
    """Read the texts of a table of lines from an open stream, row by row.

    Args:
        path: its name, for the format and for messages; nothing is opened.
        stream: its bytes, not compressed.
        options: how to read it.

    Raises:
        DataError: a column or a row cannot be used. It comes while the rows are taken.
    """
    if bare_suffix(path) not in LINES:
        raise DataError(
            f"{path}: the suffix {shown(bare_suffix(path))} names no format that can be read here; "
            f"use one of {' '.join(LINES)}"
        )
    table = read_line_table(path, stream, options.encoding, header=options.header)
    yield from ShardReader(options, labels=False).rows_of(path, table)


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
        origins=[row.origin for row in rows if row.origin is not None],
        label_sets=[row.labels for row in rows if row.labels is not None] or None,
    )


def _is_bad(reader: ShardReader, shard: Path, tell: BadShard) -> bool:
    """Read a shard to its end, and tell what is wrong with it if something is."""
    try:
        for _ in reader.rows(shard):
            pass
    except NoRowsError:
        return False
    except DataError as error:
        tell(error)
        return True
    return False


def _check_ways(options: TableOptions) -> None:
    """The labels are said in one way."""
    others = {SEPARATOR_OPTION: options.labels_separator, LABEL_OPTION: options.label_column}
    for option, value in others.items():
        if options.label_columns and value is not None:
            raise DataError(
                f"{FLAGS_OPTION} and {option} are two ways to say the labels; leave out one of them"
            )
    if options.labels_separator == "":
        raise DataError(f"{SEPARATOR_OPTION} must not be empty; give for instance '|'")
