import bz2
import gzip
import io
import json
import logging
import lzma
import re
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from arrow_writing import NAMES, write_columns
from dcnn.data.labels import LabelledTexts, Place, check_training_labels, number_labels
from dcnn.data.readers import (
    Row,
    ShardReader,
    TableOptions,
    find_shards,
    is_shard,
    read_labelled,
    read_rows,
)
from dcnn.errors import DataError
from reading import Write, message, pairs, texts


def examples(labels: list[str], source: str = "train.csv") -> LabelledTexts:
    places = [Place(source, 2 + index) for index in range(len(labels))]
    return number_labels(["a text"] * len(labels), labels, source=source, places=places)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text,label\n"one, two",x\nthree,y\n'),
        ("a.CSV", 'text,label\r\n"one, two",x\r\nthree,y'),
        ("a.tsv", "text\tlabel\none, two\tx\nthree\ty\n"),
        ("a.tab", "text\tlabel\r\none, two\tx\r\nthree\ty"),
        ("a.jsonl", '{"text": "one, two", "label": "x"}\n{"label": "y", "text": "three"}'),
        ("a.ndjson", '{"text": "one, two", "label": "x"}\r\n{"label": "y", "text": "three"}\r\n'),
        ("a.jsonlines", '{"text": "one, two", "label": "x"}\n{"label": "y", "text": "three"}\n'),
        ("a.json", '{"text": "one, two", "label": "x"}\n{"label": "y", "text": "three"}\n'),
    ],
)
def test_every_format_gives_the_same_rows(write: Write, name: str, content: str) -> None:
    path = write(name, content)
    found = read_labelled(path)
    assert found.texts == ["one, two", "three"]
    assert found.labels == ["x", "y"]
    assert [place.number for place in found.places] == ([2, 3] if "{" not in content else [1, 2])
    assert found.weights is None
    assert found.source == str(path)


def zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.csv", content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", zstandard.compress),
        (".zip", zipped),
    ],
)
@pytest.mark.parametrize("rows", [1, 20_000])
def test_compressed_files_read_like_plain_ones(
    write: Write, suffix: str, compress: Callable[[bytes], bytes], rows: int
) -> None:
    path = write("a.csv" + suffix, compress(b"text,label\n" + b"caf\xc3\xa9,x\n" * rows))
    assert pairs(path) == [("café", "x")] * rows


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.gz", "a.parquet.zst"])
def test_unknown_suffix_lists_the_supported_ones(write: Write, name: str) -> None:
    content = b"text,label\na,b\n"
    compress = {"gz": gzip.compress, "zst": zstandard.compress}.get(name[-3:].lstrip("."), bytes)
    found = message(write(name, compress(content)))
    for suffix in (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".txt", ".gz", ".zst"):
        assert f" {suffix}" in found


def test_missing_file_and_folder_have_their_own_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.csv: no such file"):
        read_labelled(tmp_path / "gone.csv")
    with pytest.raises(DataError, match="is a folder"):
        read_labelled(tmp_path)


def test_rows_are_read_on_demand(write: Write) -> None:
    path = write("a.csv", "text,label\n" + "fine,x\n" * 100_000 + "too,many,fields\n")
    rows = read_rows(path, labels=True)
    assert list(islice(rows, 2)) == [
        Row("fine", "x", None, Place(str(path), number)) for number in (2, 3)
    ]
    with pytest.raises(DataError, match="line 100002: 3 fields"):
        list(rows)


def test_blank_rows_before_the_first_are_not_kept(write: Write) -> None:
    blank = " \n" * 50_000
    assert pairs(write("a.csv", f"{blank}text,label\na,x\n")) == [("a", "x")]
    found = message(write("b.csv", f"{blank}a,x\n"), header=False)
    assert "the first 1,000 rows are blank" in found


def test_file_is_closed_when_reading_stops_early(write: Write) -> None:
    # An open file would be a ResourceWarning, which the configuration turns into an error.
    for name in ("a.csv", "b.jsonl"):
        path = write(name, '{"text": "a"}\n' * 50_000)
        rows = read_rows(path, TableOptions(header=False), labels=False)
        assert next(rows).place.number == 1
        del rows


def test_plain_text_is_one_text_per_line_even_if_empty(write: Write) -> None:
    path = write("a.txt", '\n"one", two\r\n\n  three\tfour \n')
    rows = list(read_rows(path, labels=False))
    assert [row.text for row in rows] == ["", '"one", two', "", "  three\tfour "]
    assert [row.place.number for row in rows] == [1, 2, 3, 4]
    assert {(row.label, row.weight) for row in rows} == {(None, None)}


