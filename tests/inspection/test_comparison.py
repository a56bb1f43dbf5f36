"""What changes between two sentences."""

import numpy as np
import pytest

from dcnn import Predictor, explain
from dcnn.errors import UserError
from dcnn.inspection.comparison import align, compare
from untrained import make_artifact

FIRST, SECOND = "the plot is not dull .", "the plot is very dull and bad ."


@pytest.fixture(scope="module")
def both():
    predictor = Predictor(make_artifact())
    return [explain(predictor, text, "pos") for text in (FIRST, SECOND)]


def test_all_changes_add_up_to_the_difference_of_the_logits(both):
    whole = compare(*both, count=10_000)
    assert sum(change.difference for change in whole.changes) == pytest.approx(whole.difference)
    assert whole.others == pytest.approx(0, abs=1e-6)
    few = compare(*both, count=3)
    assert len(few.changes) == 3
    told = sum(change.difference for change in few.changes)
    assert told + few.others == pytest.approx(both[1].logit - both[0].logit, abs=1e-5)


def test_the_largest_changes_come_first(both):
    sizes = [abs(change.difference) for change in compare(*both).changes]
    assert sizes == sorted(sizes, reverse=True)


def test_what_all_detectors_saw_is_the_relevance_of_the_words(both):
    changes = compare(*both, count=10_000).changes
    for which, explanation in enumerate(both):
        seen = np.sum([change.word_contributions[which] for change in changes], axis=0)
        np.testing.assert_allclose(seen, explanation.attributions, atol=1e-5)


def test_the_same_sentence_twice_changes_nothing(both):
    same = compare(both[0], both[0])
    assert same.difference == 0
    assert all(change.difference == 0 for change in same.changes)


def test_other_classes_cannot_be_compared(both):
    other = explain(Predictor(make_artifact()), SECOND, "neg")
    with pytest.raises(UserError, match="'pos' and the second of 'neg'"):
        compare(both[0], other)


@pytest.mark.parametrize(
    ("first", "second", "pairs"),
    [
        ("a b c", "a b c", [(0, 0), (1, 1), (2, 2)]),
        ("a b c", "a x c", [(0, 0), (1, 1), (2, 2)]),
        ("a c", "a b c", [(0, 0), (None, 1), (1, 2)]),
        ("a b c", "c", [(0, None), (1, None), (2, 0)]),
    ],
)
def test_words_are_aligned(first, second, pairs):
    assert align(tuple(first.split()), tuple(second.split())) == pairs
