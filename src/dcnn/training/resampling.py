"""Training several times on parts of the data: cross-validation and the learning curve.

Every training is the one of ``dcnn train``: it holds out its own dev set where there are examples
enough for one.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from dcnn import metrics
from dcnn.config import Config
from dcnn.data.labels import LabelledTexts
from dcnn.data.split import (
    cross_validate,
    fold_numbers,
    split_dev,
    split_label_sets,
    stratified_split,
)
from dcnn.errors import DataError
from dcnn.metrics import Evaluation, LabelEvaluation
from dcnn.ops.reference import softmax
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import Ints
from dcnn.training.fit import RunOptions, fit

TEST_SHARE = 0.2  # held out of the data for a learning curve without a test set
MIN_EXAMPLES = 16  # of a learning curve's first point
WORTH = 0.005  # a gain by doubling the examples that is worth the labelling
_OPTIONS = RunOptions()


@dataclass(frozen=True)
class OutOfFold:
    """What models predict for examples that they did not learn."""

    examples: LabelledTexts  # with hard labels
    folds: Ints  # (N,) the fold of each; -1 if it is the only one of its label, and not predicted
    probabilities: NDArray[np.float32]  # (N, classes)
    thresholds: NDArray[np.float32] | None  # (N, classes), of the fold's model, if multi-label

    @property
    def scored(self) -> Ints:
        """The examples that are predicted."""
        return np.flatnonzero(self.folds >= 0)

    def scores(self, chosen: Ints) -> Evaluation | LabelEvaluation:
        """The scores of some examples."""
        thresholds = None if self.thresholds is None else self.thresholds[chosen]
        return _scores(self.examples.select(chosen), self.probabilities[chosen], thresholds)

    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % intervals of the scores of all examples; see ``metrics.bootstrap_intervals``."""
        chosen = self.scored
        thresholds = None if self.thresholds is None else self.thresholds[chosen]
        targets, probabilities = self.examples.targets[chosen], self.probabilities[chosen]
        return metrics.bootstrap_intervals(targets, probabilities, thresholds)


def cross_validation(
    examples: LabelledTexts,
    config: Config,
    folds: int = 5,
    options: RunOptions = _OPTIONS,
    report: Callable[[int, Evaluation | LabelEvaluation], None] | None = None,
) -> OutOfFold:
    """Predict every example by a model trained on the other folds.

    ``report`` is called with the number of folds that are done and the scores of the last one. The
    probabilities of single-label models without a dev set get one common temperature, found on the
    predictions themselves, in place of a cross-validation within each fold.
    """
    numbers = fold_numbers(examples, folds, config.training.seed)
    if not (numbers >= 0).any():
        raise DataError(
            f"{examples.source}: no label has two examples, so none can be held out; add examples"
        )
    n_classes, done, calibrated = len(examples.classes), 0, True
    hard = examples.with_hard_labels()

    def outputs_of(kept: LabelledTexts, held_out: LabelledTexts) -> NDArray[np.float32]:
        nonlocal done, calibrated
        predictor = _train(kept, config, options)
        found = predictor.probabilities(held_out.texts)
        calibrated = calibrated and "calibration" in predictor.artifact.metadata
        limits = predictor.artifact.thresholds or [0.5] * n_classes
        done += 1
        if report is not None:
            report(done, _scores(held_out, found, predictor.artifact.thresholds))
        return np.stack([found, np.broadcast_to(np.array(limits, np.float32), found.shape)], axis=1)

    with logged_once():
        outputs = cross_validate(examples, numbers, outputs_of)
    probabilities, thresholds = outputs[:, 0], outputs[:, 1]
    if examples.multi_label:
        return OutOfFold(hard, numbers, probabilities, thresholds)
    if not calibrated and config.training.calibrate:
        scored = numbers >= 0
        logits = np.log(np.maximum(probabilities, metrics.SMALLEST_PROBABILITY))
        truth = np.eye(n_classes)[hard.targets[scored]]
        temperature = metrics.calibrate(logits[scored], truth).temperature
        probabilities = softmax(logits / np.float32(temperature))
    return OutOfFold(hard, numbers, probabilities, None)


@dataclass(frozen=True)
class CurvePoint:
    """The scores of one training of a learning curve."""

    examples: int
    draw: int
    accuracy: float  # micro F1 if multi-label
    macro_f1: float