def test_the_column_of_plain_text_is_not_logged_as_a_guess(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    assert texts(write("a.txt", "one\n")) == ["one"]
    assert not caplog.records


def test_plain_text_has_no_labels(write: Write) -> None:
    found = message(write("a.txt", "one\n"))
    assert "plain text has no labels" in found
    assert ".csv" in found


def test_a_header_that_is_data_is_noticed(write: Write) -> None:
    path = write("a.tsv", "ham\tGo until jurong point\nspam\tFree entry\nham\tOk lar\n")
    assert "line 3: 'ham' is a label here and the name of the column" in message(path)
    assert "pass --no-header" in message(path)
    named = TableOptions(label_column="ham")
    assert read_labelled(path, named).labels == ["spam", "ham"]
    assert read_labelled(path, TableOptions(header=False)).labels == ["ham", "spam", "ham"]


def test_labels_may_be_the_numbers_of_columns_without_names(write: Write) -> None:
    path = write("a.csv", "a long text,1\nanother text,2\n")
    assert read_labelled(path, TableOptions(header=False)).labels == ["1", "2"]


def test_empty_text_file(write: Write) -> None:
    assert "is empty" in message(write("a.txt", ""), labels=False)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
@pytest.mark.parametrize("content", ["", "\n", "  \r\n \n\n", "\ufeff", "\ufeff\n"])
@pytest.mark.parametrize("header", [True, False])
def test_empty_file(write: Write, name: str, content: str, header: bool) -> None:
    assert "is empty" in message(write(name, content), labels=False, header=header)


@pytest.mark.parametrize("content", ["text,label", "text,label\n\n\n", "a,b\n"])
@pytest.mark.parametrize("labels", [True, False])
def test_header_without_rows(write: Write, content: str, labels: bool) -> None:
    assert "has a header but no rows" in message(write("a.csv", content), labels=labels)


@pytest.mark.parametrize("label", ["", "   ", '""', '" "', "\u00a0"])
def test_empty_label(write: Write, label: str) -> None:
    path = write("a.csv", f"text,label\none,x\ntwo,{label}\n")
    assert "line 3: the label in 'label' is empty" in message(path)


def test_labels_lose_the_space_around_them_and_texts_do_not(write: Write) -> None:
    assert pairs(write("a.csv", "text,label\n one , x y \n,z\n")) == [(" one ", "x y"), ("", "z")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label,w\na,x,2\nb,y, 0.5 \nc,z,0\n"),
        (
            "a.jsonl",
            '{"text": "a", "label": 1, "w": 2}\n{"text": "b", "label": 1, "w": 0.5}\n'
            '{"text": "b", "label": 1, "w": "0"}\n',
        ),
    ],
)
def test_weights_are_float32(write: Write, name: str, content: str) -> None:
    weights = read_labelled(write(name, content), TableOptions(weight_column="w")).weights
    assert weights is not None
    assert weights.dtype == np.float32
    assert weights.tolist() == [2.0, 0.5, 0.0]


@pytest.mark.parametrize("weight", ["-1", "nan", "inf", "1e39", "", "heavy"])
def test_weight_that_is_no_weight(write: Write, weight: str) -> None:
    path = write("a.csv", f"text,label,w\na,x,1\nb,y,{weight}\n")
    found = message(path, weight_column="w")
    assert f"line 3: the weight in 'w' is {weight!r}; it must be a finite number of 0" in found


@pytest.mark.parametrize("weight", ["true", "null", "[1]", "-0.5", "Infinity", "1" + "0" * 400])
def test_json_weight_that_is_no_weight(write: Write, weight: str) -> None:
    path = write("a.jsonl", f'{{"text": "a", "label": "x", "w": {weight}}}')
    assert "line 1: the weight in 'w' is " in message(path, weight_column="w")


@pytest.mark.parametrize("weight", ["0", "1e-60"])
def test_weights_that_are_all_zero(write: Write, weight: str) -> None:
    path = write("a.csv", f"text,label,w\na,x,{weight}\nb,y,0\n")
    with pytest.raises(DataError, match=r"a\.csv: every weight in column 'w' is 0"):
        read_labelled(path, TableOptions(weight_column="w"))


def test_one_class_is_not_enough_to_train() -> None:
    with pytest.raises(DataError, match=r"train\.csv: every row has the label 'x'"):
        check_training_labels(examples(["x", "x"]), splits=False)
    check_training_labels(examples(["x", "y"]), splits=False)


