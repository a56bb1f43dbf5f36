"""Abstention: the threshold of a target precision, from its choice to every kind of output."""

import csv
import json
import random
import shutil

import numpy as np
import pytest
from fastapi.testclient import TestClient
from pyarrow import parquet

from dcnn import DCNNClassifier, Predictor
from dcnn import artifact as model_folder
from dcnn.errors import DataError, ModelFolderError, UserError
from dcnn.metrics import abstention_record, risk_coverage
from dcnn.serve.app import make_app
from dcnn.serve.models import ServedModel
from dcnn.training import distillation
from untrained import VOCABULARY_TEXT, make_artifact

CLASSES = ("neg", "oos", "pos")
WORDS = VOCABULARY_TEXT.replace(" , .", "").split()
TEXTS = [" ".join(random.Random(n).choices(WORDS, k=1 + n % 9)) for n in range(300)]
OUTSIDE = [" ".join(random.Random(-n).choices(WORDS, k=3)) for n in range(1, 41)]


def labels_of(predictor, texts):
    """Labels on which the model is wrong where it is least confident, every seventh elsewhere."""
    labels = []
    for number, one in enumerate(predictor.predict(texts)):
        wrong = one.probability < 0.45 and number % 7
        labels.append(next(c for c in CLASSES if c != one.label) if wrong else one.label)
    return labels


def write_csv(path, texts, labels):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([("text", "label"), *zip(texts, labels, strict=True)])


@pytest.fixture
def predictor():
    return Predictor(make_artifact(classes=CLASSES))


@pytest.fixture
def model(tmp_path, predictor):
    """A model folder without a threshold, and labelled texts."""
    model_folder.save(tmp_path / "model", predictor.artifact)
    write_csv(tmp_path / "dev.csv", TEXTS, labels_of(predictor, TEXTS))
    (tmp_path / "outside.txt").write_text("\n".join(OUTSIDE) + "\n")
    return "model"


@pytest.fixture
def stored(dcnn, model):
    """The same with a threshold."""
    done = dcnn("evaluate", model, "dev.csv", "--target-precision", 0.8, "--store-threshold")
    assert done.code == 0, done.err
    return model


def record_of(folder):
    return model_folder.load(folder).metadata["abstention"]


def test_evaluate_chooses_a_threshold_that_reaches_the_precision(dcnn, tmp_path, model):
    before = {p.name: p.read_bytes() for p in (tmp_path / "model").iterdir()}
    done = dcnn("evaluate", model, "dev.csv", "--target-precision", 0.8, "--json")
    assert done.code == 0, done.err
    assert {p.name: p.read_bytes() for p in (tmp_path / "model").iterdir()} == before
    found = json.loads(done.out)["abstention"]
    assert found["precision"] > found["precision_bound"] >= 0.8
    limit = repr(found["threshold"])
    again = dcnn("evaluate", model, "dev.csv", "--abstain-below", limit, "--json")
    answered = json.loads(again.out)["answered"]
    assert answered["accuracy"] == found["precision"]
    assert answered["coverage"] == found["coverage"] < 1


def test_a_stored_threshold_is_used_by_every_output_format(dcnn, tmp_path, stored):
    record = record_of(tmp_path / stored)
    expected = Predictor.load(tmp_path / stored).predict(TEXTS, record["threshold"])
    labels = [None if one.abstained else one.label for one in expected]
    assert 0 < labels.count(None) < len(TEXTS)
    (tmp_path / "in.txt").write_text("\n".join(TEXTS) + "\n")
    for option in (("--abstain",), ("--target-precision", 0.8)):
        found = {}
        for name in ("o.tsv", "o.csv", "o.jsonl", "o.parquet"):
            done = dcnn("predict", stored, "--input", "in.txt", "--output", name, *option)
            assert done.code == 0, done.err
            assert f"{labels.count(None)} of 300 texts have no label" in done.err
        _, *lines = (tmp_path / "o.tsv").read_text().splitlines()
        found["tsv"] = [line.split("\t")[1] or None for line in lines]
        with (tmp_path / "o.csv").open(newline="") as stream:
            found["csv"] = [row["label"] or None for row in csv.DictReader(stream)]
        rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
        assert [row["abstained"] for row in rows] == [label is None for label in labels]
        assert all(row["probability"] > 0 for row in rows)
        found["jsonl"] = [row["label"] for row in rows]
        found["parquet"] = parquet.read_table(tmp_path / "o.parquet")["label"].to_pylist()
        assert found == dict.fromkeys(found, labels)
        shutil.rmtree(tmp_path / "scored", ignore_errors=True)
        engine = ("--output", "scored", "--engine", "local")
        assert dcnn("predict", stored, "--input", "in.txt", *engine, *option).code == 0
        (shard,) = (tmp_path / "scored").iterdir()
        assert parquet.read_table(shard)["label"].to_pylist() == labels


