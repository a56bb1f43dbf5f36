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

    def percent(self, digits: int) -> str:
        """Mean and standard deviation in %."""
        spread = "" if self.deviation is None else f" ± {100 * self.deviation:.{digits}f}"
        return f"{100 * self.mean:.{digits}f}{spread}"


class Interval(NamedTuple):
    """A bootstrap interval, its ends included."""

    low: float
    high: float

    def percent(self, sign: str = "") -> str:
        """Both ends in %; ``sign`` may ask for a plus, as in a format."""
        return f"{100 * self.low:{sign}.1f} to {100 * self.high:{sign}.1f}"


def summarize(accuracies: Sequence[float]) -> Summary:
    """Mean, sample standard deviation, best and number of ``accuracies``."""
    deviation = statistics.stdev(accuracies) if len(accuracies) > 1 else None
    return Summary(statistics.fmean(accuracies), deviation, max(accuracies), len(accuracies))


def bootstrap_mean(correct: Correct) -> Interval:
    """Interval of the mean accuracy of ``correct`` (runs, examples)."""
    return _interval(_resampled_means(correct))


def bootstrap_difference(first: Correct, second: Correct) -> tuple[Interval, float]:
    """Interval of the mean accuracy of ``first`` minus that of ``second``, and p of no difference.

    Both are (runs, examples) over the same examples, which are drawn once for both; the runs of
    each are drawn independently, since a seed means nothing across models. p is two-sided, twice
    the smaller fraction of samples on either side of 0, so that it tests seeds and examples
    together: it is below 0.05 where the interval excludes 0.
    """
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"the runs differ in examples: {first.shape[1]} and {second.shape[1]}")
    means = _resampled_means(first, second)
    above, below = np.mean(means >= -_ROUNDING), np.mean(means <= _ROUNDING)
    return _interval(means), min(1.0, 2 * float(min(above, below)))


def _resampled_means(*models: Correct) -> NDArray[np.float64]:
    """Mean accuracy of the first model, minus that of the second, in each sample: (samples,).

    Runs and examples are drawn with replacement. Examples with the same column are interchangeable,
    so they are drawn as one kind: a few hundred kinds instead of thousands of examples.
    """
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    drawn_runs = []  # of each model (samples, runs): the weight of each run
    for sign, runs in zip((1, -1), map(len, models), strict=False):
        counts = generator.multinomial(runs, np.full(runs, 1 / runs), size=BOOTSTRAP_SAMPLES)
        drawn_runs.append(sign * counts / runs)
    correct = np.concatenate(models)
    kinds, counts = np.unique(correct, axis=1, return_counts=True)  # (runs, kinds), (kinds,)
    examples = correct.shape[1]
    drawn = generator.multinomial(examples, counts / examples, size=BOOTSTRAP_SAMPLES)
    weights = np.concatenate(drawn_runs, axis=1)
    means: NDArray[np.float64] = ((weights @ kinds) * (drawn / examples)).sum(axis=1)
    return means


def _interval(values: NDArray[np.float64]) -> Interval:
    return Interval(*np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist())
