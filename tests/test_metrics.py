import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from dcnn.metrics import (
    DEFAULT_THRESHOLD,
    MAX_TEMPERATURE,
    MIN_POSITIVES,
    MIN_TEMPERATURE,
    abstain,
    apply_thresholds,
    calibrate,
    calibration_error,
    choose_thresholds,
    confidences,
    evaluate,
    evaluate_labels,
    micro_f1,
    reliability,
)
from dcnn.ops.reference import sigmoid, softmax
from dcnn.plots import reliability_svg


@given(st.integers(2, 5), st.integers(1, 40), st.integers(0, 999))
def test_scores_equal_scikit_learn(classes, count, seed):
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
def test_abstaining_scores_only_confident_predictions(count, below, seed):
    generator = np.random.default_rng(seed)
    truth = generator.integers(3, size=count)
    probabilities = generator.dirichlet(np.ones(3), count).astype(np.float32)
    found = abstain(truth, probabilities, below)
    answered = [i for i in range(count) if float(probabilities[i].max()) >= below]
    assert found.coverage == pytest.approx(len(answered) / count)
    hits = [probabilities[i].argmax() == truth[i] for i in answered]
    assert found.accuracy == (pytest.approx(np.mean(hits)) if hits else None)


def draw_labels(seed, count, labels):
    generator = np.random.default_rng(seed)
    probabilities = generator.integers(0, 9, (count, labels)).astype(np.float32) / 8  # with ties
    truth = (generator.random((count, labels)) < 0.6 * probabilities).astype(np.float32)
    return truth, probabilities


@settings(max_examples=30)
@given(st.integers(0, 999), st.integers(1, 40), st.integers(2, 5))
def test_multi_label_scores_equal_scikit_learn(seed, count, labels):
    truth, probabilities = draw_labels(seed, count, labels)
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
    truth, probabilities = draw_labels(seed, count, labels)
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


def test_without_positives_the_threshold_is_one_half():
    assert choose_thresholds(np.zeros((4, 2)), np.full((4, 2), 0.9)) == (
        DEFAULT_THRESHOLD,
        DEFAULT_THRESHOLD,
    )
    assert choose_thresholds(np.ones((9, 1)), np.zeros((9, 1))) == (DEFAULT_THRESHOLD,)


def test_of_equal_thresholds_the_one_nearest_to_one_half_is_chosen():
    probabilities = np.array([[0.9], [0.8], [0.7], [0.65], [0.6], [0.1]])
    truth = np.array([[1], [1], [1], [1], [1], [0]])
    assert choose_thresholds(truth, probabilities) == (pytest.approx(0.35),)


def test_a_threshold_is_not_rounded_to_the_precision_of_the_probabilities():
    probabilities = np.array([[0.9]], np.float32)  # which is 0.89999998
    assert not apply_thresholds(probabilities, [0.9])
    assert apply_thresholds(probabilities, probabilities[0].tolist())


def test_multi_label_json_has_the_promised_keys():
    scores = evaluate_labels(np.eye(2), np.full((2, 2), 0.6), [0.5, 0.7], ["a", "b"]).to_dict()
    assert list(scores) == [
        "micro_f1", "micro_precision", "micro_recall", "macro_f1", "subset_accuracy",
        "per_label", "calibration_error",
    ]  # fmt: skip
    assert scores["per_label"]["a"] == {
        "precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1,
    }  # fmt: skip


def draw_logits(seed, count, classes, *, multi_label, sharpness=1.0):
    """Logits, and a truth drawn from the probabilities of the logits over ``sharpness``."""
    generator = np.random.default_rng(seed)
    honest = generator.normal(0, 2, (count, classes))
    if multi_label:
        truth = (generator.random(honest.shape) < sigmoid(honest)).astype(float)
    else:
        chosen = (honest + generator.gumbel(size=honest.shape)).argmax(axis=1)
        truth = np.eye(classes)[chosen]
    return honest * sharpness, truth


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("sharpness", [0.25, 1.0, 3.0])
def test_the_temperature_that_made_the_logits_too_sharp_is_found(multi_label, sharpness):
    logits, truth = draw_logits(0, 4000, 4, multi_label=multi_label, sharpness=sharpness)
    found = calibrate(logits, truth, multi_label=multi_label)
    assert found.temperature == pytest.approx(sharpness, rel=0.06)
    if sharpness != 1.0:
        assert found.error_after < 0.4 * found.error_before
        assert found.loss_after < found.loss_before


