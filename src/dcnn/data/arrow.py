"""Parquet, Arrow (files and streams) and Feather, a few thousand rows at a time.

Only the columns that are wanted are read, and pyarrow, which is an extra, is imported when such a
file is met. What the columns hold is checked by their types before the first row; numbers of rows
count from 1.

"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dcnn.data.columns import Columns, shown, shown_names
from dcnn.data.records import SAMPLED_ROWS, NoRowsError, Record
from dcnn.errors import DataError, MissingExtraError

PARQUET = ".parquet"
ARROW = (PARQUET, ".arrow", ".feather")

BATCH_ROWS = 4096  # decoded, and turned into Python's values, together

_FILE_MAGIC, _OLD_FEATHER_MAGIC = b"ARROW1", b"FEA1"
_LONGEST_FAULT = 120


@dataclass(frozen=True)
class ArrowTable:
    """A file of columns; ``dcnn.data.records.LineTable`` describes the attributes."""

    path: Path
    schema: Any
    hint: ClassVar[str] = ""
    unit: ClassVar[str] = "row"
    typed: ClassVar[bool] = True

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    def sample(self) -> list[Mapping[str, object]]:
        """The first rows, to guess the columns from: those that hold strings."""
        texts = [field.name for field in self.schema if _holds_strings(field.type)]
        with _named_damage(self.path):
            for batch in _batches(self.path, self.schema, texts):
                if batch.num_rows:
                    return list(batch.slice(0, SAMPLED_ROWS).to_pylist())
        return []

    def rows(self, columns: Columns) -> Iterator[Record]:
        """All the rows, with these columns.

        Raises:
            DataError: a column cannot hold what it should, or the file is damaged.
        """
        _check_types(self.path, self.schema, columns)
        names = columns.names
        number = 0
        with _named_damage(self.path):
            for batch in _batches(self.path, self.schema, names):
                values = [_values(self.path, batch.column(name), number) for name in names]
                for row in zip(*values, strict=True):
                    number += 1
                    yield Record(number, dict(zip(names, row, strict=True)))
        if not number:
            raise NoRowsError(f"{self.path} has columns but no rows; add at least one row")


@contextmanager
def open_arrow(path: Path) -> Iterator[ArrowTable]:
    """Open a file of columns; its suffix and its first bytes name its format.

    Raises:
        DataError: the file is empty, damaged, or has two columns of one name.
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingExtraError(f"Reading {path.name}", "data") from None
    with _named_damage(path):
        if not path.stat().st_size:
            raise DataError(f"{path} is empty; give a file with at least one row")
        schema = _schema(path)
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise DataError(
            f"{path}: more than one column is named {shown_names(twice)}; "
            "give every column a name of its own"
        )
    yield ArrowTable(path, schema)


@contextmanager
def _named_damage(path: Path) -> Iterator[None]:
    """Name the file in whatever the library finds wrong with it."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        fault = " ".join(str(error).split())
        if len(fault) > _LONGEST_FAULT:
            fault = f"{fault[:_LONGEST_FAULT]}..."
        raise DataError(
            f"{path}: damaged, cut short or no {path.suffix.lower()} file ({fault}); "
            "fetch or make it again"
        ) from error


def _schema(path: Path) -> Any:
    import pyarrow
    from pyarrow import parquet

    if path.suffix.lower() == PARQUET:
        return parquet.read_schema(path)
    with pyarrow.OSFile(str(path)) as file:
        return _open_ipc(path, file).schema


def _batches(path: Path, schema: Any, names: Sequence[str]) -> Iterator[Any]:
    """Record batches with the columns ``names``, none with more than ``BATCH_ROWS`` rows."""
    import pyarrow
    from pyarrow import parquet

    if path.suffix.lower() == PARQUET:
        # Decoded page by page as it is asked for, where the whole of a row group would be fetched.
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as file:
            yield from file.iter_batches(BATCH_ROWS, columns=list(names), use_threads=False)
        return
    options = pyarrow.ipc.IpcReadOptions(
        included_fields=[schema.get_field_index(name) for name in names], use_threads=False
    )
    # Not mapped into memory: a file that somebody cuts meanwhile would end the process.
    with pyarrow.OSFile(str(path)) as file:
        reader = _open_ipc(path, file, options)
        if isinstance(reader, pyarrow.ipc.RecordBatchFileReader):
            whole = (reader.get_batch(place) for place in range(reader.num_record_batches))
        else:
            whole = iter(reader)
        for batch in whole:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)


def _open_ipc(path: Path, file: Any, options: Any = None) -> Any:
    """A reader of the format that the first bytes tell; both go by the suffix ``.arrow``."""
    from pyarrow import ipc

    magic = file.read(len(_FILE_MAGIC))
    file.seek(0)
    if magic.startswith(_OLD_FEATHER_MAGIC):
        raise DataError(
            f"{path} is a Feather file of version 1; write it again as version 2 or as Parquet"
        )
    if magic == _FILE_MAGIC:
        return ipc.open_file(file, options=options)
    return ipc.open_stream(file, options=options)


def _check_types(path: Path, schema: Any, columns: Columns) -> None:
    """The columns hold what they are read for; a null is found where it stands."""
    from pyarrow import types

    def is_number(type_: Any) -> bool:
        return bool(types.is_integer(type_) or types.is_floating(type_))

    def holds_labels(type_: Any) -> bool:
        plain = is_number(type_) or types.is_boolean(type_) or types.is_null(type_)
        return bool(plain or _holds_strings(type_))

    text = schema.field(columns.text).type
    if not (_holds_strings(text) or types.is_null(text)):
        raise _wrong_type(path, "text", columns.text, text, "strings")
    if columns.label is not None:
        label = _decoded(schema.field(columns.label).type)
        if not holds_labels(_decoded(label.value_type) if _is_list(label) else label):
            right = "strings, numbers or booleans, or lists of them"
            raise _wrong_type(path, "label", columns.label, label, right)
    for name in columns.flags:
        flag = schema.field(name).type
        if not holds_labels(_decoded(flag)):
            raise _wrong_type(path, "label", name, flag, "noughts and ones, or booleans")
    if columns.weight is not None:
        weight = schema.field(columns.weight).type
        if not (is_number(weight) or _holds_strings(weight) or types.is_null(weight)):
            raise _wrong_type(path, "weight", columns.weight, weight, "numbers")


def _wrong_type(path: Path, use: str, name: str, type_: Any, right: str) -> DataError:
    return DataError(
        f"{path}: the {use} column {shown(name)} has the type {shown(str(type_))}; "
        f"it must hold {right}"
    )


def _decoded(type_: Any) -> Any:
    """The type of the values themselves, where each is kept once and numbered."""
    from pyarrow import types

    return type_.value_type if types.is_dictionary(type_) else type_


def _is_list(type_: Any) -> bool:
    from pyarrow import types

    return bool(
        types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
    )


def _holds_strings(type_: Any) -> bool:
    from pyarrow import types

    type_ = _decoded(type_)
    return bool(
        types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_)
    )


def _values(path: Path, column: Any, before: int) -> list[object]:
    """A column of a batch as Python's values; ``before`` rows of the file came earlier."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError as error:
        for place, value in enumerate(column):
            try:
                value.as_py()
            except UnicodeDecodeError:
                raise DataError(
                    f"{path}, row {before + place + 1}: a string that is not valid UTF-8 "
                    f"({error.reason}); write the file again from valid text"
                ) from error
        raise
