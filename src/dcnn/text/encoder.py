"""String to ids: tokenizer and vocabulary, stored in a model folder as ``tokenizer.json``.

The ``tokenizers`` library learns subwords from the distinct words and their counts instead of the
texts, so that a corpus is read once. ``dcnn.text.tokenizer`` splits words into subwords.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Self, cast

import numpy as np

from dcnn.config import MAX_BUCKETS, TextConfig
from dcnn.errors import needs_extra
from dcnn.text.tokenizer import (
    LEARNED,
    AnyTokenizer,
    Preset,
    SubwordTokenizer,
    Tokenizer,
    cut_word,
    read_tokenizer,
)
from dcnn.text.vocabulary import (
    MAX_SPELLED,
    UNKNOWN,
    CharNgrams,
    NewWords,
    Sentences,
    TokenizedTexts,
    Vocabulary,
    tokenize_texts,
)

MAX_SUBWORD_LENGTH = 16  # of the unigram model
MOST_TOKENS = 1 << 17  # of texts in one part; all of them may be new words, with a vector each


def learn_subwords(config: TextConfig, texts: TokenizedTexts) -> SubwordTokenizer:
    """Learn ``config.n_subwords`` subwords from the words of texts and their counts."""
    with needs_extra(f"text.tokenizer={config.tokenizer}", "subwords"):
        from tokenizers import models, trainers
    words = zip(texts.words, texts.counts.tolist(), strict=True)
    parts = [(part, count) for word, count in words for part in cut_word(word)]
    size = config.n_subwords
    if config.tokenizer == "bpe":
        # A pair that occurs once teaches nothing.
        trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False)
        merges = _train(models.BPE(), trainer, parts)["merges"]
        return SubwordTokenizer("bpe", config.lowercase, tuple((a, b) for a, b in merges))
    if not parts:
        return SubwordTokenizer("unigram", config.lowercase, ())
    # With no more subwords than characters the library fails, or never ends.
    size = max(size, len({character for part, _ in parts for character in part}) + 1)
    unigram_trainer = trainers.UnigramTrainer(
        vocab_size=size, max_piece_length=MAX_SUBWORD_LENGTH, show_progress=False
    )
    # The library proposes only strings that occur in two distinct words. So that whole words are
    # among them, those that occur more than once are added again, written twice in a row.
    twice = [(part + part, 1) for part, count in parts if count > 1 and len(part) > 1]
    scored = _train(models.Unigram(), unigram_trainer, parts + twice)["vocab"]
    return SubwordTokenizer("unigram", config.lowercase, _repeatable(scored))


def library_version() -> str | None:
    """The version of the ``tokenizers`` library, or none if it is not installed."""
    try:
        import tokenizers
    except ImportError:
        return None
    return str(tokenizers.__version__)


def _repeatable(scored: list[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """The subwords with scores and an order that are the same from run to run.

    The library sums in the order of a hash table, which changes the last digits. It keeps some
    characters only so that every word can be split, and ranks them in that order too, in steps of
    1e-4 near the score of the least likely subword; here they all get that score.
    """
    least = min((score for subword, score in scored if len(subword) > 1), default=0.0)
    ranked_up_to = least + 1e-4 * sum(len(subword) == 1 for subword, _ in scored)
    rounded = [
        (subword, round(least if len(subword) == 1 and score <= ranked_up_to else score, 4))
        for subword, score in scored
    ]
    return tuple(sorted(rounded, key=lambda entry: (-entry[1], entry[0])))


def split_texts(tokenizer: SubwordTokenizer, texts: TokenizedTexts) -> TokenizedTexts:
    """Texts of words as texts of subwords; each distinct word is split once."""
    index: dict[str, int] = {}
    split = map(tokenizer.split_word, texts.words)
    subwords = Sentences.from_lists(
        [[index.setdefault(subword, len(index)) for subword in word] for word in split]
    )
    tokens = subwords.select(texts.ids)
    # Subwords up to the end of each text; a text without words ends where it starts.
    lengths = np.diff(tokens.offsets[np.cumsum(texts.lengths)], prepend=0).astype(np.int32)
    return TokenizedTexts(list(index), tokens.ids, lengths)


def _train(model: Any, trainer: Any, parts: list[tuple[str, int]]) -> dict[str, Any]:
    """Train a model of the library; returns the library's own description of it."""
    import tokenizers

    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    # Several threads sum probabilities in an order that changes from run to run.
    with one_tokenizing_thread():
        library.train_from_iterator((" ".join([part] * count) for part, count in parts), trainer)
    described: dict[str, Any] = json.loads(library.to_str())["model"]
    return described


