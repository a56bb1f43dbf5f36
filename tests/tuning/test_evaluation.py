"""The evaluation that the trials of a search share."""

import numpy as np
import pytest

from dcnn.config import Config, NBoWConfig
from dcnn.data.labels import number_labels
from dcnn.errors import TrainingStoppedError
from dcnn.training.callbacks import Callback
from dcnn.tuning.evaluation import MIN_DEV, Evaluation, choose_folds, score

QUICK = Config(model=NBoWConfig(dim=8)).with_training(epochs=30, patience=0, word_dropout=0.0)


def examples(count, start=0, labels=("x", "y")):
    """A word of its own per text and a label by chance: nothing to learn but each text by heart."""
    generator = np.random.default_rng(start)
    drawn = generator.choice(labels, count).tolist()
    return number_labels([f"w{start + n}" for n in range(count)], drawn, classes=list(labels))


def evaluation(train, dev, folds=5):
    return Evaluation("m", train, dev, folds, "cpu", seed=0)


def bits(trained, count):
    packed = np.frombuffer(bytes.fromhex(trained.correct), np.uint8)
    return np.unpackbits(packed, count=count).astype(bool)


def test_a_small_dev_set_is_replaced_by_cross_validation():
    train = examples(2000)
    assert choose_folds(train, examples(MIN_DEV - 1)) == 5
    assert choose_folds(train, examples(MIN_DEV)) == 1
    assert choose_folds(train, examples(MIN_DEV), 3) == 3
    assert choose_folds(train, examples(2), 1) == 1
    assert choose_folds(examples(3), examples(2)) == 3
    assert choose_folds(number_labels(["a", "b"], ["x", "y"]), examples(2)) == 1


def test_every_label_is_spread_evenly_over_the_folds():
    labels = ["x"] * 61 + ["y"] * 17 + ["z"] * 2
    folds = evaluation(number_labels([*map(str, range(80))], labels), examples(4)).fold_of
    assert sorted(np.bincount(folds)) == [16] * 5
    for label in "xyz":
        counts = np.bincount(folds[np.array(labels) == label], minlength=5)
        assert counts.max() - counts.min() <= 1


def test_an_example_is_evaluated_by_a_model_that_has_not_seen_it():
    train, dev = examples(101), examples(20, start=500)
    crossed = evaluation(train, dev)
    learned, _ = crossed.fit(QUICK, Callback())
    assert score(learned, train)[:, 0].mean() > 0.95
    trained = crossed(QUICK, Callback())
    assert trained.accuracy < 0.7
    assert crossed.examples == 101
    assert bits(trained, 101).mean() == trained.accuracy


def test_on_dev_the_result_is_that_of_the_training():
    train, dev = examples(60), examples(33, start=500)
    on_dev = evaluation(train, dev, folds=1)
    artifact, _ = on_dev.fit(QUICK, Callback())
    trained = on_dev(QUICK, Callback())
    assert trained.accuracy == artifact.metadata["dev_accuracy"]
    assert bits(trained, 33).tolist() == (score(artifact, dev)[:, 0] > 0).tolist()
    assert on_dev.examples == 33


def test_the_only_example_of_a_label_is_trained_on_and_not_evaluated():
    train = number_labels([f"w{n}" for n in range(21)], ["x", "y"] * 10 + ["z"])
    crossed = evaluation(train, examples(20, start=500, labels=("x", "y", "z")))
    trained = crossed(QUICK, Callback())
    assert crossed.examples == 20
    assert bits(trained, 20).mean() == trained.accuracy


def test_folds_are_reported_and_a_stop_ends_between_them():
    class StopAfterTwo(Callback):
        def __init__(self):
            self.reported = []

        def on_evaluation(self, record):
            self.reported.append(record.epoch)
            self.stop = len(self.reported) == 2

    callback = StopAfterTwo()
    with pytest.raises(TrainingStoppedError):
        evaluation(examples(50), examples(20, start=500))(QUICK, callback)
    assert callback.reported == [1, 2]
