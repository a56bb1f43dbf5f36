import bz2
import gzip
import io
import json
import logging
import lzma
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import zstandard

from dcnn.data.labels import LabelledTexts, Place, check_training_labels, number_labels
from dcnn.data.readers import (
    Row,
    TableOptions,
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


def test_missing_file_and_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.csv: no such file"):
        read_labelled(tmp_path / "gone.csv")
    with pytest.raises(DataError, match="is a folder"):
        read_labelled(tmp_path)


def test_rows_are_read_as_they_are_asked_for(write: Write) -> None:
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


def test_plain_text_is_one_text_a_line_empty_ones_too(write: Write) -> None:
    path = write("a.txt", '\n"one", two\r\n\n  three\tfour \n')
    rows = list(read_rows(path, labels=False))
    assert [row.text for row in rows] == ["", '"one", two', "", "  three\tfour "]
    assert [row.place.number for row in rows] == [1, 2, 3, 4]
    assert {(row.label, row.weight) for row in rows} == {(None, None)}


def test_plain_text_is_no_guess(write: Write, caplog: pytest.LogCaptureFixture) -> None:
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
