import bz2
import csv
import gzip
import io
import json
import logging
import lzma
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dcnn.data.tables import (
    LabelledTexts,
    Row,
    TableOptions,
    check_known_labels,
    check_training_labels,
    read_labelled,
    read_rows,
)
from dcnn.errors import DataError

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


def texts(path: Path, **options: Any) -> list[str]:
    return [row.text for row in read_rows(path, TableOptions(**options), labels=False)]


def pairs(path: Path, **options: Any) -> list[tuple[str, str]]:
    examples = read_labelled(path, TableOptions(**options))
    return list(zip(examples.texts, examples.labels, strict=True))


def message(path: Path, *, labels: bool = True, **options: Any) -> str:
    """The error that reading raises; it names the file and fits on one line of moderate length."""
    with pytest.raises(DataError, match=re.escape(path.name)) as caught:
        list(read_rows(path, TableOptions(**options), labels=labels))
    found = str(caught.value)
    assert "\n" not in found
    assert len(found) - len(str(path)) < 400
    return found


def examples(labels: list[str], source: str = "train.csv") -> LabelledTexts:
    lines = list(range(2, 2 + len(labels)))
    return LabelledTexts(["a text"] * len(labels), labels, None, source, lines)


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
    assert found.lines == ([2, 3] if "{" not in content else [1, 2])
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
    assert list(islice(rows, 2)) == [Row("fine", "x", None, 2), Row("fine", "x", None, 3)]
    with pytest.raises(DataError, match="line 100002: 3 fields"):
        list(rows)


def test_file_is_closed_when_reading_stops_early(write: Write) -> None:
    # An open file would be a ResourceWarning, which the configuration turns into an error.
    for name in ("a.csv", "b.jsonl"):
        path = write(name, '{"text": "a"}\n' * 50_000)
        rows = read_rows(path, TableOptions(header=False), labels=False)
        assert next(rows).line == 1
        del rows


def test_plain_text_is_one_text_a_line_empty_ones_too(write: Write) -> None:
    path = write("a.txt", '\n"one", two\r\n\n  three\tfour \n')
    rows = list(read_rows(path, labels=False))
    assert [row.text for row in rows] == ["", '"one", two', "", "  three\tfour "]
    assert [row.line for row in rows] == [1, 2, 3, 4]
    assert {(row.label, row.weight) for row in rows} == {(None, None)}


def test_plain_text_is_no_guess(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    assert texts(write("a.txt", "one\n")) == ["one"]
    assert not caplog.records


def test_plain_text_has_no_labels(write: Write) -> None:
    found = message(write("a.txt", "one\n"))
    assert "plain text has no labels" in found
    assert ".csv" in found


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("id,Review,STARS", "7,good,5", ("good", "5")),
        ("label,sentence,text", "x,no,yes", ("yes", "x")),
        ("sentiment,class,tweet", "no,yes,hello", ("hello", "yes")),
        ("y,phrase", "x,hello", ("hello", "x")),
        ("body,outcome", "hello,x", ("hello", "x")),
        ("outcome,body", "x,hello", ("hello", "x")),
        ("a,b", "x,hello", ("hello", "x")),
        ("a,b", "hello,x", ("hello", "x")),
        (",a,b", "0,x,hello", ("hello", "x")),
        ("id, text , label", "7,hello,x", ("hello", "x")),
    ],
)
def test_columns_are_guessed(
    write: Write, header: str, row: str, expected: tuple[str, str]
) -> None:
    assert pairs(write("a.csv", f"{header}\n{row}\n")) == [expected]


def test_length_is_judged_over_many_rows_and_none_is_lost(write: Write) -> None:
    rows = [("x", "a long label")] + [("a much longer text than that", "y")] * 150
    content = "a,b\n" + "".join(f"{text},{label}\n" for text, label in rows)
    assert pairs(write("a.csv", content)) == rows


def test_weight_column_is_not_taken_for_text_or_label(write: Write) -> None:
    path = write("a.csv", "a,b,rating\nhello,x,2\n")
    assert pairs(path, weight_column="rating") == [("hello", "x")]


