import itertools
import re
import subprocess
import sys
from contextlib import suppress
from datetime import date
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc, parquet

from arrow_writing import ARROW_NAMES, NAMES, write_columns
from dcnn.data import arrow as arrow_files
from dcnn.data.readers import TableOptions, read_labelled, read_rows
from dcnn.errors import DataError, MissingExtraError
from reading import message, pairs, texts

ROWS = {"text": ["one, two", "", "café 👍🏽 مرحبا", " four "], "label": ["x", "y", "é", "x"]}
EXPECTED = list(zip(*ROWS.values(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    path = write_columns(tmp_path / name, ROWS)
    assert pairs(path) == EXPECTED
    assert texts(path) == ROWS["text"]
    upper = path.rename(tmp_path / name.upper().replace("STREAM", "stream"))
    assert pairs(upper) == EXPECTED


@pytest.mark.parametrize("name", ARROW_NAMES)
@pytest.mark.parametrize("rows_together", [1, 3, 4096, 5000])
def test_row_groups_and_batches_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, rows_together: int
) -> None:
    monkeypatch.setattr(arrow_files, "BATCH_ROWS", 7)
    rows = [(f"text {i}", str(i % 3)) for i in range(100)]
    columns = dict(zip(("text", "label"), zip(*rows, strict=True), strict=True))
    path = write_columns(tmp_path / name, columns, rows_together)
    assert pairs(path) == rows
    assert [place.number for place in read_labelled(path).places] == list(range(1, 101))


@given(
    rows=st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8")),
            st.sampled_from(["x", "y"]),
            st.floats(0.5, 9, width=32),
        ),
        min_size=1,
        max_size=30,
    ),
    rows_together=st.integers(1, 9),
    name=st.sampled_from(ARROW_NAMES),
)
def test_whatever_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows, rows_together: int, name: str
) -> None:
    columns = dict(zip(("text", "label", "w"), map(list, zip(*rows, strict=True)), strict=True))
    path = write_columns(tmp_path_factory.mktemp("any") / name, columns, rows_together)
    found = read_labelled(path, TableOptions(weight_column="w"))
    assert found.texts == columns["text"]
    assert found.labels == columns["label"]
    assert found.weights is not None
    assert found.weights.tolist() == columns["w"]


@pytest.mark.parametrize("name", ARROW_NAMES)
@pytest.mark.parametrize(
    "type_",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
    ids=str,
)
def test_strings_of_every_kind_are_strings(tmp_path: Path, name: str, type_: pa.DataType) -> None:
    columns = {column: pa.array(values, type_) for column, values in ROWS.items()}
    assert pairs(write_columns(tmp_path / name, pa.table(columns))) == EXPECTED


@pytest.mark.parametrize(
    ("labels", "type_", "expected"),
    [
        ([3, -1], pa.int8(), ["3", "-1"]),
        ([2**64 - 1, 0], pa.uint64(), [str(2**64 - 1), "0"]),
        ([True, False], pa.bool_(), ["true", "false"]),
        ([0.5, 2.0], pa.float32(), ["0.5", "2.0"]),
        ([" x ", "e\u0301"], pa.string(), ["x", "é"]),
        ([5, 7], pa.dictionary(pa.int8(), pa.int64()), ["5", "7"]),
    ],
)
def test_labels_read_as_those_of_json_do(tmp_path: Path, labels, type_, expected) -> None:
    table = pa.table({"text": ["a", "b"], "label": pa.array(labels, type_)})
    assert read_labelled(write_columns(tmp_path / "a.parquet", table)).labels == expected
    assert read_labelled(write_columns(tmp_path / "a.jsonl", table)).labels == expected


