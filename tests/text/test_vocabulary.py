import pytest

from dcnn.text.vocabulary import Vocabulary

TEXTS = [["b", "a", "a"], ["c", "a", "b"], ["d"]]


def test_frequent_words_come_first_and_ties_as_first_seen():
    assert Vocabulary.build(TEXTS).words == ("a", "b", "c", "d")


def test_rare_words_are_left_out():
    assert Vocabulary.build(TEXTS, min_count=2).words == ("a", "b")


def test_the_size_is_limited():
    assert Vocabulary.build(TEXTS, max_size=3).words == ("a", "b", "c")


def test_unknown_words_have_id_zero():
    vocabulary = Vocabulary(["a", "b"])
    assert vocabulary.ids(["b", "x", "a"]) == [2, 0, 1]
    assert len(vocabulary) == 3


def test_a_word_may_stand_only_once():
    with pytest.raises(ValueError, match="twice"):
        Vocabulary(["a", "a"])