def test_weight_is_never_guessed(write: Write) -> None:
    assert read_labelled(write("a.csv", "text,label,weight\na,b,2\n")).weights is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {},
            "reading text from column 'review' and labels from 'stars' "
            "(guessed; choose with --text-column and --label-column)",
        ),
        (
            {"text_column": "review"},
            "reading labels from column 'stars' (guessed; choose with --label-column)",
        ),
        (
            {"label_column": "stars"},
            "reading text from column 'review' (guessed; choose with --text-column)",
        ),
    ],
)
def test_a_guess_is_logged_with_the_option_that_overrides_it(
    write: Write,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    sentence: str,
) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    path = write("data.csv", "review,stars\ngood,5\n")
    read_labelled(path, TableOptions(**options))
    assert [record.getMessage() for record in caplog.records] == [f"{path}: {sentence}"]
    assert caplog.records[0].levelno == logging.INFO


def test_named_columns_are_taken_without_a_word(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    path = write("a.csv", "text,label,note,kind\nno,no,hello,x\n")
    assert pairs(path, text_column="note", label_column="kind") == [("hello", "x")]
    assert not caplog.records


def test_named_column_may_have_the_name_that_the_other_usually_has(write: Write) -> None:
    path = write("a.csv", "text,label\nx,hello\n")
    assert pairs(path, text_column="label") == [("hello", "x")]
    assert pairs(path, label_column="text") == [("hello", "x")]


def test_prediction_needs_no_label_column(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    assert texts(write("a.csv", "whatever\nhello\n"), label_column="gone") == ["hello"]
    assert texts(write("b.csv", "id,text,more\n1,hello,2\n")) == ["hello"]
    assert texts(write("c.csv", "label,other\n,hello\n")) == ["hello"]
    assert texts(write("d.jsonl", '{"text": "hello", "label": null}\n')) == ["hello"]
    assert "labels" not in caplog.text


def test_columns_that_cannot_be_guessed_are_listed(write: Write) -> None:
    path = write("a.csv", "a,b,c\n1,2,3\n")
    found = message(path)
    assert "which column holds the text; the columns are 'a', 'b', 'c'" in found
    assert "--text-column" in found
    found = message(path, text_column="b")
    assert "which column holds the labels" in found
    assert "--label-column" in found
    assert "--text-column" in message(path, labels=False)


def test_long_lists_of_columns_are_shortened(write: Write) -> None:
    names = [f"column{place}" for place in range(1000)]
    found = message(write("a.csv", ",".join(names) + "\n"))
    assert "'column9' and 990 more" in found


@pytest.mark.parametrize(
    ("option", "flag"),
    [
        ("text_column", "--text-column"),
        ("label_column", "--label-column"),
        ("weight_column", "--weight-column"),
    ],
)
def test_named_column_that_does_not_exist(write: Write, option: str, flag: str) -> None:
    path = write("a.csv", "text,label,Weight\na,b,1\n")
    assert f"{flag} 'other' is no column; the columns are 'text', 'label', 'Weight'" in message(
        path, **{option: "other"}
    )
    assert "did you mean 'label'?" in message(path, **{option: "lable"})
    assert "did you mean 'Weight'?" in message(path, **{option: "WEIGHT"})


def test_one_column_cannot_have_two_uses(write: Write) -> None:
    path = write("a.csv", "text,label\na,b\n")
    found = message(path, text_column="label", label_column="label")
    assert "both name 'label'" in found
    assert "--text-column" in found
    assert "--label-column" in found


def test_nameless_column_cannot_be_chosen(write: Write) -> None:
    path = write("a.csv", ",text,label,\n0,a,b,\n")
    assert pairs(path) == [("a", "b")]
    assert "--text-column is empty" in message(path, text_column="")
    assert "no column is left" in message(write("b.csv", ",,\na,b,c\n"), labels=False)


def test_duplicated_column_names_are_named(write: Write) -> None:
    path = write("a.csv", "\ntext,label,text,n,label\na,b,c,d,e\n")
    assert "line 2: more than one column is named 'text', 'label'" in message(path)


@pytest.mark.parametrize(
    ("name", "content", "looks"),
    [
        ("a.csv", "text\nhello\n", "add the missing column"),
        ("a.csv", "text;label\nhello, world;x\n", "semicolons"),
        ("a.csv", "text\tlabel\nhello, world\tx\n", r"tabs: name it \.tsv"),
        ("a.tsv", "text,label\nhello,x\n", r"commas: name it \.csv"),
    ],
)
def test_labelled_file_with_one_column(write: Write, name: str, content: str, looks: str) -> None:
    found = message(write(name, content))
    assert "just one column" in found
    assert re.search(looks, found)


def test_wrong_separator_is_told_when_a_column_is_named(write: Write) -> None:
    path = write("a.csv", "text;label\nhello, world;x\n")
    assert "looks separated by semicolons" in message(path, text_column="text")
    assert "looks separated by semicolons" in message(path, labels=False)
    path = write("b.csv", "hello world;x\n")
    assert "looks separated by semicolons" in message(path, header=False)


def test_without_header_columns_are_numbered(write: Write) -> None:
    path = write("a.csv", "\nx,hello\ny,bye\n")
    examples = read_labelled(path, TableOptions(header=False))
    assert (examples.texts, examples.labels) == (["hello", "bye"], ["x", "y"])
    assert examples.lines == [2, 3]
    path = write("b.tsv", "7\tx\thello\n")
    options = {"text_column": "3", "label_column": "2", "header": False}
    assert pairs(path, **options) == [("hello", "x")]
    assert "the columns are '1', '2', '3'" in message(path, text_column="4", header=False)


def test_quoted_field_spans_lines_and_the_record_has_its_first_line(write: Write) -> None:
    path = write("a.csv", 'text,label\r\n"one\r\ntwo\n\nthree",x\r\n\r\nfour,y\r\n')
    found = read_labelled(path)
    assert found.texts == ["one\r\ntwo\n\nthree", "four"]
    assert found.lines == [2, 7]


def test_errors_name_the_line_where_the_record_starts(write: Write) -> None:
    path = write("a.csv", 'text,label\n"one\ntwo",x\n"three\nfour",y,z\n')
    assert "line 4: 3 fields" in message(path)
    path = write("b.csv", 'text,label\n"one\ntwo",x\n"three\nfour",\n')
    assert "line 4: the label" in message(path)


def test_quote_that_is_never_closed(write: Write) -> None:
    path = write("a.csv", 'text,label\none,x\n"two,y\nthree,z\n')
    found = message(path)
    assert "line 3:" in found
    assert "never closed" in found


def test_quote_inside_a_quoted_field(write: Write) -> None:
    path = write("a.csv", 'text,label\none,x\n"say "hi"",y\n')
    found = message(path)
    assert "line 3: not valid CSV" in found
    assert 'write a quote inside a quoted text as ""' in found


def test_quotes_inside_an_unquoted_field_are_characters(write: Write) -> None:
    assert pairs(write("a.csv", 'text,label\nsay "hi",y\n')) == [('say "hi"', "y")]


@pytest.mark.parametrize("quote", ["", '"'])
def test_very_long_fields_are_read(write: Write, quote: str) -> None:
    text = "long " * 100_000
    assert pairs(write("a.csv", f"text,label\n{quote}{text}{quote},x\n")) == [(text, "x")]


@pytest.mark.parametrize(
    ("name", "unit", "fault"),
    [
        ("a.txt.gz", b"endless " * 1000, "line 3: longer than 67108864 characters"),
        (
            "a.csv.gz",
            b"endless " * 1000 + b"\n",
            "line 3: a field is longer than 67108864 characters; is a quote never",
        ),
    ],
)
def test_endless_lines_and_fields_are_refused(
    write: Write, name: str, unit: bytes, fault: str
) -> None:
    content = b'text,label\nshort,x\n"' + unit * 9000
    assert fault in message(write(name, gzip.compress(content, 1)), labels=False)


def test_wrong_number_of_fields(write: Write) -> None:
    path = write("a.csv", "text,label\none,x\ntwo, too,y\n")
    found = message(path)
    assert "line 3: 3 fields in a table of 2" in found
    assert "'text', 'label'" in found
    assert "comma" in found
    assert "not quoted" in found
    assert "line 2: 1 field in a table of 2" in message(write("b.csv", "text,label\none\n"))
    found = message(write("c.tsv", "text\tlabel\none\ttwo\tx\n"))
    assert "line 2: 3 fields in a table of 2" in found
    assert "tab" in found


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "\n  \ntext,label\n\n  \none,x\n\r\n\ntwo,y\n\n"),
        ("a.tsv", "\n  \ntext\tlabel\n\n  \none\tx\n\r\n\ntwo\ty\n\n"),
        (
            "a.jsonl",
            '\n  \n\n\n\t\n{"text": "one", "label": "x"}\n\r\n\n{"text": "two", "label": "y"}\n\n',
        ),
    ],
)
def test_blank_lines_are_skipped_and_counted(write: Write, name: str, content: str) -> None:
    found = read_labelled(write(name, content))
    assert (found.texts, found.labels) == (["one", "two"], ["x", "y"])
    assert found.lines == [6, 9]


