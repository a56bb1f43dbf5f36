"""Reading the files of a corpus one after another, as rows: a text, its label or labels, a weight.

The columns of all files are those found in the first one. Labels are strings in CSV, but have
types elsewhere, and integers in one file and strings in another are likely two codings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dcnn.data.columns import (
    LABEL_NAMES,
    LABEL_OPTION,
    TEXT_OPTION,
    WEIGHT_OPTION,
    Columns,
    choose_columns,
)
from dcnn.data.fields import Origin, Place, check_kind, label_of, text_of, value_of, weight_of
from dcnn.data.formats import Table, open_table
from dcnn.data.label_sets import LabelForm, check_flags, flagged, labels_of
from dcnn.data.messages import did_you_mean, shown, shown_names
from dcnn.data.records import PLAIN, PLAIN_COLUMN, SEPARATORS, NoRowsError
from dcnn.errors import DataError
from dcnn.files import bare_suffix


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
    origin: Origin | None = field(default=None, compare=False)
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
        many = isinstance(value, list) or self.options.labels_separator is not None
        self.form.check(where, value, many)
        if many:
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
