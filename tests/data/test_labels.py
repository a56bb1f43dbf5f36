"""Multi-label files: every format gives the same labels, and a change of format is refused."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dcnn.data.labels import LabelledTexts, check_form, check_training_labels
from dcnn.data.readers import (
    TableOptions,
    read_labelled,
)
from dcnn.errors import DataError

TEXTS = ["good and long", "short", "nothing to say", "long"]
SETS = [("long", "praise"), (), (), ("long",)]
NAMES = ("long", "praise")


def write_json(path, labels=None):
    rows = zip(TEXTS, SETS if labels is None else labels, strict=True)
    path.write_text("".join(json.dumps({"text": t, "labels": v}) + "\n" for t, v in rows))
    return path


def write_cells(path, separator="|", suffix=""):
    rows = [
        f"{t}\t{separator.join(s)}{suffix if s else ''}\n" for t, s in zip(TEXTS, SETS, strict=True)
    ]
    path.write_text("text\tlabels\n" + "".join(rows))
    return path


def write_flags(path, yes="1", no="0"):
    rows = [
        ",".join([text, *(yes if name in labels else no for name in NAMES)]) + "\n"
        for text, labels in zip(TEXTS, SETS, strict=True)
    ]
    path.write_text("text,long,praise\n" + "".join(rows))
    return path


def write_parquet(path, type_=None):
    labels = pa.array([list(labels) for labels in SETS], type_ or pa.list_(pa.string()))
    parquet.write_table(pa.table({"text": TEXTS, "labels": labels}), path)
    return path


WAYS = {
    "JSON arrays": (lambda f: write_json(f / "d.jsonl"), TableOptions()),
    "a separator": (lambda f: write_cells(f / "d.tsv"), TableOptions(labels_separator="|")),
    "one too many": (
        lambda f: write_cells(f / "d.tsv", " ; ", ";"), TableOptions(labels_separator=";"),
    ),
    "flags": (lambda f: write_flags(f / "d.csv"), TableOptions(label_columns=NAMES)),
    "flags in words": (
        lambda f: write_flags(f / "d.csv", "True", "no"), TableOptions(label_columns=NAMES),
    ),
    "Parquet lists": (lambda f: write_parquet(f / "d.parquet"), TableOptions()),
    "large lists": (
        lambda f: write_parquet(
            f / "d.parquet", pa.large_list(pa.dictionary(pa.int8(), pa.string()))
        ),
        TableOptions(),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("write", "options"), WAYS.values(), ids=WAYS)
def test_every_multi_label_format_gives_the_same_labels(tmp_path, write, options):
    found = read_labelled(write(tmp_path), options)
    assert found.multi_label
    assert found.texts == TEXTS
    assert found.labels == SETS
    expected = [[1, 1], [0, 0], [0, 0], [1, 0]]
    np.testing.assert_array_equal(found.targets, expected)
    assert found.select([3, 0]).labels == [SETS[3], SETS[0]]


def test_indicator_columns_may_be_numbers_or_booleans(tmp_path):
    table = pa.table({"text": TEXTS, "long": [True, False, False, True], "praise": [1, 0, 0, 0]})
    parquet.write_table(table, tmp_path / "d.parquet")
    found = read_labelled(tmp_path / "d.parquet", TableOptions(label_columns=NAMES))
    assert found.labels == SETS


def test_a_label_given_twice_or_with_space_around_it_counts_once(tmp_path):
    path = write_json(tmp_path / "d.jsonl", [["a", " a ", "b"], ["a"], [], [3, True]])
    assert read_labelled(path).labels == [("a", "b"), ("a",), (), ("3", "true")]


REFUSED = {
    "lists, then strings": (
        [(["a"], ["b"], [], ["a"]), ("a", "b", "b", "a")], {},
        r"2\.jsonl, line 1: the label 'a' is a single label, where .*1\.jsonl has a list of labels",
    ),
    "strings, then lists": (
        [("a", "b", "b", "a"), (["a"], ["b"], [], ["a"])], {},
        r"2\.jsonl, line 1: .* is a list of labels, where .*1\.jsonl has a single label",
    ),
    "lists of strings, then of integers": (
        [(["a"], ["b"], [], ["a"]), ([1], [], [], [2])], {},
        r"2\.jsonl, line 1: the label 1 is an integer, where .*1\.jsonl has a string",
    ),
    "both in one file": (
        [(["a"], "b", [], ["a"])], {}, r"1\.jsonl, line 2: the label 'b' is a single label",
    ),
    "a list in a list": (
        [([["a"]], [], [], [])], {},
        r"line 1: the label in 'labels' is \['a'\]; it must be a string",
    ),
    "nothing for a list": ([(["a"], None, [], [])], {}, r"line 2: the labels are missing \(None\)"),
    "an empty name": ([(["a", " "], [], [], [])], {}, r"line 1: the label in 'labels' is empty"),
    "no such flag": (
        [(["a"], [], [], [])], {"label_columns": ("labels", "lables")},
        r"--label-columns 'lables' is no column; .*did you mean 'labels'",
    ),
    "one flag": ([(["a"], [], [], [])], {"label_columns": ("labels",)}, "fewer than two columns"),
    "not a flag": (
        [("maybe", "1", "0", "0")], {"label_columns": ("labels", "text")},
        "--text-column and --label-columns both name 'text'",
    ),
    "two ways at once": (
        [(["a"], [], [], [])], {"label_columns": ("a", "b"), "labels_separator": "|"},
        "--label-columns and --labels-separator",
    ),
    "an empty separator": ([("a", "b", "c", "d")], {"labels_separator": ""}, "must not be empty"),
}  # fmt: skip


@pytest.mark.parametrize(("shards", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_a_change_of_label_format_is_refused_at_its_row(tmp_path, shards, options, message):
    for number, labels in enumerate(shards, start=1):
        write_json(tmp_path / f"{number}.jsonl", labels)
    source = tmp_path if len(shards) > 1 else tmp_path / "1.jsonl"
    with pytest.raises(DataError, match=message):
        read_labelled(source, TableOptions(text_column="text", **options))


def test_an_indicator_that_is_neither_0_nor_1_is_named(tmp_path):
    write_flags(tmp_path / "d.csv", "1", "maybe")
    with pytest.raises(DataError, match=r"line 3: the label column 'long' holds 'maybe'"):
        read_labelled(tmp_path / "d.csv", TableOptions(label_columns=NAMES))


def test_a_shard_of_lines_without_a_separator_does_not_go_with_lists(tmp_path):
    write_json(tmp_path / "1.jsonl")
    (tmp_path / "2.csv").write_text("text,labels\nx,long\n")
    with pytest.raises(DataError, match=r"2\.csv, line 2: the label 'long' is a single label"):
        read_labelled(tmp_path)
    found = read_labelled(tmp_path, TableOptions(labels_separator="|"))
    assert found.labels == [*SETS, ("long",)]


def test_a_shard_without_one_of_the_label_columns_is_named(tmp_path):
    write_flags(tmp_path / "1.csv")
    (tmp_path / "2.csv").write_text("text,long\nx,1\n")
    with pytest.raises(DataError, match=r"2\.csv has no column 'praise', which .*1\.csv has"):
        read_labelled(tmp_path, TableOptions(label_columns=NAMES))


def test_too_few_and_unknown_labels_are_reported(tmp_path):
    found = read_labelled(write_json(tmp_path / "d.jsonl"))
    check_training_labels(found, splits=True)  # one example of a label is enough here
    found.with_classes(NAMES)
    with pytest.raises(DataError, match=r"line 1: the label 'praise' is not in the training set"):
        found.with_classes(["long", "prais"])
    for labels, message in (
        ([["x"], [], [], ["x"]], "the label 'x' alone"),
        ([[]] * 4, "no label"),
    ):
        alone = read_labelled(write_json(tmp_path / "e.jsonl", labels))
        with pytest.raises(DataError, match=message):
            check_training_labels(alone, splits=True)
    with pytest.raises(DataError, match="is multi-label, where t has one label per row"):
        check_form(found, multi_label=False, of="t")
    single = read_labelled(write_json(tmp_path / "f.jsonl", ["a", "b", "a", "b"]))
    with pytest.raises(DataError, match="one label per row, where t is multi-label"):
        check_form(single, multi_label=True, of="t")


def test_soft_targets_are_numbered_by_other_classes():
    targets = np.array([[0.7, 0.3, 0], [0, 0.4, 0.6]], np.float32)
    examples = LabelledTexts(["x", "y"], targets, ("a", "b", "c"), source="soft")
    assert examples.labels == ["a", "c"]
    found = examples.with_classes(["c", "b", "a", "d"])
    np.testing.assert_array_equal(found.targets, targets[:, [2, 1, 0, 0]] * [1, 1, 1, 0])
    with pytest.raises(DataError, match="soft, text 1: the label 'c' is not in the training set"):
        examples.with_classes(["a", "b"])


def test_a_label_column_that_is_named_twice_counts_once(tmp_path):
    write_flags(tmp_path / "d.csv")
    found = read_labelled(tmp_path / "d.csv", TableOptions(label_columns=(*NAMES, NAMES[0])))
    assert found.classes == NAMES
    assert found.labels == SETS