def test_blank_texts_of_a_single_column_are_kept(write: Write) -> None:
    assert texts(write("a.csv", 'text\n""\n  \n" "\nlast\n')) == ["", "  ", " ", "last"]
    assert texts(write("b.csv", '""\n  \nlast\n'), header=False) == ["", "  ", "last"]


def test_lone_carriage_returns_end_csv_lines(write: Write) -> None:
    path = write("a.csv", 'text,label\rone,x\r"two\rlines",y\rthree,z')
    found = read_labelled(path)
    assert found.texts == ["one", "two\rlines", "three"]
    assert found.lines == [2, 3, 5]


def test_carriage_return_in_a_text_is_no_line_to_count(write: Write) -> None:
    path = write("a.csv", 'text,label\n"one\rmore",x\ntwo,y\n')
    found = read_labelled(path)
    assert found.texts == ["one\rmore", "two"]
    assert found.lines == [2, 3]
    assert texts(write("a.tsv", "text\tlabel\none\rmore\tx\n")) == ["one\rmore"]
    assert texts(write("a.txt", "one\rmore\n")) == ["one\rmore"]


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028", "\u2029"])
def test_only_line_feeds_end_lines(write: Write, character: str) -> None:
    text = f"one{character}two"
    assert pairs(write("a.csv", f"text,label\n{text},x\n")) == [(text, "x")]
    assert pairs(write("a.tsv", f"text\tlabel\n{text}\tx\n")) == [(text, "x")]
    line = json.dumps({"text": text, "label": "x"}, ensure_ascii=False)
    assert pairs(write("a.jsonl", line + "\n")) == [(text, "x")]
    assert texts(write("a.txt", f"{text}\n{text}")) == [text, text]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ('"quoted"', "quoted"),
        ('"say ""hi"""', 'say "hi"'),
        ('""', ""),
        ('""""', '"'),
        ('"', '"'),
        ('"""', '"""'),
        ('"a" and "b"', '"a" and "b"'),
        ('"open', '"open'),
        ('close"', 'close"'),
        ('say "hi"', 'say "hi"'),
        ("it's, well; fine", "it's, well; fine"),
    ],
)
def test_tsv_drops_only_the_quotes_of_a_spreadsheet(write: Write, field: str, text: str) -> None:
    assert pairs(write("a.tsv", f"text\tlabel\n{field}\tx\n")) == [(text, "x")]


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ('"  x "', "x"),
        ("3", "3"),
        ("3.0", "3.0"),
        ("-0.5", "-0.5"),
        ("true", "true"),
        ("false", "false"),
        ("0", "0"),
    ],
)
def test_json_labels_become_strings(write: Write, value: str, label: str) -> None:
    assert pairs(write("a.jsonl", f'{{"text": "a", "label": {value}}}')) == [("a", label)]


