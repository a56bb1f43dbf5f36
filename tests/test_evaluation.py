import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from dcnn.metrics import abstain, evaluate


@given(st.integers(2, 5), st.integers(1, 40), st.integers(0, 999))
def test_scores_are_scikit_learns(classes, count, seed):
    generator = np.random.default_rng(seed)
    truth = generator.integers(classes, size=count)
    probabilities = generator.dirichlet(np.ones(classes), count)
    predicted = probabilities.argmax(axis=1)
    names = list(range(classes))
    scores = evaluate(truth, probabilities, names)
    assert scores.accuracy == pytest.approx(metrics.accuracy_score(truth, predicted))
    assert scores.macro_f1 == pytest.approx(
        metrics.f1_score(truth, predicted, average="macro", zero_division=0)
    )
    np.testing.assert_array_equal(
        scores.confusion, metrics.confusion_matrix(truth, predicted, labels=names)
    )
    expected = metrics.precision_recall_fscore_support(
        truth, predicted, labels=names, zero_division=0
    )
    found = [[s.precision, s.recall, s.f1, s.support] for s in scores.per_class]
    np.testing.assert_allclose(found, np.array(expected).T)


def test_calibration_error_by_hand():
    # Two bins: confidence .6 with one of two right, confidence 1 with both right.
    probabilities = np.array([[0.6, 0.4], [0.6, 0.4], [1, 0], [0, 1]])
    scores = evaluate(np.array([0, 1, 0, 1]), probabilities, ["a", "b"])
    assert scores.calibration_error == pytest.approx((2 * 0.1 + 0) / 4)


def test_json_has_the_promised_keys():
    scores = evaluate(np.array([0, 1]), np.array([[0.9, 0.1], [0.8, 0.2]]), ["a", "b"]).to_dict()
    assert list(scores) == [
        "accuracy", "macro_f1", "per_class", "confusion", "calibration_error",
    ]  # fmt: skip
    assert json.loads(json.dumps(scores))["confusion"] == [[1, 0], [1, 0]]


@given(st.integers(1, 30), st.floats(0, 1), st.integers(0, 99))
def test_abstaining_leaves_the_answers_that_are_sure_enough(count, below, seed):
    generator = np.random.default_rng(seed)
    truth = generator.integers(3, size=count)
    probabilities = generator.dirichlet(np.ones(3), count).astype(np.float32)
    found = abstain(truth, probabilities, below)
    answered = [i for i in range(count) if float(probabilities[i].max()) >= below]
    assert found.coverage == pytest.approx(len(answered) / count)
    hits = [probabilities[i].argmax() == truth[i] for i in answered]
    assert found.accuracy == (pytest.approx(np.mean(hits)) if hits else None)