@pytest.mark.parametrize("name", ARROW_NAMES)
@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("text", None, "row 4098: the text in 'text' is None; it must be a string"),
        ("label", None, "row 4098: the label in 'label' is None; it must be a string, a number"),
        ("label", "  ", "row 4098: the label in 'label' is empty"),
        ("w", None, "row 4098: the weight in 'w' is None; it must be a finite number"),
        ("w", -1.0, "row 4098: the weight in 'w' is -1.0; it must be a finite number"),
    ],
)
def test_a_bad_value_is_named_with_its_row(
    tmp_path: Path, name: str, column: str, value: object, fault: str
) -> None:
    columns = {"text": ["a"] * 5000, "label": ["x"] * 5000, "w": [1.0] * 5000}
    columns[column][4097] = value
    path = write_columns(tmp_path / name, columns, rows_together=1000)
    assert fault in message(path, weight_column="w")


@pytest.mark.parametrize(
    ("column", "values", "fault"),
    [
        ("text", [["a"], ["b"]], r"text column 'text' has the type 'list<.*: string>'.*strings"),
        ("text", [b"a", b"b"], "text column 'text' has the type 'binary'; it must hold strings"),
        ("text", [1, 2], "text column 'text' has the type 'int64'; it must hold strings"),
        ("label", [{"a": "b"}] * 2, "row 1: the label 'a' holds 'b'; it must be 1"),
        ("label", [b"a", b"b"], "label column 'label' has the type 'binary'; it must hold strings"),
        ("label", [date(2020, 1, 1)] * 2, "label column 'label' has the type 'date32"),
        ("w", [True, False], "weight column 'w' has the type 'bool'; it must hold numbers"),
    ],
)
def test_a_column_of_another_type_is_refused(tmp_path: Path, column, values, fault) -> None:
    columns = {"text": ["a", "b"], "label": ["x", "y"], "w": [1, 2], column: values}
    found = message(write_columns(tmp_path / "a.parquet", columns), weight_column="w")
    assert re.search(fault, found), found


@pytest.mark.parametrize("name", ARROW_NAMES)
def test_columns_are_chosen_as_in_csv(tmp_path: Path, name: str) -> None:
    path = write_columns(tmp_path / name, {"review": ["a"], "stars": [5], "id": [1]})
    assert pairs(path) == [("a", "5")]
    assert "--text-column 'reviews' is no column; the columns are 'review', 'stars', 'id'" in (
        found := message(path, text_column="reviews")
    )
    assert "did you mean 'review'?" in found


def test_of_two_unknown_columns_the_longer_strings_are_the_text(tmp_path: Path) -> None:
    long = {"u": ["x", "y"], "v": ["a long text", "another"], "bytes": [b"x" * 99] * 2}
    path = write_columns(tmp_path / "a.parquet", {name: long[name] for name in "uv"})
    assert pairs(path) == [("a long text", "x"), ("another", "y")]
    path = write_columns(tmp_path / "b.parquet", {"u": [1, 2], "v": ["text", "another"]})
    assert pairs(path) == [("text", "1"), ("another", "2")]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"])] * 3, names=["text", "label", "text"])
    found = message(write_columns(tmp_path / "file.arrow", table))
    assert "more than one column is named 'text'" in found


