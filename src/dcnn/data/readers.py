"""Reading users' texts and labels from a file, or from many files as the shards of a corpus.

A folder, or a pattern in quotes such as ``'shards/*.parquet'``, names many files. Hidden files and
those whose names begin with an underscore are skipped, as other engines do. The columns of all
files are those found in the first one. Whatever a file can have wrong is a ``DataError`` that gives
the file, the line or row, the value and the remedy.
"""

import copy
import glob
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from dcnn.data import labels as labelling
from dcnn.data import records
from dcnn.data.arrow import ARROW, ArrowTable, open_arrow
from dcnn.data.columns import LABEL_NAMES, Columns, choose_columns, did_you_mean, shown, shown_names
from dcnn.data.labels import LabelFormat, LabelledTexts, Place
from dcnn.data.records import PLAIN, SEPARATORS, LineTable, NoRowsError, Record
from dcnn.errors import DataError
from dcnn.files import COMPRESSIONS, bare_suffix, check_readable

LINES = (*SEPARATORS, *records.JSON_LINES, PLAIN)

# Files of Hugging Face's ``save_to_disk`` beside the shards.
_NO_DATA = ("dataset_info.json", "dataset_dict.json", "state.json")
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)

_log = logging.getLogger("dcnn")


@dataclass(frozen=True)
class TableOptions:
    """How to read a table; a column that is ``None`` is guessed, but for the weights."""

    text_column: str | None = None
    label_column: str | None = None
    weight_column: str | None = None  # None is no weights
    encoding: str = "utf-8"
    header: bool = True  # whether CSV and TSV have names of columns; else they are "1", "2", ...
    labels_separator: str | None = None  # multi-label: splits a cell into labels
    label_columns: tuple[str, ...] = ()  # one column of 0 and 1, or of probabilities, per label
    multi_label: bool | None = None  # whether it is; None follows from how labels are written

    def __post_init__(self) -> None:
        """The labels are given in one way."""
        others = {"--labels-separator": self.labels_separator, "--label-column": self.label_column}
        for option, value in others.items():
            if self.label_columns and value is not None:
                raise DataError(
                    f"--label-columns and {option} both give the labels; leave out one of them"
                )
        for name in self.label_columns:
            labelling.check_label("--label-columns", name)
        if self.labels_separator == "":
            raise DataError("--labels-separator must not be empty; give for instance '|'")
        if self.label_columns and len(set(self.label_columns)) < 2:
            raise DataError(
                f"--label-columns {','.join(self.label_columns)} names fewer than two columns; "
                "name one per label, with commas, or give a column of labels with --label-column"
            )


Table = LineTable | ArrowTable
_DEFAULTS = TableOptions()


def is_table(path: Path) -> bool:
    """Whether the suffix is that of a format that can be read."""
    return path.suffix.lower() in ARROW or bare_suffix(path) in LINES


def open_table(
    path: Path, options: TableOptions, stream: BinaryIO | None = None
) -> AbstractContextManager[Table]:
    """Open a table by its suffix; ``stream``, if given, has its uncompressed bytes."""
    suffix, lines = bare_suffix(path), f"use one of {' '.join(LINES)}"
    formats = f" here; {lines}"
    if stream is None:
        check_readable(path)
        if path.suffix.lower() in ARROW:
            return open_arrow(path)
        others = f"followed by one of {' '.join(COMPRESSIONS)}, or one of {' '.join(ARROW)} alone"
        formats = f"; {lines}, each alone or {others}"
    if suffix in LINES:
        return records.open_lines(path, options.encoding, header=options.header, stream=stream)
    raise DataError(f"{path}: the suffix {shown(suffix)} names no format that can be read{formats}")


def find_shards(source: Path, *, log: bool = True) -> list[Path]:
    """The files that ``source`` names, sorted by path: one, those of a folder, or of a pattern."""
    if source.is_dir():
        if (source / "model.safetensors").exists():
            raise DataError(
                f"{source} is a folder that holds a model; name a file or folder of data"
            )
        found = list(source.iterdir())
    elif source.exists() or not glob.has_magic(str(source)):
        return [source]
    else:
        found = _matching(source)
    files = sorted(path for path in found if path.is_file() and not _is_skipped(path))
    tables = [path for path in files if is_table(path)]
    if not tables and source.is_dir():
        deeper = any(path.is_dir() for path in found)
        remedy = f"give a pattern such as '{source}/*/*.parquet'" if deeper else "name another"
        raise DataError(f"{source} is a folder without data files of its own; {remedy}")
    if not files:
        raise DataError(f"{source}: no file matches this pattern; name a file, a folder or another")
    if not tables:
        return files  # opening the first lists the formats that can be read
    if log:
        others = [path.name for path in files if not is_table(path)]
        left_out = f"; left out, as no data files: {shown_names(others)}" if others else ""
        count = "1 file" if len(tables) == 1 else f"{len(tables):,} files"
        _log.info("%s: reading %s%s", source, count, left_out)
    return tables


