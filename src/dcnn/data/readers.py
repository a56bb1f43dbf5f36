"""Which formats a table can have, and opening one by its suffix.

Lines of text (``dcnn.data.records``) and columns (``dcnn.data.arrow``) give the same rows.


A corpus in several files: a folder, or a pattern in quotes such as ``'shards/*.parquet'``.

Hidden files and those whose names begin with an underscore are passed over, as other engines do:
they hold marks and metadata.


Reading the files of a corpus one after another, as rows: a text, its label or labels, a weight.

The columns of all files are those found in the first one. Labels are strings in CSV, but have
types elsewhere, and integers in one file and strings in another are likely two codings.


Reading users' labelled texts: a file in any of ``dcnn.data.readers``, or many as shards.

Rows come one by one (``read_rows``, for prediction) or all together and checked
(``read_labelled``, for training and evaluation). Whatever a file can have wrong is a
``DataError`` that gives the file, the line or row, the value and the remedy. How one file tells
the columns of the next is the matter of ``dcnn.data.readers``.


Whether a classifier can learn from the labels of a training set, and knows those of another.
"""

import glob
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from dcnn.data.arrow import ARROW, open_arrow
from dcnn.data.columns import (
    LABEL_NAMES,
    LABEL_OPTION,
    TEXT_OPTION,
    WEIGHT_OPTION,
    Columns,
    choose_columns,
    did_you_mean,
    shown,
    shown_names,
)
from dcnn.data.labels import (
    FLAGS_OPTION,
    SEPARATOR_OPTION,
    LabelForm,
    LabelledTexts,
    check_flags,
    flagged,
    labels_of,
    number_labels,
    sorted_labels,
)
from dcnn.data.labels import Place as LabelPlace
from dcnn.data.records import (
    JSON_LINES,
    PLAIN,
    PLAIN_COLUMN,
    SEPARATORS,
    NoRowsError,
    Origin,
    Place,
    Record,
    check_kind,
    label_of,
    open_lines,
    read_line_table,
    text_of,
    value_of,
    weight_of,
)
from dcnn.errors import DataError
from dcnn.files import COMPRESSIONS, bare_suffix, check_readable

LINES = (*SEPARATORS, *JSON_LINES, PLAIN)


