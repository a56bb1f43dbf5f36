"""What ``dcnn train`` reads and checks, before anything is trained or encoded."""

import csv

import pytest

from dcnn.artifact import load
from dcnn.cli import app
from dcnn.cli.console import make_console
from dcnn.cli.train import read_corpus
from dcnn.config import Config
from dcnn.data import encode as encode_module
from dcnn.data.readers import TableOptions, read_examples
from dcnn.errors import DataError

NAMES = ("sport", "money", "war")
TEXT = [("the team won", 1, 0), ("the bank paid", 0, 1), ("the team paid", 1, 1), ("so", 0, 0)]


@pytest.fixture
def write_flags(tmp_path):
    def write(name, war):
        with (tmp_path / name).open("w", newline="") as stream:
            rows = [(*row, flag) for row, flag in zip(5 * TEXT, 5 * war, strict=True)]
            csv.writer(stream).writerows([("text", *NAMES), *rows])
        return tmp_path / name

    return write


def test_a_label_column_of_zeros_is_kept_with_a_warning(write_flags, caplog):
    columns = TableOptions(label_columns=NAMES)
    train = write_flags("train.csv", [0, 0, 0, 0])
    test = write_flags("test.csv", [0, 1, 0, 0])  # may have it, as the column is a label
    read, _, _ = read_examples(train, None, test, columns, multi_label=True)
    assert read.classes == ("money", "sport", "war")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "train.csv: no row has a 1 in 'war' of --label-columns" in warnings[0]


def test_columns_in_use_cause_no_warning(write_flags, caplog):
    train = write_flags("train.csv", [0, 1, 0, 0])
    read_examples(train, None, None, TableOptions(label_columns=NAMES), multi_label=True)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_label_of_no_column_is_still_unknown(write_flags):
    columns = TableOptions(label_columns=NAMES[:2])
    train, _, _ = read_examples(
        write_flags("train.csv", [0, 1, 0, 0]), None, None, columns, multi_label=True
    )
    assert train.classes == ("money", "sport")


def test_a_single_column_with_ones_is_nothing_to_learn_from(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text("text,sport,war\nthe team,1,0\nthe bank,0,0\nthe war,0,0\n")
    with pytest.raises(DataError, match="the label 'sport' alone"):
        read_examples(
            path, None, None, TableOptions(label_columns=("sport", "war")), multi_label=True
        )


def test_the_model_has_every_label_that_was_named(write_flags, tmp_path):
    train = write_flags("train.csv", [0, 0, 0, 0])
    options = ["--label-columns", ",".join(NAMES), "--epochs", "1", "--set", "model.kind=nbow"]
    app(["train", str(train), "--out", str(tmp_path / "m"), *options], standalone_mode=False)
    model = load(tmp_path / "m")
    assert model.classes == ("money", "sport", "war")
    assert model.thresholds is not None
    assert len(model.thresholds) == 3


SINGLE, MULTI = '{"text": "a plot", "label": "x"}\n', '{"text": "a plot", "label": ["x", "y"]}\n'


def read(train, dev, test):
    read_corpus(make_console(stderr=True), train, dev, test, TableOptions(), Config())


def test_multi_label_dev_or_test_files_are_refused_before_the_encoding(tmp_path, monkeypatch):
    def encode(*_):
        pytest.fail("the files are encoded already")

    monkeypatch.setattr(encode_module, "encode_files", encode)
    train, other = tmp_path / "train.jsonl", tmp_path / "other.jsonl"
    train.write_text(SINGLE)
    other.write_text(MULTI)
    for dev, test in ((other, None), (None, other)):
        with pytest.raises(DataError, match=r"other.jsonl is multi-label, where .*train"):
            read(train, dev, test)


def test_a_multi_label_corpus_is_refused_on_disk(tmp_path):
    train = tmp_path / "train.jsonl"
    train.write_text(MULTI)
    with pytest.raises(DataError, match="a corpus on disk has one label per row; train in memory"):
        read(train, train, None)


def test_label_options_are_checked_before_anything_is_read():
    with pytest.raises(DataError, match=r"--label-columns text names fewer than two columns"):
        TableOptions(label_columns=("text",))
    with pytest.raises(DataError, match=r"--labels-separator must not be empty"):
        TableOptions(labels_separator="")