def test_label_with_a_single_example_cannot_be_split() -> None:
    labels = ["x", "y", "x", "lonely", "y"]
    with pytest.raises(
        DataError, match=r"train\.csv, line 5: the label 'lonely' has a single example, .* dev file"
    ):
        check_training_labels(examples(labels), splits=True)
    with pytest.raises(DataError, match=r"line 5: .*\(one of 2 such labels\)"):
        check_training_labels(examples([*labels, "alone"]), splits=True)
    check_training_labels(examples(labels), splits=False)
    check_training_labels(examples([*labels, "lonely"]), splits=True)


def test_label_that_training_never_saw() -> None:
    known = ["positive", "negative"]
    examples(["negative", "positive"]).with_classes(known)
    with pytest.raises(DataError) as caught:
        examples(["positive", "Positve"], "dev.csv").with_classes(known)
    assert "dev.csv, line 3: the label 'Positve' is not in the training set" in str(caught.value)
    assert "has 'positive', 'negative'" in str(caught.value)
    assert "did you mean 'positive'?" in str(caught.value)
    with pytest.raises(DataError) as caught:
        examples(["7"]).with_classes(known)
    assert "did you mean" not in str(caught.value)


def test_known_labels_past_ten_are_counted() -> None:
    known = [str(place) for place in range(100, 125)]
    with pytest.raises(DataError, match=r"'100', .* '109' and 15 more") as caught:
        examples(["unheard of"]).with_classes(known)
    assert "'110'" not in str(caught.value)


def test_long_and_strange_values_do_not_flood_the_terminal(write: Write) -> None:
    long = "\x1b[31m" + "é" * 10_000
    for check in (
        lambda: examples([long]).with_classes([long + "x"] * 50),
        lambda: check_training_labels(examples([long, long]), splits=True),
        lambda: check_training_labels(examples([long, "x", "x"]), splits=True),
    ):
        with pytest.raises(DataError, match=r"\\x1b\[31mé+\.\.\.'") as caught:
            check()
        assert len(str(caught.value)) < 1200
        assert "\x1b" not in str(caught.value)
    line = json.dumps({"text": [long] * 10, "label": long})
    assert "..." in message(write("a.jsonl", line))
    assert "..." in message(write("b.csv", f"text,label,w\na,b,{long}\n"), weight_column="w")
    assert "..." in message(write("c.csv", f"{long},{long}2,c\na,b,c\n"))


def columns(*rows: tuple[str, object]) -> dict[str, list[object]]:
    return {"text": [text for text, _ in rows], "label": [label for _, label in rows]}


def fault(path: Path, **options: str) -> str:
    with pytest.raises(DataError) as caught:
        list(read_rows(path, TableOptions(**options), labels=True))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with shards in every format, one row each, written in no order."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for place in (3, 0, 6, 1, 5, 2, 4):
        kind = NAMES[place].removesuffix(Path(NAMES[place]).suffix)
        name = f"{place}{Path(NAMES[place]).suffix}"
        made = write_columns(folder / NAMES[place], columns((f"text {place} {kind}", "x")))
        made.rename(folder / name)
    return folder


def test_a_folder_is_all_its_files_in_order(shards: Path) -> None:
    found = texts(shards)
    assert [text.split()[1] for text in found] == list("0123456")


def test_a_pattern_is_what_matches_it_in_order(shards: Path, monkeypatch) -> None:
    assert [text.split()[1] for text in texts(shards / "*.[ap]*")] == list("345")
    assert [text.split()[1] for text in texts(shards / "[03].*")] == list("03")
    monkeypatch.chdir(shards.parent)
    assert len(texts(Path("shards/*"))) == 7
    assert len(texts(Path("**/*.arrow"))) == 2


def test_a_pattern_follows_no_loops_of_links_and_no_hidden_folders(shards: Path) -> None:
    (shards / "loop").symlink_to(shards)
    (shards / ".git").mkdir()
    (shards / ".git" / "a.csv").write_text("text,label\na,x\n")
    found = find_shards(shards / "**" / "*.csv")
    assert found == [shards / "0.csv"]
    assert len(find_shards(shards / "**")) == 7
    with pytest.raises(DataError, match=r"not a pattern .*write \*\* alone"):
        find_shards(shards / "**.csv")


def test_hidden_files_and_metadata_are_skipped(shards: Path, caplog) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    for name in ("_SUCCESS", "_metadata.csv", ".hidden.csv", "state.json", "dataset_info.json"):
        (shards / name).write_text("no data")
    (shards / "deeper.csv").mkdir()
    (shards / "README.md").write_text("about them")
    for given in (shards, shards / "*"):
        assert len(texts(given)) == 7
    assert [record.message for record in caplog.records if "7 files" in record.message] == [
        f"{given}: reading 7 files; left out, as no data files: 'README.md'"
        for given in (shards, shards / "*")
    ]