def is_shard(source: Path, path: Path) -> bool:
    """Whether ``path`` is, or once written would be, one of the files that ``source`` names."""
    path = path.resolve()
    if source.is_dir():
        return path.parent == source.resolve() and is_table(path) and not _is_skipped(path)
    if glob.has_magic(str(source)) and not source.exists():
        return path.match(str(source.absolute()))
    return path == source.resolve()


def _matching(pattern: Path) -> list[Path]:
    """What matches a pattern; no hidden folders, and ``**`` follows no links to folders."""
    parts = list(pattern.parts)
    first = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    root, rest = Path(*parts[:first]), parts[first:]
    rest += ["*"] if rest[-1] == "**" else []
    try:
        found = list(root.glob(str(Path(*rest))))
    except ValueError as error:
        raise DataError(
            f"{pattern}: not a pattern ({error}); write ** alone, as in a/**/*.csv"
        ) from error
    keeps_hidden = "/." in f"/{Path(*rest).as_posix()}"
    return [p for p in found if keeps_hidden or "/." not in f"/{p.relative_to(root).as_posix()}"]


def _is_skipped(path: Path) -> bool:
    return path.name.startswith((".", "_")) or path.name in _NO_DATA


# The columns of a file of `dcnn suggest`, whose labels are filled in one after the other.
SUGGESTED = ["text", "label", "predicted", "probability"]


class Row(NamedTuple):
    """One text; its label, or labels where multi-label, weight and all columns, if read."""

    text: str
    label: str | tuple[str, ...] | dict[str, float] | None
    weight: float | None
    place: Place
    values: Mapping[str, object] | None = None


