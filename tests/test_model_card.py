"""The card's metadata is what the hub's own client reads, whatever the names and figures are."""

import re
from dataclasses import replace

import pytest
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st

from dcnn.errors import ModelFolderError
from dcnn.model_card import has_front_matter, render_card
from dcnn.text.tokenizer import UNPRINTABLE
from untrained import make_artifact

ARTIFACT = make_artifact()
accuracies = st.floats(0, 1)


def read(name="m", metadata=None, **others) -> ModelCard:
    card = render_card(name, replace(ARTIFACT, metadata=metadata or {}, **others))
    assert has_front_matter(card)
    return ModelCard(card.encode("utf-8", "replace").decode())


@given(st.text(min_size=1), st.text(min_size=1), accuracies, accuracies)
def test_the_hub_reads_the_scores(name, data, dev, test):
    metadata = {"data": data, "dev_accuracy": dev, "test_accuracy": test}
    metadata = read(name, metadata).data
    assert metadata.library_name == "dcnn"
    assert metadata.pipeline_tag == "text-classification"
    first, second = metadata.eval_results
    assert (first.dataset_split, second.dataset_split) == ("dev", "test")
    assert [first.metric_value, second.metric_value] == pytest.approx([dev, test], abs=1e-6)
    if data.isprintable():
        assert first.dataset_name == data
    if name.isprintable():
        assert metadata.model_name == name


@given(st.text(), st.text())
def test_nothing_in_a_card_drives_a_terminal(name, data):
    card = render_card(f"{name}\x1b[31m", replace(ARTIFACT, metadata={"data": f"{data}\x9b\u202e"}))
    assert not UNPRINTABLE.search(card.replace("\n", ""))


@pytest.mark.parametrize("dev", [None, float("nan"), float("inf"), "0.9", True])
def test_a_missing_score_is_left_out(dev):
    assert read(metadata={"data": "d.csv", "dev_accuracy": dev}).data.eval_results is None


def test_rounded_weights_have_no_scores_in_the_metadata():
    card = read(metadata={"dev_accuracy": 0.9}, dtype="int8")
    assert card.data.eval_results is None
    assert "those of the float32 weights" in card.text


def test_a_multi_label_card_has_f1_and_thresholds():
    metadata = {"dev_accuracy": 0.25, "dev_micro_f1": 0.75, "test_micro_f1": 0.5}
    card = read(metadata=metadata, thresholds=(0.3, 0.4))
    found = [(one.metric_type, one.metric_value, one.metric_name) for one in card.data.eval_results]
    assert found == [
        ("f1", 0.75, "micro F1 on dev, which chose the epoch"),
        ("f1", 0.5, "micro F1 on test"),
    ]
    card = render_card("m", replace(ARTIFACT, classes=("a|b", "c"), thresholds=(0.3, 0.4)))
    assert "| a\\|b | 0.3 |" in card


SCORE = {"examples": 9, "teacher": 0.9, "student": 0.875, "agreement": 0.8}
DISTILLED = {
    "teacher": "a large\nmodel",
    "labelled": 1000,
    "unlabelled": 20_000,
    "augmented": 3,
    "teacher_weight": 0.7,
    "dev": SCORE,
    "test": None,
    "teacher_seconds_per_text": 0.0123456,
    "student_seconds_per_text": 4e-05,
    "teacher_bytes": 438_000_000,
}


def test_a_distilled_card_compares_teacher_and_student():
    card = read(metadata={"epochs": 3, "distillation": DISTILLED}).text
    assert "| teacher | 90.00 % | 12,346 us | 438.00 MB |" in card
    assert re.search(r"\| student \| 87.50 % \| 40 us \(cpu\) \| \d+ KB \|", card)
    assert "The student agrees with it on 80.00 % of the texts of dev." in card
    assert "1,000 labelled, 20,000 unlabelled and 3 augmented texts." in card
    assert "| epochs | 3 |" in card
    assert "distillation" not in card


def test_a_multi_label_distilled_card_has_f1_and_the_device_of_the_teacher():
    more = {"test": SCORE | {"student": 0.5}, "teacher_device": "cuda", "excluded": 7}
    metadata = {"distillation": DISTILLED | more | {"teacher_bytes": None}}
    card = read(metadata=metadata, thresholds=(0.3, 0.4)).text
    assert "|  | dev micro F1 | test micro F1 | time per text | size |" in card
    assert "| teacher | 90.00 % | 90.00 % | 12,346 us (cuda) | unknown |" in card
    assert "and 80.00 % of the labels of test." in card
    assert "3 augmented texts; 7 that occur in dev or test were left out." in card
    metadata["distillation"]["dev_from_teacher"] = True
    card = read(metadata=metadata, thresholds=(0.3, 0.4)).text
    assert "80.00 % of the labels of 9 unlabelled texts, by which it was selected." in card
    card = read(metadata={"distillation": DISTILLED | {"teacher_seconds_per_text": None}}).text
    assert "| teacher | 90.00 % | unknown | 438.00 MB |" in card


def test_scores_are_filed_under_the_file_they_were_measured_on():
    scores = {"data": "train.csv", "dev_accuracy": 0.5, "test_accuracy": 0.25}
    files = {"dev_data": "dev.csv", "test_data": "test.csv"}
    for metadata, names in (
        (scores, ["train.csv", "train.csv"]),
        (scores | files, ["dev.csv", "test.csv"]),
    ):
        found = read(metadata=metadata).data.eval_results
        assert [one.dataset_name for one in found] == names
        assert [one.dataset_type for one in found] == names


def test_a_distilled_card_says_how_it_was_timed_and_what_was_left_out():
    timed = {"excluded": 7, "repeated": 1200, "teacher_timed_while_labelling": False}
    card = read(metadata={"distillation": DISTILLED | timed}).text
    left_out = "7 that occur in dev or test and 1,200 that occur in the labelled texts were left"
    assert left_out in card
    assert "The time is that of one text at a time on one CPU core." in card
    timed["teacher_timed_while_labelling"] = True
    card = read(metadata={"distillation": DISTILLED | timed}).text
    assert "on one CPU core; that of the teacher is the mean of all that it labelled." in card
    assert "CPU core" not in read(metadata={"distillation": DISTILLED}).text  # of an older version


@pytest.mark.parametrize(
    "record",
    [
        {name: value for name, value in DISTILLED.items() if name != "dev"},
        DISTILLED | {"labelled": "many"},
        DISTILLED | {"teacher": None},
        DISTILLED | {"dev": {}},
        [],
        None,
    ],
)
def test_damaged_metadata_of_a_distilled_model_is_named(record):
    with pytest.raises(
        ModelFolderError, match=r"the entry 'distillation' .* is damaged \(.*remove"
    ):
        read(metadata={"distillation": record})


@pytest.mark.parametrize(
    ("card", "answer"),
    [
        ("", False),
        ("# m", False),
        ("---\na: 1\n---\n", True),
        ("---\nno end", False),
        ("---", False),
    ],
)
def test_front_matter_is_between_two_fences(card, answer):
    assert has_front_matter(card) is answer
