"""Continuing a model: what it keeps, what it learns, and what it reports."""

from dataclasses import replace

import numpy as np
import pytest

from dcnn import DCNNClassifier
from dcnn.artifact import load, save
from dcnn.config import DEFAULT, Config, TextConfig
from dcnn.data.labels import number_labels
from dcnn.errors import ConfigError, DataError
from dcnn.predictor import Predictor
from dcnn.training import warm_start
from dcnn.training.fit import RunOptions, fit

CPU = RunOptions(device="cpu")
NOUNS = ["film", "plot", "story", "cast", "music", "end", "scene", "idea"]
OLD = number_labels(
    [f"a {word} {noun}" for noun in NOUNS for word in ("good", "bad")], ["pos", "neg"] * 8
)
NEW = number_labels([f"rain over the {noun}" for noun in NOUNS], ["other"] * 8)
SMALL = ["model.dim=16", "training.folds=0", "training.epochs=20"]
NETWORKS = {
    "default": DEFAULT.with_settings(SMALL),
    "one network, no n-grams": Config().with_settings(
        ["model.dim=8", "model.widths=[4,3]", "model.maps=[2,2]", "model.k_top=2"]
    ),
    "bpe": DEFAULT.with_settings([*SMALL, "text.tokenizer=bpe", "text.n_subwords=40"]),
    "nbow": DEFAULT.with_settings(["model.kind=nbow", "model.dim=8"]),
    "max-tdnn": DEFAULT.with_settings(["model.kind=max-tdnn", "model.dim=8"]),
}


def go_on(start, more, replay=None, dev=None, **settings):
    config = warm_start.config_of(start, [f"training.{k}={v}" for k, v in settings.items()])
    growth = warm_start.join(start, more, dev, replay, config.training)
    options = RunOptions(device="cpu", start_from=start)
    return growth, fit(growth.train, growth.dev, config, options)[0]


