"""The same rows in every format that can be read."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import feather, ipc, parquet

Columns = Mapping[str, Sequence[object]]

# "stream.arrow" is a stream, "file.arrow" a file: two formats with one suffix.
NAMES = ("a.csv", "a.tsv", "a.jsonl", "a.parquet", "stream.arrow", "file.arrow", "a.feather")
ARROW_NAMES = NAMES[3:]


def write_columns(path: Path, columns: Columns | pa.Table, rows_together: int = 1 << 16) -> Path:
    """Write columns in the format of the file's name, ``rows_together`` a batch or row group."""
    table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
    match path.suffix:
        case ".parquet":
            parquet.write_table(table, path, row_group_size=rows_together)
        case ".feather":
            feather.write_feather(table, path, chunksize=rows_together)
        case ".arrow":
            make = ipc.new_stream if path.name.startswith("stream") else ipc.new_file
            with make(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=rows_together)
        case ".jsonl":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
        case suffix:
            rows = [table.column_names, *zip(*table.to_pydict().values(), strict=True)]
            with path.open("w", newline="", encoding="utf-8") as stream:
                if suffix == ".csv":
                    csv.writer(stream).writerows(rows)
                else:
                    stream.writelines("\t".join(map(str, row)) + "\n" for row in rows)
    return path
