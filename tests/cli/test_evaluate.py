import csv
import json
import re

import numpy as np
import pytest

from dcnn import artifact as model_folder
from dcnn.plots import MATRIX_CLASSES, draw_confusion
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
    (predicted,) = re.findall(r"class \d+ +(class \d+) +2", out)
    (tmp_path / "d.csv").write_text(f"text,label\ngood,{predicted}\n")
    assert "most confused" not in dcnn("evaluate", "many", "d.csv").out  # no pair is


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


def test_scores_have_intervals_for_people_and_programs(dcnn, tmp_path, model):
    (tmp_path / "d.csv").write_text(ROWS.format("pos", "neg"))
    scores = json.loads(dcnn("evaluate", model, "d.csv", "--json").out)
    for name in ("accuracy", "macro_f1"):
        low, high = scores["intervals"][name]
        assert 0 <= low <= scores[name] <= high <= 1
    low, high = (100 * end for end in scores["intervals"]["accuracy"])
    out = dcnn("evaluate", model, "d.csv").out
    assert f"accuracy {100 * scores['accuracy']:.2f} % ({low:.1f} to {high:.1f})" in out
    again = json.loads(dcnn("evaluate", model, "d.csv", "--json").out)
    assert again["intervals"] == scores["intervals"]


def test_errors_are_a_table_with_the_words_responsible(dcnn, tmp_path, model):
    texts = ["not dull", "the plot is bad", "good", "very good ending", "bad", "the acting"]
    lines = dcnn("predict", model, "--json", *texts).out.splitlines()
    predicted = [json.loads(line) for line in lines]
    other = {"pos": "neg", "neg": "pos"}
    wrong = (0, 2, 3)
    labels = [
        other[one["label"]] if n in wrong else one["label"] for n, one in enumerate(predicted)
    ]
    rows = "".join(f"{text},{label}\n" for text, label in zip(texts, labels, strict=True))
    (tmp_path / "d.csv").write_text("text,label\n" + rows)
    done = dcnn("evaluate", model, "d.csv", "--errors", "e.csv")
    assert done.code == 0, done.err
    assert "3 of 6 texts are wrong; they are in e.csv." in done.err
    with (tmp_path / "e.csv").open(newline="") as stream:
        found = list(csv.DictReader(stream))
    assert list(found[0]) == ["where", "text", "label", "predicted", "probability", "words"]
    expected = sorted(wrong, key=lambda n: -predicted[n]["probability"])
    assert [row["text"] for row in found] == [texts[n] for n in expected]
    assert [row["where"] for row in found] == [f"d.csv, line {n + 2}" for n in expected]
    for row, n in zip(found, expected, strict=True):
        assert (row["label"], row["predicted"]) == (labels[n], predicted[n]["label"])
        assert float(row["probability"]) == pytest.approx(predicted[n]["probability"], abs=1e-6)
        for item in filter(None, row["words"].split(", ")):  # none where biases decide
            assert re.fullmatch(r"\S+ \+\d+\.\d\d", item)
    assert any(row["words"] for row in found)
    for name in ("e.jsonl", "e.parquet", "e.tsv"):
        assert dcnn("evaluate", model, "d.csv", "--errors", name).code == 0
        assert (tmp_path / name).stat().st_size > 0
    dcnn("evaluate", model, "d.csv", "--errors", "e.jsonl")
    objects = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert [one["text"] for one in objects] == [row["text"] for row in found]


@pytest.mark.parametrize("classes", [2, 12, 150])
def test_the_confusion_matrix_is_a_picture_of_a_size_that_people_can_read(classes):
    pairs = np.array([(n, n, 7) for n in range(classes)] + [(0, 1, 50), (1, 0, 3)])
    names = [f"label <{n}>" for n in range(classes)]
    picture = draw_confusion(pairs, names, "m on d", ".svg").decode()
    assert "label &lt;0&gt;" in picture
    assert ">50<" in re.sub(r"\s", "", picture)
    width = float(re.search(r'width="([\d.]+)pt"', picture)[1])
    assert width < 1100
    if classes > MATRIX_CLASSES:
        assert f"{classes - MATRIX_CLASSES + 1} others" in picture
        assert f"the {MATRIX_CLASSES - 1} classes with most errors of {classes}" in picture
        merged = 7 * (classes - MATRIX_CLASSES + 1)
        assert f">{merged}<" in re.sub(r"\s", "", picture)
    else:
        assert "others" not in picture


def test_the_confusion_matrix_is_written_as_its_suffix_says(dcnn, tmp_path, model):
    (tmp_path / "d.csv").write_text(ROWS.format("pos", "neg"))
    for name, start in (("c.svg", b"<?xml"), ("c.PNG", b"\x89PNG")):
        done = dcnn("evaluate", model, "d.csv", "--confusion", name)
        assert done.code == 0, done.err
        assert f"The confusion matrix is in {name}." in done.err
        assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--confusion", "c.pdf"), "--confusion c.pdf: a picture is an SVG or a PNG; name a file"),
        (("--confusion", "no/c.svg"), "--confusion no/c.svg: there is no folder no; create it"),
        (("--errors", "e.xlsx"), "--errors e.xlsx: the suffix '.xlsx' names no format"),
        (("--errors", "no/e.csv"), "--errors no/e.csv: there is no folder no; create it"),
    ],
)
def test_wrong_names_of_files_are_refused_before_any_work(dcnn, arguments, message):
    done = dcnn("evaluate", "gone", "d.csv", *arguments)
    assert done.code == 2
    assert done.err.startswith(f"dcnn: {message}")
    assert len(done.err.strip().splitlines()) == 1


def test_a_multi_label_model_has_errors_and_no_confusion_matrix(dcnn, tmp_path):
    model_folder.save(
        tmp_path / "several", make_artifact(classes=("a", "b"), thresholds=(0.5, 0.5))
    )
    (tmp_path / "d.csv").write_text("text,labels\ngood,a|b\nbad,\nplot,b\n")
    command = ("evaluate", "several", "d.csv", "--labels-separator", "|")
    refused = dcnn(*command, "--confusion", "c.svg")
    assert refused.code == 2
    assert "--confusion c.svg is for single-label models" in refused.err
    assert dcnn(*command, "--errors", "e.csv").code == 0
    scores = json.loads(dcnn(*command, "--json").out)
    assert scores["intervals"].keys() == {"subset_accuracy", "macro_f1", "micro_f1"}
