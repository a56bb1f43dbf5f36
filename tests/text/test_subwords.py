"""Subwords: learned, split, stored and loaded."""

import json
import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn.config import TextConfig
from dcnn.errors import MissingExtraError
from dcnn.text.encoder import Encoder, learn_tokenizer
from dcnn.text.tokenizer import MAX_WORD_LENGTH, SubwordTokenizer
from dcnn.text.vocabulary import UNKNOWN

TEXTS = [
    "the unreadable reader reads what readers read",
    "an able cable unable to enable the reading of tables",
    "Ünlesbar, mais lisible: la lecture des lecteurs!",
    "我喜欢阅读 我喜欢读者",
] * 3
LEARNED = ("bpe", "unigram")


def learn(kind, texts=TEXTS, **values):
    return Encoder.learn(texts, TextConfig(tokenizer=kind, **{"n_subwords": 90, **values}))


@pytest.mark.parametrize("kind", LEARNED)
@settings(max_examples=25, deadline=None)
@given(
    texts=st.lists(st.text("abc d-'é我\u0301", max_size=12), max_size=5), size=st.integers(1, 30)
)
def test_learning_encodes_as_the_encoder_does_and_survives_the_disk(kind, texts, size):
    encoder, sentences = learn(kind, texts, n_subwords=size)
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    encoded = again.encode_all(texts)
    assert sentences.ids.tolist() == encoded.ids.tolist()
    assert sentences.offsets.tolist() == encoded.offsets.tolist()


@pytest.mark.parametrize("kind", LEARNED)
@given(text=st.text("aberdltsu我x! ", max_size=40))
def test_the_subwords_of_a_text_spell_its_words(kind, text):
    tokenizer = learned_once(kind)
    words = tokenizer(text)
    spelled = "".join(map(tokenizer.spell, words))
    assert "".join(spelled.split()) == "".join(text.split())
    assert tokenizer(spelled) == words


_learned = {}


def learned_once(kind):
    if kind not in _learned:
        _learned[kind] = learn(kind)[0].tokenizer
    return _learned[kind]


@pytest.mark.parametrize("kind", LEARNED)
@given(word=st.text("abcdelnrstu", min_size=1, max_size=20))
def test_a_word_is_split_as_the_library_splits_it(kind, word):
    tokenizers = pytest.importorskip("tokenizers")
    entries = learned_once(kind).entries
    if kind == "bpe":
        merged = [left + right for left, right in entries]
        known = dict.fromkeys([*"abcdelnrstu", *"".join(merged), *merged])
        model = tokenizers.models.BPE({subword: i for i, subword in enumerate(known)}, [*entries])
    else:
        model = tokenizers.models.Unigram([("?", -99.0), *entries], 0)
    ours = [token.removeprefix("##") for token in learned_once(kind).split_word(word)]
    assert ours == [token.value for token in model.tokenize(word)]


def test_frequent_words_are_subwords_and_subwords_inside_a_word_are_marked():
    for kind in LEARNED:
        tokenizer = learned_once(kind)
        assert tokenizer("the readers") == ["the", "readers"] or kind == "bpe"
        first, *others = tokenizer("untheread")
        assert others
        assert not first.startswith("##")
        assert all(subword.startswith("##") for subword in others)


def test_neighbouring_letters_of_a_script_without_spaces_can_be_one_subword():
    assert learned_once("bpe")("我喜欢") == ["我喜欢"]


def test_an_unseen_character_is_unknown_and_its_neighbours_are_not():
    for kind in LEARNED:
        encoder, _ = learn(kind)
        assert encoder.encode_all(["the☃reader"]).ids[0] != UNKNOWN
        assert UNKNOWN in encoder.encode_all(["☃"]).ids


def test_the_time_of_a_long_word_grows_with_its_length_alone():
    for kind in LEARNED:
        tokens = learned_once(kind)("ab" * 20_000)
        assert len(tokens) >= 40_000 / MAX_WORD_LENGTH


PROGRAM = """
import sys
from dcnn.config import TextConfig
from dcnn.text.encoder import Encoder
for kind in ("bpe", "unigram"):
    encoder, _ = Encoder.learn(sys.argv[1:], TextConfig(tokenizer=kind, n_subwords=90))
    print(encoder.to_json())
"""


