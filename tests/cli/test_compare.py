"""``dcnn compare``: one table, whose figures are those of ``dcnn evaluate``."""

import csv
import importlib.util
import json
import sys
import xml.etree.ElementTree as ET

import jsonschema
import pytest

from dcnn.artifact import load
from dcnn.cli.compare import JSON, TABLE, compare
from dcnn.cli.evaluate import evaluate
from dcnn.compare import all_candidates
from dcnn.config import DEFAULT, MODEL_KINDS, default_of
from dcnn.data.corpora.opinions import read_opinions
from dcnn.errors import UserError
from tiny_encoder import save_encoder

NUMBER = {"type": "number", "minimum": 0}
SHARE = NUMBER | {"maximum": 1}
ENDS = {
    "type": "object",
    "properties": {"low": {"type": "number"}, "high": {"type": "number"}},
    "required": ["low", "high"],
}
MODEL = {
    "model": {"type": "string"},
    "recipe": {"type": "string"},
    "accuracy": {
        "type": "object",
        "properties": {
            "mean": SHARE,
            "deviation": {"type": ["number", "null"]},
            "best": SHARE,
            "runs": {"type": "integer"},
            "interval": ENDS,
        },
        "required": ["mean", "deviation", "best", "runs", "interval"],
    },
    "macro_f1": SHARE,
    "behind_best": {"anyOf": [ENDS, {"type": "null"}]},
    "tied_with_best": {"type": "boolean"},
    "train_seconds": NUMBER,
    "bytes": {"type": "integer", "minimum": 1},
    "n_ensemble": {"type": "integer", "minimum": 1},
    "latency_us": NUMBER,
    "texts_per_second": NUMBER,
}
TOP = {
    "train": {"type": "string"},
    "test": {"type": "string"},
    "examples": {"type": "object"},
    "seeds": {"type": "integer"},
    "models": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": MODEL,
            "required": list(MODEL),
            "additionalProperties": False,
        },
    },
    "left_out": {"type": "array"},
    "hardware": {"type": "string"},
    "versions": {"type": "object"},
}
SCHEMA = {
    "type": "object",
    "properties": TOP,
    "required": list(TOP),
    "additionalProperties": False,
}

CORPUS = read_opinions()


@pytest.fixture(autouse=True)
def one_epoch(monkeypatch):
    """Networks of the default settings, trained for one epoch: how accurate is not the point."""
    brief = {kind: default_of(kind).with_training(epochs=1) for kind in MODEL_KINDS}
    monkeypatch.setattr("dcnn.compare.default_of", brief.__getitem__)
    monkeypatch.setattr("dcnn.compare.DEFAULT", DEFAULT.with_training(epochs=1))


@pytest.fixture
def corpus(tmp_path):
    for name, part in CORPUS.items():
        with (tmp_path / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
            rows = [(opinion.text, opinion.label) for opinion in part[:150]]
            csv.writer(stream).writerows([("text", "label"), *rows])
    return tmp_path


def run_compare(corpus, models="dcnn,nbow,nb,svm", **options):
    compare(corpus / "train.csv", corpus / "test.csv", models=models, **options)


def test_the_figures_are_those_of_evaluate_and_fit_the_schema(corpus, capsys):
    out = corpus / "comparison"
    run_compare(corpus, as_json=True, seeds=2, out=out)
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, SCHEMA)
    assert json.loads((out / "comparison.json").read_text()) == printed
    found = {row["model"]: row for row in printed["models"]}
    assert list(found) == sorted(found, key=lambda name: -found[name]["accuracy"]["mean"])
    assert {name: row["accuracy"]["runs"] for name, row in found.items()} == {
        "dcnn": 2, "nbow": 2, "nb": 1, "svm": 1,
    }  # fmt: skip
    assert {name: row["n_ensemble"] for name, row in found.items()} == {
        "dcnn": 8, "nbow": 8, "nb": 1, "svm": 1,
    }  # fmt: skip
    for name in ("dcnn", "nbow"):
        weights = [(out / f"{name}-seed{n}" / "model.safetensors").read_bytes() for n in (0, 1)]
        assert weights[0] != weights[1]
        scores = []
        for seed in range(2):
            model = out / f"{name}-seed{seed}"
            evaluate(model, corpus / "test.csv", as_json=True)
            scores.append(json.loads(capsys.readouterr().out))
        assert found[name]["accuracy"]["mean"] == pytest.approx(
            sum(score["accuracy"] for score in scores) / 2
        )
        assert found[name]["macro_f1"] == pytest.approx(
            sum(score["macro_f1"] for score in scores) / 2
        )
        assert found[name]["bytes"] == sum(
            file.stat().st_size for file in (out / f"{name}-seed0").iterdir()
        )
    ET.fromstring((out / "comparison.svg").read_text(encoding="utf-8"))
    assert "| dcnn, 8 in one |" in (out / "comparison.md").read_text(encoding="utf-8")