@pytest.fixture(scope="module")
def start():
    return fit(OLD, None, NETWORKS["default"], CPU)[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_before_the_first_step_old_labels_have_the_logits_of_the_model(name, tmp_path):
    # A word that was seen once lives by its n-grams, which do not occur again.
    seen = number_labels([*OLD.texts, "a good zebra"], [*OLD.labels, "pos"])
    trained, _ = fit(seen, None, NETWORKS[name].with_training(dev_fraction=0), CPU)
    save(tmp_path / "m", trained)
    before = load(tmp_path / "m")
    # Steps too small to change anything.
    _, after = go_on(before, NEW, dev_fraction=0, learning_rate=1e-12, epochs=1, max_grad_norm=0)
    assert after.classes == ("neg", "pos", "other")
    assert len(after.encoder.vocabulary) > len(before.encoder.vocabulary)
    texts = [*OLD.texts, "zebra", "rain in the film", "an unheard word", ""]
    old, new = (np.log(Predictor(one).probabilities(texts)) for one in (before, after))
    np.testing.assert_allclose(new[:, 0] - new[:, 1], old[:, 0] - old[:, 1], atol=2e-4)


def test_new_words_and_a_new_label_are_learned_and_old_examples_kept(start):
    growth, after = go_on(start, NEW, OLD)
    found = Predictor(after).predict([*OLD.texts, "rain and rain"])
    assert [one.label for one in found] == [*OLD.labels, "other"]
    assert {"rain", "over"} <= set(after.encoder.vocabulary.words)
    old_words = start.encoder.vocabulary.words
    assert after.encoder.vocabulary.words[: len(old_words)] == old_words
    scores = {one["examples"]: one for one in warm_start.compare(growth, after)}
    assert scores["new"] == {"examples": "new", "number": 1, "before": 0.0, "after": 1.0}
    assert scores["old"] == {"examples": "old", "number": 2, "before": 1.0, "after": 1.0}


def test_without_old_examples_they_are_forgotten_and_with_them_they_are_not(start):
    """The new examples turn the meaning of a word around."""
    turned = number_labels([f"a good {noun}" for noun in NOUNS] * 4, ["neg"] * 32)
    asked, truth = ["a good film", "a bad film"], ["pos", "neg"]
    mixed = number_labels(OLD.texts * 8, OLD.labels * 8)
    for replay, remembers in ((None, False), (mixed, True)):
        _, after = go_on(start, turned, replay, epochs=30, learning_rate=0.1)
        answers = [one.label for one in Predictor(after).predict(asked)]
        assert (answers == truth) == remembers


def test_examples_kept_in_the_folder_are_rehearsed_without_a_replay(start):
    """Of any number, with the labels of the model; a replay takes their place."""
    kept = replace(start, examples=tuple(zip(OLD.texts, OLD.labels, strict=True)))
    growth, after = go_on(kept, NEW)
    assert growth.replay == "16 examples kept in the model folder"
    assert len(growth.train) == 7 + 14
    assert [one["examples"] for one in warm_start.compare(growth, after)] == ["new", "old"]
    assert len(go_on(kept, NEW, OLD.select([0, 1]))[0].train) == 7 + 2
    sets = tuple((text, ("pos", "neg")) for text in OLD.texts)
    several = replace(start, examples=sets, thresholds=(0.5, 0.5))
    more = number_labels(NEW.texts, [("other",)] * 8, multi_label=True)
    config = warm_start.config_of(several, ["training.dev_fraction=0"]).training
    train = warm_start.join(several, more, None, None, config).train
    assert train.targets.tolist() == [[0, 0, 1]] * 8 + [[1, 1, 0]] * 16


def test_the_largest_vocabulary_has_the_words_of_all_trainings(start):
    old = start.encoder.vocabulary.words
    for largest, size in ((len(old) + 2, len(old) + 2), (3, len(old)), (0, len(old) + 4)):
        config = TextConfig(min_count=1, max_size=largest)
        words = start.encoder.extended(["rain over over the end now"], config).vocabulary.words
        assert len(words) == size
        assert words[: len(old)] == old
        assert "over" in words or size == len(old)


def test_dev_examples_of_the_user_are_the_new_ones(start):
    growth, _ = go_on(start, NEW, OLD, dev=number_labels(["rain", "good"], ["other", "pos"]))
    assert len(growth.train) == 8 + 14
    assert {name: len(part) for name, part in growth.parts.items()} == {"new": 2, "old": 2}


def test_labels_of_a_file_get_the_type_of_the_model(start):
    numbers = number_labels(OLD.texts, [1, 0] * 8)
    model, _ = fit(numbers, None, NETWORKS["default"], CPU)
    growth, _ = go_on(model, number_labels(["rain now", "a good end"] * 4, ["2", "1"] * 4))
    assert growth.train.classes == (0, 1, 2)
    same = number_labels(["rain", "sun", "a good end"], [1.0, 0.0, 2.0])
    assert go_on(model, same, dev_fraction=0)[0].train.classes == (0, 1, 2)
    for label, kind in (("wet", "str"), (1.5, "float")):
        message = f"the new label {label!r} is of the type {kind}, where those of the model are of"
        with pytest.raises(DataError, match=message):
            go_on(model, number_labels(["rain now"] * 4, [label] * 4))


def test_settings_of_the_model_stay_however_often_it_goes_on(start):
    once = go_on(start, NEW)[1]
    twice = go_on(once, NEW)[1]
    rates = [one.config.training.learning_rate for one in (start, once, twice)]
    assert rates == [0.1] * 3
    with pytest.raises(
        ConfigError, match=r"training\.folds=3 must be 0 with a model to start from"
    ):
        warm_start.config_of(start, ["training.folds=3"])


def test_a_continued_model_keeps_its_batch_size(start):
    larger = replace(start, config=start.config.with_training(batch_size=64))
    found = warm_start.config_of(larger, []).training
    assert found.for_examples(2000).batch_size == 64


def test_few_dev_examples_decide_neither_temperature_nor_thresholds(start, monkeypatch):
    growth, after = go_on(start, NEW, OLD)
    assert growth.dev is None
    assert set(growth.parts) == {"new", "old"}
    assert "calibration" not in after.metadata
    monkeypatch.setattr(warm_start, "FEWEST_DECIDING", 3)
    growth, after = go_on(start, NEW, OLD)
    assert len(growth.dev) == 3
    assert "calibration" in after.metadata


def test_a_multi_label_model_goes_on_with_its_thresholds():
    sets = [["pos", "film"] if "film" in text else ["pos"] for text in OLD.texts]
    old = number_labels(OLD.texts, sets, multi_label=True)
    model, _ = fit(old, None, DEFAULT.with_settings([*SMALL, "training.folds=2"]), CPU)
    more = number_labels(NEW.texts, [["rain"]] * 8, multi_label=True)
    _, after = go_on(model, more, dev_fraction=0)
    assert after.classes == ("film", "pos", "rain")
    assert after.thresholds == (*model.thresholds, 0.5)
    growth, after = go_on(model, more, old)
    assert warm_start.compare(growth, after)[0]["before"] == 0.0
    unlikely = [np.where(part.targets > 0, part.targets, 0.1) for part in growth.parts.values()]
    soft = {
        name: replace(part, targets=targets)
        for (name, part), targets in zip(growth.parts.items(), unlikely, strict=True)
    }  # a label of 10 % is none
    found = warm_start.compare(replace(growth, parts=soft), after)
    assert found == warm_start.compare(growth, after)
    with pytest.raises(DataError, match="has one label per row, where the model to start from is"):
        go_on(model, NEW)


def test_only_the_training_can_be_set(start):
    with pytest.raises(ConfigError, match=r"--set model.dim=8: tokens and network are those of"):
        warm_start.config_of(start, ["model.dim=8"])
    config = warm_start.config_of(start, ["training.learning_rate=0.05"], epochs=3, seed=None)
    assert (config.training.learning_rate, config.training.epochs) == (0.05, 3)
    assert config.training.seed == start.config.training.seed


def test_a_run_is_resumed_from_the_same_model_only(start, tmp_path):
    other, _ = fit(OLD, None, NETWORKS["default"].with_training(seed=1), CPU)
    config = warm_start.config_of(start, ["training.dev_fraction=0"])
    growth = warm_start.join(start, NEW, None, None, config.training)
    path = tmp_path / "run.checkpoint"
    fit(growth.train, None, config, RunOptions("cpu", path, start_from=start))
    again = RunOptions("cpu", path, resume=True, start_from=other)
    with pytest.raises(Exception, match="belongs to another run: data was"):
        fit(growth.train, None, config, again)


def test_the_command_line_reports_both_models(dcnn, tmp_path):
    for name, data in (("old.csv", OLD), ("new.csv", NEW)):
        rows = (f"{text},{label}\n" for text, label in zip(data.texts, data.labels, strict=True))
        (tmp_path / name).write_text("text,label\n" + "".join(rows))
    small = [f"--set={one}" for one in SMALL]
    assert dcnn("train", "old.csv", "--out", "m", *small).code == 0
    done = dcnn("train", "new.csv", "--start-from", "m", "--replay", "old.csv", "--out", "m2")
    assert done.code == 0, done.err
    assert "On 1 new examples that were held out: accuracy 0.00 % before, 100.00 % af" in done.err
    assert "On 2 old examples that were held out: accuracy 100.00 % before, 100.00 % a" in done.err
    assert load(tmp_path / "m2").metadata["start_from"]["model"] == "m"
    card = (tmp_path / "m2" / "README.md").read_text()
    assert "| 2 old examples | 100.00 % before, 100.00 % after |" in card
    again = dcnn("train", "missing.csv", "--start-from", "m", "--out", "x/y/z")
    assert again.code == 2
    assert not (tmp_path / "x").exists()
    done = dcnn("train", "new.csv", "--start-from", "m", "--out", "m3", "--test", "old.csv")
    assert done.code == 0, done.err
    assert "Forgetting was not measured: give old examples with --replay FILE" in done.err
    small += ["--keep-examples", "16", "--overwrite"]
    assert dcnn("train", "old.csv", "--out", "m", *small).code == 0
    done = dcnn("train", "new.csv", "--start-from", "m", "--out", "m4")
    assert "rehearsing the 16 examples kept in the model folder" in done.err
    assert "On 2 old examples that were held out: accuracy 100.00 % before" in done.err
    card = (tmp_path / "m4" / "README.md").read_text()
    assert "| replay | 16 examples kept in the model folder |" in card
    assert load(tmp_path / "m4").examples == ()  # as always, only on request


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replay", "new.csv"], "--replay has examples that a model was trained on; add --start"),
        (["--start-from", "nothing"], "nothing: no such model folder"),
        (["--start-from", "m", "--stream"], "--start-from trains in memory; leave out --stream"),
        (
            ["--start-from", "m", "--config", "a.toml"],
            "--config a.toml has tokens and network, whi",
        ),
        (["--start-from", "m", "--set", "text.lowercase=false"], "tokens and network are those of"),
        (["--start-from", "m", "--replay", "gone.csv"], "gone.csv: no such file"),
    ],
)
def test_options_that_do_not_fit(dcnn, tmp_path, start, arguments, message):
    save(tmp_path / "m", start)
    (tmp_path / "new.csv").write_text("text,label\nrain,other\nrain now,other\n")
    done = dcnn("train", "new.csv", "--out", "m2", *arguments)
    assert done.code == 2
    assert message in " ".join(done.err.split())
    assert not (tmp_path / "m2").exists()


