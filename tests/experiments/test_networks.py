import numpy as np
import pytest

from dcnn.config import Config, DCNNConfig, TextConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.experiments.networks import train_networks
from dcnn.experiments.recipes import DataConfig, DistillationConfig, Recipe
from dcnn.experiments.tasks import Task
from dcnn.text.encoder import Encoder


def make_task(dev=True, noise=0.0):
    """The label is whether "good" comes before "bad"."""
    generator = np.random.default_rng(0)
    texts, labels = [], []
    for _ in range(300):
        label = int(generator.integers(2))
        words = ["good", "bad"] if label else ["bad", "good"]
        fillers = [f"w{i}" for i in generator.integers(0, 4, 2)]
        texts.append(" ".join([fillers[0], words[0], fillers[1], words[1]]))
        labels.append(label if generator.random() >= noise else 1 - label)
    encoder, sentences = Encoder.learn(texts, TextConfig(tokenizer="whitespace"))
    parts = [
        Examples(sentences.select(np.arange(start, end)), np.array(labels[start:end]))
        for start, end in ((0, 200), (200, 250), (250, 300))
    ]
    return Task(("no", "yes"), encoder, parts[0], parts[1] if dev else None, parts[2])


def make_recipe(epochs=12, teachers=0, share=0.5, **data):
    config = Config(
        model=DCNNConfig(dim=8, widths=(4,), maps=(3,), k_top=2, dropout=0.2),
        training=TrainingConfig(epochs=epochs, batch_size=16, learning_rate=0.2, word_dropout=0),
    )
    return Recipe("mine", config, DataConfig(**data), DistillationConfig(teachers, share))


def train(task, recipe, seeds, reports=None):
    heard = reports if reports is not None else []
    return train_networks(
        task, recipe, seeds, "cpu", lambda what, epoch: heard.append((what, epoch))
    )


def test_each_seed_learns_and_reports():
    task, reports = make_task(), []
    first, second = train(task, make_recipe(), [0, 1], reports)
    assert (first.seed, second.seed) == (0, 1)
    for network in (first, second):
        predicted = network.test_probabilities.argmax(axis=1)
        assert (predicted == task.test.targets).mean() > 0.9
        assert network.dev_accuracy > 0.9
        assert network.config.training.seed == network.seed
    assert not np.allclose(first.weights["top.weight"], second.weights["top.weight"])
    assert len(reports) == 2 * 12
    assert reports[0][1].epochs == 12


def test_without_dev_the_folds_give_the_accuracy_and_all_examples_the_weights():
    task, reports = make_task(dev=False), []
    (network,) = train(task, make_recipe(folds=3), [0], reports)
    assert 0.9 < network.dev_accuracy <= 1
    assert network.epochs == 12  # the last ones, not the best on anything
    assert {what.split()[0] for what, _ in reports} == {"cross-validation", "training"}
    assert len(reports) == (3 + 1) * 12
    held_out_hits = network.dev_accuracy * len(task.train)
    assert held_out_hits == pytest.approx(round(held_out_hits))  # every example exactly once


def test_a_student_learns_from_its_own_teachers():
    task, reports = make_task(noise=0.1), []
    (network,) = train(task, make_recipe(teachers=2, epochs=4), [0], reports)
    assert [what for what, _ in reports] == ["training, teachers 1-1 of 2"] * 4 + [
        "training, teachers 2-2 of 2"
    ] * 4 + ["training 1"] * 4
    (alone,) = train(task, make_recipe(epochs=4), [0])
    assert not np.allclose(network.weights["top.weight"], alone.weights["top.weight"])


def test_teachers_that_share_nothing_change_little():
    task = make_task(noise=0.1)
    (taught,) = train(task, make_recipe(teachers=1, epochs=3, share=1e-6), [0])
    (alone,) = train(task, make_recipe(epochs=3), [0])
    np.testing.assert_allclose(taught.weights["top.weight"], alone.weights["top.weight"], atol=1e-3)
