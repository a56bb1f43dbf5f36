import json
import lzma
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import sweep
from dcnn.config import NBoWConfig
from dcnn.data.corpora.sentiment140 import iterate_sentiment140
from dcnn.errors import ConfigError, DataError
from dcnn.experiments.recipes import load_recipe
from dcnn.experiments.runs import ExperimentEnv
from dcnn.text.tokenizer import Tokenizer
from sweep import Sweep, ranked, read_hand_labelled, together, with_settings

SWEEPS = Path(__file__).parents[2] / "benchmarks" / "sweeps"

RECIPE = """
[text]
tokenizer = "tweet"
[model]
dim = 8
widths = [4, 3]
maps = [2, 2]
k_top = 2
[training]
epochs = 1
batch_size = 8
learning_rate = 0.2
word_dropout = 0.0
[data]
held_out = 0.2
"""
SWEEP = """
experiment = "twitter"
recipe = "{recipe}"
seeds = 2
select_on = "umsab-english"
settings = [
  ["training.epochs=4"],
  ["training.learning_rate=0.1"],
]
"""


@pytest.fixture
def env(tmp_path, monkeypatch):
    """Tweets whose label is a word, which those labelled by hand have the other way round."""
    monkeypatch.setenv("DCNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DCNN_COMMIT", "this")
    (tmp_path / "small.toml").write_text(RECIPE)
    tweets = tmp_path / "twitter"
    tweets.mkdir()
    rows = "".join(f"{i % 2},USER {('bad', 'good')[i % 2]} day {i}\n" for i in range(200))
    (tweets / "sentiment140.train.csv.xz").write_bytes(lzma.compress(rows.encode()))
    row = '"4","1","Mon May 11 2009","query","someone","@someone so good &amp; nice"\n'
    (tweets / "testdata.manual.2009.06.14.csv").write_text(row)
    write_hand_labelled(tmp_path, ["@user a bad day", "good day", "good"], [2, 0, 1])
    return ExperimentEnv("twitter", tmp_path, tmp_path, "cpu", check=False)


def write_hand_labelled(folder, texts, labels):
    place = folder / "extra" / "umsab" / "english"
    place.mkdir(parents=True, exist_ok=True)
    for part in ("train", "val", "test"):
        (place / f"{part}_text.txt").write_text("".join(f"{text}\n" for text in texts))
        (place / f"{part}_labels.txt").write_text("".join(f"{label}\n" for label in labels))


