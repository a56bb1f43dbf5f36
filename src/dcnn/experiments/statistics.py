"""How sure the figures of a table are: spread over seeds, bootstrap intervals, McNemar's test.

Runs are rows of booleans, right or wrong, a column a test example. A model's accuracy varies for
two reasons: the seed it was trained with and the test examples it was asked. The bootstrap draws
both anew, so its interval covers both.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Correct = NDArray[np.bool_]  # (examples,) of one run, or (runs, examples)

CONFIDENCE = 0.95
BOOTSTRAP_SAMPLES = 2_000  # leaves the ends uncertain by some hundredths of a point
_BOOTSTRAP_SEED = 20140408  # any; fixed, so that a table is the same whenever it is rendered


@dataclass(frozen=True)
class Summary:
    """Accuracies of the runs of a model.

    Attributes:
        mean: their mean.
        deviation: their sample standard deviation; none for a single run.
        best: the highest.
        runs: how many.
    """

    mean: float
    deviation: float | None
    best: float
    runs: int


@dataclass(frozen=True)
class Interval:
    """A bootstrap interval, its ends included."""

    low: float
    high: float


def summarize(accuracies: Sequence[float]) -> Summary:
    """Mean, sample standard deviation, best and number of ``accuracies``."""
    return Summary(
        mean=statistics.fmean(accuracies),
        deviation=statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        best=max(accuracies),
        runs=len(accuracies),
    )


def mcnemar(first: Correct, second: Correct) -> float:
    """Exact two-sided p of McNemar's test on two runs over the same examples, each (examples,).

    Only the examples that one run gets right and the other wrong tell the two apart. Were both
    equally good, each would win such an example with probability 1/2.
    """
    if first.shape != second.shape:
        raise ValueError(f"the runs differ in examples: {first.shape} and {second.shape}")
    first_alone = int((first & ~second).sum())
    second_alone = int((second & ~first).sum())
    return _two_sided_binomial(min(first_alone, second_alone), first_alone + second_alone)


def _two_sided_binomial(fewer: int, trials: int) -> float:
    """Probability that a fair coin falls at least as unevenly as ``fewer`` to the rest.

    Whole numbers all the way: the number of outcomes overflows a float from 1,024 trials on, and
    Python divides whole numbers of any size with a single rounding.
    """
    ways = tail = 1
    for chosen in range(fewer):
        ways = ways * (trials - chosen) // (chosen + 1)
        tail += ways
    return min(1.0, 2 * tail / (1 << trials))


def bootstrap_mean(correct: Correct) -> Interval:
    """Interval of the mean accuracy of ``correct`` (runs, examples)."""
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    return _percentiles(_resampled_means(correct, _draw_runs(len(correct), generator), generator))


def bootstrap_difference(first: Correct, second: Correct) -> Interval:
    """Interval of the mean accuracy of ``first`` minus that of ``second``.

    Both are (runs, examples) over the same examples, which are drawn once for both; the runs of
    each are drawn on their own, since a seed means nothing across models.
    """
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"the runs differ in examples: {first.shape[1]} and {second.shape[1]}")
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    weights = np.concatenate(
        [_draw_runs(len(first), generator), -_draw_runs(len(second), generator)], axis=1
    )
    return _percentiles(_resampled_means(np.concatenate([first, second]), weights, generator))


def _draw_runs(runs: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Weight of each run in each sample (samples, runs), drawn with replacement."""
    counts = generator.multinomial(runs, np.full(runs, 1 / runs), size=BOOTSTRAP_SAMPLES)
    return counts / runs


def _resampled_means(
    correct: Correct, run_weights: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.float64]:
    """Weighted mean of each sample of runs, over examples drawn with replacement: (samples,).

    Examples that the runs answer alike are interchangeable, so they are drawn as one kind: a few
    hundred kinds instead of thousands of examples.
    """
    kinds, counts = np.unique(correct, axis=1, return_counts=True)  # (runs, kinds), (kinds,)
    examples = correct.shape[1]
    drawn = generator.multinomial(examples, counts / examples, size=BOOTSTRAP_SAMPLES)
    means: NDArray[np.float64] = ((run_weights @ kinds) * (drawn / examples)).sum(axis=1)
    return means


def _percentiles(values: NDArray[np.float64]) -> Interval:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(low), float(high))
