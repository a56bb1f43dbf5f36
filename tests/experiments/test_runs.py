from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from dcnn.config import Config, DCNNConfig, TextConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.errors import ConfigError, DataError, TrainingError
from dcnn.experiments import runs as networks
from dcnn.experiments.recipes import DataConfig, DistillationConfig, Recipe
from dcnn.experiments.results import code_hash
from dcnn.experiments.runs import (
    ExperimentEnv,
    has_ensemble,
    run_networks,
    train_networks,
    write_ensemble,
)
from dcnn.experiments.tasks import Task
from dcnn.text.encoder import Encoder
from dcnn.training.trainer import TrainingSummary


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


def make_recipe(epochs=12, teachers=0, teacher_weight=0.5, **data):
    config = Config(
        model=DCNNConfig(dim=8, widths=(4,), maps=(3,), k_top=2, dropout=0.2),
        training=TrainingConfig(epochs=epochs, batch_size=16, learning_rate=0.2, word_dropout=0),
    )
    return Recipe("mine", config, DataConfig(**data), DistillationConfig(teachers, teacher_weight))


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
    assert not np.allclose(first.weights["head.weight"], second.weights["head.weight"])
    assert len(reports) == 2 * 12
    assert reports[0][1].epochs == 12


def test_without_dev_accuracy_is_cross_validated_and_weights_use_all_examples():
    task, reports = make_task(dev=False), []
    (network,) = train(task, make_recipe(folds=3), [0], reports)
    assert 0.9 < network.dev_accuracy <= 1
    assert network.epochs == 12  # the last ones, not the best on anything
    assert {what.split()[0] for what, _ in reports} == {"cross-validation", "training"}
    assert len(reports) == (3 + 1) * 12
    held_out_hits = network.dev_accuracy * len(task.train)
    assert held_out_hits == pytest.approx(round(held_out_hits))  # every example exactly once


class Watched:
    """Remembers what the trainers are given, and trains nothing."""

    def __init__(self, monkeypatch, answer=lambda spec: 0.5, failed=False):
        self.specs, self.examples, self.answer = [], [], answer
        watched = self

        class Trainer:
            def __init__(self, model, examples, specs, dev, device, callback):
                watched.specs += specs
                watched.examples += [examples] * len(specs)
                self.specs = specs

            def train(self):
                ended = {"best_epoch": 1, "failed": failed}
                return [TrainingSummary(1, 0.5, 1.0, 1.0, [], **ended) for _ in self.specs]

            def probabilities(self, sentences):
                answers = [watched.answer(spec) for spec in self.specs]
                return [np.full((len(sentences), 2), (1 - p, p), np.float32) for p in answers]

            def weights_of(self, run):
                return {}

        monkeypatch.setattr(networks, "Trainer", Trainer)


