"""Augmented texts: made of the words of the given ones, new, and the same for a seed."""

from hypothesis import given
from hypothesis import strategies as st

from dcnn.data.augment import augment

TEXTS = ["who wrote the book", "when was it written", "what is a wide convolution"]


@given(st.lists(st.text(max_size=20), max_size=6), st.integers(0, 4))
def test_augmented_texts_are_new_and_distinct(texts: list[str], copies: int) -> None:
    found = augment(texts, copies)
    assert len(found) == len(set(found)) <= copies * len(texts)
    assert not set(found) & set(texts)


def test_augmented_texts_use_the_words_of_the_texts_only() -> None:
    words = {word for text in TEXTS for word in text.split()}
    found = augment(TEXTS, 30)
    assert len(found) > 30
    assert {word for text in found for word in text.split()} <= words


def test_the_seed_decides() -> None:
    assert augment(TEXTS, 5, seed=1) == augment(TEXTS, 5, seed=1) != augment(TEXTS, 5, seed=2)


def test_a_script_without_spaces_is_split_at_characters() -> None:
    found = augment(["今日は良い天気です", "明日は雨が降るでしょう"], 20)
    assert found
    assert not any(" " in text for text in found)


def test_words_are_replaced_texts_spliced_and_n_grams_taken() -> None:
    first, second = list("abcdefgh"), list("stuvw")
    found = [text.split() for text in augment([" ".join(first), " ".join(second)], 200)]
    spans = [text for text in found if " ".join(text) in " ".join(first)]
    splices = [
        text
        for text in found
        if any(text == first[:cut] + second[cut:] for cut in range(1, len(second)))
    ]
    replaced = [
        text
        for text in found
        if len(text) == len(first) and 0 < sum(map(str.__eq__, text, first)) < len(first)
    ]
    assert {text[0] for text in spans} >= {"a", "b", "c"}
    assert len(splices) == len(second) - 1
    assert len(replaced) > 20