def test_a_name_that_looks_like_a_pattern_is_a_name_where_it_exists(tmp_path: Path) -> None:
    write_columns(tmp_path / "a[1].csv", columns(("brackets", "x")))
    write_columns(tmp_path / "a1.csv", columns(("plain", "x")))
    assert texts(tmp_path / "a[1].csv") == ["brackets"]


def test_a_source_without_data_is_reported(tmp_path: Path) -> None:
    assert "*.parquet: no file matches this pattern" in fault(tmp_path / "*.parquet")
    assert "is a folder without data files of its own; name another" in fault(tmp_path)
    (tmp_path / "part").mkdir()
    assert "give a pattern such as" in fault(tmp_path)
    (tmp_path / "a.xlsx").write_text("x")
    assert "'.xlsx' names no format" in fault(tmp_path / "*.xlsx")
    (tmp_path / "model.safetensors").write_text("x")
    assert "is a folder that holds a model" in fault(tmp_path)


def test_the_order_of_columns_may_differ(tmp_path: Path) -> None:
    write_columns(tmp_path / "a.parquet", {"text": ["one"], "label": ["x"], "id": [1]})
    write_columns(tmp_path / "b.csv", {"id": [1], "label": ["y"], "text": ["two"]})
    write_columns(tmp_path / "c.parquet", {"label": ["z"], "text": ["three"]})
    assert pairs(tmp_path) == [("one", "x"), ("two", "y"), ("three", "z")]


def test_columns_are_guessed_once_and_needed_everywhere(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    write_columns(tmp_path / "a.csv", {"review": ["one"], "stars": ["x"]})
    write_columns(tmp_path / "b.csv", {"review": ["two"], "stars": ["y"]})
    assert len(pairs(tmp_path)) == 2
    assert sum("(guessed;" in record.message for record in caplog.records) == 1
    # Alone it would be guessed to hold other columns, and they would be taken for the same.
    write_columns(tmp_path / "c.parquet", {"text": ["three"], "star": ["z"]})
    assert re.search(
        r"c\.parquet has no column 'review', which .*a\.csv has; the columns are 'text', 'star'",
        fault(tmp_path),
    )
    (tmp_path / "c.parquet").unlink()
    write_columns(tmp_path / "c.jsonl", {"review": ["three"], "star": ["z"]})
    assert "c.jsonl has no column 'stars'" in fault(tmp_path)
    assert "did you mean 'star'?" in fault(tmp_path)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl"])
@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (1, "1", r"the label '1' is a string, where \S*a\.\w+ has an integer"),
        ("1", 1, r"the label 1 is an integer, where \S*a\.\w+ has a string"),
        (1, 1.0, r"the label 1.0 is a number with a fraction, where \S*a\.\w+ has an integer"),
        (True, "true", r"the label 'true' is a string, where \S*a\.\w+ has a boolean"),
    ],
)
def test_labels_that_change_their_type_are_refused(
    tmp_path: Path, suffix: str, first: object, second: object, words: str
) -> None:
    write_columns(tmp_path / f"a{suffix}", columns(("one", first)))
    write_columns(tmp_path / f"b{suffix}", columns(("two", second)))
    assert re.search(rf"b\{suffix}, \w+ 1: {words}; write the labels of all", fault(tmp_path))


def test_labels_without_a_type_fit_any(tmp_path: Path) -> None:
    write_columns(tmp_path / "a.csv", columns(("one", "1")))
    write_columns(tmp_path / "b.parquet", columns(("two", 1)))
    write_columns(tmp_path / "c.tsv", columns(("three", "1")))
    categories = pa.array(["4"]).dictionary_encode()
    assert [label for _, label in pairs(tmp_path)] == ["1", "1", "1"]
    (tmp_path / "b.parquet").unlink()
    write_columns(tmp_path / "d.arrow", pa.table({"text": ["four"], "label": categories}))
    write_columns(tmp_path / "e.parquet", columns(("five", "5")))
    assert [label for _, label in pairs(tmp_path)] == ["1", "1", "4", "5"]


