from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.config import DEFAULT, FEW_EXAMPLES, Config
from dcnn.data.labels import Place, number_labels
from dcnn.data.split import (
    cross_validate,
    fold_numbers,
    hold_out,
    split_dev,
    split_label_sets,
    stratified_split,
)
from dcnn.errors import DataError


@given(
    st.lists(st.sampled_from("abc"), min_size=2, max_size=200).filter(lambda x: len(set(x)) > 1),
    st.floats(0.01, 0.9),
    st.integers(0, 9),
)
def test_a_split_is_a_partition_with_every_label_on_both_sides(labels, fraction, seed):
    kept, held_out = stratified_split(labels, fraction, seed)
    assert sorted([*kept, *held_out]) == list(range(len(labels)))
    for label in set(labels):
        count = labels.count(label)
        held = sum(labels[i] == label for i in held_out)
        assert abs(held - fraction * count) <= 1
        if count > 1:
            assert 1 <= held < count


def test_thousands_of_labels_do_not_put_half_of_the_examples_into_dev():
    labels = list(range(8000)) * 2
    kept, held_out = stratified_split(labels, 0.1, 0)
    assert (len(kept), len(held_out)) == (11_000, 5000)
    assert {labels[i] for i in kept} == set(labels)
    assert len({labels[i] for i in held_out}) == 5000
    # Where labels have more examples, each has its share.
    _, held_out = stratified_split(list(range(600)) * 100, 0.1, 0)
    assert set(Counter(i % 600 for i in held_out.tolist()).values()) == {10}


def test_a_split_follows_from_its_seed():
    labels = ["a", "b"] * 50
    first, again, other = (stratified_split(labels, 0.2, seed)[1].tolist() for seed in (1, 1, 2))
    assert first == again != other


@given(
    st.lists(st.frozensets(st.sampled_from("abcde"), max_size=3), min_size=1, max_size=40),
    st.floats(0.05, 0.9),
    st.integers(0, 99),
)
def test_the_split_is_a_partition_that_leaves_every_label_in_training(sets, fraction, seed):
    labels = [tuple(sorted(one)) for one in sets]
    kept, held_out = split_label_sets(labels, fraction, seed)
    assert sorted([*kept, *held_out]) == list(range(len(labels)))
    assert {name for i in kept for name in labels[i]} == {name for one in labels for name in one}
    again = split_label_sets(labels, fraction, seed)
    np.testing.assert_array_equal(kept, again[0])


@pytest.mark.parametrize("seed", range(12))
def test_a_label_that_is_nowhere_the_rarest_stays_in_training(seed):
    sets = [("a", "c"), ("a",), ("b", "c"), ("b",)]  # a and b are split; c follows them
    kept, held_out = split_label_sets(sets, 0.5, seed)
    assert any("c" in sets[i] for i in kept)
    assert len(held_out) >= 1


def test_a_held_out_dev_set_keeps_its_places_and_has_no_weights():
    labels = ["a", "b"] * 10
    places = [Place("d.csv", number) for number in range(20)]
    weights = np.arange(20, dtype=np.float32)
    examples = number_labels([str(i) for i in range(20)], labels, places=places, weights=weights)
    train, dev = hold_out(examples, 0.2, seed=3)
    assert (len(train), len(dev)) == (16, 4)
    assert Counter(dev.labels) == {"a": 2, "b": 2}
    assert dev.weights is None
    assert train.weights.tolist() == [float(text) for text in train.texts]
    assert [place.number for place in dev.places] == [int(text) for text in dev.texts]
    assert dev.classes == train.classes == ("a", "b")


@pytest.mark.parametrize("multi_label", [False, True])
def test_labels_that_occur_once_cannot_be_held_out(multi_label):
    labels = [["a"], ["b"]] if multi_label else ["a", "b"]
    examples = number_labels(["x", "y"], labels, multi_label=multi_label, source="d.csv")
    with pytest.raises(DataError, match=r"d\.csv: too few examples of every label to hold out"):
        hold_out(examples, 0.5, seed=0)


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=60), st.integers(2, 6))
def test_folds_hold_out_every_example_once_but_the_only_one_of_its_label(labels, folds):
    examples = number_labels(["text"] * len(labels), labels)
    numbers = fold_numbers(examples, folds, 0)
    for label in set(labels):
        own = numbers[[one == label for one in labels]]
        if len(own) == 1:
            assert own.tolist() == [-1]
        else:
            sizes = np.bincount(own, minlength=folds)
            assert sizes.max() - sizes.min() <= 1  # so that some are always left to learn from
    sizes = np.bincount(numbers[numbers >= 0], minlength=folds)
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(numbers, fold_numbers(examples, folds, 0))


def test_folds_of_label_sets_go_by_the_rarest_label():
    sets = [["a"], ["a", "d"], ["d"], ["a", "b"], ["b", "d"], ["a", "c", "d"]]
    numbers = fold_numbers(number_labels(["text"] * 6, sets, multi_label=True), 2, 0)
    assert sorted(numbers[[3, 4]]) == [0, 1]
    assert numbers[5] == -1


def test_few_examples_have_no_dev_set():
    def examples(number):
        return number_labels(["text"] * number, (["a", "b"] * number)[:number])

    few, many = examples(FEW_EXAMPLES - 1), examples(FEW_EXAMPLES)
    assert split_dev(few, DEFAULT.training) == (few, None)
    train, dev = split_dev(many, DEFAULT.training)
    assert (len(train), len(dev)) == (0.9 * FEW_EXAMPLES, 0.1 * FEW_EXAMPLES)
    assert len(split_dev(few, Config().training)[1]) == len(
        dev
    )  # a fraction that was set is obeyed
    assert split_dev(many, DEFAULT.with_training(dev_fraction=0).training) == (many, None)
    with pytest.raises(DataError, match="dev_fraction=0 holds out nothing, and a dev set is need"):
        hold_out(many, 0.0, 0)


@given(st.lists(st.sampled_from("abc"), min_size=3, max_size=40), st.integers(2, 6))
def test_every_example_of_a_fold_gets_the_output_of_a_model_that_did_not_learn_it(labels, folds):
    examples = number_labels([str(n) for n in range(len(labels))], labels)
    numbers = fold_numbers(examples, folds, seed=0)
    learned = []

    def outputs_of(kept, held_out):
        assert not set(kept.texts) & set(held_out.texts)
        assert len(kept) + len(held_out) == len(examples)
        learned.append(set(kept.texts))
        return np.array([[int(text), len(learned)] for text in held_out.texts], np.int64)

    found = cross_validate(examples, numbers, outputs_of)
    for index, (number, place) in enumerate(zip(numbers, found.tolist(), strict=True)):
        if number >= 0:
            assert place[0] == index
            assert str(index) not in learned[place[1] - 1]
        elif learned:  # the only one of its label
            assert place == [0, 0]
            assert all(str(index) in texts for texts in learned)
