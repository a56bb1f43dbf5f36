import json
import re

import pytest

from dcnn import artifact as model_folder
from untrained import make_artifact

ROWS = "text,label\nnot dull,{0}\nthe plot is bad,{1}\ngood,{0}\n"


@pytest.fixture
def model(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact())
    return "model"


def test_the_scores_are_those_of_the_predictions(dcnn, tmp_path, model):
    (tmp_path / "d.csv").write_text(ROWS.format("pos", "neg"))
    done = dcnn("evaluate", model, "d.csv", "--json")
    assert done.code == 0, done.err
    scores = json.loads(done.out)
    lines = dcnn("predict", model, "not dull", "the plot is bad", "good").out.splitlines()
    predicted = [line.split("\t")[0] for line in lines]
    hits = sum(p == label for p, label in zip(predicted, ["pos", "neg", "pos"], strict=True))
    assert scores["accuracy"] == pytest.approx(hits / 3)
    assert {"macro_f1", "per_class", "confusion", "calibration_error"} <= scores.keys()
    assert scores["per_class"]["pos"]["support"] == 2
    assert scores["labels"] == ["neg", "pos"]


def test_people_get_tables(dcnn, tmp_path, model):
    (tmp_path / "d.csv").write_text(ROWS.format("pos", "neg"))
    out = dcnn("evaluate", model, "d.csv").out
    for word in ("accuracy", "macro F1", "calibration error", "precision", "true \\ predicted"):
        assert word in out


def test_many_classes_are_shown_by_their_worst_pairs(dcnn, tmp_path):
    classes = tuple(f"class {i}" for i in range(20))
    model_folder.save(tmp_path / "many", make_artifact(classes=classes))
    rows = "".join(f"good,class {i}\n" for i in range(20))
    (tmp_path / "d.csv").write_text("text,label\n" + rows)
    assert "most confused" in dcnn("evaluate", "many", "d.csv").out
    (tmp_path / "d.csv").write_text("text,label\n" + "good,class 0\n" + "good,class 1\n" * 2)
    out = dcnn("evaluate", "many", "d.csv").out
    assert re.findall(r"class (\d+) +class \d+ +(\d+)", out) == [("1", "2"), ("0", "1")]


def test_labels_that_look_like_markup_are_just_labels(dcnn, tmp_path):
    model_folder.save(tmp_path / "markup", make_artifact(classes=("[/b]", "[red]x")))
    (tmp_path / "d.csv").write_text(ROWS.format("[/b]", "[red]x"))
    done = dcnn("evaluate", "markup", "d.csv")
    assert done.code == 0, done.err
    assert "[red]x" in done.out


def test_an_unknown_label_is_named_with_its_line(dcnn, tmp_path, model):
    (tmp_path / "d.csv").write_text(ROWS.format("pos", "negg"))
    done = dcnn("evaluate", model, "d.csv")
    assert done.code == 2
    assert "d.csv, line 3" in done.err
    assert "'negg'" in done.err


def test_labels_that_are_numbers_match_their_text(dcnn, tmp_path):
    model_folder.save(tmp_path / "numbers", make_artifact(classes=(0, 1)))
    (tmp_path / "d.csv").write_text(ROWS.format("1", "0"))
    assert dcnn("evaluate", "numbers", "d.csv", "--json").code == 0


def test_evaluate_and_predict_abstain_on_the_same_texts(dcnn, tmp_path, model):
    texts = ["not dull", "the plot is bad", "good", "very good ending", "bad", "the acting"]
    (tmp_path / "d.csv").write_text("text,label\n" + "".join(f"{text},pos\n" for text in texts))
    lines = dcnn("predict", model, "--json", *texts).out.splitlines()
    best = sorted(json.loads(line)["probability"] for line in lines)
    limit = best[3]  # exactly the probability of one of them, which is enough
    done = dcnn("evaluate", model, "d.csv", "--abstain-below", repr(limit), "--json")
    assert done.code == 0, done.err
    answered = json.loads(done.out)["answered"]
    predicted = dcnn("predict", model, "--json", "--abstain-below", repr(limit), *texts)
    labels = [json.loads(line) for line in predicted.out.splitlines()]
    assert [one["abstained"] for one in labels].count(True) == 3
    assert all((one["label"] is None) == one["abstained"] for one in labels)
    assert "3 of 6 texts have no label" in predicted.err
    assert answered["coverage"] == 0.5
    given = [one["label"] for one in labels if not one["abstained"]]
    assert answered["accuracy"] == pytest.approx(given.count("pos") / 3)
    people = dcnn("evaluate", model, "d.csv", "--abstain-below", 1).out
    assert "abstaining below 1: coverage 0.00 %\n" in people


def test_the_reliability_diagram_is_a_picture_beside_the_scores(dcnn, tmp_path, model):
    (tmp_path / "d.csv").write_text(ROWS.format("pos", "neg"))
    done = dcnn("evaluate", model, "d.csv", "--reliability", "r.svg")
    assert done.code == 0, done.err
    assert "The reliability diagram is in r.svg." in done.err
    picture = (tmp_path / "r.svg").read_text()
    assert "model on d.csv" in picture
    assert "3 predictions" in picture
    refused = dcnn("evaluate", model, "d.csv", "--reliability", "r.png")
    assert refused.code == 2
    assert "--reliability r.png: the diagram is an SVG" in refused.err