def test_settings_of_every_section_can_be_changed(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[model]\ndim = 16\n")
    recipe = load_recipe("sst2", str(path), "nbow")
    changed = with_settings(
        recipe,
        ["training.epochs=2", "data.folds=3", "distillation.teachers=1", "model.dropout=0.1"],
    )
    assert changed.config.training.epochs == 2
    assert (changed.data.folds, changed.distillation.teachers) == (3, 1)
    assert changed.config.model == NBoWConfig(dim=16, dropout=0.1)
    assert with_settings(recipe, []) == recipe
    with pytest.raises(ConfigError, match="unknown setting 'dta'"):
        with_settings(recipe, ["dta.folds=3"])


def test_every_sweep_can_be_loaded():
    """A recipe may change after a sweep over its settings was written."""
    specs = [tomllib.loads(path.read_text()) for path in sorted(SWEEPS.glob("*.toml"))]
    of_experiments = [spec for spec in specs if "experiment" in spec]
    assert len(of_experiments) > 20
    for spec in of_experiments:
        recipe = load_recipe(spec["experiment"], spec["recipe"], spec.get("model", "dcnn"))
        for settings in spec["settings"]:
            with_settings(recipe, settings)


def test_settings_of_another_ensemble_do_not_train_together(tmp_path):
    (tmp_path / "small.toml").write_text(RECIPE)
    recipe = load_recipe("twitter", str(tmp_path / "small.toml"))
    changes = ["training.epochs=2", "training.n_ensemble=2", "training.learning_rate=0.1"]
    assert together([with_settings(recipe, [change]) for change in changes]) == [[0, 2], [1]]


def test_hand_labelled_tweets_have_no_neutral_ones_and_no_escapes(env, tmp_path):
    fine = r"""it\u2019s &amp; \""\""fine\"\"\" @user"""
    texts = [fine, "neither", "bad\\u002c bad"]
    write_hand_labelled(tmp_path, texts, [2, 1, 0])
    found = read_hand_labelled(env, "umsab-english")
    assert list(found.texts) == ['it\u2019s & "fine" @user', "bad, bad"] * 2  # train and dev
    assert found.targets.tolist() == [1, 0, 1, 0]
    assert Tokenizer("tweet")(found.texts[0])[-1] == "USER"


def test_hand_labelled_tweets_must_not_be_of_test(env, tmp_path):
    write_hand_labelled(tmp_path, ["So good &amp; nice @user", "fine", "bad"], [2, 1, 0])
    with pytest.raises(ValueError, match="2 tweets of test, as 'So good & nice @user'"):
        read_hand_labelled(env, "umsab-english")


@pytest.mark.corpora
def test_no_hand_labelled_tweet_is_among_the_tweets_of_the_task(corpora):
    env = ExperimentEnv("twitter", corpora, corpora, "cpu")
    found = read_hand_labelled(env, "umsab-english")  # checks those of test
    assert np.bincount(found.targets).tolist() == [721, 721]
    own = set(map(sweep._words, found.texts))
    train = iterate_sentiment140(*env.find("twitter")["train"])
    assert not any(sweep._words(text) in own for text, _ in train)


def test_only_the_tweets_have_a_hand_labelled_corpus(env):
    with pytest.raises(ValueError, match="select_on='mr' of twitter must be one of umsab-english"):
        list(Sweep(env, 1, "mr").run([]))


def test_the_choice_is_by_the_hand_labelled_corpus_then_by_dev_then_by_order():
    settings = [
        {"changed": [name], "mean": dev, "hand": hand}
        for name, dev, hand in (
            ("a", 0.9, [0.6, 0.6]),
            ("b", 0.7, [0.7, 0.7]),
            ("c", 0.8, [0.6, 0.8]),
            ("d", 0.8, [0.7, 0.7]),
        )
    ]
    assert [one["changed"][0] for one in ranked(settings, "hand")] == ["c", "d", "b", "a"]
    assert [one["changed"][0] for one in ranked(settings)] == ["a", "c", "d", "b"]


def run_sweep(tmp_path, monkeypatch, *more):
    (tmp_path / "sweep.toml").write_text(SWEEP.format(recipe=tmp_path / "small.toml"))
    out = tmp_path / "found.json"
    words = [tmp_path / "sweep.toml", "--device", "cpu", "--jobs", 1, "--data", tmp_path]
    words += ["--out", out, "--sample", *more]
    monkeypatch.setattr(sys, "argv", ["sweep.py", *map(str, words)])
    monkeypatch.setattr(Sweep, "run_in_processes", lambda self, recipes, jobs: self.run(recipes))
    sweep.main()
    return json.loads(out.read_text())


def test_a_sweep_records_the_accuracy_on_hand_labelled_tweets(env, tmp_path, monkeypatch):
    found = run_sweep(tmp_path, monkeypatch)
    longer = found["settings"][0]
    assert longer["dev"] == [1.0, 1.0]
    assert longer["umsab-english"] == [0.0, 0.0]  # whose labels are the other way round
    best = max(found["settings"], key=lambda one: np.mean(one["umsab-english"]))
    assert found["chosen"] == best["changed"]


def test_an_interrupted_sweep_trains_only_what_is_missing(env, tmp_path, monkeypatch):
    def stop_after_one(self, recipes):
        outcomes = run(self, recipes)
        yield next(outcomes)
        raise KeyboardInterrupt

    run = Sweep.run
    monkeypatch.setattr(Sweep, "run", stop_after_one)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(tmp_path, monkeypatch, "--resume")
    partial = json.loads((tmp_path / "found.json").read_text())
    assert [one["changed"] for one in partial["settings"]] == [["training.epochs=4"]]
    assert "chosen" not in partial
    trained = []
    monkeypatch.setattr(Sweep, "run", lambda self, some: trained.extend(some) or run(self, some))
    found = run_sweep(tmp_path, monkeypatch, "--resume")
    assert [one.config.training.learning_rate for one in trained] == [0.1]
    assert found["settings"][0] == partial["settings"][0]
    assert "chosen" in found
    assert found["seconds"] >= partial["seconds"]
    again = run_sweep(tmp_path, monkeypatch, "--resume")
    assert again == found
    monkeypatch.setenv("DCNN_COMMIT", "another")
    assert run_sweep(tmp_path, monkeypatch, "--resume")["commit"] == "another"
    assert len(trained) == 3


def test_a_setting_that_fails_leaves_the_others(env, tmp_path):
    recipe = load_recipe("twitter", str(tmp_path / "small.toml"))
    changes = [f"text.vectors={tmp_path / 'none.txt'}", "training.epochs=2"]
    recipes = [with_settings(recipe, [change]) for change in changes]
    outcomes = Sweep(env, 1).run_in_processes(recipes, 1)
    number, outcome = next(outcomes)
    assert (number, outcome["epochs"]) == (1, [2])
    with pytest.raises(DataError, match=r"none\.txt"):
        next(outcomes)