def test_server_command_and_python_abstain_on_the_same_texts(dcnn, tmp_path, stored):
    lines = dcnn("predict", stored, "--json", "--abstain", *TEXTS).out.splitlines()
    command = [json.loads(line)["label"] for line in lines]
    predictor = Predictor.load(tmp_path / stored)
    client = TestClient(make_app([ServedModel("m", predictor)]))
    for options in ({"abstain": True}, {"target_precision": 0.8}):
        answer = client.post("/v1/predict", json={"texts": TEXTS, **options}).json()["predictions"]
        assert [one["label"] for one in answer] == command
        assert [one["abstained"] for one in answer] == [label is None for label in command]
        params = {"name": "a.txt", **options}
        content = "\n".join(TEXTS)
        rows = client.post("/v1/predict-file", params=params, content=content).text.splitlines()
        assert [json.loads(row)["label"] for row in rows] == command
        python = [None if p.abstained else p.label for p in predictor.predict(TEXTS, **options)]
        assert python == command
    explained = client.post("/v1/explain", json={"texts": TEXTS[:9], "abstain": True}).json()
    found = [(one["label"], one["abstained"]) for one in explained["explanations"]]
    assert found == [(label, label is None) for label in command[:9]]
    both = client.post("/v1/compare", json={"texts": TEXTS[:2], "abstain": True}).json()
    assert [one["label"] for one in both["explanations"]] == command[:2]
    estimator = DCNNClassifier.load(tmp_path / stored)
    assert estimator.target_precision == 0.8
    assert estimator.predict(TEXTS, abstain=True).tolist() == command
    assert None not in estimator.predict(TEXTS).tolist()
    assert client.post("/v1/predict", json={"text": "good"}).json()["predictions"][0]["label"]


def test_the_server_describes_the_threshold(tmp_path, stored, predictor):
    models = [ServedModel("with", Predictor.load(tmp_path / stored)), ServedModel("no", predictor)]
    client = TestClient(make_app(models))
    first, second = client.get("/v1/models").json()["models"]
    record = record_of(tmp_path / stored)
    assert first["abstention"] == {key: record[key] for key in first["abstention"]}
    assert first["abstention"]["data"] == "dev.csv"
    assert second["abstention"] is None
    for question, message in [
        ({"model": "no", "abstain": True}, "the model stores no threshold of abstention"),
        ({"model": "no", "target_precision": 0.5}, "the model stores no threshold"),
        ({"target_precision": 0.999}, "a precision of 99.9 % cannot be reached on dev.csv"),
        ({"abstain": True, "abstain_below": 0.5}, "abstain_below is a threshold; leave out"),
        ({"abstain": "yes"}, "abstain: input should be a valid boolean"),
    ]:
        answer = client.post("/v1/predict", json={"text": "good", **question})
        assert (answer.status_code, message in answer.json()["error"]) == (422, True), answer.text
    answer = client.post("/v1/explain", json={"text": "good", "model": "no", "abstain": True})
    assert answer.status_code == 422


