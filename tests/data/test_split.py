import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.data.split import split_label_sets, stratified_split


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