def test_what_is_not_installed_is_left_out_with_its_install_command(corpus, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    run_compare(corpus, models="nb,fasttext,setfit")
    shown = capsys.readouterr()
    assert (
        "fasttext is left out, it is not installed: pip install fasttext-numpy2-wheel\n"
        "setfit is left out, it is not installed: pip install setfit\n"
    ) in shown.err
    assert "nb " in shown.out
    with pytest.raises(UserError, match="none of them is installed"):
        run_compare(corpus, models="setfit")


def test_without_matplotlib_there_is_a_table_and_a_message(corpus, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run_compare(corpus, models="nb", out=corpus / "c")
    assert "No plot: A chart needs the extra 'tune'" in capsys.readouterr().err
    assert {path.name for path in (corpus / "c").iterdir()} == {
        JSON,
        TABLE,
    }


def test_the_table_fits_80_columns_and_names_the_ensembles(corpus, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run_compare(corpus, models="max-tdnn,nb")
    shown = capsys.readouterr().out
    table = shown[: shown.index("Accuracy and")]
    assert "8 in one" in table
    assert "…" not in table
    assert max(map(len, table.split("\n"))) <= 80


@pytest.mark.skipif(
    not all_candidates()["fasttext"].is_installed, reason="fastText is not installed"
)
def test_fasttext_is_compared(corpus, capsys):
    run_compare(corpus, models="fasttext,nb", as_json=True)
    rows = json.loads(capsys.readouterr().out)["models"]
    assert {row["model"] for row in rows} == {"fasttext", "nb"}
    assert all(row["accuracy"]["mean"] > 0.3 for row in rows)


def test_linear_models_on_characters_and_tfidf_are_compared(corpus, capsys):
    run_compare(corpus, models="char-svm,char-lr,tfidf-lr", as_json=True)
    rows = json.loads(capsys.readouterr().out)["models"]
    assert {row["model"] for row in rows} == {"char-svm", "char-lr", "tfidf-lr"}
    assert all(row["accuracy"]["mean"] > 0.4 and row["accuracy"]["runs"] == 1 for row in rows)


def test_what_starts_from_an_encoder_needs_a_teacher(corpus, capsys):
    with pytest.raises(UserError, match=r"--models distilled starts from .*; pass --teacher"):
        run_compare(corpus, models="nb,distilled")
    with pytest.raises(UserError, match=r"--unlabelled needs a teacher .*; pass --teacher"):
        run_compare(corpus, unlabelled=[corpus / "dev.csv"])


def test_a_teacher_and_its_student_are_compared(corpus, capsys, monkeypatch):
    monkeypatch.setenv("DCNN_CACHE", str(corpus / "cache"))
    out, tiny_encoder = corpus / "comparison", corpus / "encoder"
    save_encoder(tiny_encoder, " ".join(one.text for one in CORPUS["train"]).split())
    run_compare(
        corpus, models="teacher,distilled,nb", teacher=str(tiny_encoder), as_json=True,
        unlabelled=[corpus / "dev.csv"], out=out,
    )  # fmt: skip
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, SCHEMA)
    found = {row["model"]: row for row in printed["models"]}
    assert set(found) == {"teacher", "distilled", "nb"}
    assert printed["examples"]["unlabelled"] == 150
    record = load(out / "distilled-seed0").metadata["distillation"]
    assert 0 < record["unlabelled"] <= 150
    assert record["test"]["teacher"] == pytest.approx(found["teacher"]["accuracy"]["mean"])
    assert record["test"]["student"] == pytest.approx(found["distilled"]["accuracy"]["mean"])


@pytest.mark.filterwarnings("ignore")  # of these libraries
@pytest.mark.parametrize("name", ["setfit", "model2vec"])
def test_what_starts_from_an_encoder_prints_nothing_of_its_own(corpus, capsys, name):
    if not all_candidates()[name].is_installed:
        pytest.skip(f"{name} is not installed")
    encoder = str(
        save_encoder(corpus / "encoder", " ".join(o.text for o in CORPUS["train"]).split())
    )
    run_compare(corpus, models=name, teacher=encoder, setfit_base=encoder, as_json=True)
    shown = capsys.readouterr()
    assert json.loads(shown.out)["models"][0]["model"] == name
    assert "train_runtime" not in shown.err
    assert "Epoch" not in shown.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": "dcnn,bert"}, "--models dcnn,bert: choose from dcnn, max-tdnn, nbow"),
        ({"models": ","}, "--models ',' holds no name"),
    ],
)
def test_unknown_models_are_refused(corpus, changes, message):
    with pytest.raises(UserError, match=message):
        run_compare(corpus, **changes)


def test_a_folder_that_is_not_empty_is_kept(corpus):
    with pytest.raises(UserError, match="exists and is not empty"):
        run_compare(corpus, out=corpus)
