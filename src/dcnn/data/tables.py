"""Writing tables: CSV and TSV with a header, JSON Lines, Parquet, Arrow and Feather, by suffix.

Columns come in chunks. The first chunk decides names and types; a column of several types becomes
text. In TSV, tabs and line breaks become spaces; CSV quotes them.
"""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from dcnn.data.arrow import ARROW, PARQUET
from dcnn.data.columns import shown
from dcnn.data.records import JSON_LINES, SEPARATORS
from dcnn.errors import DataError, UserError, needs_extra
from dcnn.files import CONTROLS, check_place, write_atomically

FORMATS = ".csv, .tsv, .jsonl, .parquet, .arrow or .feather"
ROWS_TOGETHER = 1 << 16  # rows per group; smaller ones make a larger file that is slower to read

# First characters that make a spreadsheet run a cell as a formula, also in full width.
_FORMULA = re.compile("[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")

Columns = Mapping[str, Sequence[Any]]


def check_table(option: str, path: Path) -> None:
    """Check before any work is done that a table can be written; errors name ``option``."""
    check_place(option, path)
    suffix = path.suffix.lower()
    if suffix not in (*SEPARATORS, *JSON_LINES, *ARROW):
        raise UserError(
            f"{option} {path}: the suffix {shown(suffix)} names no format that can be written; "
            f"use one of {FORMATS}"
        )
    if suffix in ARROW:
        with needs_extra(f"Writing {path.name}", "data"):
            import pyarrow  # noqa: F401


def cell(value: object) -> str:
    """A value as the text of a cell; what is nested is JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)


def _finite(value: object) -> object:
    """``value``, or None for NaN and infinity, which JSON cannot represent."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def escape_formula(text: str) -> str:
    """``text`` after an apostrophe if a spreadsheet would run it; numbers stay numbers."""
    runs = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return f"'{text}" if runs else text


@contextmanager
def table_writer(
    stream: BinaryIO,
    suffix: str,
    *,
    escape: bool = False,
    types: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Iterator[Callable[[Columns], None]]:
    """Yields the function that writes a chunk of columns.

    Args:
        stream: where to.
        suffix: the format, checked by ``check_table``.
        escape: whether cells of CSV and TSV that a spreadsheet would run are escaped.
        types: the Arrow types of some columns of a columnar file, looked up at the first chunk;
            the others get the type that fits their values.
        metadata: for the schema of a columnar file.
    """
    if suffix in ARROW:
        with _arrow_writer(stream, suffix, {} if types is None else types, metadata) as write:
            yield write
        return
    lines = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="\n")
    separator, started = SEPARATORS.get(suffix), False
    writer = csv.writer(lines, lineterminator="\n")

    def cells(row: Sequence[object]) -> list[str]:
        texts = [cell(value) for value in row]
        return [*map(escape_formula, texts)] if escape else texts

    def write_rows(columns: Columns) -> None:
        nonlocal started
        rows = zip(*columns.values(), strict=True)
        if separator is None:
            for row in rows:
                values = dict(zip(columns, map(_finite, row), strict=True))
                print(json.dumps(values, default=str, ensure_ascii=False), file=lines)
            return
        fields = [cells(row) for row in rows]
        fields = fields if started else [cells(list(columns)), *fields]
        started = True
        if separator == ",":
            writer.writerows(fields)
        else:
            for line in fields:
                print("\t".join(CONTROLS.sub(" ", field) for field in line), file=lines)

    yield write_rows
    lines.flush()
    lines.detach()


def write_table(path: Path, columns: Columns) -> None:
    """Write a whole table, atomically."""
    with write_atomically(path) as stream, table_writer(stream, path.suffix.lower()) as write:
        write(columns)


@contextmanager
def _arrow_writer(
    stream: BinaryIO, suffix: str, types: Mapping[str, Any], metadata: Mapping[str, str] | None
) -> Iterator[Callable[[Columns], None]]:
    import pyarrow
    from pyarrow import ipc, parquet

    writer: Any = None
    schema: Any = None
    waiting: list[Any] = []

    def write_waiting() -> None:
        if waiting:
            writer.write_table(pyarrow.Table.from_batches(waiting).combine_chunks())
            waiting.clear()

    def write(columns: Columns) -> None:
        nonlocal writer, schema
        if writer is None:
            arrays = [_array(name, values, types.get(name)) for name, values in columns.items()]
            fields = [(name, one.type) for name, one in zip(columns, arrays, strict=True)]
            schema = pyarrow.schema(fields, metadata and dict(metadata))
            if suffix == PARQUET:
                writer = parquet.ParquetWriter(stream, schema)
            else:  # an uncompressed .arrow file can be memory-mapped; .feather is compressed
                compression = "lz4" if suffix == ".feather" else None
                options = ipc.IpcWriteOptions(compression=compression)
                writer = ipc.new_file(stream, schema, options=options)
        else:
            pairs = zip(columns.items(), schema.types, strict=True)
            arrays = [_array(name, values, kind) for (name, values), kind in pairs]
        waiting.append(pyarrow.RecordBatch.from_arrays(arrays, schema=schema))
        if sum(batch.num_rows for batch in waiting) >= ROWS_TOGETHER:
            write_waiting()

    try:
        yield write
        write_waiting()
    finally:
        if writer is not None:
            writer.close()


def _array(name: str, values: Sequence[Any], kind: Any = None) -> Any:
    """Values as an Arrow array of a type; by default of the one that fits all, or as text."""
    import pyarrow

    if isinstance(values, pyarrow.Array):
        return values
    faults = (pyarrow.ArrowException, TypeError, ValueError, OverflowError)
    if kind is None:
        try:
            found = pyarrow.array(values)
        except faults:
            return _array(name, values, pyarrow.string())
        return found.cast(pyarrow.string()) if pyarrow.types.is_null(found.type) else found
    if kind == pyarrow.string():  # a lone surrogate is replaced, as in lines
        texts = (None if one is None else cell(one) for one in values)
        values = [text and text.encode("utf-8", "replace").decode() for text in texts]
    try:
        return pyarrow.array(values, kind)
    except faults as error:
        raise DataError(
            f"the column {shown(name)} begins with values of the type {kind}, and later ones have "
            f"another ({error!s:.80}); write a .csv or .jsonl file, or pass --no-keep"
        ) from error