def test_partial_fit_goes_on_with_new_labels_and_keeps_those_it_was_told_of():
    model = DCNNClassifier(dim=16, epochs=20)
    model.partial_fit(OLD.texts[:4], OLD.labels[:4], classes=["neg", "pos", "later"])
    assert model.classes_.tolist() == ["later", "neg", "pos"]
    model.partial_fit(OLD.texts[4:], OLD.labels[4:])
    assert model.score(OLD.texts, OLD.labels) == 1
    model.partial_fit(NEW.texts, NEW.labels, replay=(OLD.texts, OLD.labels))
    assert model.classes_.tolist() == ["later", "neg", "pos", "other"]
    assert model.score([*OLD.texts, "rain"], [*OLD.labels, "other"]) == 1
    trained_on = model.predictor_.artifact.metadata["examples"]["train"]
    assert trained_on == len(NEW) + len(OLD)
    with pytest.raises(DataError, match="X has no texts; give at least one"):
        model.partial_fit([], [])
    assert model.predictor_.artifact.config.training.calibrate
    model.set_params(epochs=2).partial_fit(OLD.texts, OLD.labels)
    assert model.n_epochs_ == 2
    with pytest.raises(DataError, match="replay is for a model that has learned something"):
        DCNNClassifier().partial_fit(OLD.texts, OLD.labels, replay=(OLD.texts, OLD.labels))
    with pytest.raises(DataError, match="replay=1 must be a pair of texts and labels, or a frame"):
        model.partial_fit(["a"], ["pos"], replay=1)
    with pytest.raises(DataError, match=r"y has one class only, \['pos'\]; pass all labels as cla"):
        DCNNClassifier().partial_fit(["a"], ["pos"])


def test_partial_fit_rehearses_the_examples_that_the_classifier_keeps(tmp_path):
    model = DCNNClassifier(dim=16, epochs=20, keep_examples=6).fit(OLD.texts, OLD.labels)
    model.save(tmp_path / "m")
    loaded = DCNNClassifier.load(tmp_path / "m")
    assert loaded.keep_examples == len(loaded.predictor_.artifact.examples) == 6
    loaded.partial_fit(NEW.texts, NEW.labels)
    assert loaded.predictor_.artifact.metadata["examples"]["train"] == len(NEW) + 6
    labels = {label for _, label in loaded.predictor_.artifact.examples}
    assert labels == {"neg", "pos", "other"}


def test_a_matrix_has_a_column_per_label_of_the_model():
    sets = [["pos", "film"] if "film" in text else ["pos"] for text in OLD.texts]
    model = DCNNClassifier(dim=16, epochs=5).fit(OLD.texts, sets)
    model.partial_fit(OLD.texts, np.array([[0, 1]] * 16))
    assert model.classes_.tolist() == ["film", "pos"]
