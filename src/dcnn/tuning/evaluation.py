"""The evaluation that all trials of a search share: on dev, or by cross-validation.

Two models that disagree on 15 % of the texts differ on 500 examples by 1.7 points from chance alone
(the standard error), about as much as better settings bring. Below that, trials are evaluated by
stratified cross-validation on the training examples, which are usually nine times as many; dev
calibrates each training, and with ``training.keep=best`` selects the epoch, as in ``dcnn train``.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dcnn.artifact import Artifact, folder_size
from dcnn.config import Config
from dcnn.data.labels import LabelledTexts
from dcnn.data.split import cross_validate, fold_numbers
from dcnn.metrics import SMALLEST_PROBABILITY
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import Ints
from dcnn.training.callbacks import Callback, EvaluationRecord, Progress
from dcnn.training.fit import RunOptions, fit
from dcnn.tuning.search import Trained

MIN_DEV = 500  # with fewer dev examples trials are cross-validated
FOLDS = 5


def choose_folds(train: LabelledTexts, dev: LabelledTexts, asked: int | None = None) -> int:
    """How many folds of the training examples evaluate a trial; 1 means dev."""
    folds = asked or (FOLDS if len(dev) < MIN_DEV else 1)
    repeated = len(set(train.labels)) < len(train)  # else no example can be held out
    return min(folds, len(train)) if repeated else 1


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
        return len(self.dev) if self.folds == 1 else int((self.fold_of >= 0).sum())

    @cached_property
    def fold_of(self) -> Ints:
        """(N,) the fold of each training example; -1 if it is the only one of its label."""
        return fold_numbers(self.train, self.folds, self.seed)

    def __call__(self, config: Config, callback: Callback) -> Trained:
        """Train and evaluate once, or once per fold; ``callback`` is called after each fold."""
        if self.folds == 1:
            artifact, epochs = self.fit(config, callback)
            return self._trained(
                score(artifact, self.dev), epochs, folder_size(self.name, artifact)
            )
        scores: list[NDArray[np.float64]] = []
        epochs = size = 0

        def score_fold(kept: LabelledTexts, held_out: LabelledTexts) -> NDArray[np.float64]:
            nonlocal epochs, size
            artifact, one = self.fit(config, _StepsOnly(callback), kept)
            epochs, size = epochs + one, max(size, folder_size(self.name, artifact))
            scores.append(score(artifact, held_out))
            (accuracy, loss), fold = np.concatenate(scores).mean(axis=0).tolist(), len(scores)
            callback.on_evaluation(EvaluationRecord(fold, fold, loss, loss, accuracy, True))
            return scores[-1]

        found = cross_validate(self.train, self.fold_of, score_fold)[self.fold_of >= 0]
        return self._trained(found, round(epochs / len(scores)), size)

    def fit(
        self, config: Config, callback: Callback, train: LabelledTexts | None = None
    ) -> tuple[Artifact, int]:
        """The model that ``dcnn train`` gives with these settings, and its epochs.

        ``train`` is by default all of the training examples.
        """
        options = RunOptions(self.device, callback=callback)
        artifact, summary = fit(self.train if train is None else train, self.dev, config, options)
        return artifact, summary.epochs

    @staticmethod
    def _trained(scores: NDArray[np.float64], epochs: int, size: int) -> Trained:
        correct, losses = scores.T
        return Trained(
            accuracy=float(correct.mean()),
            loss=float(losses.mean()),
            epochs=epochs,
            size=size,
            correct=np.packbits(correct > 0).tobytes().hex(),
        )


class _StepsOnly(Callback):
    """Passes on the steps of a fold's training, not its evaluations, which only stop it early."""

    def __init__(self, callback: Callback) -> None:
        self.callback = callback

    @property
    def stop(self) -> bool:  # type: ignore[override]
        return self.callback.stop

    def on_step(self, progress: Progress) -> None:
        self.callback.on_step(progress)


def score(artifact: Artifact, examples: LabelledTexts) -> NDArray[np.float64]:
    """(N, 2) whether each example is labelled correctly, as 0 or 1, and its cross-entropy."""
    probabilities = Predictor(artifact).probabilities(examples.texts).astype(np.float64)
    truth = examples.class_numbers
    of_truth = probabilities[np.arange(len(truth)), truth]
    losses = -np.log(np.maximum(of_truth, SMALLEST_PROBABILITY))
    return np.column_stack([probabilities.argmax(axis=1) == truth, losses])
