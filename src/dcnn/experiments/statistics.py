"""The uncertainty of the figures in a table: spread over seeds, bootstrap intervals and p.

Runs are rows of booleans, right or wrong, with a column per test example. A model's accuracy varies
for two reasons: the seed it was trained with, and the test examples. The bootstrap resamples both,
so intervals and p cover both; ``scipy.stats.bootstrap`` resamples one axis only, and McNemar's test
knows one run per model.
"""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Correct = NDArray[np.bool_]  # (runs, examples)

CONFIDENCE = 0.95
BOOTSTRAP_SAMPLES = 2_000  # leaves the ends uncertain by some hundredths of a point
_BOOTSTRAP_SEED = 20140408  # fixed, so that a table is the same whenever it is rendered
_ROUNDING = 1e-12  # equal means may differ by this


class Summary(NamedTuple):
    """Accuracies of the runs of a model."""

    mean: float
    deviation: float | None  # of the sample; none for one run
    best: float
    runs: int


class Interval(NamedTuple):
    """A bootstrap interval, its ends included."""

    low: float
    high: float


def summarize(accuracies: Sequence[float]) -> Summary:
    """Mean, sample standard deviation, best and number of ``accuracies``."""
    deviation = statistics.stdev(accuracies) if len(accuracies) > 1 else None
    return Summary(statistics.fmean(accuracies), deviation, max(accuracies), len(accuracies))


def bootstrap_mean(correct: Correct) -> Interval:
    """Interval of the mean accuracy of ``correct`` (runs, examples)."""
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    return _interval(_resampled_means(correct, _draw_runs(len(correct), generator), generator))


def bootstrap_difference(first: Correct, second: Correct) -> tuple[Interval, float]:
    """Interval of the mean accuracy of ``first`` minus that of ``second``, and p of no difference.

    Both are (runs, examples) over the same examples, which are drawn once for both; the runs of
    each are drawn independently, since a seed means nothing across models. p is two-sided, twice
    the smaller fraction of samples on either side of 0, so that it tests seeds and examples
    together: it is below 0.05 where the interval excludes 0.
    """
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"the runs differ in examples: {first.shape[1]} and {second.shape[1]}")
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    weights = np.concatenate(
        [_draw_runs(len(first), generator), -_draw_runs(len(second), generator)], axis=1
    )
    means = _resampled_means(np.concatenate([first, second]), weights, generator)
    above, below = np.mean(means >= -_ROUNDING), np.mean(means <= _ROUNDING)
    return _interval(means), min(1.0, 2 * float(min(above, below)))


def _draw_runs(runs: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Weight of each run in each sample (samples, runs), drawn with replacement."""
    return generator.multinomial(runs, np.full(runs, 1 / runs), size=BOOTSTRAP_SAMPLES) / runs


def _resampled_means(
    correct: Correct, run_weights: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.float64]:
    """Weighted mean of each sample of runs, over examples drawn with replacement: (samples,).

    Examples with the same column are interchangeable, so they are drawn as one kind: a few hundred
    kinds instead of thousands of examples.
    """
    kinds, counts = np.unique(correct, axis=1, return_counts=True)  # (runs, kinds), (kinds,)
    examples = correct.shape[1]
    drawn = generator.multinomial(examples, counts / examples, size=BOOTSTRAP_SAMPLES)
    means: NDArray[np.float64] = ((run_weights @ kinds) * (drawn / examples)).sum(axis=1)
    return means


def _interval(values: NDArray[np.float64]) -> Interval:
    return Interval(*np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist())
