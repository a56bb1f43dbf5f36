"""Multi-label models, wherever a model is used."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pyarrow import parquet
from sklearn.base import clone
from sklearn.metrics import f1_score

from dcnn import DCNNClassifier
from dcnn import artifact as model_folder
from dcnn.cli.evaluate import evaluate as evaluate_command
from dcnn.cli.explain import explain as explain_command
from dcnn.cli.predict import predict as predict_command
from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig
from dcnn.data.labels import label_texts
from dcnn.errors import DataError, ModelFolderError, UserError
from dcnn.export import export
from dcnn.export.onnx import open_session, run_onnx
from dcnn.inspection import explain, explain_each
from dcnn.metrics import evaluate_labels
from dcnn.ops.reference import sigmoid
from dcnn.predictor import Predictor
from dcnn.serve.models import prediction_response
from untrained import make_artifact

CLASSES, THRESHOLDS = ("dull", "good", "plot"), (0.3, 0.5, 0.7)
TEXTS = [
    "not dull",
    "the plot is bad",
    "good",
    "very good ending",
    "the acting was bad and dull",
    "",
]
NETWORKS = [
    DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=3),
    MaxTDNNConfig(dim=8),
    NBoWConfig(dim=8),
]


def make_predictor(model=None, classes=CLASSES, thresholds=THRESHOLDS):
    return Predictor(make_artifact(model, classes=classes, thresholds=thresholds))


@pytest.fixture
def folder(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact(classes=CLASSES, thresholds=THRESHOLDS))
    return tmp_path / "model"


@pytest.mark.parametrize("network", NETWORKS, ids=lambda c: c.kind)
def test_probabilities_are_sigmoids_and_labels_those_over_their_thresholds(network, monkeypatch):
    predictor = make_predictor(network)
    monkeypatch.setenv("DCNN_BACKEND", "reference")
    reference = make_predictor(network)
    logits = reference.logits(reference.artifact.encoder.encode_all(TEXTS))
    expected = 1 / (1 + np.exp(-logits.astype(np.float64)))
    np.testing.assert_allclose(predictor.probabilities(TEXTS), expected, atol=1e-6)
    for prediction, row in zip(predictor.predict(TEXTS), expected, strict=True):
        over = {label for label, p, t in zip(CLASSES, row, THRESHOLDS, strict=True) if p >= t}
        assert set(prediction.labels) == over
        ranked = [probability for _, probability in prediction.ranked]
        assert ranked == pytest.approx(sorted(row, reverse=True), abs=1e-6)
        assert [label for label, _ in prediction.ranked_labels] == list(prediction.labels)


def test_one_label_is_the_only_one_of_labels():
    (prediction,) = Predictor(make_artifact()).predict(["good"])
    assert prediction.labels == (prediction.label,)
    assert replace(prediction, abstained=True).labels == ()


def test_lines_json_and_columns_have_the_same_labels(folder, tmp_path, capsys):
    expected = [list(one.labels) for one in Predictor.load(folder).predict(TEXTS)]
    assert [] in expected or any(len(one) > 1 for one in expected)
    predict_command(folder, TEXTS, labels_separator=";")
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [[part for part in line[0].split(";") if part] for line in lines] == expected
    assert [len(line[1].split(";")) if line[1] else 0 for line in lines] == list(map(len, expected))
    predict_command(folder, TEXTS, as_json=True)
    values = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["labels"] for one in values] == expected
    assert all(list(one["probabilities"].values()) == sorted(one["probabilities"].values())[::-1]
               for one in values)  # fmt: skip
    predict_command(folder, TEXTS, output=tmp_path / "o.parquet")
    table = parquet.read_table(tmp_path / "o.parquet")
    assert table.column("labels").to_pylist() == expected
    assert list(map(len, table.column("probabilities").to_pylist())) == list(map(len, expected))


def test_evaluate_scores_the_labels_that_predict_gives(folder, tmp_path, capsys):
    truth = [("dull",), ("plot", "good"), ("good",), (), ("dull",), ()]
    rows = "".join(f"{text}\t{'|'.join(one)}\n" for text, one in zip(TEXTS, truth, strict=True))
    (tmp_path / "d.tsv").write_text("text\tlabels\n" + rows)
    data = tmp_path / "d.tsv"
    multi = {"labels_separator": "|"}
    evaluate_command(folder, data, as_json=True, diagram=tmp_path / "r.svg", **multi)
    found = json.loads(capsys.readouterr().out)
    indicators = np.array([[name in one for name in CLASSES] for one in truth])
    given = np.array([[name in one.labels for name in CLASSES]
                      for one in Predictor.load(folder).predict(TEXTS)])  # fmt: skip
    for average in ("micro", "macro"):
        expected = f1_score(indicators, given, average=average, zero_division=0)
        assert found[f"{average}_f1"] == pytest.approx(expected)
    assert found["thresholds"] == dict(zip(CLASSES, THRESHOLDS, strict=True))
    assert "18 predictions" in (tmp_path / "r.svg").read_text()
    evaluate_command(folder, data, **multi)
    shown = capsys.readouterr().out
    assert "micro F1" in shown
    assert "threshold" in shown
    with pytest.raises(UserError, match=r"--abstain-below 0\.9 is for single-label models"):
        evaluate_command(folder, data, abstain_below=0.9, **multi)
    with pytest.raises(DataError, match=r"line 5: .* is empty.*--labels-separator where"):
        evaluate_command(folder, data)


def test_data_of_the_other_form_is_refused(folder, tmp_path):
    (tmp_path / "one.csv").write_text("text,label\ngood,good\nbad,dull\n")
    (tmp_path / "many.jsonl").write_text('{"text": "good", "labels": ["pos"]}\n')
    with pytest.raises(DataError, match="has one label per row, where the training set of"):
        evaluate_command(folder, tmp_path / "one.csv")
    model_folder.save(tmp_path / "single", make_artifact())
    with pytest.raises(DataError, match="is multi-label, where the training set of"):
        evaluate_command(tmp_path / "single", tmp_path / "many.jsonl")


REFUSALS = {
    "top": ({"top": 2}, "--top 2 is for single-label models"),
    "abstaining": (
        {"abstain_below": 0.5},
        "abstaining below 0.5 is for models that give one label",
    ),
    "abstaining never": ({"abstain_below": 0.0}, "abstaining below 0 is for models"),
    "a separator in a label": (
        {"labels_separator": "u"},
        "'dull' contains the separator 'u'",
    ),
    "no separator": (
        {"labels_separator": ""},
        "--labels-separator '' must be one or more",
    ),
}


@pytest.mark.parametrize(("options", "message"), REFUSALS.values(), ids=REFUSALS)
def test_options_for_single_label_models_are_refused(folder, options, message):
    with pytest.raises(UserError, match=message):
        predict_command(folder, TEXTS, **options)


def test_every_predicted_label_is_explained_and_adds_up_to_its_logit():
    predictor = make_predictor()
    several = 0
    for text in TEXTS[:-1]:
        (prediction,) = predictor.predict([text])
        each = explain_each(predictor, text)
        assert [one.label for one in each] == list(prediction.labels or (prediction.label,))
        several += len(prediction.labels) > 1
        for one in each:
            logits = predictor.logits(predictor.artifact.encoder.encode_all([text]))[0]
            assert one.logit == pytest.approx(logits[one.of_class], abs=1e-5)
            assert sum(one.attributions) + one.biases == pytest.approx(one.logit)
            assert dict(one.prediction.ranked)[one.label] == pytest.approx(
                float(sigmoid(logits)[one.of_class]), abs=1e-6
            )
    assert several


def test_deletions_are_about_the_label_that_is_explained():
    predictor = make_predictor()
    text = "the plot is bad but acting was good"
    words = text.split()
    for number, label in enumerate(CLASSES):
        before = label in predictor.predict([text])[0].labels
        for deletion in explain(predictor, text, label).deletions:
            rest = " ".join(words[: deletion.position] + words[deletion.position + 1 :])
            (shorter,) = predictor.predict([rest])
            probability = float(predictor.probabilities([rest])[0, number])
            assert deletion.label == label
            assert deletion.probability == pytest.approx(probability, abs=1e-6)
            assert deletion.changes == (before != (label in shorter.labels))


def test_the_command_explains_each(folder, capsys):
    given = {one.text: one.labels for one in Predictor.load(folder).predict(TEXTS)}
    text, labels = next(pair for pair in given.items() if len(pair[1]) > 1)
    explain_command(folder, text, as_json=True)
    found = json.loads(capsys.readouterr().out)["explanations"]
    assert [one["class"] for one in found] == list(labels)
    assert found[0]["labels"] == list(labels)
    explain_command(folder, text, labels[1], as_json=True)
    assert json.loads(capsys.readouterr().out)["class"] == labels[1]
    explain_command(folder, text)
    shown = capsys.readouterr().out
    for label in labels:
        assert f"Strongest n-grams for {label}:" in shown


def test_onnx_and_small_folders_keep_head_and_thresholds(folder, tmp_path):
    export(folder, tmp_path / "m.onnx")
    predictor = Predictor.load(folder)
    sentences = predictor.artifact.encoder.encode_all(TEXTS[:-1])
    session = open_session((tmp_path / "m.onnx").read_bytes())
    np.testing.assert_allclose(
        run_onnx(session, predictor.artifact.encoder, sentences),
        predictor.probabilities(TEXTS[:-1]),
        atol=1e-5,
    )
    kept = session.get_modelmeta().custom_metadata_map["thresholds"]
    assert tuple(json.loads(kept)) == THRESHOLDS
    export(folder, tmp_path / "small", dtype="int8")
    assert model_folder.load(tmp_path / "small").thresholds == THRESHOLDS


def test_the_server_gives_labels_for_multi_label_models_only():
    prediction = make_predictor().predict([TEXTS[4]])[0]
    assert prediction_response(prediction)["labels"] == prediction.labels
    (single,) = Predictor(make_artifact()).predict(["good"])
    assert "labels" not in prediction_response(single)


@pytest.mark.parametrize("thresholds", [[0.5], [0.5, 0.5, 2], [0.5, 0.5, "x"], [0.5, True, 0]])
def test_thresholds_that_do_not_fit_are_a_damaged_folder(folder, thresholds):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"thresholds": thresholds}))
    with pytest.raises(ModelFolderError, match="thresholds must be 3 numbers from 0 to 1"):
        model_folder.load(folder)


WORDS = {"a": "apple", "b": "bread", "c": "cheese"}
SETS = [["a"], ["b", "c"], [], ["a", "b"], ["c"], ["b"], ["a", "c"]] * 9
LISTED = [" ".join(["some", *(WORDS[label] for label in one)]) for one in SETS]
MATRIX = np.array([[label in one for label in WORDS] for one in SETS], int)
QUICK = {"dim": 8, "widths": (4,), "maps": (2,), "k_top": 2, "epochs": 12, "batch_size": 4,
         "learning_rate": 0.3}  # fmt: skip


def test_the_classifier_takes_lists_and_matrices_and_gives_matrices(tmp_path):
    by_lists = DCNNClassifier(**QUICK).fit(LISTED, SETS)
    by_matrix = clone(by_lists).fit(LISTED, MATRIX)
    assert by_lists.classes_.tolist() == ["a", "b", "c"]
    assert by_matrix.classes_.tolist() == [0, 1, 2]
    found = by_matrix.predict(LISTED)
    np.testing.assert_array_equal(found, by_lists.predict(LISTED))
    assert found.shape == MATRIX.shape
    assert f1_score(MATRIX, found, average="micro") > 0.9
    right = (found == MATRIX).all(axis=1).mean()
    for model in (by_matrix, by_lists):
        assert model.score(LISTED, MATRIX) == right
    assert by_lists.score(LISTED, SETS) == right
    with pytest.raises(DataError, match="y, text 0: the label 'z' is not in the training set"):
        by_lists.score(LISTED[:2], [["z"], []])
    probabilities = by_matrix.predict_proba(LISTED)
    np.testing.assert_array_equal(found, probabilities >= np.array(by_matrix.thresholds_))
    scores = evaluate_labels(MATRIX, probabilities, by_matrix.thresholds_, "abc")
    assert scores.micro_f1 == pytest.approx(f1_score(MATRIX, found, average="micro"))
    by_lists.save(tmp_path / "m")
    np.testing.assert_array_equal(DCNNClassifier.load(tmp_path / "m").predict(LISTED), found)


WRONG = {
    "a mixture": ([["a"], "b", ["c"]], "label 1 is 'b', where others are lists"),
    "not 0 and 1": (np.array([[0, 2], [1, 0], [1, 1]]), "must hold 0 and 1 only"),
    "one too few": ([["a"], ["b"]], "3 texts and y 2 lists of labels"),
    "two types": ([["a"], [1], []], "some of the labels are strings and some are not"),
    "nothing in a list": ([["a"], [None], ["b"]], "label 1 holds None"),
    "one label": ([["a"], [], ["a"]], "one class only"),
}


@pytest.mark.parametrize(("y", "message"), WRONG.values(), ids=WRONG)
def test_wrong_multi_label_targets_are_refused(y, message):
    with pytest.raises(DataError, match=message):
        DCNNClassifier(**QUICK).fit(["x", "y", "z"], y)


def test_a_dev_set_of_the_other_form_is_refused():
    with pytest.raises(DataError, match="dev is single-label, where y is multi-label"):
        DCNNClassifier(**QUICK).fit(LISTED, SETS, dev=(["x"], ["a"]))
    dev = label_texts(["x", "y", "z"], [["c"], ["b"], []]).with_classes(["a", "b", "c"])
    assert dev.targets.tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 0]]
    with pytest.raises(DataError, match="dev, text 0: the label 'd' is not in the training set"):
        DCNNClassifier(**QUICK).fit(LISTED, SETS, dev=(["x"], [["d"]]))


def test_dicts_and_lists_together_are_multi_label():
    found = label_texts(["x", "y", "z"], [{"a": 0.75, "b": 0.5}, ["b"], []])
    assert found.multi_label
    assert found.classes == ("a", "b")
    assert found.targets.tolist() == [[0.75, 0.5], [0, 1], [0, 0]]