@pytest.mark.parametrize("name", ARROW_NAMES)
def test_empty_files_and_files_without_rows(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    assert "is empty; give a file with at least one row" in message(path)
    columns = {"text": pa.array([], pa.string()), "label": pa.array([], pa.string())}
    assert "has columns but no rows" in message(write_columns(path, pa.table(columns)))


@pytest.mark.parametrize("name", ARROW_NAMES)
@pytest.mark.parametrize("kept", [1, 5, 0.3, 0.9])
def test_a_file_that_is_cut_short_is_named(tmp_path: Path, name: str, kept: float) -> None:
    rows = {"text": [f"text {i}" for i in range(5000)], "label": ["x", "y"] * 2500}
    path = write_columns(tmp_path / name, rows, rows_together=500)
    whole = path.read_bytes()
    path.write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    found = message(path)
    assert f"damaged, cut short or no {path.suffix} file (" in found
    assert "download or write it again" in found


@pytest.mark.parametrize("name", ARROW_NAMES)
def test_a_file_of_another_format_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("text,label\na,b\n")
    assert "damaged, cut short or no " in message(path)


def test_feather_version_1_is_recognized(tmp_path: Path) -> None:
    (tmp_path / "a.feather").write_bytes(b"FEA1" + b"\0" * 100)
    assert "is a Feather file of version 1" in message(tmp_path / "a.feather")


def test_a_string_that_is_no_utf8_is_found(tmp_path: Path) -> None:
    raw = pa.array([b"a", b"b", b"caf\xe9", b"d"])
    text = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    path = write_columns(tmp_path / "file.arrow", pa.table({"text": text, "label": list("xyzw")}))
    assert "row 3: a string that is not valid UTF-8" in message(path)


@pytest.mark.parametrize("name", ARROW_NAMES)
def test_flipped_bytes_give_rows_or_an_error_and_never_a_crash(tmp_path: Path, name: str) -> None:
    path = write_columns(tmp_path / name, ROWS)
    content = path.read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(150):
        damaged = bytearray(content)
        for place in generator.integers(0, len(content), 3):
            damaged[place] = generator.integers(256)
        path.write_bytes(damaged)
        with suppress(DataError):
            list(read_rows(path, labels=True))


@pytest.mark.parametrize("name", ["stream.arrow", "file.arrow"])
def test_offsets_past_the_end_of_the_strings_are_found(tmp_path: Path, name: str) -> None:
    columns = {"text": ["one", "two", "three"], "label": ["x", "y", "x"]}
    path = write_columns(tmp_path / name, columns)
    offsets = np.array([0, 3, 6, 11], np.int32).tobytes()
    assert path.read_bytes().count(offsets) == 1
    path.write_bytes(path.read_bytes().replace(offsets, offsets[:12] + b"\xff\xff\0\0"))
    assert "damaged, cut short" in message(path)


def test_a_column_name_that_is_not_valid_utf_8_is_found(tmp_path: Path) -> None:
    for name in ARROW_NAMES:
        path = write_columns(tmp_path / name, {"text": ["a"], "caf?": ["x"]})
        path.write_bytes(path.read_bytes().replace(b"caf?", b"caf\xe9"))
        with pytest.raises(DataError, match=re.escape(name)):
            list(read_rows(path, labels=True))


REPEATED = pa.array(["x" * 1000])


@pytest.mark.parametrize(
    "column",
    [
        pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int16()), REPEATED),
        pa.array(["x" * 1000] * 400, pa.string_view()),
        pa.RunEndEncodedArray.from_arrays(pa.array([400], pa.int32()), REPEATED),
        pa.array([["x" * 500] * 2] * 400),
        pa.array([[("k", "x" * 1000)]] * 400, pa.map_(pa.string(), pa.string())),
        pa.array([{"a": "x" * 1000}] * 400),
    ],
    ids=lambda column: str(column.type).partition("<")[0],
)
def test_large_values_are_converted_a_few_at_a_time(monkeypatch, column: pa.Array) -> None:
    monkeypatch.setattr(arrow_files, "BATCH_BYTES", 10_000)
    batch = pa.record_batch({"x": column})
    parts = list(arrow_files._bounded(Path("a.arrow"), batch, 0))
    assert 40 <= len(parts) <= 60
    assert sum(part.num_rows for part in parts) == 400


@pytest.mark.parametrize("kind", [pa.list_(pa.null()), pa.list_(pa.null(), 1 << 27)], ids=str)
def test_a_row_that_no_memory_holds_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    nulls = pa.nulls(1 << 27)  # takes no room in the file
    values = (
        pa.ListArray.from_arrays(pa.array([0, 0, 1 << 27], pa.int32()), nulls)
        if kind == pa.list_(pa.null())
        else pa.FixedSizeListArray.from_arrays(nulls, type=kind)
    )
    row = len(values)
    table = pa.table({"text": ["a"] * row, "label": values})
    path = write_columns(tmp_path / "file.arrow", table)
    assert path.stat().st_size < 2000
    with pytest.raises(
        DataError, match=rf"row {row}: 1,073,741,\d+ bytes of values, and a row has"
    ):
        list(read_rows(path, labels=False, keep={}))