def test_predict_chooses_another_precision_on_the_stored_curve(dcnn, tmp_path, stored):
    predictor = Predictor.load(tmp_path / stored)
    limits = [predictor.abstention_threshold(p) for p in (0.5, None, 0.85)]
    assert limits[0] < limits[1] < limits[2]
    text = dcnn("predict", stored, "--target-precision", 0.85, *TEXTS)
    below = dcnn("predict", stored, "--abstain-below", repr(limits[2]), *TEXTS)
    assert text.out == below.out
    done = dcnn("predict", stored, "--target-precision", 0.999, "good")
    assert (done.code, done.out) == (2, "")
    assert "a precision of 99.9 % cannot be reached on dev.csv" in done.err


def test_answers_to_out_of_scope_texts_are_errors(dcnn, tmp_path, model):
    option = ("--target-precision", 0.75, "--json")
    plain = json.loads(dcnn("evaluate", model, "dev.csv", *option).out)
    done = dcnn("evaluate", model, "dev.csv", *option, "--out-of-scope-file", "outside.txt")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    strict = found["abstention"]
    assert strict["threshold"] > plain["abstention"]["threshold"]
    assert (strict["examples"], strict["out_of_scope_examples"]) == (300, 40)
    assert found["accuracy"] == plain["accuracy"]
    # The same texts as a label that the model does not know.
    labels = labels_of(Predictor.load(tmp_path / model), TEXTS)
    write_csv(tmp_path / "more.csv", [*TEXTS, *OUTSIDE], [*labels, *["else"] * 40])
    found = json.loads(dcnn("evaluate", model, "more.csv", *option, "--out-of-scope", "else").out)
    assert found["abstention"] == strict | {"data": "more.csv"}
    assert found["risk_coverage"]["out_of_scope_answered"][-1] == 40
    refused = dcnn("evaluate", model, "more.csv", "--out-of-scope", "elsee")
    assert refused.code == 2
    assert "no text has the label of --out-of-scope 'elsee'" in refused.err
    assert "did you mean 'else'" in refused.err


def test_an_out_of_scope_class_is_no_answer(dcnn, tmp_path, model):
    option = ("--target-precision", 0.7, "--out-of-scope", "oos", "--store-threshold", "--json")
    done = dcnn("evaluate", model, "dev.csv", *option)
    assert done.code == 0, done.err
    found = json.loads(done.out)["abstention"]
    predictions = Predictor.load(tmp_path / model).predict(TEXTS, abstain=True)
    assert all(one.abstained for one in predictions if one.label == "oos")
    labels = labels_of(Predictor.load(tmp_path / model), TEXTS)
    answered = [(p, y) for p, y in zip(predictions, labels, strict=True) if not p.abstained]
    hits = sum(p.label == y for p, y in answered)
    assert found["precision"] == hits / len(answered)
    in_scope = [y for _, y in answered if y != "oos"]
    assert found["coverage"] == len(in_scope) / (300 - labels.count("oos"))
    assert found["out_of_scope_answered"] == len(answered) - len(in_scope)
    write = dcnn("predict", model, "--abstain", "--output", "o.parquet", *TEXTS)
    assert write.code == 0, write.err
    assert ", or it is that of oos, which is out of scope" in write.err
    expected = [None if p.abstained else p.label for p in predictions]
    assert parquet.read_table(tmp_path / "o.parquet")["label"].to_pylist() == expected
    limit = repr(found["threshold"])
    again = dcnn("evaluate", model, "dev.csv", "--abstain-below", limit, "--json")
    assert json.loads(again.out)["answered"]["coverage"] == found["coverage"]


def test_an_unreachable_precision_is_one_sentence_and_stores_nothing(dcnn, tmp_path, stored):
    before = (tmp_path / stored / "config.json").read_bytes()
    done = dcnn("evaluate", stored, "dev.csv", "--target-precision", 0.999, "--store-threshold")
    assert done.code == 2
    assert "accuracy" in done.out
    (line,) = done.err.splitlines()[-1:]
    assert line.startswith("dcnn: a precision of 99.9 % cannot be reached on dev.csv: the best is ")
    assert "at a coverage of" in line
    assert (tmp_path / stored / "config.json").read_bytes() == before


