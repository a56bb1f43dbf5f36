import json
import re
import tracemalloc

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
    STORED_POINTS,
    Z_95,
    abstain,
    abstention_record,
    apply_thresholds,
    bootstrap_intervals,
    calibrate,
    calibration_error,
    choose_thresholds,
    confidences,
    cross_fitted_thresholds,
    evaluate,
    evaluate_labels,
    micro_f1,
    reliability,
    risk_coverage,
    stored_curve,
)
from dcnn.ops.reference import sigmoid, softmax
from dcnn.plots import reliability_svg, risk_coverage_svg


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
        "accuracy", "macro_f1", "per_class", "calibration_error", "confusion",
    ]  # fmt: skip
    assert json.loads(json.dumps(scores))["confusion"] == [[1, 0], [1, 0]]


def test_many_classes_take_memory_in_proportion():
    # A confusion matrix of as many classes would be 3.2 GB, in double precision all logits 64 MB.
    generator = np.random.default_rng(0)
    logits = generator.standard_normal((400, 20_000), np.float32)
    truth = generator.integers(20_000, size=400)
    labels = list(map(str, range(20_000)))
    tracemalloc.start()
    try:
        scores = evaluate(truth, logits, labels)
        bootstrap_intervals(truth, logits, resamples=3)
        calibrate(logits, truth)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * logits.nbytes
    values = scores.to_dict()
    assert sum(count for _, _, count in values["confusion"]["pairs"]) == 400
    assert len(json.dumps(values)) < 3e6


@pytest.mark.parametrize("multi_label", [False, True])
def test_blocks_change_no_temperature(monkeypatch, multi_label):
    logits, truth = draw_logits(0, 60, 5, multi_label=multi_label, sharpness=2.0)
    whole = calibrate(logits, truth, multi_label=multi_label).to_dict()
    monkeypatch.setattr("dcnn.metrics.BLOCK", 35)
    assert calibrate(logits, truth, multi_label=multi_label).to_dict() == pytest.approx(whole)
    if not multi_label:
        assert calibrate(logits, truth.argmax(axis=1)).to_dict() == pytest.approx(whole)


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


@given(st.integers(0, 999), st.integers(1, 60))
def test_the_truth_of_a_text_has_no_say_in_its_own_thresholds(seed, count):
    truth, probabilities = draw_labels(seed, count, 3)
    fair = cross_fitted_thresholds(truth, probabilities)
    text = seed % count
    truth[text] = 1 - truth[text]
    np.testing.assert_array_equal(cross_fitted_thresholds(truth, probabilities)[text], fair[text])


def test_the_score_of_thresholds_that_dev_chose_is_too_good_on_dev():
    means = []
    for choose in (choose_thresholds, cross_fitted_thresholds):
        draws = [draw_labels(seed, 60, 4) for seed in range(20)]
        means.append(np.mean([evaluate_labels(*d, choose(*d), "abcd").macro_f1 for d in draws]))
    assert means[0] > means[1] + 0.02


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


