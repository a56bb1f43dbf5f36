"""Vocabulary, sentences as ids, and tokenizing in several threads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.config import TextConfig
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import PRESETS, Tokenizer
from dcnn.text.vocabulary import CHUNK_SIZE, Sentences, Vocabulary, tokenize_texts

TEXTS = [f"word{i % 13} word{i % 5} " * (i % 4) for i in range(40)]
WORDS = Tokenizer("words")

texts = st.lists(st.text("ab é!", max_size=8), max_size=20)


def plain(tokenized):
    return tokenized.words, tokenized.ids.tolist(), tokenized.lengths.tolist()


def expected(tokenizer, texts):
    """Word by word, without chunks."""
    tokens = [tokenizer(text) for text in texts]
    words = list(dict.fromkeys(token for sentence in tokens for token in sentence))
    ids = [words.index(token) for sentence in tokens for token in sentence]
    return words, ids, [len(sentence) for sentence in tokens]


@given(texts, st.sampled_from(PRESETS), st.integers(1, 25))
def test_chunks_change_nothing(texts, preset, chunk_size):
    tokenized = tokenize_texts(Tokenizer(preset), iter(texts), chunk_size=chunk_size)
    assert plain(tokenized) == expected(Tokenizer(preset), texts)


@given(texts, st.integers(1, 3), st.sampled_from(["auto", "reference"]))
def test_threads_change_nothing(texts, chunk_size, backend):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DCNN_BACKEND", backend)
        tokenized = tokenize_texts(WORDS, iter(texts), threads=2, chunk_size=chunk_size)
    assert plain(tokenized) == expected(WORDS, texts)


def test_more_chunks_than_are_read_ahead_stay_in_order():
    tokenized = tokenize_texts(WORDS, iter(TEXTS), threads=2, chunk_size=3)
    assert plain(tokenized) == expected(WORDS, TEXTS)


def test_an_encoder_learns_the_same_in_several_threads():
    texts = [f"{TEXTS[i % 40]} {i % 997}" for i in range(2 * CHUNK_SIZE + 1)]
    config = TextConfig(max_size=500, min_count=2)
    one, sentences = Encoder.learn(texts, config)
    two, others = Encoder.learn(texts, config, threads=2)
    assert one == two
    assert len(sentences) == len(texts)
    assert sentences.ids.tolist() == others.ids.tolist()
    assert sentences.offsets.tolist() == others.offsets.tolist()


def test_an_error_of_the_reader_is_raised():
    def broken():
        yield from TEXTS
        raise ValueError("line 41 is damaged")

    with pytest.raises(ValueError, match="line 41"):
        tokenize_texts(WORDS, broken(), threads=2, chunk_size=7)


def test_unknown_words_have_id_zero():
    vocabulary = Vocabulary(["a", "b"])
    assert vocabulary.ids(["b", "x", "a"]) == [2, 0, 1]
    assert len(vocabulary) == 3


def test_a_word_may_occur_only_once():
    with pytest.raises(ValueError, match="twice"):
        Vocabulary(["a", "a"])


lists = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=6), min_size=1, max_size=8)


@given(lists, st.data())
def test_sentences_pad_as_lists_do(sentences, data):
    flat = Sentences.from_lists(sentences)
    indices = data.draw(st.lists(st.integers(0, len(sentences) - 1), min_size=1, max_size=6))
    chosen = [sentences[i] for i in indices]
    ids, lengths = flat.padded(np.array(indices), padding=7)
    width = max(map(len, chosen))
    assert ids.tolist() == [row + [7] * (width - len(row)) for row in chosen]
    assert lengths.tolist() == [len(row) for row in chosen]