def test_a_folder_without_a_threshold_says_how_to_get_one(dcnn, model):
    for option in (("--abstain",), ("--target-precision", 0.9)):
        done = dcnn("predict", model, *option, "good")
        assert (done.code, done.out) == (2, "")
        assert "stores no threshold of abstention; choose one with `dcnn evaluate" in done.err
    for option in ("--abstain", "--target-precision=0.9"):
        done = dcnn("predict", model, option, "--abstain-below", 0.5, "good")
        assert done.code == 2
        assert "both give the threshold" in done.err
    done = dcnn("evaluate", model, "dev.csv", "--store-threshold")
    assert "--store-threshold stores what --target-precision chooses" in done.err


def test_multi_label_models_are_refused(dcnn, tmp_path):
    multi = make_artifact(classes=("a", "b"), thresholds=(0.5, 0.5))
    model_folder.save(tmp_path / "multi", multi)
    (tmp_path / "d.csv").write_text("text,labels\ngood,a|b\nbad,a\nthe plot,b\n")
    for option in (("--target-precision", 0.9), ("--risk-coverage", "r.svg")):
        done = dcnn("evaluate", "multi", "d.csv", "--labels-separator", "|", *option)
        assert done.code == 2
        assert f"{option[0]} {option[1]} is for single-label models" in done.err
    assert "for models that give one label" in dcnn("predict", "multi", "--abstain", "good").err
    done = dcnn(
        "train", "d.csv", "--out", "m", "--labels-separator", "|", "--target-precision", 0.9
    )
    assert done.code == 2
    assert "--target-precision and --out-of-scope are for one label per text" in done.err
    assert not (tmp_path / "m").exists()
    with pytest.raises(DataError, match="target_precision and out_of_scope are for one label"):
        DCNNClassifier(target_precision=0.9).fit(["a", "b", "c"], [["x"], ["y"], ["x", "y"]])


def test_the_curve_is_printed_drawn_and_in_json(dcnn, tmp_path, model):
    options = ("--out-of-scope-file", "outside.txt", "--target-precision", 0.75)
    done = dcnn("evaluate", model, "dev.csv", *options, "--risk-coverage", "r.svg")
    assert done.code == 0, done.err
    assert "The risk-coverage curve is in r.svg." in done.err
    rows = [line.split() for line in done.out.splitlines() if line.count(" % ") >= 2]
    rows = [row for row in rows if row[0] != "accuracy" and row[0] != "Abstaining"]
    shares = [float(row[0]) for row in rows]
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert rows[-1][4] == "340"
    picture = (tmp_path / "r.svg").read_text()
    assert "300 texts, 40 out of scope" in picture
    assert "<circle" in picture
    curve = json.loads(dcnn("evaluate", model, "dev.csv", "--json").out)["risk_coverage"]
    assert curve["coverage"] == sorted(curve["coverage"])
    assert curve["threshold"] == sorted(curve["threshold"], reverse=True)
    assert curve["coverage"][-1] == 1
    scores = json.loads(dcnn("evaluate", model, "dev.csv", "--json").out)
    assert curve["risk"][-1] == pytest.approx(1 - scores["accuracy"])


def test_storing_touches_neither_the_weights_nor_an_edited_card(dcnn, tmp_path, model):
    folder = tmp_path / model
    weights = (folder / "model.safetensors").read_bytes()
    options = ("--target-precision", 0.8, "--store-threshold")
    assert dcnn("evaluate", model, "dev.csv", *options).code == 0
    card = (folder / "README.md").read_text()
    assert "| abstention.target_precision | 0.8 |" in card
    assert "curve" not in card
    (folder / "README.md").write_text("Mine.\n")
    assert dcnn("evaluate", model, "dev.csv", *options).code == 0
    assert (folder / "README.md").read_text() == "Mine.\n"
    assert (folder / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    "damage",
    [
        {"threshold": "high"},
        {"threshold": 2.0},
        {"out_of_scope": "nobody"},
        {"curve": {"threshold": [0.5], "answered": [], "correct": [], "out_of_scope_answered": []}},
        {"curve": None},
        {"examples": None},
        {"precision": float("nan")},
    ],
)
def test_a_damaged_record_is_named(tmp_path, stored, damage):
    path = tmp_path / stored / "config.json"
    values = json.loads(path.read_text())
    values["metadata"]["abstention"] |= damage
    path.write_text(json.dumps(values))
    with pytest.raises(ModelFolderError, match=r"metadata\.abstention is not as"):
        Predictor.load(tmp_path / stored)


