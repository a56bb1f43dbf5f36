import bz2
import gzip
import logging
import lzma
from dataclasses import replace

import numpy as np
import pytest

from dcnn.config import TextConfig
from dcnn.errors import ConfigError, DataError
from dcnn.text.encoder import Encoder
from dcnn.text.vectors import load_vectors
from dcnn.text.vocabulary import Vocabulary

WORDS = {"the": [1.5, -2.0, 0.25], "ünder": [0.0, 3.0, 1.0], ". . .": [9.0, 9.0, 9.0]}
VOCABULARY = Vocabulary(["ünder", "missing", "the"])


def glove():
    return "".join(f"{word} {' '.join(map(str, v))}\n" for word, v in WORDS.items()).encode()


def word2vec_text():
    return f"{len(WORDS)} 3\n".encode() + glove().replace(b"\n", b" \n")


def word2vec_binary(newlines=True):
    entries = (
        word.replace(" ", "_").encode() + b" " + np.array(v, "<f4").tobytes()
        for word, v in WORDS.items()
    )
    return f"{len(WORDS)} 3\n".encode() + (b"\n" if newlines else b"").join(entries)


def load(path, dim=3):
    found = load_vectors(path, VOCABULARY)
    return found.ids, found.in_dimensions(dim, np.random.default_rng(0))


every_form = pytest.mark.parametrize(
    "content",
    [
        glove(),
        glove().rstrip(),
        word2vec_text(),
        word2vec_binary(),
        word2vec_binary(newlines=False),
    ],
    ids=["glove", "no final newline", "word2vec text", "word2vec binary", "binary, no newlines"],
)


@every_form
def test_words_of_the_vectors_join_the_vocabulary(tmp_path, content):
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    texts = ["missing the", "ünder"]
    own = Encoder.learn(texts, TextConfig())[0].vocabulary.words
    for words, new in ((0, 0), (2, 0), (100, 1)):  # the third, ". . .", is the only new one
        text = TextConfig(vectors=str(path), vectors_words=words)
        found = Encoder.learn(texts, text)[0].vocabulary.words
        assert found[: len(own)] == own
        assert len(found) == len(own) + new


@pytest.mark.parametrize("char_ngrams", [(), (3, 5)])
def test_a_rare_word_stays_if_it_has_a_vector(tmp_path, char_ngrams):
    path = tmp_path / "vectors.txt"
    path.write_text("a 1 2\nother 5 6\nrare 3 4\n")
    text = TextConfig(char_ngrams=char_ngrams, min_count=2, vectors=str(path))
    texts = ["a a new rare word"]
    encoder, sentences = Encoder.learn(texts, text)
    assert encoder.vocabulary.words == ("a", "rare")
    assert sentences.ids.tolist() == ([1, 1, 3, 2, 4] if char_ngrams else [1, 1, 0, 2, 0])
    assert sentences.new_words == (("new", "word") if char_ngrams else ())
    assert encoder.encode_all(texts).ids.tolist() == sentences.ids.tolist()
    more, _ = Encoder.learn(texts, replace(text, vectors_words=2))
    assert more.vocabulary.words == ("a", "rare", "other")
    fewer, _ = Encoder.learn(texts, replace(text, max_size=1))
    assert fewer.vocabulary.words == ("a",)
    assert Encoder.learn(texts, replace(text, vectors=""))[0].vocabulary.words == ("a",)


@every_form
@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)],
)
def test_every_form_gives_the_same_vectors(tmp_path, caplog, content, suffix, compress):
    path = tmp_path / f"vectors.txt{suffix}"
    path.write_bytes(compress(content))
    with caplog.at_level(logging.INFO, "dcnn"):
        ids, vectors = load(path)
    found = dict(zip(ids.tolist(), vectors.tolist(), strict=True))
    assert found == {1: WORDS["ünder"], 3: WORDS["the"]}
    assert "covers 2 of 3 words of the vocabulary (66.7 %)" in caplog.text


def test_more_dimensions_are_reduced_and_keep_distances(tmp_path):
    generator = np.random.default_rng(1)
    flat = generator.normal(size=(50, 2)) @ generator.normal(size=(2, 10))  # rank two
    words = [f"w{i}" for i in range(50)]
    path = tmp_path / "vectors.txt"
    path.write_text(
        "\n".join(f"{w} {' '.join(map(str, v))}" for w, v in zip(words, flat, strict=True))
    )
    found = load_vectors(path, Vocabulary(words)).in_dimensions(2, generator)
    expected = np.linalg.norm(flat[:, None] - flat, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found, axis=-1), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: expected a word and its numbers"),
        (b"the\n", "line 1: expected a word and its numbers"),
        (b"x 1 2 3\nthe 1 two 3\n", "line 2: expected a word and 3 finite numbers"),
        (b"x 1 2 3\nthe 1 nan 3\n", "line 2: expected a word and 3 finite numbers"),
        (b"x 1 2 3\nthe 1 2\n", "line 2: expected a word and 3 finite numbers"),
        (b"x 1 2 3\n", "has a vector for none of the 3 words"),
        (b"5 0\n", "line 1: 0 dimensions"),
        (b"1 2\nthe " + np.array([1, np.nan], "<f4").tobytes(), "vector 1 holds values that are"),
        (word2vec_binary()[:-3], "cut short or damaged, 2 of 3 vectors could be read"),
    ],
)
def test_a_malformed_file_is_explained(tmp_path, content, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        load(path)
    assert "bad.txt" in str(error.value)


def test_too_few_dimensions_are_explained(tmp_path):
    path = tmp_path / "small.txt"
    path.write_bytes(glove())
    with pytest.raises(
        ConfigError, match=r"3 dimensions, below dim=8; set model\.dim to 3 or less"
    ):
        load(path, dim=8)
