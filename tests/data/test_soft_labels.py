"""Probabilities in place of labels: objects of JSON, structs and maps of Parquet, columns."""

import json
from dataclasses import replace

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
        ({}, r"line 4: probabilities of no label sum to 0"),
        (
            {"neg": 1.2, "pos": -0.2},
            r"line 4: the label 'neg' holds 1.2; it must be 1 .* or a probability",
        ),
        ({"neg": "x", "pos": 1}, r"line 4: the label 'neg' holds 'x'"),
        ({"neg": None, "": 1}, r"line 4: the label in 'label' is empty"),
        ({"neg": 0.5, " neg": 0.5}, r"line 4: two names in .* are one label"),
    ],
)
def test_rows_that_are_no_probabilities_are_named(tmp_path, label, message):
    with pytest.raises(DataError, match=message):
        read_labelled(write_lines(tmp_path / "a.jsonl", [*ROWS, ("odd", label)]))


@pytest.mark.parametrize(
    ("labels", "multi_label", "message"),
    [
        (["pos", ["neg"]], None, r"line 2: .* is a list of labels, where .* has a single label"),
        ([["pos"], "neg"], None, r"line 2: .* is a single label, .* or pass --multi-label"),
        ([["pos"], ["neg", "pos"]], False, r"line 2: .* has 2 labels, and --single-label allows"),
        ([["pos"], []], False, r"line 2: \[\] has 0 labels, and --single-label allows one"),
        # Of probabilities it is only known in the end that they are not multi-label.
        ([{"a": 0.9, "b": 0.8}, {"a": 1}], None, r"line 1: .* sum to 1.7; .* --multi-label"),
        ([{"a": 0.9, "b": 0.8}, "a"], None, r"line 1: .* sum to 1.7"),
        ([{"a": 0.9, "b": 0.8}, {"a": 1}], False, r"line 1: .* sum to 1.7"),
        ([{"a": 0.9}, None], True, r"line 2: the labels are missing"),
    ],
)
def test_labels_that_do_not_fit_together_are_named(tmp_path, labels, multi_label, message):
    path = write_lines(tmp_path / "a.jsonl", [("text", label) for label in labels])
    with pytest.raises(DataError, match=message):
        read_labelled(path, TableOptions(multi_label=multi_label))


def test_single_label_takes_lists_of_one_label(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [("a", ["x"]), ("b", "y"), ("c", ["x", "x"])])
    found = read_labelled(path, TableOptions(multi_label=False))
    assert not found.multi_label
    assert found.labels == ["x", "y", "x"]
    (tmp_path / "a.csv").write_text("text,label\na,x|y\n")
    with pytest.raises(DataError, match=r"a.csv, line 2: 'x\|y' has 2 labels"):
        read_labelled(tmp_path / "a.csv", TableOptions(labels_separator="|", multi_label=False))


