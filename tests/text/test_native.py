"""The native tokenizers give the tokens of those in Python, and the same predictions."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.config import TextConfig
from dcnn.ops import native
from dcnn.predictor import Predictor
from dcnn.text.encoder import Encoder, learn_tokenizer
from dcnn.text.native import NativeTokenizer
from dcnn.text.tokenizer import PRESETS, SubwordTokenizer, Tokenizer
from dcnn.text.vocabulary import UNKNOWN
from strings import SAMPLES, random_texts
from untrained import make_artifact

pytestmark = pytest.mark.skipif(not native.available(), reason=native.reason())

TEXTS = [*SAMPLES, *random_texts(300)]
TOKENIZERS = [
    *(Tokenizer(preset, lowercase) for preset in PRESETS for lowercase in (True, False)),
    Tokenizer("words", runs=True),
    *(
        learn_tokenizer(TextConfig(tokenizer=kind, n_subwords=300), TEXTS)[0]
        for kind in ("bpe", "unigram")
    ),
    SubwordTokenizer("bpe", True, ()),
    SubwordTokenizer("unigram", False, ()),
    # Scores that overflow, and subwords of which no word can be made.
    SubwordTokenizer("unigram", True, (("ab", float("inf")), ("a", float("-inf")), ("b", -1.0))),
]
NATIVE = [NativeTokenizer(tokenizer, first=0) for tokenizer in TOKENIZERS]

PARTS = (
    *("http://", "HTTPS://", "httpſ://", "www.", "wWw.", "@", "@bob", "USER", "URL", "ooo", "OOO"),
    *("3.14", "1,0", "0", ".", ",", "'", "\u2019", "_", " ", "\t", "\x1c", "\x85", "\xa0", "\0"),
    *("\ud83d", "\ude00", "\u0301", "\u0307", "\u200c", "\u200d", "\u3099", "\u034f", "\u2423"),
    *(
        "Σ",
        "ς",
        "İ",
        "I",
        "ſ",
        "\u212a",
        "中",
        "かが",
        "ดี",
        "ខ្",
        "🇩",
        "👍",
        "🏽",
        "ä",
        "a\u0308",
        "Ж",
    ),
    *("\u0660", "\u00b2", "\ufb03", "\u1112\u1161\u11ab", "\U000e0100", "\U0010ffff", "\ufeff"),
)
texts = st.lists(
    st.text(max_size=12) | st.lists(st.sampled_from(PARTS), max_size=12).map("".join), max_size=6
)


def tokens_of(tokenizer, texts):
    words, ids, lengths = tokenizer.tokenize(texts)
    ends = np.cumsum(lengths).tolist()
    assert len(ids) == (ends[-1] if ends else 0)
    assert list(dict.fromkeys(ids.tolist())) == list(range(len(words)))  # as they occur first
    places = zip([0, *ends], ends, strict=False)
    return [[words[i] for i in ids[start:end].tolist()] for start, end in places]


@given(texts)
def test_native_tokens_are_those_of_python(texts):
    for tokenizer, fast in zip(TOKENIZERS, NATIVE, strict=True):
        assert tokens_of(fast, texts) == [tokenizer(text) for text in texts], tokenizer.preset


@given(texts)
def test_the_first_texts_are_split_in_python(texts):
    for tokenizer in TOKENIZERS:
        fast = NativeTokenizer(tokenizer, first=3)
        found = [*tokens_of(fast, texts[:2]), *tokens_of(fast, texts[2:])]
        assert found == [tokenizer(text) for text in texts], tokenizer.preset


def test_a_capital_i_and_a_dot_are_lower_cased_as_one_character():
    text = "I\u0307stanbul"
    for tokenizer, fast in zip(TOKENIZERS, NATIVE, strict=True):
        assert tokens_of(fast, [text]) == [tokenizer(text)], tokenizer.preset


def test_a_text_of_many_new_words_leaves_the_next_ones_fast():
    predictor = Predictor(make_artifact(char_ngrams=(3, 5)))
    few = [f"{number} x" for number in range(2000)]
    many = " ".join(f"w{number}" for number in range(60_000))

    def seconds(texts):
        started = time.process_time()
        predictor.probabilities(texts)
        return time.process_time() - started

    seconds(few)
    assert seconds([many, *few]) < 3 * (seconds([many]) + seconds(few)) + 0.02


@pytest.mark.parametrize(
    ("start", "part", "times"),
    [
        *(("", "", 0), ("", "\0", 2), ("", "\ud800", 1), ("", "a", 5000), ("", "\u4e2d", 300)),
        *(("e", "\u0301\u0323", 700), ("", "\u0301", 1500), ("", "@", 2000), ("", "'a", 700)),
        *(
            ("x", "1.", 700),
            ("\u2603", "\u200d\u2603", 400),
            ("", "\u03a3", 1200),
            ("", "\u2423", 9),
        ),
    ],
    ids=ascii,
)
def test_native_tokens_of_extreme_texts_are_those_of_python(start, part, times):
    text = start + part * times
    for tokenizer, fast in zip(TOKENIZERS, NATIVE, strict=True):
        assert tokens_of(fast, [text, "x"]) == [tokenizer(text), tokenizer("x")], tokenizer.preset


def test_native_tokens_of_many_random_texts_are_those_of_python():
    found = random_texts(1500, seed=1)
    for tokenizer, fast in zip(TOKENIZERS, NATIVE, strict=True):
        assert tokens_of(fast, found) == list(map(tokenizer, found)), tokenizer.preset


@pytest.mark.parametrize("output", ["single", "multi", "ngrams"])
@given(texts)
def test_native_predictions_from_texts_are_those_from_ids(output, texts):
    # One text at a time: all of them must be as if they were alone.
    predictor = PREDICTORS[output]
    encoder = predictor.artifact.encoder
    expected = [predictor.head(predictor.logits(encoder.encode_all([text]))) for text in texts]
    expected = np.concatenate([np.empty((0, len(predictor.classes)), np.float32), *expected])
    np.testing.assert_allclose(predictor.probabilities(texts), expected, rtol=3e-7, atol=1e-7)
    np.testing.assert_array_equal(predictor.features(texts).shape[0], len(texts))


PREDICTORS = {
    "single": Predictor(make_artifact(), threads=2),
    "multi": Predictor(make_artifact(thresholds=(0.4, 0.5))),
    "ngrams": Predictor(make_artifact(char_ngrams=(3, 5)), threads=2),
}


@given(texts)
def test_native_ids_are_those_of_python(texts):
    for char_ngrams in ((), (3, 5)):
        config = TextConfig(char_ngrams=char_ngrams, n_buckets=50, max_size=20)
        encoder, _ = Encoder.learn(TEXTS[:30], config)
        given = encoder.encode_all(texts, ["new"] if char_ngrams else ())
        index = encoder.new_words(["new"] if char_ngrams else ())
        ids_of = encoder.vocabulary.ids if index is None else index.ids
        ids = [ids_of(encoder.tokenizer(text)) or [UNKNOWN] for text in texts]
        assert given.ids.tolist() == [one for some in ids for one in some]
        assert given.lengths.tolist() == list(map(len, ids))
        assert given.new_words == tuple(index or ())
