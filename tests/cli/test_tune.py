"""``dcnn tune`` as a user runs it: a model, a report, and a search that can be stopped."""

import csv
import os
import re
import signal
import subprocess
import sys

import pytest

from dcnn.artifact import load
from dcnn.cli.train import train
from dcnn.cli.tune import tune
from dcnn.config import load_toml
from dcnn.data.corpora.opinions import read_opinions
from dcnn.errors import UserError

QUICK = ("training.epochs=2", "model.maps=[2]", "model.dim=8")
CORPUS = read_opinions()


def write_corpus(path, count=240):
    rows = [(opinion.text, opinion.label) for opinion in CORPUS["train"][:count]]
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("text", "label"), *rows])
    return path


@pytest.fixture
def data(tmp_path):
    return write_corpus(tmp_path / "train.csv")


def run_tune(data, **options):
    defaults = {"out": data.parent / "m", "settings": QUICK, "trials": 4, "device": "cpu"}
    tune(data, **(defaults | options))


def trials(folder):
    with (folder / "trials.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def settings_and_scores(folder):
    """The trials without what depends on the clock: a run's card has its duration."""
    own = ("seconds", "bytes")
    return [{name: row[name] for name in row if name not in own} for row in trials(folder)]


def folder_bytes(path):
    return sum(file.stat().st_size for file in path.iterdir())


def test_the_best_trial_is_refit_saved_and_can_be_made_again_to_the_bit(data, capsys):
    folder = data.parent
    run_tune(data, trials=6, seed=3)
    report = folder / "m-tune"
    names = {path.name for path in report.iterdir()}
    assert {"report.html", "trials.csv", "best.toml", "study.journal"} <= names
    model, best = load(folder / "m"), load_toml(report / "best.toml")
    assert model.config == best
    complete = [row for row in trials(report) if row["outcome"] == "complete"]
    chosen = max(complete, key=lambda row: (float(row["dev_accuracy"]), -float(row["dev_loss"])))
    assert model.metadata["tuning"]["best_trial"] == int(chosen["trial"])
    assert model.metadata["dev_accuracy"] == float(chosen["dev_accuracy"])
    assert model.metadata["dev_accuracy"] >= float(complete[0]["dev_accuracy"])
    assert folder_bytes(folder / "m") == pytest.approx(int(chosen["bytes"]), abs=600)
    assert "| tuning.command | dcnn tune |" in (folder / "m" / "README.md").read_text()
    assert "is the best: dev accuracy" in capsys.readouterr().err

    train(data, folder / "again", config=report / "best.toml", device="cpu")
    weights = [(folder / name / "model.safetensors").read_bytes() for name in ("m", "again")]
    assert weights[0] == weights[1]


def test_the_folder_is_never_larger_than_allowed(data, capsys):
    # The network of the default settings takes more than half of it without any word.
    run_tune(data, settings=("training.epochs=1",), trials=5, max_size="95KB")
    assert folder_bytes(data.parent / "m") <= 95_000
    for row in trials(data.parent / "m-tune"):
        assert row["outcome"] != "complete" or int(row["bytes"]) <= 95_000
    assert re.search(r"the \d+ most frequent of", capsys.readouterr().err)


def test_a_search_resumes_and_refuses_other_data(data, capsys):
    run_tune(data, out=data.parent / "straight", trials=6)
    run_tune(data, trials=4)
    with pytest.raises(UserError, match=r"holds a search; pass --resume"):
        run_tune(data, trials=6)
    run_tune(data, trials=4, resume=True)
    assert "is finished already" in capsys.readouterr().err
    run_tune(data, trials=6, resume=True)
    resumed, straight = (data.parent / name for name in ("m-tune", "straight-tune"))
    assert settings_and_scores(resumed) == settings_and_scores(straight)
    write_corpus(data, 238)
    with pytest.raises(UserError, match=r"belongs to another search: the data was"):
        run_tune(data, trials=6, resume=True)
    run_tune(data, trials=1, overwrite=True)
    assert len(trials(data.parent / "m-tune")) == 1


def test_ctrl_c_keeps_finished_trials_and_reports_how_to_resume(data):
    command = [sys.executable, "-m", "dcnn", "tune", "train.csv", "--out", "m", "--trials", "500"]
    command += [part for setting in QUICK for part in ("--set", setting)]
    process = subprocess.Popen(
        command,
        cwd=data.parent,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    for line in process.stderr:
        if line.startswith(b"trial   1"):
            break
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait() == 130
    assert "the same command with --resume continues from there" in rest
    assert "Traceback" not in rest
    assert not (data.parent / "m").exists()
    run_tune(data, trials=2, resume=True, device="cpu")
    assert load(data.parent / "m").metadata["tuning"]["trials"] >= 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_size": "2 bananas"}, r"--max-size '2 bananas' must be a size above 0"),
        ({"max_size": "9KB"}, r"--max-size 9KB has no room for the first trial, which takes .* KB"),
        (
            {"max_size": "9KB", "settings": (*QUICK, "text.tokenizer=characters")},
            r"KB with its \d\d most frequent characters; allow more",
        ),
        ({"settings": ("model.dims=3",)}, "unknown setting 'dims'"),
        ({"settings": ("text.vectors_words=5",), "max_size": "1MB"}, "do not go together"),
        ({"device": "tpu"}, "must be auto, cpu or cuda"),
    ],
)
def test_mistakes_are_reported_before_any_trial(data, changes, message):
    with pytest.raises(UserError, match=message):
        run_tune(data, **changes)
    assert sorted(path.name for path in data.parent.iterdir()) == ["train.csv"]


def test_nothing_else_is_overwritten(data):
    thesis = data.parent / "thesis.txt"
    thesis.write_text("years of work")
    with pytest.raises(UserError, match="is not a study, so it is left alone"):
        run_tune(data, study=thesis, overwrite=True)
    (data.parent / "m").mkdir()
    thesis.rename(data.parent / "m" / "thesis.txt")
    with pytest.raises(UserError, match="is not just a model folder"):
        run_tune(data, overwrite=True)


def test_a_missing_extra_is_named(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in [name for name in sys.modules if name.startswith("dcnn.tuning")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "dcnn.cli.tune_bar", raising=False)
    with pytest.raises(UserError, match=r"pip install 'dcnn\[tune\]'"):
        run_tune(data)