def test_the_same_texts_give_the_same_subwords_in_every_process():
    """The library counts in hash tables whose order changes from process to process."""
    made = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, *TEXTS], capture_output=True, check=True, text=True
        ).stdout
        for _ in range(2)
    ]
    assert made[0] == made[1] == "".join(f"{learn(kind)[0].to_json()}\n" for kind in LEARNED)


def test_a_character_is_as_likely_as_the_least_likely_subword_and_longer_ones_differ():
    scores = dict(learned_once("unigram").entries)
    least = min(scores.values())
    assert {scores[character] for character in "hwü"} == {least}
    assert sum(len(subword) > 1 and score == least for subword, score in scores.items()) == 1


@pytest.mark.parametrize("before", ["true", None])
def test_learning_leaves_the_number_of_threads_of_the_library_as_it_was(before, monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if before is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", before)
    learn("bpe")
    assert os.environ.get("TOKENIZERS_PARALLELISM") == before


@pytest.mark.parametrize("kind", LEARNED)
def test_learning_without_the_library_names_the_extra(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    message = rf"text.tokenizer={kind} needs the extra 'subwords': pip install 'dcnn\[subwords\]'"
    with pytest.raises(MissingExtraError, match=message):
        learn_tokenizer(TextConfig(tokenizer=kind), TEXTS)


def test_using_learned_subwords_needs_no_library(monkeypatch):
    stored = {kind: learn(kind)[0].to_json() for kind in LEARNED}
    learned = {kind: learned_once(kind) for kind in LEARNED}
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for kind, text in stored.items():
        assert Encoder.from_json(text).tokenizer("unreadable") == learned[kind]("unreadable")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"preset": "bpe"}, "merges must be a list"),
        (
            {"preset": "bpe", "merges": ["a b", "ab"]},
            "'ab' must be two subwords separated by a space",
        ),
        ({"preset": "bpe", "merges": ["a  b"]}, "'a  b' must be two subwords"),
        ({"preset": "bpe", "merges": [7]}, "7 must be two subwords"),
        ({"preset": "bpe", "merges": ["a b", "a b"]}, "a pair occurs twice"),
        ({"preset": "unigram"}, "pieces must be a list"),
        (
            {"preset": "unigram", "pieces": ["a -1", "b"]},
            "'b' must be a subword, a space and a fin",
        ),
        ({"preset": "unigram", "pieces": ["a nan"]}, "'a nan' must be a subword"),
        ({"preset": "unigram", "pieces": [" -1"]}, "' -1' must be a subword"),
        ({"preset": "unigram", "pieces": ["a -1", "a -2"]}, "a subword occurs twice"),
    ],
)
def test_damaged_subwords_are_explained(changed, message):
    values = {"lowercase": True, "vocabulary": ["a"]} | changed
    with pytest.raises(ValueError, match=message):
        Encoder.from_json(json.dumps(values))


def split(kind, entries, word):
    """The tokens of a word, joined."""
    return " ".join(SubwordTokenizer(kind, True, entries).split_word(word))


def test_bpe_merges_the_most_important_pair_first():
    merges = (("b", "c"), ("a", "b"), ("bc", "d"))
    assert split("bpe", merges, "abcd") == "a ##bcd"
    assert split("bpe", merges, "abab") == "ab ##ab"
    assert SubwordTokenizer("bpe", True, merges)("ABCD x") == ["a", "##bcd", "x"]


def test_unigram_takes_the_most_likely_subwords():
    scored = (("a", -2.0), ("b", -2.0), ("ab", -3.0), ("aba", -8.0))
    assert split("unigram", scored, "aba") == "ab ##a"
    assert split("unigram", scored, "a?b") == "a ##? ##b"
    # An unknown character costs more than any subword that holds it.
    assert split("unigram", (("ab", -3.0), ("b", -1.0)), "ab") == "ab"


def test_a_tokenizer_that_was_used_can_be_sent_to_another_process():
    for kind in LEARNED:
        tokenizer = learned_once(kind)
        tokens = tokenizer("unreadable")
        assert pickle.loads(pickle.dumps(tokenizer))("unreadable") == tokens