@pytest.mark.parametrize(
    ("value", "received"),
    [("null", "None"), ("[1]", "[1]"), ('{"a": 1}', "{'a': 1}"), ("NaN", "nan")],
)
def test_json_labels_that_are_no_labels(write: Write, value: str, received: str) -> None:
    path = write("a.jsonl", f'{{"text": "a", "label": 1}}\n{{"text": "a", "label": {value}}}')
    assert f"line 2: the label in 'label' is {received}; it must be a string" in message(path)


@pytest.mark.parametrize(("value", "received"), [("null", "None"), ("7", "7"), ('["a"]', "['a']")])
def test_json_text_that_is_no_string(write: Write, value: str, received: str) -> None:
    path = write("a.jsonl", f'{{"text": "a", "label": 1}}\n{{"text": {value}, "label": 1}}')
    assert f"line 2: the text in 'text' is {received}; it must be a string" in message(path)


def test_json_key_that_is_missing(write: Write) -> None:
    path = write("a.jsonl", '{"text": "a", "label": 1}\n{"text": "a", "labels": 1}\n')
    found = message(path)
    assert "line 2: the key 'label' is missing; the keys here are 'text', 'labels'" in found
    assert "did you mean 'labels'?" in found
    path = write("b.jsonl", '{"text": "a", "label": 1}\n{}\n')
    assert "line 2: the key 'text' is missing; the keys here are none at all" in message(path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "a", "label": }', "Expecting value at character 24"),
        ('{"text": "a"} {"text": "b"}', "Extra data"),
        ("{", "Expecting property name"),
        ('{"text": "a"\n}', "Expecting ',' delimiter at character 13"),
        ('{"text": "a", "label": ' + "9" * 5000 + "}", "4300 digits"),
        ('{"text": ' + "[" * 1_000_000, "recursion"),
    ],
)
def test_invalid_json_gives_the_reason(write: Write, line: str, reason: str) -> None:
    path = write("a.jsonl", '{"text": "a", "label": 1}\n\n' + line)
    found = message(path)
    assert "line 3: not valid JSON (" in found
    assert reason in found
    assert "one whole object a line" in found


