import logging
import re

import pytest

from dcnn.data.readers import TableOptions, read_labelled
from reading import Write, message, pairs, texts


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
        ("id,Review Text,n,Label-Name", "7,hello,2,x", ("hello", "x")),
        ("id,headline,n,genre", "7,hello,2,x", ("hello", "x")),
        ("id,title,headline,score,type", "7,hello,no,2,x", ("hello", "x")),
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


def test_named_columns_are_used_without_a_log_line(
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


def test_wrong_separator_is_reported_when_a_column_is_named(write: Write) -> None:
    path = write("a.csv", "text;label\nhello, world;x\n")
    assert "looks separated by semicolons" in message(path, text_column="text")
    assert "looks separated by semicolons" in message(path, labels=False)
    path = write("b.csv", "hello world;x\n")
    assert "looks separated by semicolons" in message(path, header=False)


def test_without_header_columns_are_numbered(write: Write) -> None:
    path = write("a.csv", "\nx,hello\ny,bye\n")
    examples = read_labelled(path, TableOptions(header=False))
    assert (examples.texts, examples.labels) == (["hello", "bye"], ["x", "y"])
    assert [place.number for place in examples.places] == [2, 3]
    path = write("b.tsv", "7\tx\thello\n")
    options = {"text_column": "3", "label_column": "2", "header": False}
    assert pairs(path, **options) == [("hello", "x")]
    assert "the columns are '1', '2', '3'" in message(path, text_column="4", header=False)