def test_a_value_that_python_has_no_type_for_is_named_with_its_column(tmp_path: Path) -> None:
    table = pa.table({"text": ["a"], "when": pa.array([10**12], pa.timestamp("s"))})
    path = write_columns(tmp_path / "file.arrow", table)
    with pytest.raises(DataError, match=r"'when' of the type 'timestamp\[s\]' holds a .*--no-keep"):
        list(read_rows(path, labels=False, keep={}))
    assert texts(path) == ["a"]


def test_only_the_columns_that_are_needed_are_read(tmp_path: Path) -> None:
    columns = {"text": ["a"], "label": ["x"], "vector": [[0.5] * 8]}
    for name in ARROW_NAMES:
        path = write_columns(tmp_path / name, columns)
        with arrow_files.open_arrow(path) as table:
            (batch,) = arrow_files._batches(path, table.schema, ["label", "text"])
        assert sorted(batch.schema.names) == ["label", "text"]


@pytest.mark.parametrize("name", ARROW_NAMES)
def test_rows_are_read_on_demand(tmp_path: Path, name: str) -> None:
    count, together = 100_000, 1000
    generator = np.random.default_rng(0)
    rows = generator.integers(97, 123, (count, 100), np.uint8)
    rows = [row.tobytes().decode() for row in rows]
    path = write_columns(tmp_path / name, {"text": rows, "label": rows}, together)
    assert path.stat().st_size > 10_000_000
    before = pa.total_allocated_bytes()
    found = read_rows(path, TableOptions(label_column="label"), labels=False)
    most = max(
        pa.total_allocated_bytes() - before
        for row, _ in zip(found, itertools.count(), strict=False)
        if row.place.number % 500 == 0
    )
    assert 0 < most < 3_000_000


def test_the_first_rows_come_before_the_last_are_read(tmp_path: Path) -> None:
    rows = [f"text {i} {i * i}" for i in range(20_000)]
    path = write_columns(tmp_path / "a.parquet", {"text": rows, "label": rows}, 1000)
    content = bytearray(path.read_bytes())
    last = parquet.ParquetFile(path).metadata.row_group(19).column(0)
    start = last.dictionary_page_offset or last.data_page_offset
    content[start : start + 200] = b"\xff" * 200
    path.write_bytes(content)
    found = read_rows(path, labels=False)
    assert [row.text for row in islice(found, 15_000)] == rows[:15_000]
    with pytest.raises(DataError, match=r"a\.parquet: damaged, cut short"):
        list(found)


def test_a_file_is_closed_when_reading_stops_early(tmp_path: Path) -> None:
    for name in ARROW_NAMES:
        rows = {"text": ["a"] * 50_000, "label": ["x"] * 50_000}
        found = read_rows(write_columns(tmp_path / name, rows, 100), labels=True)
        assert next(found).place.number == 1
        found.close()


def test_a_stream_of_many_batches_without_an_end_mark_is_whole(tmp_path: Path) -> None:
    # The mark at the end of a stream is optional, and Hugging Face's shards are such streams.
    path = write_columns(tmp_path / "stream.arrow", ROWS, 1)
    path.write_bytes(path.read_bytes().removesuffix(b"\xff\xff\xff\xff\0\0\0\0"))
    assert pairs(path) == EXPECTED
    assert ipc.open_stream(path.read_bytes()).read_all().num_rows == 4


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_columns(tmp_path / "a.parquet", ROWS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"Reading a\.parquet needs the extra 'data': pip"):
        list(read_rows(path, labels=True))
    with pytest.raises(DataError, match=r"gone\.parquet: no such file"):
        list(read_rows(tmp_path / "gone.parquet", labels=True))


def test_reading_csv_imports_no_pyarrow(tmp_path: Path) -> None:
    write_columns(tmp_path / "a.csv", ROWS)
    script = (
        "import sys, pathlib\nfrom dcnn.data.readers import read_labelled\n"
        "read_labelled(pathlib.Path('a.csv'))\n"
        "assert not {'pyarrow', 'pandas', 'polars'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
