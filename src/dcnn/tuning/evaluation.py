"""The evaluation that all trials of a search share: on dev, or by cross-validation.

Two models that disagree on 15 % of the texts differ on 500 examples by 1.7 points from chance alone
(the standard error), about as much as better settings bring. Below that, trials are evaluated by
stratified cross-validation on the training examples, which are usually nine times as many; dev
still decides when each training stops, as in ``dcnn train``.
"""

import logging
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dcnn.artifact import Artifact, folder_size
from dcnn.config import Config
from dcnn.data.labels import LabelledTexts
from dcnn.predictor import Predictor
from dcnn.training.callbacks import Callback, EvaluationRecord, Progress
from dcnn.training.fit import RunOptions, fit
from dcnn.tuning.search import Trained

MIN_DEV = 500  # with fewer dev examples trials are cross-validated
FOLDS = 5
_SMALLEST = 1e-12  # probability, so that its logarithm is finite


def choose_folds(train: LabelledTexts, dev: LabelledTexts, asked: int | None = None) -> int:
    """How many folds of the training examples evaluate a trial; 1 means dev."""
    folds = asked or (FOLDS if len(dev) < MIN_DEV else 1)
    return min(folds, len(train))


@dataclass(frozen=True)
class Evaluation:
    """Trains with the settings of a trial, and evaluates on examples not trained on."""

    name: str  # of the model folder
    train: LabelledTexts
    dev: LabelledTexts
    folds: int  # of the training examples; 1 to evaluate on dev
    device: str
    seed: int  # of the folds

    @property
    def examples(self) -> int:
        """How many are evaluated."""
        return len(self.dev) if self.folds == 1 else len(self.train)

    @cached_property
    def fold_of(self) -> NDArray[np.int64]:
        """(N,) the fold of each training example: every label is spread evenly over the folds."""
        generator = np.random.default_rng((self.seed, self.folds))
        places: dict[object, list[int]] = defaultdict(list)
        for index, label in enumerate(self.train.labels):
            places[label].append(index)
        # Labels follow one another around the folds, so that these are equal in size too.
        order = np.concatenate([generator.permutation(indices) for indices in places.values()])
        folds = np.empty(len(order), np.int64)
        folds[order] = np.arange(len(order)) % self.folds
        return folds

    def __call__(self, config: Config, callback: Callback) -> Trained:
        """Train and evaluate once, or once per fold; ``callback`` is called after each fold."""
        if self.folds == 1:
            artifact, epochs = self.fit(config, callback)
            correct, losses = score(artifact, self.dev)
            return self._trained(correct, losses, epochs, folder_size(self.name, artifact))
        correct = np.zeros(len(self.train), np.bool_)
        losses, epochs, size = np.zeros(len(self.train)), 0, 0
        for fold in range(self.folds):
            part = np.flatnonzero(self.fold_of == fold)
            rest = self.train.select(np.flatnonzero(self.fold_of != fold))
            artifact, one = self.fit(config, _StepsOnly(callback), rest)
            correct[part], losses[part] = score(artifact, self.train.select(part))
            epochs, size = epochs + one, max(size, folder_size(self.name, artifact))
            done = self.fold_of <= fold
            accuracy, loss = float(correct[done].mean()), float(losses[done].mean())
            callback.on_evaluation(EvaluationRecord(fold + 1, fold + 1, loss, loss, accuracy, True))
        return self._trained(correct, losses, round(epochs / self.folds), size)

    def fit(
        self, config: Config, callback: Callback, train: LabelledTexts | None = None
    ) -> tuple[Artifact, int]:
        """The model that ``dcnn train`` gives with these settings, and its epochs.

        ``train`` is by default all of the training examples.
        """
        options = RunOptions(self.device, callback=callback)
        artifact, summary = fit(self.train if train is None else train, self.dev, config, options)
        # All trainings use the same backend: it is logged once.
        logging.getLogger("dcnn").setLevel(logging.WARNING)
        return artifact, summary.epochs

    @staticmethod
    def _trained(
        correct: NDArray[np.bool_], losses: NDArray[np.float64], epochs: int, size: int
    ) -> Trained:
        return Trained(
            accuracy=float(correct.mean()),
            loss=float(losses.mean()),
            epochs=epochs,
            size=size,
            correct=np.packbits(correct).tobytes().hex(),
        )


class _StepsOnly(Callback):
    """Passes on the steps of the training of a fold, whose evaluations only stop it."""

    def __init__(self, callback: Callback) -> None:
        self.callback = callback

    @property
    def stop(self) -> bool:  # type: ignore[override]
        return self.callback.stop

    def on_step(self, progress: Progress) -> None:
        self.callback.on_step(progress)


def score(
    artifact: Artifact, examples: LabelledTexts
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """(N,) whether each example is labelled correctly, and (N,) its cross-entropy."""
    probabilities = Predictor(artifact).probabilities(examples.texts).astype(np.float64)
    truth = examples.class_numbers
    of_truth = probabilities[np.arange(len(truth)), truth]
    return probabilities.argmax(axis=1) == truth, -np.log(np.maximum(of_truth, _SMALLEST))
