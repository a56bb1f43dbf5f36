import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from dcnn.metrics import (
    DEFAULT_THRESHOLD,
    MIN_POSITIVES,
    apply_thresholds,
    choose_thresholds,
    evaluate_labels,
    micro_f1,
)


def draw(seed, count, labels):
    generator = np.random.default_rng(seed)
    probabilities = generator.integers(0, 9, (count, labels)).astype(np.float32) / 8  # with ties
    truth = (generator.random((count, labels)) < 0.6 * probabilities).astype(np.float32)
    return truth, probabilities


@settings(max_examples=30)
@given(st.integers(0, 999), st.integers(1, 40), st.integers(2, 5))
def test_scores_are_scikit_learns(seed, count, labels):
    truth, probabilities = draw(seed, count, labels)
    thresholds = np.random.default_rng(seed).random(labels).tolist()
    predicted = (probabilities >= np.array(thresholds)).astype(int)
    scores = evaluate_labels(truth, probabilities, thresholds, range(labels))
    options = {"zero_division": 0}
    for average, found in (("micro", scores.micro_f1), ("macro", scores.macro_f1)):
        expected = metrics.f1_score(truth, predicted, average=average, **options)
        assert found == pytest.approx(expected)
    assert scores.micro_precision == pytest.approx(
        metrics.precision_score(truth, predicted, average="micro", **options)
    )
    assert scores.micro_recall == pytest.approx(
        metrics.recall_score(truth, predicted, average="micro", **options)
    )
    assert scores.subset_accuracy == pytest.approx(metrics.accuracy_score(truth, predicted))
    expected = metrics.precision_recall_fscore_support(truth, predicted, **options)
    found = [[s.precision, s.recall, s.f1, s.support] for s in scores.per_label]
    np.testing.assert_allclose(found, np.array(expected).T)
    assert micro_f1(truth > 0, predicted > 0) == pytest.approx(scores.micro_f1)


@given(st.integers(0, 999), st.integers(1, 60), st.integers(2, 4))
def test_no_threshold_has_a_better_f1_on_dev(seed, count, labels):
    truth, probabilities = draw(seed, count, labels)
    thresholds = choose_thresholds(truth, probabilities)

    def f1(of, given_to):
        together = of.sum() + given_to.sum()
        return 2 * (of * given_to).sum() / together if together else 0.0

    def best(of, at):
        return max(f1(of, at >= cut) for cut in np.arange(-1, 19) / 16)

    given_labels = apply_thresholds(probabilities, thresholds)
    common = None
    for label in range(labels):
        if truth[:, label].sum() >= MIN_POSITIVES:
            expected = best(truth[:, label], probabilities[:, label])
            found = f1(truth[:, label], given_labels[:, label])
            assert found == pytest.approx(expected)
        else:
            common = thresholds[label]
    if common is not None and truth.any():
        found = f1(truth.ravel(), probabilities.ravel() >= common)
        assert found == pytest.approx(best(truth.ravel(), probabilities.ravel()))


def test_without_any_positive_a_label_is_given_from_a_half_on():
    assert choose_thresholds(np.zeros((4, 2)), np.full((4, 2), 0.9)) == (
        DEFAULT_THRESHOLD,
        DEFAULT_THRESHOLD,
    )
    assert choose_thresholds(np.ones((9, 1)), np.zeros((9, 1))) == (DEFAULT_THRESHOLD,)


def test_of_equally_good_thresholds_the_one_nearest_to_a_half_is_taken():
    probabilities = np.array([[0.9], [0.8], [0.7], [0.65], [0.6], [0.1]])
    truth = np.array([[1], [1], [1], [1], [1], [0]])
    assert choose_thresholds(truth, probabilities) == (pytest.approx(0.35),)


def test_the_json_has_the_promised_keys():
    scores = evaluate_labels(np.eye(2), np.full((2, 2), 0.6), [0.5, 0.7], ["a", "b"]).to_dict()
    assert list(scores) == [
        "micro_f1", "micro_precision", "micro_recall", "macro_f1", "subset_accuracy",
        "per_label", "calibration_error",
    ]  # fmt: skip
    assert scores["per_label"]["a"] == {
        "precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1,
    }  # fmt: skip
