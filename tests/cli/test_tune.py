"""``dcnn tune`` as a user runs it: a model, a report, and a search that can be stopped."""

import csv
import io
import random
import re
import signal
import sys
from dataclasses import replace

import pytest
from rich.console import Console
from rich.progress import Progress as Bar

from dcnn.artifact import load
from dcnn.cli.train import train
from dcnn.cli.tune import tune
from dcnn.config import DEFAULT, load_toml
from dcnn.data.corpora.opinions import read_opinions
from dcnn.errors import UserError
from dcnn.predictor import Predictor
from dcnn.text.tokenizer import SubwordTokenizer
from dcnn.tuning.evaluation import Evaluation
from dcnn.tuning.search import Limits, SearchBar, TrialRecord

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
    defaults["folds"] = 1  # a cross-validation takes as many trainings
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
    assert folder_bytes(folder / "m") == pytest.approx(int(chosen["bytes"]), abs=900)
    assert "| tuning.command | dcnn tune |" in (folder / "m" / "README.md").read_text()
    assert "is the best: dev accuracy" in capsys.readouterr().err

    train(data, folder / "again", config=report / "best.toml", device="cpu")
    weights = [(folder / name / "model.safetensors").read_bytes() for name in ("m", "again")]
    assert weights[0] == weights[1]


@pytest.fixture
def suffixes(tmp_path):
    """The end of a word decides, and no word occurs twice: only subwords can learn it."""
    generator = random.Random(3)
    stems = {"".join(generator.choices("bdfgklmnprst", k=6)) for _ in range(700)}
    rows = [(stem + ("able", "less")[n % 2], ("yes", "no")[n % 2]) for n, stem in enumerate(stems)]
    path = tmp_path / "train.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("text", "label"), *rows])
    return path


def test_a_trial_changes_the_tokens_and_the_saved_model_has_them(suffixes, capsys):
    settings = ("training.epochs=8", "text.char_ngrams=[]", "text.min_count=1")
    run_tune(suffixes, trials=2, settings=settings)
    model = load(suffixes.parent / "m")
    assert model.config.text.tokenizer == "bpe"
    assert isinstance(model.encoder.tokenizer, SubwordTokenizer)
    labels = [one.label for one in Predictor(model).predict(["xoxoxable", "xoxoxless"])]
    assert labels == ["yes", "no"]
    assert re.search(r"gain of \+\d\d\.\d\d points .* is beyond noise", capsys.readouterr().err)


def test_the_first_trial_has_the_default_settings(data):
    run_tune(data, trials=1, settings=(), folds=1)
    found = load_toml(data.parent / "m-tune" / "best.toml")
    training = DEFAULT.with_training(dev_fraction=0.1).training  # a search needs a dev set
    assert found == replace(DEFAULT, training=training.for_examples(216, 24))


def score_trials(monkeypatch, of_start, of_others):
    """Let the first trial and the others have these accuracies, whatever they are worth."""
    train, started = Evaluation.__call__, []

    def scored(self, config, callback):
        trained = train(self, config, callback)
        started.append(config)
        return replace(trained, accuracy=of_start if len(started) == 1 else of_others)

    monkeypatch.setattr(Evaluation, "__call__", scored)


def test_where_all_trials_are_worse_the_first_settings_are_kept(data, capsys, monkeypatch):
    score_trials(monkeypatch, 0.9, 0.8)
    run_tune(data, trials=3, settings=(*QUICK, "training.calibrate=false"))
    folder, shown = data.parent, capsys.readouterr().err
    assert "No trial is better than the given settings, so they are kept." in shown
    assert load(folder / "m").metadata["tuning"]["best_trial"] == 0
    assert load(folder / "m").config.text.tokenizer == "words"
    assert "No trial is better than the given" in (folder / "m-tune" / "report.html").read_text()


def test_a_refit_that_is_worse_than_the_first_trial_is_not_returned(data, capsys, monkeypatch):
    score_trials(monkeypatch, 0.98, 0.99)
    run_tune(data, trials=2)
    shown = capsys.readouterr().err
    assert "Trial 1 of 2 is the best" in shown
    assert "below the 98.00 % of the given settings, which are taken instead" in shown
    assert load(data.parent / "m").metadata["tuning"]["best_trial"] == 0
    best = load_toml(data.parent / "m-tune" / "best.toml")
    assert best == load(data.parent / "m").config
    assert best.text.tokenizer == "words"
    assert "No trial is better than the given" in (data.parent / "m-tune/report.html").read_text()


def test_trials_are_cross_validated_where_dev_is_small(data, capsys):
    run_tune(data, trials=2, folds=None)
    shown = capsys.readouterr().err
    assert "5-fold cross-validation on the 216 training examples, since dev is small" in shown
    assert re.search(r"trial   1: complete, cross-validated accuracy \d", shown)
    rows = trials(data.parent / "m-tune")
    assert {"cv_accuracy", "cv_loss"} < set(rows[0])
    # A share of all training examples, not of the 24 dev examples.
    assert float(rows[0]["cv_accuracy"]) * 216 == pytest.approx(
        round(float(rows[0]["cv_accuracy"]) * 216)
    )
    page = (data.parent / "m-tune" / "report.html").read_text()
    assert "The 24 dev examples are few, so every trial was evaluated by 5-fold" in page
    assert load(data.parent / "m").metadata["tuning"]["evaluation"] == "5-fold cross-validation"


def test_the_line_of_a_pruned_trial_says_that_it_was_not_evaluated_to_the_end():
    shown = io.StringIO()
    bar = SearchBar(Bar(console=Console(file=shown)), Limits(), "cross-validated accuracy")
    bar.on_finished(TrialRecord(3, "pruned", DEFAULT, {}, 1.0, (0.5, 0.75), None), None)
    assert "trial   3: pruned, cross-validated accuracy 75.00 % so far, 1.0 s" in shown.getvalue()


def test_several_jobs_give_the_trials_and_the_model_of_one(data):
    for jobs in (1, 2):
        run_tune(data, out=data.parent / f"jobs{jobs}", jobs=jobs, trials=7)
    one, two = (data.parent / f"jobs{jobs}" for jobs in (1, 2))
    assert settings_and_scores(data.parent / "jobs1-tune") == settings_and_scores(
        data.parent / "jobs2-tune"
    )
    weights = [(folder / "model.safetensors").read_bytes() for folder in (one, two)]
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


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_finished_trials_and_reports_how_to_resume(data, dcnn, monkeypatch, jobs):
    report = SearchBar.on_finished

    def on_finished(bar, record, best):
        report(bar, record, best)
        if record.number == 1:
            signal.raise_signal(signal.SIGINT)

    command = ["tune", data, "--out", "m", "--trials", 500, "--folds", 1, "--jobs", jobs]
    command += [part for setting in QUICK for part in ("--set", setting)]
    with monkeypatch.context() as patch:
        patch.setattr(SearchBar, "on_finished", on_finished)
        stopped = dcnn(*command)
    assert stopped.code == 130
    assert "the same command with --resume continues from there" in stopped.err
    assert "Traceback" not in stopped.err
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
        (
            {"settings": ("text.vectors=v.txt", "text.vectors_words=5"), "max_size": "1MB"},
            "do not go together",
        ),
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
    with pytest.raises(UserError, match=r"pip install 'dcnn\[tune\]'"):
        run_tune(data)
