"""Parquet, Arrow (files and streams) and Feather, a few thousand rows at a time.

Only the columns that are wanted are read, and pyarrow, which is an extra, is imported when such a
file is opened. The types of the columns are checked before the first row, and every batch is
validated before its values are used: a damaged file must not crash the process. Rows count from 1.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dcnn.data.columns import SAMPLED_ROWS, Columns, check_unique, shown
from dcnn.data.labels import Place
from dcnn.data.records import NoRowsError, Record
from dcnn.errors import DataError, needs_extra

PARQUET = ".parquet"
ARROW = (PARQUET, ".arrow", ".feather")

BATCH_ROWS = 4096  # decoded, and converted to Python's values, together
BATCH_BYTES = 1 << 26  # of values that are converted together, if they are more than one row
ROW_BYTES = 1 << 28

_FILE_MAGIC, _OLD_FEATHER_MAGIC = b"ARROW1", b"FEA1"
_LONGEST_FAULT = 120
_STRINGS = ("string", "large_string", "string_view")


@dataclass(frozen=True)
class ArrowTable:
    """A file of columns; ``dcnn.data.records.LineTable`` describes the attributes."""

    path: Path
    schema: Any
    columns: list[str]
    hint: ClassVar[str] = ""
    typed: ClassVar[bool] = True

    def sample(self) -> list[dict[str, object]]:
        """The first rows of the columns of strings, to guess the columns from."""
        strings = [field.name for field in self.schema if _is_any(field.type, *_STRINGS)]
        return list(islice(self._values(strings), SAMPLED_ROWS))

    def rows(self, columns: Columns, *, keep: bool = False) -> Iterator[Record]:
        """All rows, with these columns, or with all of them."""
        _check_types(self.path, self.schema, columns)
        source, number = str(self.path), 0
        label, names = columns.label or "", self.columns if keep else columns.names
        has_map = bool(label) and _is_any(self.schema.field(label).type, "map")
        for number, values in enumerate(self._values(names), start=1):
            place = Place(source, number, "row")
            if has_map and values[label] is not None:
                values[label] = _as_object(place, values[label])
            yield Record(place, values)
        if not number:
            raise NoRowsError(f"{self.path} has columns but no rows; add at least one row")

    @property
    def types(self) -> dict[str, Any]:
        """The type of each column; of a dictionary-encoded one that of its values."""
        return {field.name: _decoded(field.type) for field in self.schema}

    def _values(self, names: list[str]) -> Iterator[dict[str, object]]:
        with _named_damage(self.path):
            for batch in _batches(self.path, self.schema, names):
                columns = [_as_python(self.path, name, batch.column(name)) for name in names]
                for row in zip(*columns, strict=True):
                    yield dict(zip(names, row, strict=True))


def _as_object(place: Place, pairs: Any) -> dict[object, object]:
    """A map, whose keys may repeat, as an object of JSON, whose keys may not."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DataError(
            f"{place}: a label occurs twice in the map {shown(pairs)}; give each one probability"
        )
    return found


@contextmanager
def open_arrow(path: Path) -> Iterator[ArrowTable]:
    """Open a file of columns; its suffix and its first bytes name its format."""
    with needs_extra(f"Reading {path.name}", "data"):
        import pyarrow
        from pyarrow import parquet
    with _named_damage(path):
        if not path.stat().st_size:
            raise DataError(f"{path} is empty; give a file with at least one row")
        if path.suffix.lower() == PARQUET:
            schema = parquet.read_schema(path)
        else:
            with pyarrow.OSFile(str(path)) as file:
                schema = _open_ipc(path, file).schema
        check_unique(path, schema.names)
    yield ArrowTable(path, schema, list(schema.names))


