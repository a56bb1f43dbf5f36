"""Vocabulary, sentences as ids, and tokenizing in several processes."""

import multiprocessing
import os

import numpy as np
import pytest
from hypothesis import given, settings
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


class _KillsItsProcess:
    """A tokenizer that ends every process but the one that made it."""

    def __init__(self):
        self.home = os.getpid()

    def __call__(self, text):
        if os.getpid() != self.home:
            os._exit(1)
        return WORDS(text)


@given(texts, st.sampled_from(PRESETS), st.integers(1, 25))
def test_chunks_change_nothing(texts, preset, chunk_size):
    tokenized = tokenize_texts(Tokenizer(preset), iter(texts), chunk_size=chunk_size)
    assert plain(tokenized) == expected(Tokenizer(preset), texts)


@settings(max_examples=2)
@given(texts.filter(lambda texts: len(texts) > 3), st.integers(1, 3))
def test_processes_change_nothing(texts, chunk_size):
    tokenized = tokenize_texts(WORDS, iter(texts), processes=2, chunk_size=chunk_size)
    assert plain(tokenized) == expected(WORDS, texts)


def test_more_chunks_than_are_read_ahead_stay_in_order():
    tokenized = tokenize_texts(WORDS, iter(TEXTS), processes=2, chunk_size=3)
    assert plain(tokenized) == expected(WORDS, TEXTS)


def test_an_encoder_learns_the_same_in_several_processes():
    texts = [f"{TEXTS[i % 40]} {i % 997}" for i in range(2 * CHUNK_SIZE + 1)]
    config = TextConfig(max_size=500, min_count=2)
    one, sentences = Encoder.learn(texts, config)
    two, others = Encoder.learn(texts, config, processes=2)
    assert one == two
    assert len(sentences) == len(texts)
    assert sentences.ids.tolist() == others.ids.tolist()
    assert sentences.offsets.tolist() == others.offsets.tolist()


def test_a_small_input_starts_no_process(monkeypatch):
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", None)
    tokenized = tokenize_texts(WORDS, TEXTS, processes=2, chunk_size=len(TEXTS))
    assert plain(tokenized) == expected(WORDS, TEXTS)


def test_where_no_process_can_be_started_this_one_does_the_work(monkeypatch, caplog):
    def refuse(*_, **__):
        raise OSError("no semaphores here")

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", refuse)
    with caplog.at_level("INFO", "dcnn"):
        tokenized = tokenize_texts(WORDS, TEXTS, processes=2, chunk_size=7)
    assert plain(tokenized) == expected(WORDS, TEXTS)
    assert "no semaphores here" in caplog.text


def test_a_process_that_may_have_no_children_does_the_work_itself(monkeypatch):
    monkeypatch.setattr(type(multiprocessing.current_process()), "daemon", True)
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", None)
    tokenized = tokenize_texts(WORDS, TEXTS, processes=2, chunk_size=7)
    assert plain(tokenized) == expected(WORDS, TEXTS)


def test_this_process_does_the_work_of_one_that_dies(caplog):
    with caplog.at_level("INFO", "dcnn"):
        tokenized = tokenize_texts(_KillsItsProcess(), TEXTS, processes=2, chunk_size=2)
    assert plain(tokenized) == expected(WORDS, TEXTS)
    assert caplog.text.count("in one process") == 1


def test_an_error_of_the_reader_is_raised():
    def broken():
        yield from TEXTS
        raise ValueError("line 41 is damaged")

    with pytest.raises(ValueError, match="line 41"):
        tokenize_texts(WORDS, broken(), processes=2, chunk_size=7)


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