@pytest.mark.parametrize("line", ['["a", "b"]', '"a"', "3", "null"])
def test_json_that_is_no_object(write: Write, line: str) -> None:
    found = message(write("a.json", line))
    assert "line 1: " in found
    assert "is not an object" in found


def test_json_columns_are_those_of_the_first_object(write: Write) -> None:
    path = write("a.jsonl", '{"a": "hello", "b": 1}\n{"text": "no", "b": 2, "a": "bye"}\n')
    assert pairs(path) == [("hello", "1"), ("bye", "2")]
    found = message(write("b.jsonl", '{"a": 1, "b": 2, "c": 3}\n'))
    assert "the columns are 'a', 'b', 'c'" in found


@pytest.mark.parametrize("key", ["text", "label"])
def test_half_a_surrogate_pair_is_refused(write: Write, key: str) -> None:
    values = {"text": "a", "label": "b", key: "\ud83d"}
    path = write("a.jsonl", '{"text": "\\ud83d\\ude00", "label": "x"}\n' + json.dumps(values))
    assert r"line 2: '\ud83d' is half of a surrogate pair" in message(path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_invalid_byte_is_located(write: Write, name: str) -> None:
    first = b'{"text": "\xc3\xa9"}\n' if name == "a.jsonl" else b"text\n"
    path = write(name, first + b"\n\xc3\xa9t\xe9\n")
    found = message(path, labels=False)
    assert "line 3, character 3: the byte 0xe9 is not valid utf-8" in found
    assert "--encoding latin-1" in found


def test_invalid_byte_of_another_encoding_suggests_utf_8(write: Write) -> None:
    found = message(write("a.csv", "text,label\nété,x\n"), encoding="ascii")
    assert "line 2, character 1: the byte 0xc3 is not valid ascii" in found
    assert "--encoding utf-8" in found


def test_invalid_byte_far_into_a_file_is_located(write: Write) -> None:
    path = write("a.csv", b"text,label\n" + b"some words,x\n" * 50_000 + b"caf\xe9,x\n")
    assert "line 50002, character 4: the byte 0xe9" in message(path)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32"])
def test_other_encodings_are_read(write: Write, encoding: str) -> None:
    path = write("a.csv", "text,label\r\nété,x\r\n".encode(encoding))
    assert pairs(path, encoding=encoding) == [("été", "x")]


@pytest.mark.parametrize("encoding", ["no-such", "hex", "", "a\0b"])
def test_unknown_encoding(write: Write, encoding: str) -> None:
    found = message(write("a.csv", "text,label\na,b\n"), encoding=encoding)
    assert f"--encoding {encoding!r} is not a text encoding" in found


@pytest.mark.parametrize("mark", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_recognised(write: Write, mark: str) -> None:
    path = write("a.csv", "\ufefftext,label\na,b\n".encode(mark))
    found = message(path)
    assert "looks like UTF-16" in found
    assert "--encoding utf-16" in found
    assert pairs(path, encoding="utf-16") == [("a", "b")]


def test_broken_utf_16_is_a_data_error(write: Write) -> None:
    path = write("a.csv", "text,label\na,b\n".encode("utf-16")[:-1])
    assert "not valid utf-16 at line" in message(path, encoding="utf-16")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", '"text",label\na,b\n'), ("a.jsonl", '{"text": "a", "label": "b"}\n')],
)
def test_utf_8_mark_is_dropped(write: Write, name: str, content: str) -> None:
    assert pairs(write(name, "\ufeff" + content)) == [("a", "b")]


def test_nul_is_located(write: Write) -> None:
    found = message(write("a.csv", "text,label\na,b\nno\0pe,c\n"))
    assert "line 3, character 3: a NUL byte" in found
    without_mark = write("b.csv", "text,label\na,b\n".encode("utf-16-le"))
    assert "--encoding utf-16" in message(without_mark)


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
    check_known_labels(examples(["negative", "positive"]), known)
    with pytest.raises(DataError) as caught:
        check_known_labels(examples(["positive", "Positve"], "dev.csv"), known)
    assert "dev.csv, line 3: the label 'Positve' is not in the training set" in str(caught.value)
    assert "has 'positive', 'negative'" in str(caught.value)
    assert "did you mean 'positive'?" in str(caught.value)
    with pytest.raises(DataError) as caught:
        check_known_labels(examples(["7"]), known)
    assert "did you mean" not in str(caught.value)


def test_known_labels_past_ten_are_counted() -> None:
    known = {str(place): 0 for place in range(100, 125)}
    with pytest.raises(DataError, match=r"'100', .* '109' and 15 more") as caught:
        check_known_labels(examples(["unheard of"]), known)
    assert "'110'" not in str(caught.value)


def test_long_and_strange_values_do_not_flood_the_terminal(write: Write) -> None:
    long = "\x1b[31m" + "é" * 10_000
    for check in (
        lambda: check_known_labels(examples([long]), [long + "x"] * 50),
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


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
LABELS = WORDS.map(str.strip).filter(bool)
ROWS = st.lists(st.tuples(WORDS, LABELS), min_size=1, max_size=8)


def read_back(name: str, content: str) -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content.encode())
        return pairs(path)


@given(rows=ROWS, terminator=st.sampled_from(["\n", "\r\n"]), quote_all=st.booleans())
def test_csv_reads_back_as_written(
    rows: list[tuple[str, str]], terminator: str, quote_all: bool
) -> None:
    # Before Python 3.13 csv.writer leaves a CR bare when it is not part of the terminator.
    bare = terminator == "\n" and sys.version_info < (3, 13)
    if bare and any("\r" in value for row in rows for value in row):
        quote_all = True
    buffer = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    writer = csv.writer(buffer, lineterminator=terminator, quoting=quoting)
    writer.writerows([("text", "label"), *rows])
    assert read_back("a.csv", buffer.getvalue()) == rows


@given(rows=ROWS, ascii_only=st.booleans(), end=st.sampled_from(["\n", "\r\n"]))
def test_json_lines_read_back_as_written(
    rows: list[tuple[str, str]], ascii_only: bool, end: str
) -> None:
    lines = [
        json.dumps({"text": text, "label": label}, ensure_ascii=ascii_only) for text, label in rows
    ]
    assert read_back("a.jsonl", end.join(lines)) == rows


FIELDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\n\r"))


@given(rows=st.lists(st.tuples(FIELDS, FIELDS.map(str.strip).filter(bool)), min_size=1, max_size=8))
def test_quoted_tsv_reads_back_as_written(rows: list[tuple[str, str]]) -> None:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("text", "label"), *rows])
    assert read_back("a.tsv", buffer.getvalue()) == rows
