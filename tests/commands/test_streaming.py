"""What is found out before a large corpus is encoded."""

import pytest

from dcnn.commands import streaming
from dcnn.commands.streaming import read_corpus, read_others
from dcnn.config import Config
from dcnn.data.readers import TableOptions
from dcnn.errors import DataError
from dcnn.terminal import make_console

ONE, SEVERAL = '{"text": "a plot", "label": "x"}\n', '{"text": "a plot", "label": ["x", "y"]}\n'


def test_several_labels_in_dev_or_test_are_refused_before_the_encoding(tmp_path, monkeypatch):
    def encode(*_):
        pytest.fail("the files are encoded already")

    monkeypatch.setattr(streaming, "encode_files", encode)
    train, other = tmp_path / "train.jsonl", tmp_path / "other.jsonl"
    train.write_text(ONE)
    other.write_text(SEVERAL)
    for dev, test in ((other, None), (None, other)):
        others = read_others(dev, test, TableOptions())
        with pytest.raises(DataError, match=r"other.jsonl has several labels a row, where .*train"):
            read_corpus(
                make_console(stderr=True),
                train,
                others,
                TableOptions(),
                Config(),
                holds_out=dev is None,
            )


def test_where_the_corpus_itself_has_several_that_is_what_is_said(tmp_path):
    train = tmp_path / "train.jsonl"
    train.write_text(SEVERAL)
    others = read_others(train, None, TableOptions())
    with pytest.raises(DataError, match="a corpus on disk has one; train in memory"):
        read_corpus(
            make_console(stderr=True), train, others, TableOptions(), Config(), holds_out=False
        )