def learning_curve(
    examples: LabelledTexts,
    config: Config,
    test: LabelledTexts | None = None,
    steps: int = 5,
    draws: int = 5,
    options: RunOptions = _OPTIONS,
    report: Callable[[CurvePoint], None] | None = None,
) -> list[CurvePoint]:
    """Scores on a test set against the number of training examples, at up to ``steps`` sizes.

    The sizes double, up to all examples. Each draw shuffles the examples anew, stratified by label;
    its smaller sets are subsets of its larger ones. Without ``test``, each draw also holds out its
    own test set.
    """
    seeds = [config.training.seed + draw for draw in range(draws)]
    splits = []
    for seed in seeds:
        train, held_out = examples, test
        if held_out is None:
            split = split_label_sets if examples.multi_label else stratified_split
            kept, others = split(examples.labels, TEST_SHARE, seed)
            train, held_out = examples.select(kept), examples.select(others)
        if not len(held_out):
            raise DataError(
                f"{examples.source}: too few examples to hold out a test set; add examples, "
                "or give one with --test"
            )
        splits.append((train, held_out))
    # How many multi-label examples are held out differs from draw to draw.
    fewest = min(len(train) for train, _ in splits)
    sizes = curve_sizes(fewest, len(examples.classes), steps)
    points = []
    with logged_once():
        for draw, (seed, (train, held_out)) in enumerate(zip(seeds, splits, strict=True)):
            order = _stratified_order(train, seed)
            drawn = config.with_training(seed=seed)
            for size in sizes:
                predictor = _train(train.select(np.sort(order[:size])), drawn, options)
                found = predictor.probabilities(held_out.texts)
                scores = _scores(held_out, found, predictor.artifact.thresholds)
                single = isinstance(scores, Evaluation)
                first = scores.accuracy if single else scores.micro_f1  # type: ignore[union-attr]
                points.append(CurvePoint(size, draw, first, scores.macro_f1))
                if report is not None:
                    report(points[-1])
    return points


def curve_sizes(examples: int, classes: int, steps: int) -> list[int]:
    """Numbers of examples, ascending: all of them, half, a quarter and so on."""
    least = min(examples, max(MIN_EXAMPLES, 2 * classes))
    sizes = {examples // 2**step for step in range(steps)}
    return sorted(size for size in sizes if size >= least)


def judge_curve(points: Sequence[CurvePoint], measure: str = "accuracy") -> str:
    """A sentence on whether more labelling seems worth it: on what the last doubling brought."""
    sizes = sorted({point.examples for point in points})
    if len(sizes) < 2:
        return "Too few examples for a curve: label more, then look again."
    before, after = (
        [p.accuracy for p in sorted(points, key=lambda p: p.draw) if p.examples == size]
        for size in sizes[-2:]
    )
    gains = [high - low for low, high in zip(before, after, strict=True)]
    gain = fmean(gains)
    change = f"{measure} changed by {100 * gain:+.1f} points"
    found = f"From {sizes[-2]:,} to {sizes[-1]:,} examples {change}"
    if len(gains) < 2:
        return f"{found}: one draw does not show how much of that is chance; raise --draws."
    from scipy.special import stdtrit  # of the extra 'train', which all else here does without

    unsure = float(stdtrit(len(gains) - 1, 0.975)) * stdev(gains) / len(gains) ** 0.5
    found = f"{found} (± {100 * unsure:.1f})"
    if gain - unsure > WORTH:
        return f"{found}: more labelled examples should help; twice as many, by perhaps as much."
    if gain + unsure < WORTH:
        return f"{found}: more labelled examples seem hardly worth it; look at errors and labels."
    return f"{found}: too uncertain to tell; raise --draws."


def _train(examples: LabelledTexts, config: Config, options: RunOptions) -> Predictor:
    """The model that ``dcnn train`` gives, but without folds of its own if it is single-label."""
    if not examples.multi_label:
        config = config.with_training(folds=0)
    train, dev = split_dev(examples, config.training)
    return Predictor(fit(train, dev, config, options)[0])


def _scores(
    examples: LabelledTexts,
    probabilities: NDArray[np.float32],
    thresholds: metrics.Thresholds | None,
) -> Evaluation | LabelEvaluation:
    truth, classes = examples.with_hard_labels().targets, examples.classes
    if thresholds is None:
        return metrics.evaluate(truth, probabilities, classes)
    return metrics.evaluate_labels(truth, probabilities, thresholds, classes)


def _stratified_order(examples: LabelledTexts, seed: int) -> Ints:
    """An order of the examples in which every beginning has each label's share."""
    generator = np.random.default_rng(seed)
    labels = [str(label) for label in examples.labels]
    _, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    keys = np.empty(len(labels))
    for number, count in enumerate(counts):
        keys[numbers == number] = (generator.permutation(count) + generator.random(count)) / count
    return np.argsort(keys, kind="stable")


@contextmanager
def logged_once() -> Iterator[None]:
    """What every training logs alike, such as its backend, is logged by the first one only."""
    log = logging.getLogger("dcnn")
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        new = record.levelno != logging.INFO or record.msg not in seen
        seen.add(record.msg)
        return new

    log.addFilter(is_new)
    try:
        yield
    finally:
        log.removeFilter(is_new)