class Table(Protocol):
    """An open file; ``dcnn.data.records.LineTable`` describes the attributes."""

    @property
    def columns(self) -> Sequence[str]: ...
    @property
    def hint(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def typed(self) -> bool: ...

    def sample(self) -> Sequence[Mapping[str, object]]:
        """The first rows, to guess the columns from."""
        ...

    def rows(self, columns: Columns) -> Iterator[Record]:
        """All the rows, with these columns at least."""
        ...


def is_table(path: Path) -> bool:
    """Whether the suffix is that of a format that can be read."""
    return path.suffix.lower() in ARROW or bare_suffix(path) in LINES


def open_table(path: Path, encoding: str, *, header: bool) -> AbstractContextManager[Table]:
    """Open a table; its suffix names its format.

    Args:
        path: the file.
        encoding: of its text; columns are always UTF-8.
        header: whether CSV and TSV start with the names of the columns, else they are numbered
            from "1".

    Raises:
        DataError: the file cannot be read, is empty, or is not what its suffix says.
    """
    check_readable(path)
    if not is_table(path):
        raise DataError(
            f"{path}: the suffix {shown(bare_suffix(path))} names no format that can be read; use "
            f"one of {' '.join(LINES)}, each alone or followed by one of {' '.join(COMPRESSIONS)}, "
            f"or one of {' '.join(ARROW)} alone"
        )
    if path.suffix.lower() in ARROW:
        return open_arrow(path)
    return open_lines(path, encoding, header=header)


# What Hugging Face's ``save_to_disk`` leaves beside the shards: JSON, but no data.
_ABOUT_DATASETS = ("dataset_info.json", "dataset_dict.json", "state.json")
_OF_A_MODEL = "model.safetensors"

_log = logging.getLogger("dcnn")


def find_shards(given: Path, *, aloud: bool = True) -> list[Path]:
    """The files that ``given`` stands for, sorted by their paths; a file stands for itself.

    How many they are, and which are left out, is said ``aloud``.

    Raises:
        DataError: the folder holds no data, or nothing matches the pattern.
    """
    if given.is_dir():
        return _in_folder(given, aloud)
    if given.exists() or not is_pattern(given):
        return [given]
    # Path.glob starts at a folder, where a pattern may be absolute.
    found = [Path(name) for name in glob.glob(str(given), recursive=True)]  # noqa: PTH207
    found = sorted(path for path in found if path.is_file() and not _is_passed_over(path))
    if not found:
        raise DataError(f"{given}: no file matches this pattern; name a file, a folder or another")
    tables = [path for path in found if is_table(path)]
    # Where no match has a known suffix, the first is opened, which names those that are known.
    return _tables(given, tables, found, aloud) if tables else found


def is_pattern(given: Path) -> bool:
    """Whether the name has what stands for other characters: ``*``, ``?`` or ``[``."""
    return glob.has_magic(str(given))


def stands_for(given: Path, path: Path) -> bool:
    """Whether ``path`` is, or once written would be, one of the files of ``given``."""
    path = path.resolve()
    if given.is_dir():
        return path.parent == given.resolve() and is_table(path) and not _is_passed_over(path)
    if is_pattern(given) and not given.exists():
        return path.match(str(given.absolute()))
    return path == given.resolve()


def _in_folder(folder: Path, aloud: bool) -> list[Path]:
    if (folder / _OF_A_MODEL).exists():
        raise DataError(f"{folder} is a folder that holds a model; name a file or folder of data")
    found = sorted(
        path for path in folder.iterdir() if path.is_file() and not _is_passed_over(path)
    )
    tables = [path for path in found if is_table(path)]
    if not tables:
        deeper = any(path.is_dir() for path in folder.iterdir())
        remedy = f"give a pattern such as '{folder}/*/*.parquet'" if deeper else "name another"
        raise DataError(f"{folder} is a folder without data files of its own; {remedy}")
    return _tables(folder, tables, found, aloud)


def _is_passed_over(path: Path) -> bool:
    return path.name.startswith((".", "_")) or path.name in _ABOUT_DATASETS


def _tables(given: Path, tables: list[Path], found: list[Path], aloud: bool) -> list[Path]:
    if not aloud:
        return tables
    others = [path.name for path in found if not is_table(path)]
    left_out = f"; left out, as no data files: {shown_names(others)}" if others else ""
    files = "1 file" if len(tables) == 1 else f"{len(tables):,} files"
    _log.info("%s: reading %s%s", given, files, left_out)
    return tables


@dataclass(frozen=True)
class TableOptions:
    """How to read a table.

    Attributes:
        text_column: the column of the texts; ``None`` is to guess it.
        label_column: the column of the labels; ``None`` is to guess it.
        weight_column: the column of the examples' weights; ``None`` is no weights.
        encoding: of the file's text.
        header: whether CSV and TSV start with the columns' names; else they are "1", "2", ...
        labels_separator: parts the labels of a cell that holds several; ``None`` is one label.
        label_columns: a column for each label that says whether it applies; none is a column of
            labels.
    """

    text_column: str | None = None
    label_column: str | None = None
    weight_column: str | None = None
    encoding: str = "utf-8"
    header: bool = True
    labels_separator: str | None = None
    label_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One text, with its label, or labels, and weight where they are read, and where it starts."""

    text: str
    label: str | None
    weight: float | None
    line: int
    origin: Origin = field(default=Origin(""), compare=False)
    labels: tuple[str, ...] | None = None


@dataclass
class ShardReader:
    """Reads one file after another, and holds what one tells of the next.

    One that is given ``first`` and ``columns`` reads a later file as if it had read the first.

    Attributes:
        options: how to read.
        labels: whether the label column is read.
        first: the first file that had rows, or none yet.
        columns: those found in it.
        kinds: the types of the labels so far, each with the file that had it first.
        form: whether rows have one label or several.
    """

    options: TableOptions
    labels: bool
    first: Path | None = None
    columns: Columns | None = None
    kinds: dict[type, str] = field(default_factory=dict)
    form: LabelForm = field(default_factory=LabelForm)

    def look_at(self, paths: Sequence[Path]) -> None:
        """Find the columns in the first of ``paths`` that has a row, without reading on.

        Raises:
            DataError: none has one, or that file or its columns cannot be used.
        """
        for path in paths:
            try:
                with open_table(path, self.options.encoding, header=self.options.header) as table:
                    columns = self._columns(path, table)
                    next(self._rows(path, table, columns), None)
            except NoRowsError:
                continue
            self.first, self.columns = path, columns
            return
        raise DataError(f"{paths[0]}: no rows can be read from any of {len(paths)} files")

    def rows(self, path: Path) -> Iterator[Row]:
        """The rows of one file; what it tells is kept once it has been read to its end."""
        with open_table(path, self.options.encoding, header=self.options.header) as table:
            yield from self.rows_of(path, table)

    def rows_of(self, path: Path, table: Table) -> Iterator[Row]:
        """The rows of one file that is open."""
        columns = self._columns(path, table)
        yield from self._rows(path, table, columns)
        self.first, self.columns = self.first or path, columns

    def _rows(self, path: Path, table: Table, columns: Columns) -> Iterator[Row]:
        origin = Origin(str(path), table.unit)
        # A name that was guessed for its place alone may be the first row of the data.
        may_lack_header = (
            bare_suffix(path) in SEPARATORS
            and self.options.label_column is None
            and (columns.label or "").lower() not in LABEL_NAMES
        )
        kinds = dict(self.kinds)
        for record in table.rows(columns):
            where = Place(origin, record)
            text = text_of(where, columns.text)
            label, labels = self._labels(where, columns)
            if columns.label is not None:
                if table.typed:
                    value = record.values[columns.label]
                    for member in value if isinstance(value, list) else [value]:
                        check_kind(where, member, kinds)
                if label == columns.label and may_lack_header:
                    raise DataError(
                        f"{where}: {shown(label)} is a label here and the name of the column at "
                        "the top, so the file seems to have no header; pass --no-header, "
                        f"or name the column with {LABEL_OPTION}"
                    )
            weight = None if columns.weight is None else weight_of(where, columns.weight)
            yield Row(text, label, weight, record.line, origin, labels)
        self.kinds = kinds

    def _labels(self, where: Place, columns: Columns) -> tuple[str | None, tuple[str, ...] | None]:
        """The label of a row, or its labels; neither where they are not read."""
        if columns.flags:
            return None, flagged(where, columns.flags)
        if columns.label is None:
            return None, None
        value = value_of(where, columns.label)
        multi_label = isinstance(value, list) or self.options.labels_separator is not None
        self.form.check(where, value, multi_label)
        if multi_label:
            return None, labels_of(where, columns.label, self.options.labels_separator)
        return label_of(where, columns.label), None

    def _columns(self, path: Path, table: Table) -> Columns:
        if bare_suffix(path) == PLAIN and self.labels:
            raise DataError(
                f"{path}: plain text has no labels; "
                "give a .csv, .tsv, .jsonl or .parquet file with a text and a label column"
            )
        if self.columns is None:
            return find_columns(path, self.options, table, labels=self.labels)
        for name in self.columns.names:
            if name not in table.columns:
                raise DataError(
                    f"{path} has no column {shown(name)}, which {self.first} has; the columns are "
                    f"{shown_names(table.columns)}; give all files of a corpus the same"
                    f"{did_you_mean(name, table.columns)}"
                )
        return self.columns


def find_columns(path: Path, options: TableOptions, table: Table, *, labels: bool) -> Columns:
    """The columns of an open file: those that ``options`` name, and guesses for the others.

    Raises:
        DataError: there is no such column, or none can be guessed.
    """
    wanted = {TEXT_OPTION: options.text_column, WEIGHT_OPTION: options.weight_column}
    if bare_suffix(path) == PLAIN and options.text_column is None:
        wanted[TEXT_OPTION] = PLAIN_COLUMN
    flags = options.label_columns if labels else ()
    if flags:
        check_flags(path, table.columns, flags, options.text_column)
    elif labels:
        wanted[LABEL_OPTION] = options.label_column
    others = [name for name in table.columns if name not in flags]
    columns = choose_columns(path, others, wanted, table.sample, table.hint)
    return replace(columns, flags=flags)


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
    multi_label = rows[0].labels is not None
    labels = [row.labels if multi_label else row.label for row in rows]
    occurring = {label for row in rows for label in row.labels or ()} if multi_label else labels
    return number_labels(
        [row.text for row in rows],
        labels,
        classes=sorted_labels([*occurring, *options.label_columns]),
        multi_label=multi_label,
        source=str(path),
        places=[LabelPlace(row.origin.source, row.line, row.origin.unit) for row in rows],
        weights=weights,
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


def check_training_labels(examples: LabelledTexts, *, splits: bool) -> None:
    """Check that a classifier can learn from these labels.

    Args:
        examples: the training set.
        splits: whether a dev set is held out from it, so that every label is needed twice; where a
            text may have several, a label with one example stays in training.

    Raises:
        DataError: there are fewer than two labels, or a label to be split has a single example.
    """
    counts = np.bincount(examples.targets) if examples.targets.ndim == 1 else None
    counts = examples.targets.sum(axis=0) if counts is None else counts
    occurring = [label for label, count in zip(examples.classes, counts, strict=False) if count]
    if examples.multi_label and len(occurring) < 2:
        found = f"the label {shown(occurring[0])} alone" if occurring else "no label at all"
        raise DataError(
            f"{examples.source} has {found}; add rows with others, choose with {LABEL_OPTION}, "
            f"or split its cells with {SEPARATOR_OPTION}"
        )
    if len(occurring) == 1:
        raise one_label_only(examples.source, occurring[0])
    if examples.multi_label or not splits:
        return
    single = np.flatnonzero(counts[examples.targets] == 1)
    if len(single):
        index = int(single[0])
        others = f" (one of {len(single)} such labels)" if len(single) > 1 else ""
        raise DataError(
            f"{examples.where(index)}: the label {shown(examples.labels[index])} has a single "
            f"example{others}, too few for both training and the dev set held out from it; "
            "add examples, drop the label, or give a dev file"
        )


def one_label_only(source: str, label: object) -> DataError:
    """What to say of examples that are all of one class."""
    return DataError(
        f"{source}: every row has the label {shown(label)}, and there is "
        f"nothing to tell apart; add rows with another label, or choose with {LABEL_OPTION}"
    )


def check_form(examples: LabelledTexts, *, multi_label: bool, of: str) -> None:
    """Check that two sets agree on whether a text has one label or several.

    Args:
        examples: a set.
        multi_label: whether a text has several in the other.
        of: the other, for the message.

    Raises:
        DataError: they do not agree.
    """
    if examples.multi_label == multi_label:
        return
    if multi_label:
        raise DataError(
            f"{examples.source} has one label a row, where {of} has several; give lists, "
            f"{SEPARATOR_OPTION} or columns of labels"
        )
    raise DataError(
        f"{examples.source} has several labels a row, where {of} has one; "
        "give a column with one label a row"
    )
