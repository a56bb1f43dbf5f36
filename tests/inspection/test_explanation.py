"""One object that holds all, made by one call."""

import json
import subprocess
import sys

import pytest

from dcnn import artifact as model_folder
from dcnn.config import NBoWConfig
from dcnn.errors import DataError, UserError
from dcnn.inspection import explain, to_networkx
from dcnn.predictor import Predictor
from untrained import make_artifact

TEXT = "The plot is not dull, but the ending was xyzzy."


@pytest.fixture
def predictor():
    return Predictor(make_artifact(classes=("bad", "good", 3)))


def test_it_explains_the_predicted_class(predictor):
    found = explain(predictor, TEXT)
    assert found.prediction == predictor.predict([TEXT])[0]
    assert found.label == found.prediction.label
    assert " ".join(found.words) == "the plot is not dull , but the ending was xyzzy ."
    assert found.unknown == (10,)
    assert found.logit == pytest.approx(sum(found.attributions) + found.biases)
    assert found.changes == [deletion for deletion in found.deletions if deletion.changes]
    assert len(found.deletions) == len(found.words)
    assert found.picture().label == found.label
    assert to_networkx(found.graph).number_of_nodes() == len(found.graph.nodes) + 1


@pytest.mark.parametrize("of_class", ["bad", "good", 3, "3"])
def test_any_class_can_be_explained(predictor, of_class):
    found = explain(predictor, TEXT, of_class)
    assert str(found.label) == str(of_class)
    assert (
        found.attributions
        != explain(predictor, TEXT, "good" if of_class == "bad" else "bad").attributions
    )


def test_its_plain_values_are_json(predictor):
    values = json.loads(json.dumps(explain(predictor, TEXT, "bad").to_dict()))
    assert values["class"] == "bad"
    assert [word["word"] for word in values["words"] if not word["known"]] == ["xyzzy"]
    attribution = sum(word["attribution"] for word in values["words"])
    assert attribution + values["biases"] == pytest.approx(values["logit"])
    assert sum(values["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert len(values["deletions"]) == len(values["words"])
    assert values["closest_choices"][0]["margin"] <= values["closest_choices"][-1]["margin"]
    assert values["picture"]["share"] == pytest.approx(
        values["picture"]["contributions"] / values["logit"]
    )


@pytest.mark.parametrize("text", ["good", "xyzzy", "👍🏽 電影", "مرحبا بالعالم", "good " * 200])
def test_awkward_texts_are_explained_and_drawn(predictor, tmp_path, text):
    found = explain(predictor, text)
    for ending in ("svg", "html", "json", "graphml", "png"):
        found.save(tmp_path / f"graph.{ending}")
        assert (tmp_path / f"graph.{ending}").stat().st_size > 500


@pytest.mark.parametrize(
    ("text", "of_class", "error", "message"),
    [
        ("", None, UserError, "the text has no words"),
        (" \n", None, UserError, "the text has no words"),
        ("good " * 1001, None, UserError, "1,001 words.*give 1,000 or fewer"),
        ("good", "great", UserError, "no class 'great'; its classes are bad, good, 3"),
        (["good"], None, DataError, "must be a string"),
    ],
)
def test_mistakes_are_answered(predictor, text, of_class, error, message):
    with pytest.raises(error, match=message):
        explain(predictor, text, of_class)


def test_a_model_without_a_graph_is_refused():
    with pytest.raises(UserError, match="the model is of the kind nbow"):
        explain(Predictor(make_artifact(NBoWConfig(dim=5))), "good")


def test_explaining_needs_numpy_and_safetensors_only(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact())
    refused = ("torch", "sklearn", "scipy", "rich", "typer", "networkx", "matplotlib")
    script = (
        "import sys\n"
        f"sys.modules |= dict.fromkeys({refused})\n"
        "from dcnn import Predictor, explain\n"
        "found = explain(Predictor.load('model'), 'not good')\n"
        "for ending in ('svg', 'html', 'json'): found.save('graph.' + ending)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "graph.html").exists()