@dataclass
class ShardReader:
    """Reads one file after another; the first decides the columns and the format of the labels."""

    options: TableOptions
    labels: bool  # whether the labels are read; without, there need not be any
    keep: bool = False  # whether rows have the values of all columns
    unlabelled: list[Row] | None = None  # gets the rows with an empty label, which is else an error
    first: Path | None = None  # the first file that had rows
    columns: Columns | None = None  # those found in it
    types: Mapping[str, Any] = field(default_factory=dict)  # of all its columns; see ``keep``
    label_format: LabelFormat = field(default_factory=LabelFormat)  # of the rows so far

    def __post_init__(self) -> None:
        """``options.multi_label``, if set, decides the format of the labels."""
        if (asked := self.options.multi_label) is not None:
            self.label_format.asked = self.label_format.multi_label = asked

    def find_columns(self, paths: Sequence[Path]) -> tuple[Path, Columns]:
        """The first of ``paths`` that has a row, and its columns; nothing more is read."""
        for path in paths:
            with suppress(NoRowsError) if len(paths) > 1 else nullcontext():
                next(self.rows(path))
            if self.columns is not None:
                return path, self.columns
        raise DataError(f"{paths[0]}: no rows can be read from any of {len(paths)} files")

    def rows(self, path: Path, stream: BinaryIO | None = None) -> Iterator[Row]:
        """The rows of one file; ``stream`` has its bytes where ``path`` only names it."""
        options = self.options
        with open_table(path, options, stream) as table:
            columns = self._columns(path, table)
            # A column that was guessed by elimination may be the first row of the data.
            guessed = (
                options.label_column is None and (columns.label or "").lower() not in LABEL_NAMES
            )
            may_lack_header = guessed and options.header and bare_suffix(path) in SEPARATORS
            if self.keep and list(table.columns).count("") > 1:
                raise DataError(
                    f"{path}: more than one column has no name, so not all can be kept; give each "
                    "a name, or pass --no-keep"
                )
            labelled = unlabelled = 0
            suggested = columns.label == "label" and list(table.columns) == SUGGESTED
            # With a separator, an empty string is a text to which no label applies.
            one_or_more = columns.label is not None and options.labels_separator is None
            may_be_empty = suggested or (self.unlabelled is not None and one_or_more)
            for record in table.rows(columns, keep=self.keep):
                place, text = record.place, record.value(columns.text)
                if may_be_empty and _is_blank(record.value(str(columns.label))):
                    unlabelled += 1
                    if self.unlabelled is not None:
                        self.unlabelled.append(Row(str(text), None, None, place))
                    continue
                labelled += 1
                if not isinstance(text, str):
                    raise DataError(
                        f"{place}: the text in {shown(columns.text)} is {shown(text)}; it must be "
                        "a string"
                    )
                labelling.check_unicode(place, text)
                label: str | tuple[str, ...] | dict[str, float] | None = None
                if columns.indicators:
                    values = {name: record.value(name) for name in columns.indicators}
                    label = labelling.parse_indicators(place, values, options.multi_label is False)
                elif columns.label is not None:
                    value, separator = record.value(columns.label), options.labels_separator
                    label = self.label_format.parse(
                        place, columns.label, value, separator, typed=table.typed
                    )
                    if may_lack_header and label == columns.label:
                        raise DataError(
                            f"{place}: {shown(label)} is a label here and the name of the column "
                            "at the top, so the file seems to have no header; pass --no-header, or "
                            "name the column with --label-column"
                        )
                weight = None if columns.weight is None else _weight(record, columns.weight)
                if self.columns is None:
                    self.first, self.columns, self.types = path, columns, table.types
                yield Row(text, label, weight, place, record.values if self.keep else None)
            if unlabelled and not labelled:
                raise NoRowsError(
                    f"{path}: no row has a label yet; fill in the column {columns.label}"
                )
            if unlabelled:
                _log.info("%s: %d rows without a label are left out", path, unlabelled)

    def _columns(self, path: Path, table: Table) -> Columns:
        if bare_suffix(path) == PLAIN and self.labels:
            raise DataError(
                f"{path}: plain text has no labels; "
                "give a .csv, .tsv, .jsonl or .parquet file with a text and a label column"
            )
        if self.columns is None:
            options, text = self.options, self.options.text_column
            if bare_suffix(path) == PLAIN and text is None:
                text = records.PLAIN_COLUMN  # which is no guess
            named = (text, options.label_column, options.weight_column)
            indicators = options.label_columns if self.labels else ()
            labels, hint = self.labels and not indicators, table.hint
            return choose_columns(
                path, table.columns, table.sample, *named, indicators, labels=labels, hint=hint
            )
        for name in self.columns.names:
            if name not in table.columns:
                raise DataError(
                    f"{path} has no column {shown(name)}, which {self.first} has; the columns are "
                    f"{shown_names(table.columns)}; give all files of a corpus the same"
                    f"{did_you_mean(name, table.columns)}"
                )
        return self.columns


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _weight(record: Record, column: str) -> float:
    value: Any = record.value(column)
    weight = math.nan
    with suppress(TypeError, ValueError, OverflowError):
        weight = math.nan if isinstance(value, bool) else float(value)
    if not 0 <= weight <= _LARGEST_WEIGHT:
        raise DataError(
            f"{record.place}: the weight in {shown(column)} is {shown(value)}; "
            "it must be a finite number of 0 or more"
        )
    return weight


def read_rows(
    source: Path,
    options: TableOptions = _DEFAULTS,
    *,
    labels: bool,
    on_bad_shard: Callable[[DataError], None] | None = None,
    remedy: str = "",
    keep: dict[str, Any] | None = None,
    unlabelled: list[Row] | None = None,
) -> Iterator[Row]:
    """Read a file, folder or pattern row by row, in bounded memory.

    Without ``labels``, files need not have any. With ``on_bad_shard``, a bad file among several is
    left out as a whole, and the function is called with its error; each file is therefore read to
    its end before its first row is yielded. Without it, the first error is raised, with ``remedy``
    appended. With ``keep``, rows have the values of all columns, and before the first row ``keep``
    gets the columns of the first file with their Arrow types (None in text files). ``unlabelled``
    collects the rows whose label is empty; without it, such a row is an error.
    """
    shards = find_shards(source)
    reader, some = ShardReader(options, labels, keep is not None, unlabelled), False
    for shard in shards:
        try:
            if on_bad_shard is not None:
                trial = copy.deepcopy(reader)  # what a bad shard has does not count
                for _ in trial.rows(shard):
                    pass
                reader = trial
            for row in reader.rows(shard):
                if keep is not None and not some:
                    keep.update(reader.types)
                some = True
                yield row
        except DataError as error:
            if len(shards) == 1:
                raise
            if isinstance(error, NoRowsError):
                continue
            if on_bad_shard is None:
                raise DataError(f"{error}{remedy}") from error
            on_bad_shard(error)
    reader.label_format.check_sums()
    if not some:
        raise DataError(f"{source}: no rows can be read from any of its {len(shards)} files")


