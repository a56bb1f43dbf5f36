"""Cross-validation and learning curves: what is trained on which examples, and what follows."""

import itertools
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.config import Config, DCNNConfig, TextConfig
from dcnn.data.labels import number_labels
from dcnn.data.split import split_label_sets
from dcnn.errors import DataError
from dcnn.training import resampling
from dcnn.training.resampling import (
    CurvePoint,
    cross_validation,
    curve_sizes,
    judge_curve,
    learning_curve,
)

SMALL = DCNNConfig(dim=8, widths=(3,), maps=(2,), k_top=2)
QUICK = Config(text=TextConfig(min_count=1), model=SMALL).with_training(
    epochs=8, batch_size=4, dev_fraction=0, patience=0
)


def learnable(count=60, labels=("bad", "good")):
    texts = [f"a {labels[n % 2]} film {n}" for n in range(count)]
    return number_labels(texts, [labels[n % 2] for n in range(count)], source="d.csv")


def test_what_can_be_learned_is_predicted_out_of_fold():
    examples, reports = learnable(), []
    found = cross_validation(examples, QUICK, 3, report=lambda *one: reports.append(one))
    assert [done for done, _ in reports] == [1, 2, 3]
    assert np.bincount(found.folds).tolist() == [20, 20, 20]
    together = found.scores(found.scored)
    assert together.accuracy > 0.9
    mean = np.mean([scores.accuracy for _, scores in reports])
    assert together.accuracy == pytest.approx(mean)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-5)
    low, high = found.intervals()["accuracy"]
    assert low <= together.accuracy <= high


def test_labels_by_chance_are_not_predicted_out_of_fold():
    generator = np.random.default_rng(0)
    texts = [f"w{n}" for n in range(60)]
    found = cross_validation(
        number_labels(texts, generator.choice(["x", "y"], 60).tolist()), QUICK, 5
    )
    assert found.scores(found.scored).accuracy < 0.75


def test_a_label_with_one_example_is_not_scored_and_none_at_all_is_an_error():
    examples = learnable(21, ("bad", "good"))
    single = number_labels([*examples.texts, "odd"], [*examples.labels, "odd"])
    found = cross_validation(single, QUICK.with_training(epochs=1), 3)
    assert found.folds[-1] == -1
    assert 21 not in found.scored
    with pytest.raises(DataError, match="no label has two examples, so none can be held out"):
        cross_validation(number_labels(["a", "b"], ["x", "y"]), QUICK, 2)


def test_multi_label_examples_have_thresholds_of_their_folds():
    texts = [f"{'sun ' * (n % 2)}{'rain ' * (n % 3 == 0)}day {n}" for n in range(60)]
    sets = [["sun"] * (n % 2) + ["rain"] * (n % 3 == 0) for n in range(60)]
    examples = number_labels(texts, sets, classes=["rain", "sun"], multi_label=True)
    found = cross_validation(examples, QUICK, 3)
    assert found.thresholds.shape == (60, 2)
    assert len(np.unique(found.thresholds, axis=0)) <= 3
    assert found.scores(found.scored).micro_f1 > 0.8
    assert "micro_f1" in found.intervals()


def test_what_all_trainings_log_is_logged_once(caplog):
    caplog.set_level(logging.INFO, "dcnn")
    cross_validation(learnable(12), QUICK.with_training(epochs=1), 3)
    backends = [one for one in caplog.records if "training on" in one.getMessage()]
    assert len(backends) == 1


@given(st.integers(2, 100_000), st.integers(2, 40), st.integers(2, 9))
def test_sizes_double_up_to_all_examples(examples, classes, steps):
    sizes = curve_sizes(examples, classes, steps)
    assert sizes[-1] == examples
    assert 1 <= len(sizes) <= steps
    for smaller, larger in itertools.pairwise(sizes):
        assert larger // 2 == smaller >= min(examples, 2 * classes)


def test_smaller_sets_are_stratified_parts_of_larger_ones():
    labels = ["a"] * 60 + ["b"] * 30 + ["c"] * 10
    examples = number_labels([str(n) for n in range(100)], labels)
    order = resampling._stratified_order(examples, seed=0)
    assert sorted(order) == list(range(100))
    assert order.tolist() != resampling._stratified_order(examples, seed=1).tolist()
    for size in (10, 20, 50):
        counts = [sum(labels[index] == label for index in order[:size]) for label in "abc"]
        np.testing.assert_allclose(counts, [0.6 * size, 0.3 * size, 0.1 * size], atol=1.01)


def test_a_curve_has_a_point_for_each_size_and_draw():
    examples, test, seen = learnable(64), learnable(20), []
    points = learning_curve(examples, QUICK, test, steps=2, draws=2, report=seen.append)
    assert seen == points
    assert [(point.examples, point.draw) for point in points] == [
        (32, 0),
        (64, 0),
        (32, 1),
        (64, 1),
    ]
    assert all(point.accuracy > 0.8 for point in points if point.examples == 64)


def test_smaller_trainings_learn_parts_of_larger_ones_and_nothing_held_out(monkeypatch):
    examples, learned, train = learnable(64), [], resampling._train

    def noted(chosen, *others):
        learned.append(set(chosen.texts))
        assert len(learned[-1]) == len(chosen)  # none twice
        return train(chosen, *others)

    monkeypatch.setattr(resampling, "_train", noted)
    points = learning_curve(examples, QUICK.with_training(epochs=1), steps=2, draws=2)
    assert [point.examples for point in points] == [26, 52] * 2  # a fifth is held out
    assert [len(texts) for texts in learned] == [26, 52] * 2
    assert learned[0] < learned[1]
    assert learned[2] < learned[3] != learned[1]


def test_all_draws_of_multi_label_examples_have_the_same_sizes():
    # Both examples of z may be held out; then one is trained on after all.
    sets = [("z", "m1"), ("m1",), ("z", "m2"), ("m2",), *[("often",)] * 100]
    examples = number_labels([f"word{n}" for n in range(104)], sets, multi_label=True)
    held_out = [len(split_label_sets(examples.labels, 0.2, seed)[1]) for seed in range(4)]
    assert len(set(held_out)) > 1
    points = learning_curve(examples, QUICK.with_training(epochs=1), steps=2, draws=4)
    smaller, larger = sorted({point.examples for point in points})
    assert larger == 104 - max(held_out)
    assert smaller == larger // 2
    assert "micro F1 changed" in judge_curve(points, "micro F1")


def points_of(*gains, before=0.8):
    return [
        point
        for draw, gain in enumerate(gains)
        for point in (CurvePoint(50, draw, before, 0.5), CurvePoint(100, draw, before + gain, 0.5))
    ]


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        (
            (0.03, 0.031, 0.029),
            "changed by +3.0 points (± 0.2): more labelled examples should help",
        ),
        (
            (0.001, 0.0, -0.001),
            "changed by +0.0 points (± 0.2): more labelled examples seem hardly",
        ),
        ((0.05, -0.05, 0.03), "too uncertain to tell; raise --draws"),
        ((0.05,), "one draw does not show how much of that is chance; raise --draws"),
    ],
)
def test_the_judgement_follows_from_the_last_doubling(gains, expected):
    sentence = judge_curve(points_of(*gains))
    assert sentence.startswith("From 50 to 100 examples accuracy changed by")
    assert expected in sentence
    assert "Too few examples" in judge_curve([CurvePoint(50, 0, 0.8, 0.5)])