def test_a_label_that_occurs_twice_in_a_map_is_named(tmp_path):
    kind = pa.map_(pa.string(), pa.float32())
    labels = pa.array([[("x", 1.0)], [("x", 0.5), ("x", 0.5)]], kind)
    parquet.write_table(pa.table({"text": ["a", "b"], "label": labels}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet, row 2: a label occurs twice"):
        read_labelled(tmp_path / "a.parquet")


# Soft labels and hard ones; a hard one as the format writes it, or in a file of its own.
SINGLE = ([{"x": 0.25, "y": 0.75}, {"x": 0.5, "y": 0.5}], ["x", "y"], [[0.25, 0.75], [0.5, 0.5]])
MULTI = ([{"x": 0.9, "y": 0.75}, {"x": 0.0, "y": 0.1}], [["x"], []], [[0.9, 0.75], [0, 0.1]])
HARD = {False: [[1, 0], [0, 1]], True: [[1, 0], [0, 0]]}
FORMATS = ("columns", "object", "struct", "map")


def write_soft(folder, form, soft, hard, multi_label, order):
    """Files of soft labels and of hard ones, in this order; returns what to read them with."""
    folder.mkdir()
    options = TableOptions(multi_label=multi_label)
    rows = [row for part in order for row in {"soft": soft, "hard": hard}[part]]
    if form == "columns":
        shares = [
            [row.get(c, 0) if isinstance(row, dict) else int(c in row) for c in "xy"]
            for row in rows
        ]
        lines = [f"text {i},{x},{y}\n" for i, (x, y) in enumerate(shares)]
        (folder / "a.csv").write_text("text,x,y\n" + "".join(lines))
        return folder, replace(options, label_columns=("x", "y"))
    if form == "object":
        write_lines(folder / "a.jsonl", [(f"text {i}", row) for i, row in enumerate(rows)])
        return folder, options
    for number, part in enumerate(order):  # a column of Parquet has one type
        kind = {"struct": None, "map": pa.map_(pa.string(), pa.float32())}[form]
        labels = pa.array([list(row.items()) if kind else row for row in soft], kind)
        labels = labels if part == "soft" else pa.array(hard)
        table = pa.table({"text": [f"text {number} {i}" for i in range(2)], "label": labels})
        parquet.write_table(table, folder / f"{number}.parquet")
    return folder, options


@pytest.mark.parametrize("held_out", ["hard labels", "the same format"])
@pytest.mark.parametrize("order", [("soft",), ("soft", "hard"), ("hard", "soft")])
@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("form", FORMATS)
def test_soft_labels_alone_and_mixed_in_every_format(tmp_path, form, multi_label, order, held_out):
    soft, hard, shares = MULTI if multi_label else SINGLE
    path, options = write_soft(tmp_path / "train", form, soft, hard, multi_label, order)
    dev = write_soft(tmp_path / "dev", form, soft, hard, multi_label, ("hard",))[0]
    if held_out == "hard labels":
        dev = write_lines(tmp_path / "dev.jsonl", [("a", hard[0]), ("b", hard[1])])
    train, dev_set, test_set = read_examples(path, dev, dev, options, multi_label=True)
    assert train.multi_label == multi_label
    assert train.classes == ("x", "y")
    expected = [row for part in order for row in (shares if part == "soft" else HARD[multi_label])]
    np.testing.assert_allclose(train.targets, expected, atol=1e-6)
    for part in (dev_set, test_set):
        assert part.labels == ([("x",), ()] if multi_label else ["x", "y"])


@pytest.mark.parametrize("form", FORMATS[1:])
@pytest.mark.parametrize("order", [("soft", "hard"), ("hard", "soft")])
def test_lists_among_objects_make_the_data_multi_label(tmp_path, form, order):
    soft, hard, _ = MULTI
    found = read_labelled(*write_soft(tmp_path / "a", form, soft, hard, None, order))
    assert found.multi_label
    assert found.targets.sum() == pytest.approx(0.9 + 0.75 + 0.1 + 1)


def test_strings_among_objects_are_single_labels_of_multi_label_data(tmp_path):
    rows = [("a", "spam"), ("b", {"rude": 0.7, "spam": 0.8}), ("c", ["rude"]), ("d", "rude")]
    for kept in (rows, rows[1:], rows[::-1]):
        path = write_lines(tmp_path / "a.jsonl", kept)
        found = read_labelled(path, TableOptions(multi_label=True))
        assert found.multi_label
        place = [text for text, _ in kept].index("d")
        np.testing.assert_allclose(found.targets[place], [1, 0])


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
    model = DCNNClassifier(dim=8).fit(texts, y)
    assert model.predict(["good film", "bad film"]).tolist() == [1, 0]


def test_training_on_probabilities(dcnn, tmp_path):
    path = write_lines(tmp_path / "a.jsonl", ROWS * 10)
    done = dcnn("train", path, "--out", "m", "--epochs", 1, "--test", path)
    assert done.code == 0, done.err
    done = dcnn("train", path, "--out", "m2", "--stream")
    assert done.code == 2
    assert "train in memory with --no-stream" in done.err
    assert dcnn("evaluate", "m", path).code == 0
