import pytest

from dcnn.text.vocabulary import Vocabulary


def test_unknown_words_have_id_zero():
    vocabulary = Vocabulary(["a", "b"])
    assert vocabulary.ids(["b", "x", "a"]) == [2, 0, 1]
    assert len(vocabulary) == 3


def test_a_word_may_stand_only_once():
    with pytest.raises(ValueError, match="twice"):
        Vocabulary(["a", "a"])