SMALL = {"dim": 8, "widths": (4, 3), "maps": (2, 3), "k_top": 2, "epochs": 6, "batch_size": 4}
SETTINGS = [f"--set={'training' if k in ('epochs', 'batch_size') else 'model'}.{k}={list(v) if isinstance(v, tuple) else v}" for k, v in SMALL.items()]  # fmt: skip  # noqa: E501
HARD = [" ".join(random.Random(n).choices(["film", "plot", "it"], k=3)) for n in range(120)]
TRAIN = [f"{text} {'good' if n % 2 else 'bad'}" for n, text in enumerate(HARD)]
LABELS = ["pos" if n % 2 else "neg" for n in range(120)]
NOISY = [LABELS[n + (n % 9 == 0)] for n in range(60)]


def test_training_stores_the_curve_and_the_threshold_of_a_precision(dcnn, tmp_path):
    write_csv(tmp_path / "t.csv", TRAIN, LABELS)
    write_csv(tmp_path / "d.csv", TRAIN[:60], NOISY)
    command = ("train", "t.csv", "--dev", "d.csv", *SETTINGS)
    assert dcnn(*command, "--out", "plain").code == 0
    plain = record_of(tmp_path / "plain")
    assert "threshold" not in plain
    assert plain["curve"]["answered"][-1] == plain["examples"] == 60
    done = dcnn(*command, "--out", "m", "--target-precision", 0.7, "--test", "d.csv")
    assert done.code == 0, done.err
    assert "Abstaining below 0." in done.err
    trained = done
    record = record_of(tmp_path / "m")
    assert record["precision_bound"] >= record["target_precision"] == 0.7
    assert record["data"] == "dev"
    weights = [(tmp_path / m / "model.safetensors").read_bytes() for m in ("plain", "m")]
    assert weights[0] == weights[1]
    limit = repr(record["threshold"])
    done = dcnn("evaluate", "m", "d.csv", "--json", "--abstain-below", limit)
    assert json.loads(done.out)["answered"]["accuracy"] == record["precision"]
    assert record["precision"] < 1
    share, right = 100 * record["coverage"], 100 * record["precision"]
    assert f"coverage {share:.2f} %, accuracy when answered {right:.2f} %" in trained.err
    assert Predictor.load(tmp_path / "plain").abstention_threshold(0.7) > 0


def test_a_dev_set_with_the_labels_of_a_teacher_decides_nothing():
    record = abstention_record(risk_coverage(np.array([0]), np.array([[0.9, 0.1]])), "dev")
    artifact = make_artifact()
    artifact.metadata["abstention"] = record
    score = distillation.Score(1, 1.0, 1.0, 1.0)
    fields = dict.fromkeys(distillation.Distillation.__dataclass_fields__, 0) | {"dev": score}
    for from_teacher in (False, True):
        how = distillation.Distillation(**fields | {"dev_from_teacher": from_teacher})
        assert ("abstention" in how.added_to(artifact).metadata) != from_teacher


def test_training_saves_a_model_whose_precision_is_not_reached(dcnn, tmp_path):
    write_csv(tmp_path / "t.csv", TRAIN, LABELS)
    done = dcnn("train", "t.csv", "--out", "m", *SETTINGS, "--target-precision", 0.99)
    assert done.code == 2
    assert (
        "a precision of 99 % cannot be reached on 5 folds of the training set: the best is"
        in done.err
    )
    assert done.err.splitlines()[-1].endswith("the model is saved without a threshold")
    assert "threshold" not in record_of(tmp_path / "m")
    assert dcnn("predict", "m", "good").code == 0