@pytest.mark.parametrize("multi_label", [False, True])
def test_the_temperature_found_on_dev_calibrates_other_texts(multi_label):
    logits, truth = draw_logits(1, 3000, 4, multi_label=multi_label, sharpness=3.0)
    temperature = calibrate(logits[:1000], truth[:1000], multi_label=multi_label).temperature
    head = sigmoid if multi_label else softmax
    before, after = (
        calibration_error(
            reliability(
                *confidences(head(logits[1000:] / one), truth[1000:], multi_label=multi_label)
            )
        )
        for one in (1.0, temperature)
    )
    assert after < 0.5 * before


@given(st.integers(0, 999), st.integers(1, 40), st.integers(2, 5), st.booleans())
def test_no_other_temperature_makes_the_dev_set_more_likely(seed, count, classes, multi_label):
    logits, truth = draw_logits(seed, count, classes, multi_label=multi_label, sharpness=2.0)
    found = calibrate(logits, truth, multi_label=multi_label)
    doubt = 1 / (count + 2)
    believed = np.where(truth > 0, 1 - doubt, doubt / (1 if multi_label else classes - 1))

    def loss(temperature):
        scaled = logits / temperature
        if multi_label:
            return (np.logaddexp(0, scaled) - believed * scaled).sum()
        return -(believed * np.log(softmax(scaled))).sum()

    others = [found.temperature * factor for factor in (0.9, 0.99, 1.01, 1.1)]
    at_a_bound = not MIN_TEMPERATURE * 1.01 < found.temperature < MAX_TEMPERATURE / 1.01
    assert at_a_bound or all(loss(found.temperature) <= loss(one) + 1e-9 for one in others)


@pytest.mark.parametrize("multi_label", [False, True])
def test_a_dev_set_without_an_error_leaves_some_doubt(multi_label):
    truth = np.eye(2)[[0, 1, 0, 1, 1]]
    found = calibrate(
        (truth - 0.5) * 2e-3, truth, multi_label=multi_label
    )  # right, and hardly sure of it
    assert found.temperature == pytest.approx(MIN_TEMPERATURE)
    logits = (truth - 0.5) * 20  # right, and as good as certain
    found = calibrate(logits, truth, multi_label=multi_label)
    head = sigmoid if multi_label else softmax
    assert head(logits / found.temperature).max() == pytest.approx(6 / 7)


def test_constant_logits_keep_a_temperature_of_1():
    assert calibrate(np.zeros((3, 2)), np.eye(2)[[0, 1, 1]]).temperature == 1.0


def test_bins_count_every_prediction_once_with_confidence_and_accuracy():
    confidence = np.array([0.0, 0.61, 0.65, 1.0, 1.0])
    bins = reliability(confidence, np.array([False, True, False, True, False]))
    assert [one.count for one in bins if one.count] == [1, 2, 2]
    middle = next(one for one in bins if one.low < 0.62 < one.high)
    assert (middle.confidence, middle.accuracy) == (pytest.approx(0.63), 0.5)
    assert calibration_error(bins) == pytest.approx((2 * 0.13 + 2 * 0.5) / 5)


def test_where_multi_label_every_label_is_a_prediction():
    probabilities = np.array([[0.9, 0.2], [0.4, 0.7]])
    confidence, right = confidences(probabilities, np.array([[1, 0], [1, 1]]), multi_label=True)
    assert confidence.tolist() == [0.9, 0.2, 0.4, 0.7]
    assert right.tolist() == [True, False, True, True]


def test_the_sigmoid_is_exact_and_overflows_nowhere():
    logits = np.array([-1000, -3, 0, 3, 1000], np.float32)
    found = sigmoid(logits)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [0, 1 / (1 + np.e**3), 0.5, 1 / (1 + np.e**-3), 1], rtol=1e-6)


def test_the_diagram_has_a_bar_for_each_bin_that_is_not_empty():
    bins = reliability(np.array([0.5, 0.9, 0.92]), np.array([True, True, False]))
    picture = reliability_svg(bins, "a & b")
    assert picture.startswith("<svg")
    assert "a &amp; b" in picture
    assert "3 predictions" in picture
    assert picture.count('fill-opacity="0.75"') == 2
