import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.metrics import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    calibrate,
    calibration_error,
    confidences,
    reliability,
    sigmoid,
    softmax,
)
from dcnn.plots import reliability_svg


def draw(seed, count, classes, *, multi_label, sharpness=1.0):
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
    logits, truth = draw(0, 4000, 4, multi_label=multi_label, sharpness=sharpness)
    found = calibrate(logits, truth, multi_label=multi_label)
    assert found.temperature == pytest.approx(sharpness, rel=0.06)
    if sharpness != 1.0:
        assert found.error_after < 0.4 * found.error_before
        assert found.loss_after < found.loss_before


@pytest.mark.parametrize("multi_label", [False, True])
def test_what_dev_finds_helps_other_texts_too(multi_label):
    logits, truth = draw(1, 3000, 4, multi_label=multi_label, sharpness=3.0)
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
    logits, truth = draw(seed, count, classes, multi_label=multi_label, sharpness=2.0)
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
def test_a_dev_set_without_a_fault_leaves_some_doubt(multi_label):
    truth = np.eye(2)[[0, 1, 0, 1, 1]]
    found = calibrate(
        (truth - 0.5) * 2e-3, truth, multi_label=multi_label
    )  # right, and hardly sure of it
    assert found.temperature == pytest.approx(MIN_TEMPERATURE)
    logits = (truth - 0.5) * 20  # right, and as good as certain
    found = calibrate(logits, truth, multi_label=multi_label)
    head = sigmoid if multi_label else softmax
    assert head(logits / found.temperature).max() == pytest.approx(6 / 7)


def test_logits_that_say_nothing_keep_their_temperature():
    assert calibrate(np.zeros((3, 2)), np.eye(2)[[0, 1, 1]]).temperature == 1.0


def test_bins_count_every_prediction_once_with_its_mean_and_its_hits():
    confidence = np.array([0.0, 0.61, 0.65, 1.0, 1.0])
    bins = reliability(confidence, np.array([False, True, False, True, False]))
    assert [one.count for one in bins if one.count] == [1, 2, 2]
    middle = next(one for one in bins if one.low < 0.62 < one.high)
    assert (middle.confidence, middle.accuracy) == (pytest.approx(0.63), 0.5)
    assert calibration_error(bins) == pytest.approx((2 * 0.13 + 2 * 0.5) / 5)


def test_with_many_labels_every_label_is_a_prediction():
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
