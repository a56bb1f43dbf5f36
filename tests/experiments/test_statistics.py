import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from dcnn.experiments.statistics import (
    BOOTSTRAP_SAMPLES,
    bootstrap_difference,
    bootstrap_mean,
    summarize,
)


def test_runs_over_other_examples_are_not_compared():
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
    first = random_runs(first_runs, 80, seed, accuracy=0.7)
    second = random_runs(second_runs, 80, seed + 1)
    (forth, p), (back, p_back) = (
        bootstrap_difference(first, second),
        bootstrap_difference(second, first),
    )
    assert p == pytest.approx(p_back, abs=0.05)
    nearly = (forth.high - forth.low) / 8  # the samples are others
    assert forth.low == pytest.approx(-back.high, abs=nearly)
    assert forth.high == pytest.approx(-back.low, abs=nearly)


@pytest.mark.parametrize("runs", [1, 5])
def test_intervals_shrink_with_the_number_of_examples(runs):
    few, many = random_runs(runs, 100, 0), random_runs(runs, 10_000, 0)
    for bootstrap in (bootstrap_mean, lambda correct: bootstrap_difference(correct, ~correct)[0]):
        wide, narrow = bootstrap(few), bootstrap(many)
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
    difference, mean = bootstrap_difference(first, second)[0], bootstrap_mean(first)
    assert difference.low >= 0
    assert difference.high - difference.low < (mean.high - mean.low) / 4


def test_seeds_are_drawn_for_a_difference_too():
    # Every example says the same: all the spread there is comes from which runs are drawn.
    unlike = np.repeat([[True], [False], [True], [False]], 50, axis=1)
    steady = np.ones((4, 50), bool)
    difference, _ = bootstrap_difference(unlike, steady)
    assert (difference.low, difference.high) == (
        pytest.approx(-1, abs=0.1),
        pytest.approx(0, abs=0.1),
    )
    swapped, _ = bootstrap_difference(steady, unlike)
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
    interval, p = bootstrap_difference(first, second)
    assert (interval, p) == bootstrap_difference(first, second)
    assert interval.low < first.mean() - second.mean() < interval.high


@pytest.mark.parametrize(("first_alone", "second_alone"), [(30, 30), (40, 25), (45, 20), (60, 15)])
def test_p_of_two_single_runs_is_close_to_mcnemars(first_alone, second_alone):
    first = np.repeat([True, False, True], [first_alone, second_alone, 500])[None]
    second = np.repeat([False, True, True], [first_alone, second_alone, 500])[None]
    expected = binomtest(first_alone, first_alone + second_alone).pvalue
    assert bootstrap_difference(first, second)[1] == pytest.approx(expected, abs=0.03)


def test_p_is_one_where_nothing_differs_and_small_where_one_model_always_wins():
    runs = random_runs(3, 200, 0)
    assert bootstrap_difference(runs[:1], runs[:1])[1] == 1
    assert bootstrap_difference(np.ones((3, 200), bool), runs)[1] < 0.001


def test_p_counts_the_spread_of_the_seeds():
    # The same mean difference: once in every seed, once from the luck of one seed in five.
    base = np.arange(1000) < 700
    steady = np.tile(np.arange(1000) < 740, (5, 1))
    lucky = np.stack([base, base, base, base, np.arange(1000) < 900])
    reference = np.tile(base, (5, 1))
    assert steady.mean() == lucky.mean()
    assert bootstrap_difference(steady, reference)[1] < 0.001
    assert bootstrap_difference(lucky, reference)[1] > 0.3


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
def test_p_is_below_five_percent_where_the_interval_excludes_zero(first_runs, second_runs, seed):
    first = random_runs(first_runs, 100, seed, accuracy=0.6)
    interval, p = bootstrap_difference(first, random_runs(second_runs, 100, seed + 1))
    if interval.low > 1e-9 or interval.high < -1e-9:
        assert p <= 0.05
    if interval.low < -1e-9 and interval.high > 1e-9:
        assert p >= 0.05


def test_p_of_equal_models_is_rarely_small():
    p_values = [
        bootstrap_difference(random_runs(3, 60, seed), random_runs(3, 60, 1000 + seed))[1]
        for seed in range(60)
    ]
    assert sum(p < 0.05 for p in p_values) <= 8  # 3 in the mean


def test_summary_by_hand():
    summary = summarize([0.5, 0.7, 0.9])
    assert summary.mean == pytest.approx(0.7)
    assert summary.deviation == pytest.approx(0.2)
    assert (summary.best, summary.runs) == (0.9, 3)
    assert summarize([0.5]).deviation is None