def test_a_fold_and_its_teachers_never_see_the_held_out_examples(monkeypatch):
    watched, task = Watched(monkeypatch), make_task(dev=False)
    train(task, make_recipe(folds=4, teachers=2), [0, 1])
    everything = set(range(len(task.train)))
    by_fold = {}
    for spec in watched.specs:
        if spec.subset is not None:
            by_fold.setdefault(tuple(spec.subset), []).append(spec)
    assert len(by_fold) == 2 * 4  # every seed has its own folds
    assert all(len(specs) == 3 for specs in by_fold.values())  # two teachers and the student
    held_out = [sorted(everything - set(subset)) for subset in by_fold]
    assert all(len(part) == len(everything) // 4 for part in held_out)
    assert sorted(chain.from_iterable(held_out)) == sorted([*everything, *everything])
    students_and_teachers_on_everything = [p for p in watched.specs if p.subset is None]
    assert len(students_and_teachers_on_everything) == 2 * 3


def test_each_student_learns_the_mean_of_its_own_teachers(monkeypatch):
    chances = iter([0.1, 0.3, 0.6, 0.8])
    answers = {}

    def answer(spec):
        if spec.targets is not None:
            return 0.5
        return answers.setdefault(spec.training.seed, next(chances))

    watched, task = Watched(monkeypatch, answer), make_task()
    recipe = make_recipe(teachers=2, teacher_weight=0.25)
    smooth = recipe.config.with_training(label_smoothing=0.2)
    train(task, replace(recipe, config=smooth), [0, 1])
    assert len(answers) == 4  # seeds of their own
    assert not set(answers) & {0, 1}
    first, second = (spec.targets for spec in watched.specs if spec.targets is not None)
    own = np.where(task.train.targets == 1, 0.9, 0.1)
    np.testing.assert_allclose(first[:, 1], 0.25 * 0.2 + 0.75 * own, rtol=1e-5)
    np.testing.assert_allclose(second[:, 1], 0.25 * 0.7 + 0.75 * own, rtol=1e-5)


def test_unlabelled_sentences_are_for_students_with_their_teachers_labels(monkeypatch):
    watched, task = Watched(monkeypatch, lambda spec: 0.3), make_task()
    unlabelled = task.test.sentences.select(np.arange(7))
    recipe = replace(
        make_recipe(teacher_weight=0.25),
        distillation=DistillationConfig(2, 0.25, swaps=1, word_dropout=0.05),
    )
    train(replace(task, unlabelled=unlabelled), recipe, [0])
    teacher, _, student = watched.specs
    seen_by_teacher, _, seen_by_student = watched.examples
    assert seen_by_teacher is task.train
    assert teacher.training.word_dropout == 0
    assert student.training.word_dropout == 0.05
    for part, first in ((task.train.sentences, 0), (unlabelled, len(task.train))):
        found = seen_by_student.sentences.select(np.arange(first, first + len(part)))
        np.testing.assert_array_equal(found.ids, part.ids)
        np.testing.assert_array_equal(found.lengths, part.lengths)
    assert len(seen_by_student) == len(student.targets) == len(task.train) + 7
    expected = 0.25 * 0.3 + 0.75 * task.train.targets
    np.testing.assert_allclose(student.targets[: len(task.train), 1], expected, rtol=1e-5)
    np.testing.assert_allclose(student.targets[len(task.train) :, 1], 0.3, rtol=1e-5)


def test_words_of_a_held_out_fold_are_unknown_to_it():
    task = make_task()
    recipe = make_recipe()
    trainer = networks.NetworkTrainer(task, recipe, "cpu", lambda *_: None)
    part, kept = np.arange(0, len(task.train), 2), np.arange(1, len(task.train), 2)
    rare = int(np.setdiff1d(task.train.sentences.select(part).ids, [0]).max())
    without = np.array([i for i in kept if rare not in task.train.sentences.select([i]).ids])
    seen = trainer.known_sentences(part, without)
    whole = task.train.sentences.select(part)
    assert rare in whole.ids
    known = np.isin(whole.ids, task.train.sentences.select(without).ids)
    assert not known.all()
    assert seen.ids.tolist() == np.where(known, whole.ids, 0).tolist()
    assert trainer.known_sentences(part, None).ids.tolist() == whole.ids.tolist()


def test_cross_validation_of_random_labels_is_chance():
    task = make_task(dev=False)
    labels = np.random.default_rng(5).integers(0, 2, len(task.train))
    random_task = replace(task, train=Examples(task.train.sentences, labels))
    (network,) = train(random_task, make_recipe(folds=2, epochs=6), [0])
    assert network.dev_accuracy < 0.65


def test_more_folds_than_examples_are_refused():
    with pytest.raises(ConfigError, match="folds=201 must be at most the 200 training examples"):
        train(make_task(dev=False), make_recipe(folds=201), [0])


def test_a_run_that_diverges_is_named(monkeypatch):
    Watched(monkeypatch, failed=True)
    with pytest.raises(TrainingError, match="seed 3: training diverged"):
        train(make_task(), make_recipe(), [3])


def test_a_student_learns_from_its_own_teachers():
    task, reports = make_task(noise=0.1), []
    (network,) = train(task, make_recipe(teachers=2, epochs=4), [0], reports)
    assert [what for what, _ in reports] == ["training, teachers 1 of 2"] * 4 + [
        "training, teachers 2 of 2"
    ] * 4 + ["training"] * 4
    (alone,) = train(task, make_recipe(epochs=4), [0])
    assert not np.allclose(network.weights["head.weight"], alone.weights["head.weight"])


def test_teachers_with_no_weight_change_little():
    task = make_task(noise=0.1)
    (taught,) = train(task, make_recipe(teachers=1, epochs=3, teacher_weight=1e-6), [0])
    (alone,) = train(task, make_recipe(epochs=3), [0])
    np.testing.assert_allclose(
        taught.weights["head.weight"], alone.weights["head.weight"], atol=1e-3
    )


TREES = "(3 (2 It) (4 good))\n(1 (2 so) (0 bad))\n(4 (4 good) (2 film))\n(0 (0 bad) (2 film))\n"


@pytest.fixture
def env(tmp_path):
    for part in ("train", "dev", "test"):
        path = tmp_path / "sst" / f"{part}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(TREES)
    return ExperimentEnv("sst2", tmp_path, tmp_path / "results", "cpu", check=False, commit="c")


def run(env, recipe, seeds):
    return run_networks(env, recipe, seeds, lambda what, epoch: None)


def test_an_ensemble_is_the_same_whether_its_seeds_were_run_by_one_command_or_by_two(env):
    recipe = make_recipe(epochs=2)
    results = run(env, recipe, [0, 1])
    assert [result.notes["side_by_side"] for result in results] == [[0, 1]] * 2
    together = write_ensemble(env, recipe, [0, 1])
    resumed = replace(env, results=env.results.parent / "resumed")
    for seed in (0, 1):
        assert not has_ensemble(resumed, recipe, [0, 1])
        run(resumed, recipe, [seed])
    apart = write_ensemble(resumed, recipe, [0, 1])
    assert has_ensemble(resumed, recipe, [0, 1])
    assert not has_ensemble(resumed, recipe, [0, 1, 2])
    assert apart.test_predictions == together.test_predictions
    assert apart.notes == {"seeds": [0, 1], "sample": True, "code": code_hash("dcnn")}
    assert results[0].notes["code"] == code_hash("dcnn") != code_hash("nb")


def test_an_ensemble_of_runs_without_their_probabilities_is_refused(env):
    recipe = make_recipe(epochs=2)
    run(env, recipe, [0, 1])
    path = env.result_path("dcnn", "mine", 1).with_suffix(".npz")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DataError, match=r"dcnn-mine-seed1\.npz does not hold the probabilities"):
        write_ensemble(env, recipe, [0, 1])
    path.unlink()
    with pytest.raises(DataError, match="remove the result beside it"):
        write_ensemble(env, recipe, [0, 1])
