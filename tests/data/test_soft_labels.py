"""Probabilities in place of labels: objects of JSON, structs of Parquet, and columns."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from dcnn.classifier import DCNNClassifier
from dcnn.data.labels import label_texts, number_labels
from dcnn.data.readers import TableOptions, read_examples, read_labelled
from dcnn.data.split import hold_out
from dcnn.errors import DataError

ROWS = [
    ("fine", {"neg": 0.1, "pos": 0.9}),
    ("awful", {"neg": 1.0}),
    ("so so", {"neu": 0.5, "pos": 0.3, "neg": 0.2}),
]
TARGETS = [[0.1, 0, 0.9], [1, 0, 0], [0.2, 0.5, 0.3]]


def write_lines(path, rows=ROWS):
    path.write_text("".join(json.dumps({"text": t, "label": v}) + "\n" for t, v in rows))
    return path


def write_columns(path, rows=TARGETS):
    lines = [
        ",".join([text, *map(str, row)]) + "\n" for (text, _), row in zip(ROWS, rows, strict=True)
    ]
    path.write_text("text,neg,neu,pos\n" + "".join(lines))
    return path


def test_every_format_gives_the_same_targets(tmp_path):
    table = pa.table({"text": [t for t, _ in ROWS], "label": [v for _, v in ROWS]})
    parquet.write_table(table, tmp_path / "a.parquet")
    names = TableOptions(label_columns=("neg", "neu", "pos"), multi_label=False)
    for found in (
        read_labelled(write_lines(tmp_path / "a.jsonl")),
        read_labelled(tmp_path / "a.parquet"),
        read_labelled(write_columns(tmp_path / "a.csv"), names),
    ):
        assert found.classes == ("neg", "neu", "pos")
        assert not found.multi_label
        np.testing.assert_allclose(found.targets, TARGETS, atol=1e-6)
        assert found.labels == ["pos", "neg", "neu"]


def test_labels_and_probabilities_mix(tmp_path):
    found = read_labelled(write_lines(tmp_path / "a.jsonl", [*ROWS, ("good", "pos")]))
    np.testing.assert_allclose(found.targets[-1], [0, 0, 1])


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (
            {"neg": 0.2, "pos": 0.3},
            r"a.jsonl, line 4: the probabilities of .*neg.*pos.* sum to 0.5",
        ),
        ({}, r"line 4: the probabilities of .* sum to 0"),
        (
            {"neg": 1.2, "pos": -0.2},
            r"line 4: the label 'neg' holds 1.2; it must be 1 .* or a probability",
        ),
        ({"neg": "x", "pos": 1}, r"line 4: the label 'neg' holds 'x'"),
        ({"neg": None, "": 1}, r"line 4: the label in 'label' is empty"),
        (["neg"], r"line 4: the label .* is a list of labels, where .* has a single label"),
    ],
)
def test_rows_that_are_no_probabilities_are_named(tmp_path, label, message):
    with pytest.raises(DataError, match=message):
        read_labelled(write_lines(tmp_path / "a.jsonl", [*ROWS, ("odd", label)]))


def test_columns_that_do_not_sum_to_one_are_named(tmp_path):
    path = write_columns(tmp_path / "a.csv", [TARGETS[0], [0.5, 0.2, 0.1], TARGETS[2]])
    names = ("neg", "neu", "pos")
    with pytest.raises(DataError, match=r"a.csv, line 3: .* sum to 0.8; .* pass --multi-label"):
        read_labelled(path, TableOptions(label_columns=names, multi_label=False))
    found = read_labelled(path, TableOptions(label_columns=names))
    assert found.multi_label
    np.testing.assert_allclose(found.targets[1], [0.5, 0.2, 0.1])
    assert found.labels[1] == ("neg",)


def test_objects_of_several_labels_per_text(tmp_path):
    rows = [("a", {"spam": 0.9, "rude": 0.8}), ("b", {"rude": 0.1})]
    found = read_labelled(write_lines(tmp_path / "a.jsonl", rows), TableOptions(multi_label=True))
    assert found.multi_label
    assert found.classes == ("rude", "spam")
    np.testing.assert_allclose(found.targets, [[0.8, 0.9], [0.1, 0]])
    rows = [("a", ["spam"]), ("b", {"rude": 0.7, "spam": 0.7})]
    found = read_labelled(write_lines(tmp_path / "b.jsonl", rows))
    np.testing.assert_allclose(found.targets, [[0, 1], [0.7, 0.7]])


def test_several_soft_labels_count_from_a_half_on_in_dev_and_test(tmp_path):
    rows = [("a", {"spam": 0.9, "rude": 0.2}), ("b", {"rude": 0.5, "spam": 0.1})] * 5
    path = write_lines(tmp_path / "a.jsonl", rows)
    options = TableOptions(multi_label=True)
    train, dev, _ = read_examples(path, path, None, options, multi_label=True)
    assert dev.targets[:2].tolist() == [[0, 1], [1, 0]]
    assert set(np.unique(hold_out(train, 0.4, 0)[1].targets)) == {0, 1}


def test_dev_and_test_count_the_most_probable_label(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", ROWS * 2)
    train, dev, _ = read_examples(path, path, None, TableOptions(), multi_label=True)
    assert train.targets.ndim == 2
    assert dev.targets.tolist() == [2, 0, 1] * 2


@given(st.lists(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_matrix_of_probabilities_is_soft_labels(rows):
    matrix = np.array(rows) / np.sum(rows, axis=1, keepdims=True)
    found = label_texts([str(i) for i in range(len(rows))], matrix)
    assert not found.multi_label
    np.testing.assert_allclose(found.targets, matrix, atol=1e-6)


def test_hard_labels_written_as_probabilities_are_hard_labels():
    hard = number_labels(["a", "b"], ["x", "y"])
    soft = number_labels(["a", "b"], [{"x": 1.0}, {"y": 1.0}])
    assert soft.with_hard_labels().targets.tolist() == hard.targets.tolist()


def test_a_classifier_learns_from_probabilities():
    texts = ["good film", "bad film", "good plot", "bad plot"] * 5
    y = np.array([[0.1, 0.9], [0.8, 0.2]] * 10)
    model = DCNNClassifier(dim=8, epochs=8, dev_fraction=0.2).fit(texts, y)
    assert model.predict(["good film", "bad film"]).tolist() == [1, 0]


def test_training_on_probabilities(dcnn, tmp_path):
    path = write_lines(tmp_path / "a.jsonl", ROWS * 10)
    done = dcnn("train", path, "--out", "m", "--epochs", 1, "--test", path)
    assert done.code == 0, done.err
    done = dcnn("train", path, "--out", "m2", "--stream")
    assert done.code == 2
    assert "train in memory with --no-stream" in done.err
    assert dcnn("evaluate", "m", path).code == 0
