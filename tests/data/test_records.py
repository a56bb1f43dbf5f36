import csv
import gzip
import io
import json
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.data.readers import read_labelled
from dcnn.text.tokenizer import UNPRINTABLE
from reading import Write, message, pairs, texts


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


def test_quoted_field_spans_lines_and_the_record_has_its_first_line(write: Write) -> None:
    path = write("a.csv", 'text,label\r\n"one\r\ntwo\n\nthree",x\r\n\r\nfour,y\r\n')
    found = read_labelled(path)
    assert found.texts == ["one\r\ntwo\n\nthree", "four"]
    assert [place.number for place in found.places] == [2, 7]


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
            "line 3: a quote opens a field here and is not closed within 16,777,216 characters;",
        ),
    ],
)
def test_endless_lines_and_fields_are_refused(
    write: Write, name: str, unit: bytes, fault: str
) -> None:
    content = b'text,label\nshort,x\n"' + unit * 9000
    assert fault in message(write(name, gzip.compress(content, 1)), labels=False)


def test_a_row_without_an_end_is_refused(write: Write) -> None:
    start = b"text,label\nshort,x\n"
    found = message(write("a.csv", start + b'a""b,' * 4_000_000), labels=False)
    assert "line 3: a row of more than 16,777,216 characters; shorten it" in found
    found = message(write("a.csv", start + b'"%s\n",' % (b"a" * 1000) * 20_000), labels=False)
    assert "a quote opens a field here and is not closed within 16,777,216 characters" in found


def test_the_line_where_a_quote_opens_is_named(write: Write) -> None:
    content = 'text,label\n"one\ntwo\n","x\ny",z\n"three\n",x\n"four\n","five\nsix\n'
    found = message(write("a.csv", content), text_column="text", label_column="label")
    assert "line 2: 3 fields" in found
    found = message(write("b.csv", content.replace(",z", "")), labels=False)
    assert "line 9: a quote opens a field here and is never closed" in found


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
    assert [place.number for place in found.places] == [6, 9]


def test_blank_texts_of_a_single_column_are_kept(write: Write) -> None:
    assert texts(write("a.csv", 'text\n""\n  \n" "\nlast\n')) == ["", "  ", " ", "last"]
    assert texts(write("b.csv", '""\n  \nlast\n'), header=False) == ["", "  ", "last"]


def test_lone_carriage_returns_end_csv_lines(write: Write) -> None:
    path = write("a.csv", 'text,label\rone,x\r"two\rlines",y\rthree,z')
    found = read_labelled(path)
    assert found.texts == ["one", "two\rlines", "three"]
    assert [place.number for place in found.places] == [2, 3, 5]


def test_carriage_return_in_a_text_is_no_line_to_count(write: Write) -> None:
    path = write("a.csv", 'text,label\n"one\rmore",x\ntwo,y\n')
    found = read_labelled(path)
    assert found.texts == ["one\rmore", "two"]
    assert [place.number for place in found.places] == [2, 3]
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
    [("null", "None"), ("NaN", "nan")],
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
    assert "write one object per line" in found


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


@pytest.mark.parametrize("sign", ["\x1b[2J", "\x07", "\x9b", "\u2028", "\u202e", "a\tb", "a\nb"])
def test_labels_that_would_drive_a_terminal_are_refused(write: Write, sign: str) -> None:
    path = write("a.csv", f'text,label\none,x\ntwo,"y{sign}z"\n')
    assert f"line 3: the label {f'y{sign}z'!r} holds" in message(path)


def test_a_label_as_long_as_a_text_is_refused(write: Write) -> None:
    # Sorting that many marks would take minutes.
    path = write("a.csv", "text,label\none,x\ntwo," + "\u0301\u0316" * 100_000 + "\n")
    assert "has 200,000 characters, above 1,000; is it a text?" in message(path)


def is_label(text: str) -> bool:
    return bool(text) and not UNPRINTABLE.search(text)


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
LABELS = WORDS.map(str.strip).filter(is_label)
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


@given(
    rows=st.lists(st.tuples(FIELDS, FIELDS.map(str.strip).filter(is_label)), min_size=1, max_size=8)
)
def test_quoted_tsv_reads_back_as_written(rows: list[tuple[str, str]]) -> None:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("text", "label"), *rows])
    assert read_back("a.tsv", buffer.getvalue()) == rows