@contextmanager
def one_tokenizing_thread() -> Iterator[None]:
    """Let the ``tokenizers`` library use one thread."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        del os.environ[name]
        os.environ.update({} if before is None else {name: before})


def unit_of(preset: str) -> str:
    """What a token of a preset is called: ``word``, ``subword`` or ``character``."""
    if preset in LEARNED:
        return "subword"
    return "character" if preset == "characters" else "word"


def learn_tokenizer(
    config: TextConfig, texts: Iterable[str], threads: int = 1
) -> tuple[AnyTokenizer, TokenizedTexts]:
    """The tokenizer of ``config``, learned if need be, and ``texts`` tokenized in one pass."""
    if config.tokenizer in LEARNED:
        splitter = Tokenizer("words", config.lowercase, runs=True)
        words = tokenize_texts(splitter, texts, threads)
        learned = learn_subwords(config, words)
        return learned, split_texts(learned, words)
    tokenizer = Tokenizer(cast("Preset", config.tokenizer), config.lowercase)
    return tokenizer, tokenize_texts(tokenizer, texts, threads)


class Encoder(NamedTuple):
    """From strings to ids, the same in training and in prediction."""

    tokenizer: AnyTokenizer
    vocabulary: Vocabulary
    char_ngrams: CharNgrams | None = None  # of words; with them, new words have ids too

    @property
    def unit(self) -> str:
        """What a token is called: ``word``, ``subword`` or ``character``."""
        return unit_of(self.tokenizer.preset)

    @classmethod
    def learn(
        cls, texts: Iterable[str], config: TextConfig, threads: int = 1
    ) -> tuple[Self, Sentences]:
        """Learn the vocabulary of ``texts``, and subwords if configured, and encode the texts.

        The texts are read once. The number of threads does not change the result.
        """
        tokenizer, tokenized = learn_tokenizer(config, texts, threads)
        vocabulary = Vocabulary.most_frequent(tokenized.words, tokenized.counts, config)
        encoder = cls(tokenizer, vocabulary, char_ngrams_of(config))
        return encoder, encoder._encode(tokenized)

    def _encode(self, texts: TokenizedTexts, new_words: Sequence[str] = ()) -> Sentences:
        index = self.new_words(new_words)
        ids = self.vocabulary.ids_of_tokenized(texts.words, index)
        filled = texts.without_empty()
        return Sentences.from_flat(ids[filled.ids], filled.lengths, tuple(index or ()))

    def new_words(self, words: Iterable[str] = ()) -> NewWords | None:
        """Gives ids to words outside the vocabulary, first to ``words``; None without n-grams."""
        return None if self.char_ngrams is None else NewWords(self.vocabulary, words)

    def extended(self, texts: Sequence[str], config: TextConfig) -> Self:
        """An encoder that also knows the frequent words of ``texts``; existing ids stay the same.

        At most ``config.max_size`` words are known in all; existing words are never dropped.
        """
        tokenized = tokenize_texts(self.tokenizer, texts)
        every = replace(config, max_size=0)
        found = Vocabulary.most_frequent(tokenized.words, tokenized.counts, every)
        words = list(dict.fromkeys((*self.vocabulary.words, *found.words)))
        most = max(config.max_size, len(self.vocabulary.words)) if config.max_size else None
        return self._replace(vocabulary=Vocabulary(words[:most]))

    def encode_all(self, texts: Sequence[str], new_words: Sequence[str] = ()) -> Sentences:
        """Ids of many texts; an empty text is one unknown word.

        ``new_words`` have their ids already, in other sentences.
        """
        return self._encode(tokenize_texts(self.tokenizer, texts), new_words)

    def encode_words(
        self, sentences: Iterable[Sequence[str]], new_words: Sequence[str] = ()
    ) -> Sentences:
        """``encode_all`` for texts that are already split into tokens."""
        index = self.new_words(new_words)
        ids_of = self.vocabulary.ids if index is None else index.ids
        ids = [ids_of(tokens) or [UNKNOWN] for tokens in sentences]
        return Sentences.from_lists(ids, tuple(index or ()))

    def to_json(self) -> str:
        """The encoder as JSON; ``from_json`` reads it."""
        tokenizer = self.tokenizer
        learned = tokenizer.to_values() if isinstance(tokenizer, SubwordTokenizer) else {}
        values = {
            "preset": tokenizer.preset,
            "lowercase": tokenizer.lowercase,
            **learned,
            **({} if self.char_ngrams is None else {"char_ngrams": self.char_ngrams._asdict()}),
            "vocabulary": self.vocabulary.words,
        }
        return json.dumps(values, ensure_ascii=False, indent=0)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote; a ``ValueError`` says how a text is damaged."""
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("the top level is not an object")  # noqa: TRY004
        tokenizer, words = read_tokenizer(values), values.get("vocabulary")
        if not isinstance(words, list) or not set(map(type, words)) <= {str}:
            raise ValueError("vocabulary must be a list of strings")
        if "\\ud" in text or "\\uD" in text:  # such an escape may be half of a character
            json.dumps(values, ensure_ascii=False).encode()
        return cls(tokenizer, Vocabulary(words), _read_char_ngrams(values.get("char_ngrams")))


def in_parts(texts: Iterable[Sequence[str]], most: int) -> Iterator[list[Sequence[str]]]:
    """Tokenized texts in lists of at most ``most``, or fewer if the texts are long."""
    part: list[Sequence[str]] = []
    size = 0
    for tokens in texts:
        part.append(tokens)
        size += len(tokens)
        if len(part) == most or size >= MOST_TOKENS:
            yield part
            part, size = [], 0
    if part:
        yield part


def char_ngrams_of(config: TextConfig) -> CharNgrams | None:
    """The n-grams that the settings ask for; a character has none but itself."""
    if not config.char_ngrams or config.tokenizer == "characters":
        return None
    shortest, longest = config.char_ngrams
    return CharNgrams(shortest, longest, config.n_buckets)


def _read_char_ngrams(values: Any) -> CharNgrams | None:
    if values is None:
        return None
    names = CharNgrams._fields
    if not isinstance(values, dict) or sorted(values) != sorted(names):
        raise ValueError(f"char_ngrams must be an object of {', '.join(names)}")
    read = CharNgrams(**values)
    numbers = all(type(value) is int for value in values.values())
    if not numbers or not (
        0 < read.shortest <= read.longest <= MAX_SPELLED and 0 < read.n_buckets < MAX_BUCKETS
    ):
        raise ValueError(
            f"char_ngrams={values!r:.80} must be lengths from 1 to {MAX_SPELLED}, the shortest "
            f"first, and n_buckets below {MAX_BUCKETS}"
        )
    return read
