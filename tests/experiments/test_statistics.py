import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from dcnn.experiments.statistics import (
    BOOTSTRAP_SAMPLES,
    bootstrap_difference,
    bootstrap_mean,
    mcnemar,
    summarize,
)

counts = st.integers(0, 60)


def two_runs(first_alone, second_alone, alike=0):
    """Two runs, one of them alone right on so many examples, and both right on ``alike``."""
    first = np.repeat([True, False, True], [first_alone, second_alone, alike])
    second = np.repeat([False, True, True], [first_alone, second_alone, alike])
    return first, second


@given(counts, counts, counts)
def test_mcnemar_is_the_binomial_written_out(first_alone, second_alone, alike):
    trials, fewer = first_alone + second_alone, min(first_alone, second_alone)
    ways = sum(math.comb(trials, chosen) for chosen in range(fewer + 1))
    expected = min(Fraction(1), Fraction(2 * ways, 2**trials))
    first, second = two_runs(first_alone, second_alone, alike)
    assert mcnemar(first, second) == pytest.approx(float(expected), rel=1e-12)
    assert mcnemar(first, second) == mcnemar(second, first)


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_mcnemar_is_scipys_for_thousands_of_examples(first_alone, second_alone):
    p = mcnemar(*two_runs(first_alone, second_alone))
    if first_alone + second_alone == 0:
        assert p == 1
    else:
        expected = binomtest(first_alone, first_alone + second_alone).pvalue
        assert p == pytest.approx(expected, rel=1e-9, abs=1e-290)


def test_runs_that_agree_or_win_equally_often_do_not_differ():
    assert mcnemar(*two_runs(0, 0, 9)) == 1
    assert mcnemar(*two_runs(4, 4, 9)) == 1


def test_an_extra_win_never_lets_the_leader_look_less_sure():
    p_values = [mcnemar(*two_runs(20 + extra, 20)) for extra in range(40)]
    assert p_values == sorted(p_values, reverse=True)


def test_runs_over_other_examples_are_not_compared():
    with pytest.raises(ValueError, match=r"\(3,\) and \(4,\)"):
        mcnemar(np.ones(3, dtype=bool), np.ones(4, dtype=bool))
    with pytest.raises(ValueError, match="3 and 4"):
        bootstrap_difference(np.ones((1, 3), dtype=bool), np.ones((1, 4), dtype=bool))


def random_runs(runs, examples, seed, accuracy=0.5):
    return np.random.default_rng(seed).random((runs, examples)) < accuracy


@given(st.integers(1, 5), st.integers(2, 40), st.integers(0, 99))
def test_the_interval_of_data_and_its_mirror_image_holds_a_half(count, examples, seed):
    runs = random_runs(count, examples, seed)
    symmetric = np.concatenate([runs, ~runs], axis=1)
    interval = bootstrap_mean(symmetric)
    assert 0 <= interval.low <= 0.5 <= interval.high <= 1


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 99))
def test_the_interval_of_a_difference_turns_round_with_it(first_runs, second_runs, seed):
    first = random_runs(first_runs, 200, seed, accuracy=0.7)
    second = random_runs(second_runs, 200, seed + 1)
    forth, back = bootstrap_difference(first, second), bootstrap_difference(second, first)
    nearly = (forth.high - forth.low) / 8  # the samples are others
    assert forth.low == pytest.approx(-back.high, abs=nearly)
    assert forth.high == pytest.approx(-back.low, abs=nearly)


@pytest.mark.parametrize("runs", [1, 5])
def test_intervals_shrink_with_the_number_of_examples(runs):
    few, multi_label = random_runs(runs, 100, 0), random_runs(runs, 10_000, 0)
    for bootstrap in (bootstrap_mean, lambda correct: bootstrap_difference(correct, ~correct)):
        wide, narrow = bootstrap(few), bootstrap(multi_label)
        assert narrow.high - narrow.low < (wide.high - wide.low) / 3


def test_one_run_gives_the_interval_of_the_binomial():
    examples, accuracy = 1000, 0.8
    interval = bootstrap_mean(np.arange(examples)[None] < accuracy * examples)
    half = 1.96 * math.sqrt(accuracy * (1 - accuracy) / examples)
    assert interval.low == pytest.approx(accuracy - half, abs=half / 8)
    assert interval.high == pytest.approx(accuracy + half, abs=half / 8)


def test_the_interval_covers_the_choice_of_seeds():
    # Whatever the examples, a run is wholly right or wholly wrong: all the spread is the seeds'.
    interval = bootstrap_mean(np.array([[True] * 1000, [False] * 1000]))
    assert (interval.low, interval.high) == (0, 1)


def test_examples_are_drawn_once_for_both_models():
    # One right answer more in a hundred, the rest shared: most of the spread cancels out.
    first, second = np.arange(100)[None] < 51, np.arange(100)[None] < 50
    difference, mean = bootstrap_difference(first, second), bootstrap_mean(first)
    assert difference.low >= 0
    assert difference.high - difference.low < (mean.high - mean.low) / 4


def test_seeds_are_drawn_for_a_difference_too():
    # Every example says the same: all the spread there is comes from which runs are drawn.
    unlike = np.repeat([[True], [False], [True], [False]], 50, axis=1)
    steady = np.ones((4, 50), bool)
    difference = bootstrap_difference(unlike, steady)
    assert (difference.low, difference.high) == (
        pytest.approx(-1, abs=0.1),
        pytest.approx(0, abs=0.1),
    )
    swapped = bootstrap_difference(steady, unlike)
    assert swapped.high - swapped.low > 0.5


@pytest.mark.parametrize("count", [1, 2, 5])
def test_drawing_kinds_of_examples_is_drawing_examples_one_by_one(count):
    runs = random_runs(count, 200, seed=count, accuracy=0.8)
    generator = np.random.default_rng(0)
    means = [
        runs[generator.integers(len(runs), size=len(runs))][
            :, generator.integers(runs.shape[1], size=runs.shape[1])
        ].mean()
        for _ in range(BOOTSTRAP_SAMPLES)
    ]
    interval = bootstrap_mean(runs)
    nearly = (interval.high - interval.low) / 12
    assert interval.low == pytest.approx(np.quantile(means, 0.025), abs=nearly)
    assert interval.high == pytest.approx(np.quantile(means, 0.975), abs=nearly)


def test_the_same_runs_give_the_same_interval_and_its_mean_lies_inside():
    first, second = random_runs(5, 500, 1, 0.9), random_runs(3, 500, 2, 0.8)
    assert bootstrap_mean(first) == bootstrap_mean(first)
    interval = bootstrap_difference(first, second)
    assert interval == bootstrap_difference(first, second)
    assert interval.low < first.mean() - second.mean() < interval.high


def test_summary_by_hand():
    summary = summarize([0.5, 0.7, 0.9])
    assert summary.mean == pytest.approx(0.7)
    assert summary.deviation == pytest.approx(0.2)
    assert (summary.best, summary.runs) == (0.9, 3)
    assert summarize([0.5]).deviation is None
