"""The TREC questions: the reader on small samples, and the counts of the real files."""

import csv

import pytest

from dcnn.artifact import load
from dcnn.data.corpora.trec import read_trec
from dcnn.errors import DataError


def test_questions_have_coarse_and_fine_labels(tmp_path):
    path = tmp_path / "q.label"
    path.write_bytes(b"LOC:city What is the capital of \xf0 ?\nHUM:ind Who ?\n")
    assert read_trec(path).labels == ["LOC", "HUM"]
    assert read_trec(path, fine=True).labels == ["LOC:city", "HUM:ind"]
    assert read_trec(path).texts[0] == "What is the capital of \u00f0 ?"


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"LOC:city A ?\nnonsense\n", "line 2: expected 'COARSE:fine question'"), (b"", "is empty")],
)
def test_a_line_that_is_no_question_is_named(tmp_path, content, message):
    path = tmp_path / "q.label"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_trec(path)


@pytest.mark.corpora
def test_trec_is_learned_from_random_vectors_in_a_minute(corpora, dcnn, tmp_path):
    for name, source in (("train", "train_5500.label"), ("test", "TREC_10.label")):
        questions = read_trec(corpora / "trec" / source)
        with (tmp_path / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
            rows = zip(questions.texts, questions.labels, strict=True)
            csv.writer(stream).writerows([("question", "type"), *rows])
    done = dcnn("train", "train.csv", "--test", "test.csv", "--out", "m")
    assert done.code == 0, done.err
    # Five seeds gave 86.8 or more; the rest is room for another machine's rounding.
    assert load(tmp_path / "m").metadata["test_accuracy"] >= 0.85


@pytest.mark.corpora
def test_trec_has_the_splits_of_the_paper(corpora):
    train = read_trec(corpora / "trec" / "train_5500.label")
    test = read_trec(corpora / "trec" / "TREC_10.label")
    assert (len(train.texts), len(test.texts)) == (5452, 500)
    assert len(set(train.labels)) == 6
    assert len(set(read_trec(corpora / "trec" / "train_5500.label", fine=True).labels)) == 50
