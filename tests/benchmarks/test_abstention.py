"""Simulated thresholds of abstention: the texts follow the distribution that judges them."""

import numpy as np
import pytest

import abstention


def test_simulated_texts_have_the_precision_and_coverage_of_the_distribution():
    curve = abstention.simulate(100_000, np.random.default_rng(0))
    for place in curve.at_coverages((0.2, 0.5, 0.9, 1.0)):
        precision, coverage = abstention.on_new_texts(float(curve.thresholds[place]))
        assert curve.precision[place] == pytest.approx(precision, abs=0.01)
        assert curve.coverage[place] == pytest.approx(coverage, abs=0.01)


def test_without_a_threshold_the_accuracy_is_ninety_percent():
    assert abstention.on_new_texts(0.5) == pytest.approx((0.9, 1.0))


def test_only_dev_sets_with_a_threshold_count_as_reached_or_missed():
    found = abstention.summarize([None, 0.5, 0.99])
    assert found["without_threshold"] == 1
    assert found["reached"] == 0.5
