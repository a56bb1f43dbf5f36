"""Training the seeds of a neural model side by side: teachers first where there are any.

On a GPU all runs are one stack; on a CPU each is a stack of its own, and the command runs several
processes instead.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dcnn.config import Config
from dcnn.experiments.recipes import Recipe
from dcnn.experiments.tasks import Task
from dcnn.text.sentences import Ints
from dcnn.training.initial import find_vectors, initialize, make_model
from dcnn.training.objective import target_distributions
from dcnn.training.stack import EpochReport, Outcome, Plan, Stack

# Beyond this a stack gains little speed, and its embeddings with Adagrad's sums fill a GPU.
RUNS_AT_ONCE = {"cuda": 30, "cpu": 1}

Report = Callable[[str, EpochReport], None]


@dataclass(frozen=True)
class TrainedNetwork:
    """A run that has ended.

    Attributes:
        seed: its seed.
        config: its settings.
        weights: by name.
        dev_accuracy: on dev, or the mean over the folds of the cross-validation.
        epochs: epochs that led to the weights.
        test_probabilities: (test examples, classes).
        seconds: wall time of all runs that were trained side by side.
        sentences_per_second: sentences that all of them learned from, over that time.
        side_by_side: how many seeds that were.
    """

    seed: int
    config: Config
    weights: dict[str, NDArray[np.float32]]
    dev_accuracy: float | None
    epochs: int
    test_probabilities: NDArray[np.float32]
    seconds: float
    sentences_per_second: float
    side_by_side: int


@dataclass(frozen=True)
class _Job:
    """A network to train: its seed, and the examples it may see (none: all)."""

    seed: int
    subset: Ints | None = None


class _Trainer:
    def __init__(self, task: Task, recipe: Recipe, device: str, report: Report) -> None:
        self.task, self.recipe, self.device, self.report = task, recipe, device, report
        vocabulary = len(task.encoder.vocabulary)
        self.model = make_model(recipe.config, vocabulary, len(task.classes))
        self.vectors = find_vectors(task.encoder, recipe.config)
        self.sentences_seen = 0

    def config(self, seed: int) -> Config:
        return self.recipe.config.with_training(seed=seed)

    def train(self, jobs: Sequence[_Job], name: str) -> Iterator[tuple[list[Outcome], Stack]]:
        """Every job, a stack at a time; its own teachers learn from the same examples before it."""
        teachers = self.recipe.distillation.teachers
        targets: list[NDArray[np.float32] | None] = [None] * len(jobs)
        if teachers:
            lessons = [
                _Job(_teacher_seed(job.seed, number), job.subset)
                for job in jobs
                for number in range(teachers)
            ]
            stacks = self._train(lessons, [None] * len(lessons), f"{name}, teachers")
            taught = [
                predicted
                for _, stack in stacks
                for predicted in stack.probabilities(self.task.train.sentences)
            ]
            targets = [
                self._mixed(np.mean(taught[start : start + teachers], axis=0))
                for start in range(0, len(taught), teachers)
            ]
        yield from self._train(jobs, targets, name)

    def _mixed(self, taught: NDArray[np.float32]) -> NDArray[np.float32]:
        share = self.recipe.distillation.share
        smoothing = self.recipe.config.training.label_smoothing
        own = target_distributions(self.task.train.targets, len(self.task.classes), smoothing)
        mixed: NDArray[np.float32] = (share * taught + (1 - share) * own).astype(np.float32)
        return mixed

    def _train(
        self,
        jobs: Sequence[_Job],
        targets: Sequence[NDArray[np.float32] | None],
        name: str,
    ) -> Iterator[tuple[list[Outcome], Stack]]:
        at_once = RUNS_AT_ONCE[self.device]
        for start in range(0, len(jobs), at_once):
            part = slice(start, start + at_once)
            plans = [
                self._plan(job, target)
                for job, target in zip(jobs[part], targets[part], strict=True)
            ]
            stack = Stack(self.model, self.task.train, plans, self.device)
            span = f"{start + 1}-{start + len(plans)} of {len(jobs)}" if len(jobs) > 1 else "1"
            outcomes = stack.train(self.task.dev, partial(self.report, f"{name} {span}"))
            epochs = self.recipe.config.training.epochs
            self.sentences_seen += epochs * sum(len(subset) for subset in stack.subsets)
            yield outcomes, stack

    def _plan(self, job: _Job, targets: NDArray[np.float32] | None) -> Plan:
        config = self.config(job.seed)
        self.model.to("cpu")
        initialize(self.model, config, self.vectors)
        weights = {name: value.detach().clone() for name, value in self.model.named_parameters()}
        return Plan(config.training, weights, job.subset, targets)

    def cross_validated(self, seeds: Sequence[int]) -> dict[int, float]:
        """The mean accuracy over the folds, a seed at a time."""
        count, folds = len(self.task.train), self.recipe.data.folds
        jobs, held_out = [], []
        for seed in seeds:
            order = np.random.default_rng((seed, folds)).permutation(count)
            for fold in range(folds):
                held_out.append(np.sort(order[fold::folds]))
                jobs.append(_Job(seed, np.setdiff1d(order, held_out[-1])))
        hits: dict[int, list[bool]] = {seed: [] for seed in seeds}
        trained = zip(jobs, held_out, self._predictions(jobs), strict=True)
        for job, part, probabilities in trained:
            right = probabilities[part].argmax(axis=1) == self.task.train.targets[part]
            hits[job.seed] += right.tolist()
        return {seed: float(np.mean(hit)) for seed, hit in hits.items()}

    def _predictions(self, jobs: Sequence[_Job]) -> Iterator[NDArray[np.float32]]:
        for _, stack in self.train(jobs, "cross-validation"):
            yield from stack.probabilities(self.task.train.sentences)


def train_networks(
    task: Task, recipe: Recipe, seeds: Sequence[int], device: str, report: Report
) -> list[TrainedNetwork]:
    """Train ``seeds`` side by side; each reads the test set once, when its weights are settled."""
    started = time.monotonic()
    trainer = _Trainer(task, recipe, device, report)
    folded = trainer.cross_validated(seeds) if task.dev is None else {}
    ended = [
        (outcome, stack.weights_of(run), probabilities)
        for outcomes, stack in trainer.train([_Job(seed) for seed in seeds], "training")
        for run, (outcome, probabilities) in enumerate(
            zip(outcomes, stack.probabilities(task.test.sentences), strict=True)
        )
    ]
    seconds = time.monotonic() - started
    return [
        TrainedNetwork(
            seed=seed,
            config=trainer.config(seed),
            weights={name: value.cpu().numpy() for name, value in weights.items()},
            dev_accuracy=folded.get(seed, outcome.dev_accuracy),
            epochs=outcome.epochs,
            test_probabilities=probabilities,
            seconds=seconds,
            sentences_per_second=trainer.sentences_seen / seconds,
            side_by_side=len(seeds),
        )
        for seed, (outcome, weights, probabilities) in zip(seeds, ended, strict=True)
    ]


def _teacher_seed(seed: int, number: int) -> int:
    """A seed of its own for every teacher, far from those that people give."""
    return int(np.random.SeedSequence((seed, number, 2)).generate_state(1)[0] >> 1)
