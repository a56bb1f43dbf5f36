"""The demo with its real DCNN: it is the first thing a new user sees.

Max-TDNN and NBoW take most of its time, so they are trained for two epochs; results/opinions has
their accuracies after all eight.
"""

import re

import pytest

from command_line import run_here
from dcnn.artifact import load
from dcnn.config import default_of
from dcnn.predictor import Predictor


def brief_baselines(kind):
    return default_of(kind) if kind == "dcnn" else default_of(kind).with_training(epochs=2)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcnn.cli.demo.default_of", brief_baselines)
        done = run_here(folder, ["demo"], b"", {"COLUMNS": "100"})
    assert done.code == 0, done.err
    return folder, done.out


def test_the_dcnn_is_far_ahead_of_models_blind_to_structure(shown):
    _, out = shown
    (row,) = re.findall(r"all \(1200\) +(.*)", out)
    dcnn, max_tdnn, nbow, bayes = map(float, row.split())
    assert dcnn >= 90
    assert dcnn > max_tdnn
    assert max(nbow, bayes) <= dcnn - 20


def test_the_networks_are_ensembles_of_the_same_size(shown):
    _, out = shown
    (head,) = (line for line in out.split("\n") if "test accuracy, %" in line)
    assert head.count(" 8 in one ") == 3
    assert '"N in one": an ensemble of N networks' in out


def test_five_predictions_are_shown_with_probabilities(shown):
    _, out = shown
    assert len(re.findall(r"\. +(?:positive|negative) +[01]\.\d{3}", out)) == 5


def test_the_sentence_it_proposes_is_understood(shown):
    folder, out = shown
    (text,) = re.findall(r'predict demo-model "(.*)"', out)
    assert Predictor(load(folder / "demo-model")).predict([text])[0].label == "positive"


def test_the_model_folder_is_written_and_named(shown):
    folder, out = shown
    assert "The DCNN is in demo-model" in out
    model = load(folder / "demo-model")
    assert model.classes == ("negative", "positive")
    assert model.metadata["test_accuracy"] >= 0.9