@contextmanager
def _named_damage(path: Path) -> Iterator[None]:
    """Name the file in every fault that the library finds in it."""
    from pyarrow import ArrowException

    try:
        yield
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: a column name or value is not valid UTF-8 ({error.reason}); "
            "write the file again from valid text"
        ) from error
    except (ArrowException, OSError, SystemError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        fault = " ".join(str(error).split())
        fault = f"{fault[:_LONGEST_FAULT]}..." if len(fault) > _LONGEST_FAULT else fault
        raise DataError(
            f"{path}: damaged, cut short or no {path.suffix.lower()} file ({fault}); "
            "download or write it again"
        ) from error


def _batches(path: Path, schema: Any, names: Sequence[str]) -> Iterator[Any]:
    """Validated record batches with the columns ``names``, of at most ``BATCH_ROWS`` rows."""
    before = 0
    for batch in _raw_batches(path, schema, names):
        batch.validate()
        for column in batch.columns:
            _validate(path, column, before)
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield from _bounded(path, batch.slice(start, BATCH_ROWS), before + start)
        before += batch.num_rows


def _bounded(path: Path, batch: Any, before: int) -> Iterator[Any]:
    """Parts of a batch that stay small in Python: Arrow may store a repeated value only once."""
    row_bytes = sum(map(_largest, batch.columns))
    together = max(1, BATCH_BYTES // row_bytes)
    if batch.num_rows > together:
        for start in range(0, batch.num_rows, together):
            yield from _bounded(path, batch.slice(start, together), before + start)
    elif row_bytes > ROW_BYTES:
        raise DataError(
            f"{path}, row {before + 1}: {row_bytes:,} bytes of values, and a row has at most "
            f"{ROW_BYTES:,}; leave the row or its longest column out"
        )
    else:
        yield batch


def _largest(column: Any) -> int:
    """The bytes of the largest value of a column, at most."""
    import pyarrow
    from pyarrow import compute, types

    kind = column.type
    if isinstance(column, pyarrow.ExtensionArray):
        return _largest(column.storage)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _largest(column.dictionary if types.is_dictionary(kind) else column.values)
    if types.is_struct(kind):
        return 8 + sum(map(_largest, column.flatten()))
    if types.is_union(kind):
        return 8 + sum(_largest(column.field(place)) for place in range(kind.num_fields))
    if _is_any(kind, "string_view", "binary_view"):  # views of 16 bytes, which start with a length
        views = np.frombuffer(column.buffers()[1], np.uint32)[4 * column.offset :: 4]
        return 8 + int(views[: len(column)].max(initial=0))
    if _is_any(kind, "string", "large_string", "binary", "large_binary"):
        return 8 + (compute.max(compute.binary_length(column)).as_py() or 0)
    if types.is_map(kind):
        longest = int(np.diff(column.offsets.to_numpy()).max(initial=0))
        return 8 + longest * _largest(column.values)
    if types.is_nested(kind):  # a list; `flatten` of a slice has the slice alone
        longest = compute.max(compute.list_value_length(column)).as_py() or 0
        is_view = _is_any(kind, "list_view", "large_list_view")
        return 8 + longest * _largest(column.values if is_view else column.flatten())
    return 8


def _as_python(path: Path, name: str, column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"{path}: the column {shown(name)} of the type {shown(str(column.type))} holds a value "
            f"that Python has no type for ({error!s:.{_LONGEST_FAULT}}); leave the column out, or "
            "pass --no-keep"
        ) from error


def _raw_batches(path: Path, schema: Any, names: Sequence[str]) -> Iterator[Any]:
    import pyarrow
    from pyarrow import parquet

    if path.suffix.lower() == PARQUET:
        # Decoded page by page on demand, where otherwise a whole row group would be read.
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as file:
            yield from file.iter_batches(BATCH_ROWS, columns=list(names), use_threads=False)
        return
    fields = [schema.get_field_index(name) for name in names]
    options = pyarrow.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    # Not mapped into memory: truncating a mapped file would kill the process.
    with pyarrow.OSFile(str(path)) as file:
        reader = _open_ipc(path, file, options)
        if isinstance(reader, pyarrow.ipc.RecordBatchFileReader):
            yield from (reader.get_batch(place) for place in range(reader.num_record_batches))
        else:
            yield from reader


def _validate(path: Path, column: Any, before: int) -> None:
    """Check offsets, indices and UTF-8 of a column, which starts after ``before`` rows."""
    from pyarrow import ArrowInvalid

    try:
        column.validate(full=True)
    except ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
        for row, value in enumerate(column, before + 1):
            try:
                value.as_py()
            except UnicodeDecodeError as fault:
                raise DataError(
                    f"{path}, row {row}: a string that is not valid UTF-8 "
                    f"({fault.reason}); write the file again from valid text"
                ) from fault
        raise


def _open_ipc(path: Path, file: Any, options: Any = None) -> Any:
    """A reader of the format that the first bytes name; both have the suffix ``.arrow``."""
    from pyarrow import ipc

    magic = file.read(len(_FILE_MAGIC))
    file.seek(0)
    if magic.startswith(_OLD_FEATHER_MAGIC):
        raise DataError(
            f"{path} is a Feather file of version 1; write it again as version 2 or as Parquet"
        )
    opener = ipc.open_file if magic == _FILE_MAGIC else ipc.open_stream
    return opener(file, options=options)


def _check_types(path: Path, schema: Any, columns: Columns) -> None:
    """The columns have types that fit their use; a null is found in its row."""
    numbers, several = ("integer", "floating"), ("list", "large_list", "fixed_size_list")
    labels = (*_STRINGS, *numbers, "boolean")
    uses = [
        ("text", columns.text, _STRINGS, "strings"),
        ("label", columns.label, labels, "strings, numbers or booleans, or lists of them"),
        ("weight", columns.weight, (*numbers, *_STRINGS), "numbers"),
        *(("label", name, labels, "0 and 1, or booleans") for name in columns.indicators),
    ]
    for use, name, fitting, right in uses:
        if name is None:
            continue
        kind = values = schema.field(name).type
        if name == columns.label and _is_any(kind, "struct", "map"):
            continue  # probabilities by label, which are checked row by row
        if name == columns.label and _is_any(kind, *several):
            values = _decoded(kind).value_type
        if not _is_any(values, *fitting, "null"):
            raise DataError(
                f"{path}: the {use} column {shown(name)} has the type {shown(str(kind))}; "
                f"it must hold {right}"
            )


def _decoded(kind: Any) -> Any:
    """The type of the values of a dictionary-encoded column."""
    from pyarrow import types

    return kind.value_type if types.is_dictionary(kind) else kind


def _is_any(kind: Any, *names: str) -> bool:
    """Whether a type, or that of the values of a dictionary, is one of those called ``names``."""
    from pyarrow import types

    return any(getattr(types, f"is_{name}")(_decoded(kind)) for name in names)