def draw_answers(seed, count):
    """Class numbers, some out of scope, and probabilities with ties."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(-1, 3, size=count)
    probabilities = generator.integers(1, 6, (count, 3)).astype(np.float32)
    return truth, probabilities / probabilities.sum(axis=1, keepdims=True)


@given(st.integers(0, 9999), st.integers(1, 60), st.sampled_from([-1, 2]))
def test_every_threshold_counts_what_is_answered(seed, count, outside):
    truth, probabilities = draw_answers(seed, count)
    curve = risk_coverage(truth, probabilities, outside)
    best, label = probabilities.max(axis=1).astype(float), probabilities.argmax(axis=1)
    inside = (truth >= 0) & (truth != outside)
    # Texts of equal probability are on one side: one point per distinct probability.
    assert len(curve.thresholds) == len(set(best[label != outside]))
    assert (np.diff(curve.thresholds) < 0).all()
    assert (np.diff(curve.coverage) >= 0).all()
    for place, below in enumerate(curve.thresholds):
        answered = (best >= below) & (label != outside)
        assert not np.isin(below, best)
        assert curve.answered[place] == answered.sum()
        assert curve.correct[place] == (answered & inside & (label == truth)).sum()
        assert curve.outside[place] == (answered & ~inside).sum()
        point = abstain(truth, probabilities, below, outside)
        assert point.coverage == curve.coverage[place]
        assert point.accuracy == curve.precision[place]
    assert (curve.examples, curve.outside_examples) == (inside.sum(), (~inside).sum())


@given(st.integers(0, 9999), st.integers(1, 400), st.floats(0, 1))
def test_the_lowest_threshold_of_a_precision_is_chosen(seed, count, target):
    curve = risk_coverage(*draw_answers(seed, count))
    bound, precision, n = curve.precision_bound, curve.precision, curve.answered
    # Wilson: the precision at whose normal approximation the found one is Z_95 deviations higher.
    np.testing.assert_allclose(
        precision - bound, Z_95 * np.sqrt(bound * (1 - bound) / n), atol=1e-6
    )
    place = curve.choose(target)
    assert place == max((i for i in range(len(bound)) if bound[i] >= target), default=None)
    if place is None:
        message = str(curve.unreachable(target, "dev"))
        assert f"the best is {100 * bound.max():.1f} %" in message
        assert f"at a coverage of {100 * curve.coverage[bound.argmax()]:.1f} %" in message


@given(st.integers(0, 9999), st.integers(1, 400), st.floats(0, 0.9))
def test_a_stored_curve_keeps_the_choice_and_the_best(seed, count, target):
    generator = np.random.default_rng(seed)
    truth, probabilities = np.zeros(count, int), generator.dirichlet((3, 1), count)
    curve = risk_coverage(truth, probabilities)
    record = json.loads(json.dumps(abstention_record(curve, "dev", target=target)))
    again = stored_curve(record)
    assert len(again.thresholds) <= STORED_POINTS + 2
    assert again.coverage[-1] == curve.coverage[-1]
    assert again.precision_bound.max() == curve.precision_bound.max()
    place, kept = curve.choose(target), again.choose(target)
    assert (place is None) == (kept is None) == ("threshold" not in record)
    if place is not None:
        assert again.thresholds[kept] == curve.thresholds[place] == record["threshold"]


def test_a_chosen_threshold_holds_on_new_texts():
    """19 of 20 times it should; by the precision on dev itself it would every other time."""
    generator = np.random.default_rng(0)

    def draw(count):
        p = 0.5 + generator.beta(4, 1, count) / 2  # calibrated
        truth = np.where(generator.random(count) < p, 0, 1)
        return truth, np.stack([p, 1 - p], axis=1)

    new = draw(100_000)
    held = optimistic = 0
    for _ in range(100):
        curve = risk_coverage(*draw(1000))
        chosen = curve.choose(0.95)
        held += chosen is None or abstain(*new, curve.thresholds[chosen]).accuracy >= 0.95
        naive = curve.thresholds[np.flatnonzero(curve.precision >= 0.95)[-1]]
        optimistic += abstain(*new, naive).accuracy >= 0.95
    assert held >= 90
    assert optimistic < 65


def test_nothing_answered_is_no_curve():
    curve = risk_coverage(np.array([0, 1]), np.array([[0.1, 0.9], [0.2, 0.8]]), out_of_scope=1)
    assert len(curve.thresholds) == 0
    assert curve.choose(0.5) is None
    assert "it answers no text" in str(curve.unreachable(0.5, "dev"))
    assert stored_curve(abstention_record(curve, "dev")).choose(0.5) is None
    assert risk_coverage_svg(curve, "a").startswith("<svg")


def test_the_risk_of_the_first_answers_is_not_what_the_picture_is_scaled_by():
    best = np.linspace(0.99, 0.6, 100)
    truth = np.array([1, *[0] * 89, *[1] * 10])  # the most confident answer is an error
    curve = risk_coverage(truth, np.stack([best, 1 - best], axis=1))
    picture = risk_coverage_svg(curve, "a", float(curve.thresholds[50]))
    path = re.search(r'<path d="M([^"]+)" stroke="#0b6e4f"', picture)[1]
    heights = [float(point.split()[1]) for point in path.split("L")]
    assert min(heights) == 54  # the top of the square
    assert heights[-1] < 100  # a risk of 0.11
    assert picture.count("<circle") == 1


def resampled(score, n, seed, count=600):
    """The bootstrap by its definition: draw texts, score, take the middle 95 %."""
    generator = np.random.default_rng(seed)
    values = [score(generator.integers(n, size=n)) for _ in range(count)]
    return np.quantile(values, (0.025, 0.975))


def test_intervals_are_those_of_texts_drawn_again():
    generator = np.random.default_rng(3)
    truth, p = generator.integers(3, size=150), generator.dirichlet(np.ones(3), 150)
    p[np.arange(150), truth] += 0.4
    found = bootstrap_intervals(truth, p)
    for name in ("accuracy", "macro_f1"):
        ends = resampled(
            lambda d, name=name: getattr(evaluate(truth[d], p[d], "abc"), name), 150, 1
        )
        np.testing.assert_allclose(found[name], ends, atol=0.02)
        assert found[name][0] < getattr(evaluate(truth, p, "abc"), name) < found[name][1]
    assert bootstrap_intervals(truth, p) == found
    assert bootstrap_intervals(truth, p, seed=1) != found
    flags, limits = generator.integers(2, size=(120, 3)), (0.3, 0.4, 0.5)
    p = np.clip(0.6 * flags + generator.random((120, 3)) * 0.5, 0, 1)
    found = bootstrap_intervals(flags, p, limits)
    assert found.keys() == {"subset_accuracy", "macro_f1", "micro_f1"}
    for name, ends in found.items():
        expected = resampled(
            lambda d, name=name: getattr(evaluate_labels(flags[d], p[d], limits, "abc"), name),
            120,
            1,
        )
        np.testing.assert_allclose(ends, expected, atol=0.02)


@given(st.integers(2, 6), st.integers(1, 30), st.integers(0, 99))
def test_intervals_are_ordered_and_within_bounds(classes, count, seed):
    generator = np.random.default_rng(seed)
    truth, p = generator.integers(classes, size=count), generator.dirichlet(np.ones(classes), count)
    for low, high in bootstrap_intervals(truth, p, resamples=50).values():
        assert 0 <= low <= high <= 1
    perfect = bootstrap_intervals(truth, np.eye(classes)[truth], resamples=50)
    assert set(perfect.values()) == {(1.0, 1.0)}