def test_one_file_may_mix_types_as_it_always_could(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": 1}\n{"text": "b", "label": "x"}\n')
    assert [label for _, label in pairs(tmp_path / "a.jsonl")] == ["1", "x"]


@pytest.mark.parametrize("name", NAMES)
def test_a_shard_without_rows_is_skipped(tmp_path: Path, name: str) -> None:
    none = {"text": pa.array([], pa.string()), "label": pa.array([], pa.string())}
    write_columns(tmp_path / name, pa.table(none))
    write_columns(tmp_path / f"0-{name}", columns(("one", "x")))
    write_columns(tmp_path / f"z-{name}", columns(("two", "y")))
    assert pairs(tmp_path) == [("one", "x"), ("two", "y")]
    for other in tmp_path.glob("*-*"):
        write_columns(other, pa.table(none))
    assert "no rows can be read from any of its 3 files" in fault(tmp_path)


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet", "c.parquet"):
        write_columns(tmp_path / name, columns(*[(f"text {i}", "x") for i in range(100)]))
    bad = tmp_path / "b.parquet"
    bad.write_bytes(bad.read_bytes()[:-20])
    rows = read_rows(tmp_path, labels=True)
    assert len([next(rows) for _ in range(100)]) == 100
    with pytest.raises(DataError, match=r"b\.parquet: damaged, cut short"):
        next(rows)
    with pytest.raises(DataError, match=r"b\.parquet: damaged, cut short"):
        read_labelled(tmp_path)


def test_bad_shards_can_be_left_out_whole(tmp_path: Path) -> None:
    for name in "abcdef":
        rows = [(f"{name} {i}", "x") for i in range(3)]
        write_columns(tmp_path / f"{name}.jsonl", columns(*rows))
    # What a bad shard has, here labels that are integers, does not count.
    (tmp_path / "a.jsonl").write_text('{"text": "a 0", "label": 1}\n{"text": "half')
    write_columns(tmp_path / "c.jsonl", {"txt": ["c"], "label": ["x"]})
    write_columns(tmp_path / "e.jsonl", columns(("e 0", 1)))
    bad: list[str] = []
    found = list(
        read_rows(tmp_path, labels=True, on_bad_shard=lambda error: bad.append(str(error)))
    )
    assert [row.text for row in found] == [f"{name} {i}" for name in "bdf" for i in range(3)]
    assert [re.findall(r"(\w\.jsonl)", error)[0] for error in bad] == [
        "a.jsonl",
        "c.jsonl",
        "e.jsonl",
    ]


def test_what_was_guessed_is_logged_once_where_bad_shards_are_left_out(tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    for name in "ab":
        write_columns(tmp_path / f"{name}.csv", {"review": ["one"], "stars": ["x"]})
    assert len(list(read_rows(tmp_path, labels=True, on_bad_shard=lambda _: None))) == 2
    assert sum("(guessed;" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("on_bad_shard", [None, lambda _: None])
def test_a_single_file_without_rows_has_its_own_error(tmp_path, on_bad_shard) -> None:
    (tmp_path / "a.csv").write_text("text,label\n")
    with pytest.raises(DataError, match=r"a\.csv has a header but no rows"):
        list(read_rows(tmp_path / "a.csv", labels=True, on_bad_shard=on_bad_shard))
    with pytest.raises(DataError, match=r"a\.csv has a header but no rows"):
        ShardReader(TableOptions(), labels=True).find_columns([tmp_path / "a.csv"])


def test_later_errors_name_the_shard_and_its_row(tmp_path: Path) -> None:
    write_columns(tmp_path / "a.csv", columns(("one", "x"), ("two", "y"), ("three", "x")))
    write_columns(tmp_path / "b.parquet", columns(("four", "y"), ("five", "rare")))
    found = read_labelled(tmp_path)
    assert found.source == str(tmp_path)
    with pytest.raises(DataError, match=r"b\.parquet, row 2: the label 'rare' has a single"):
        check_training_labels(found, splits=True)
    with pytest.raises(DataError, match=r"b\.parquet, row 2: the label 'rare' is not in the tr"):
        found.select([4, 0]).with_classes(["x", "y"])
    with pytest.raises(DataError, match=r"a\.csv, line 3: the label 'y' is not in the training"):
        found.select([1, 4]).with_classes(["x"])


def test_an_output_that_would_be_a_shard_is_recognized(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    write_columns(tmp_path / "in" / "a.csv", columns(("one", "x")))
    assert is_shard(Path("in"), Path("in/out.parquet"))
    assert not is_shard(Path("in"), Path("in/out.html"))
    assert not is_shard(Path("in"), Path("out.parquet"))
    assert is_shard(Path("in/*.csv"), tmp_path / "in" / "b.csv")
    assert not is_shard(Path("in/*.csv"), Path("b.csv"))
    assert is_shard(Path("in/a.csv"), tmp_path / "in" / "a.csv")
    assert find_shards(Path("in/*.csv")) == [Path("in/a.csv")]