def find_text_column(shards: Sequence[Path], options: TableOptions) -> str | None:
    """The column that all shards are read by: that of the first of them that can be read."""
    for shard in shards:
        with suppress(DataError):  # raised again when the shard is read
            return ShardReader(options, labels=False).find_columns([shard])[1].text
    return options.text_column


def read_labelled(
    source: Path, options: TableOptions = _DEFAULTS, unlabelled: list[Row] | None = None
) -> LabelledTexts:
    """Read all examples; the classes are the labels that occur and ``label_columns``, sorted.

    Rows with an empty label are an error, unless there is a list ``unlabelled`` that gets them.
    """
    rows = list(read_rows(source, options, labels=True, unlabelled=unlabelled))
    labels: list[Any] = [row.label for row in rows]
    _log.debug("%s: %d rows", source, len(rows))
    weights = None
    if options.weight_column is not None:
        weights = np.array([row.weight for row in rows], np.float32)
        if not weights.any():
            raise DataError(
                f"{source}: every weight in column {shown(options.weight_column)} is 0; "
                "give at least one example a weight above 0, or leave out --weight-column"
            )
    multi_label = any(isinstance(label, tuple) for label in labels) or options.multi_label is True
    if options.label_columns:
        multi_label = options.multi_label is not False
    occurring = labelling.occurring_labels(labels)
    return labelling.number_labels(
        [row.text for row in rows],
        labels,
        classes=labelling.sorted_labels(occurring.union(options.label_columns)),
        multi_label=multi_label,
        source=str(source),
        places=[row.place for row in rows],
        weights=weights,
    )


def read_examples(
    data: Path,
    dev: Path | None,
    test: Path | None,
    columns: TableOptions,
    multi_label: bool = False,
    new: bool = True,
) -> tuple[LabelledTexts, LabelledTexts | None, LabelledTexts | None]:
    """Training, dev and test examples, all checked.

    ``multi_label`` allows multi-label files, and probabilities in place of labels. Where the model
    is not ``new``, it knows labels that the training examples need not have; dev and test then keep
    numbers of their own.
    """
    train = read_labelled(data, columns)
    if train.targets.ndim == 2 and not train.multi_label and not multi_label:
        _log.warning("%s: the most probable label counts, not its probability", train.source)
        train = train.with_hard_labels()
    if train.multi_label and not multi_label:
        raise DataError(
            f"{train.source} is multi-label, which only `dcnn train` and `dcnn evaluate` support; "
            "give a column with one label per row"
        )
    if new:
        labelling.check_training_labels(train, splits=dev is None)
    others = [read_evaluation_set(path, columns) for path in (dev, test)]
    # A column without a 1 stays a class, as in an indicator matrix of scikit-learn.
    empty = set(columns.label_columns).difference(*train.labels) if columns.label_columns else ()
    if empty:
        _log.warning(
            "%s: no row has a 1 in %s of --label-columns; the model keeps such a label but learns "
            "never to predict it; check the data, or leave the column out",
            train.source,
            shown_names(labelling.sorted_labels(empty)),
        )
    for examples in filter(None, others):
        labelling.check_form(examples, multi_label=train.multi_label, of=train.source)
    dev_set, test_set = (
        part and (part.with_classes(train.classes) if new else part) for part in others
    )
    return train, dev_set, test_set


def read_evaluation_set(source: Path | None, columns: TableOptions) -> LabelledTexts | None:
    """A dev or test set, where one is given; weights and probabilities are for training only.

    It may have a column of labels where the training set has a column per label.
    """
    if source is None:
        return None
    columns = replace(columns, weight_column=None)
    if columns.label_columns:
        with open_table(find_shards(source, log=False)[0], columns) as table:
            if not set(table.columns).intersection(columns.label_columns):
                multi_label = columns.multi_label is not False
                columns = replace(columns, label_columns=(), multi_label=multi_label)
    return read_labelled(source, columns).with_hard_labels()
