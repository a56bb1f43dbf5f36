import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.config import TextConfig
from dcnn.text.encoder import Encoder

TEXTS = ["b a a", "c a b", "d"]


def words(**settings):
    encoder, _ = Encoder.learn(TEXTS, TextConfig(**settings))
    return encoder.vocabulary.words


def test_frequent_words_come_first_and_ties_in_order_of_first_occurrence():
    assert words() == ("a", "b", "c", "d")


def test_rare_words_are_left_out():
    assert words(min_count=2) == ("a", "b")


def test_the_size_of_the_vocabulary_is_limited():
    assert words(max_size=3) == ("a", "b", "c")


@given(st.lists(st.text("ab c", max_size=9)), st.integers(1, 3), st.integers(0, 2))
def test_learning_encodes_as_the_encoder_does(texts, min_count, max_size):
    encoder, sentences = Encoder.learn(texts, TextConfig(min_count=min_count, max_size=max_size))
    again = encoder.encode_all(texts)
    assert sentences.ids.tolist() == again.ids.tolist()
    assert sentences.offsets.tolist() == again.offsets.tolist()


@given(
    st.lists(st.text(), min_size=1), st.sampled_from(["words", "tweet", "whitespace", "characters"])
)
def test_saving_and_loading_is_the_identity(texts, preset):
    encoder = Encoder.learn(texts, TextConfig(tokenizer=preset))[0]
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    assert again.encode_all(texts).ids.tolist() == encoder.encode_all(texts).ids.tolist()


def test_an_empty_text_is_one_unknown_word():
    encoder = Encoder.learn(["a b"], TextConfig())[0]
    sentences = encoder.encode_all(["", " \u200b", "x"])
    assert sentences.ids.tolist() == [0, 0, 0]
    assert sentences.lengths.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "not an object"),
        ('{"preset": "bytes"}', "preset='bytes' must be one of words, tweet, whitespace"),
        ('{"preset": "words", "lowercase": 1}', "lowercase=1 must be true or false"),
        ('{"preset": "words", "lowercase": true, "vocabulary": [1]}', "must be a list of strings"),
        (r'{"preset": "words", "lowercase": true, "vocabulary": ["\ud83d"]}', "surrogates not all"),
        ('{"preset": "words", "lowercase": true, "vocabulary": ["a", "a"]}', "twice"),
        ("{", "Expecting"),
    ],
)
def test_a_damaged_description_is_explained(text, message):
    with pytest.raises(ValueError, match=message):
        Encoder.from_json(text)