def test_training_counts_an_out_of_scope_class_and_texts(dcnn, tmp_path):
    texts = [*TRAIN, *(f"{text} weather" for text in HARD[:60])]
    write_csv(tmp_path / "t.csv", texts, [*LABELS, *["oos"] * 60])
    write_csv(tmp_path / "d.csv", texts[60:], [*LABELS[60:], *["oos"] * 60])
    (tmp_path / "o.txt").write_text("\n".join(HARD[:30]) + "\n")
    options = ("--target-precision", 0.5, "--out-of-scope", "oos", "--out-of-scope-file", "o.txt")
    done = dcnn("train", "t.csv", "--dev", "d.csv", "--out", "m", *SETTINGS, *options)
    assert done.code == 0, done.err
    record = record_of(tmp_path / "m")
    assert (record["examples"], record["out_of_scope_examples"]) == (60, 90)
    assert record["out_of_scope"] == "oos"
    evaluated = dcnn("evaluate", "m", "d.csv", "--json", *options)
    found = json.loads(evaluated.out)["abstention"]
    assert found["threshold"] == pytest.approx(record["threshold"], abs=1e-5)
    refused = dcnn("train", "t.csv", "--out", "n", *SETTINGS, "--out-of-scope", "ooss")
    assert refused.code == 2
    assert "--out-of-scope 'ooss' is no label of the training set" in refused.err
    (tmp_path / "empty.txt").write_text("\n \n")
    refused = dcnn("train", "t.csv", "--out", "n", *SETTINGS, "--out-of-scope-file", "empty.txt")
    assert refused.code == 2
    assert "--out-of-scope-file empty.txt has no text" in refused.err


def test_the_estimator_chooses_a_threshold(tmp_path):
    dev = (TRAIN[:60], NOISY)
    model = DCNNClassifier(**SMALL, target_precision=0.7).fit(TRAIN, LABELS, dev=dev)
    found = model.abstention_
    assert 1 > found["precision"] > found["precision_bound"] >= 0.7
    answers = model.predict(TRAIN[:60], abstain=True)
    hits = sum(a == b for a, b in zip(answers, NOISY, strict=True) if a is not None)
    assert hits / sum(a is not None for a in answers) == pytest.approx(found["precision"])
    model.save(tmp_path / "m")
    assert DCNNClassifier.load(tmp_path / "m").abstention_ == found


def test_the_estimator_is_fitted_where_the_precision_is_not_reached():
    model = DCNNClassifier(**SMALL | {"epochs": 1}, target_precision=0.999)
    with pytest.raises(DataError, match=r"cannot be reached on 5 folds .*the model is fitted"):
        model.fit(TRAIN, LABELS)
    assert model.predict(["good"]).tolist()
    assert model.abstention_ is None
    with pytest.raises(UserError, match="stores no threshold"):
        model.predict(["good"], abstain=True)
    with pytest.raises(DataError, match=r"out_of_scope='x' is no label of y, which has"):
        DCNNClassifier().fit(TRAIN, LABELS, out_of_scope="x")
    with pytest.raises(DataError, match="target_precision=95 must be from 0 to 1"):
        DCNNClassifier(target_precision=95).fit(TRAIN, LABELS)


def test_the_estimator_counts_out_of_scope_labels_of_any_type():
    y = [n % 2 for n in range(120)] + [7] * 60
    texts = [*TRAIN, *(f"{text} weather" for text in HARD[:60])]
    model = DCNNClassifier(**SMALL, target_precision=0.3)
    model.fit(texts, y, out_of_scope=np.int64(7), out_of_scope_texts=HARD[:20], dev=(texts, y))
    assert model.abstention_["out_of_scope"] == 7
    assert model.abstention_["out_of_scope_examples"] == 80
    assert 7 not in model.predict(texts, abstain=True).tolist()


def test_a_record_is_the_curve_and_its_choice():
    truth, probabilities = np.array([0, 0, 1]), np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]])
    curve = risk_coverage(truth, probabilities)
    record = abstention_record(curve, "x", target=0.4)
    assert record["threshold"] == pytest.approx(0.75)
    assert record["curve"]["correct"] == [1, 2, 2]
    assert "threshold" not in abstention_record(curve, "x", target=0.9)
