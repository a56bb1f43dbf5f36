"""Subwords learned from the training texts: byte-pair encoding, and the unigram model.

A text is split into words as by the preset ``words``, except that neighbouring letters of a script
without spaces are one word; then each word is split into subwords. A subword inside a word is
written ``##subword``, so that "able" and the end of "unable" are two tokens and a reader can tell
where a word ends. No word has two ``#`` in it, so the two never collide.

The ``tokenizers`` library learns the subwords, from the distinct words and their counts instead of
the texts: a corpus is read once. Splitting is done here, in plain Python and once per distinct
word, so that predicting needs no library and no native threads.
"""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np

from dcnn.config import TextConfig
from dcnn.errors import needs_extra
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import Sentences, TokenizedTexts

Learned = Literal["bpe", "unigram"]
LEARNED: tuple[Learned, ...] = ("bpe", "unigram")
CONTINUES = "##"

# A longer word is cut there first, so that the time per text grows with its length alone: BPE goes
# through all pairs of a word after each merge.
MAX_WORD_LENGTH = 64
MAX_SUBWORD_LENGTH = 16  # of the unigram model

# What an unknown character costs beyond the least likely subword, as in SentencePiece.
UNKNOWN_PENALTY = 10.0

_CACHED_WORDS = 1 << 17  # words repeat

# How a model folder writes what was learned: under which name, what may not occur twice, and how.
_FORMATS: dict[Learned, tuple[str, str, str]] = {
    "bpe": ("merges", "a pair", "two subwords separated by a space"),
    "unigram": ("pieces", "a subword", "a subword, a space and a finite number"),
}


@dataclass(frozen=True)
class SubwordTokenizer:
    """Splits a text into subwords; callers use it as they use ``Tokenizer``.

    The entries of byte-pair encoding are pairs of neighbours that become one subword, the most
    important first; those of the unigram model are subwords with their logarithmic probabilities.
    """

    preset: Learned
    lowercase: bool
    entries: tuple[tuple[str, Any], ...]
    _known: dict[str, list[str]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __call__(self, text: str) -> list[str]:
        """Return the tokens of ``text`` in order; an empty or blank text has none."""
        tokens: list[str] = []
        for word in word_tokenizer(self.lowercase)(text):
            tokens += self.split_word(word)
        return tokens

    def spell(self, token: str) -> str:
        """What a token adds to a text: one that begins a word has a space before it."""
        continues = len(token) > len(CONTINUES) and token.startswith(CONTINUES)
        return token.removeprefix(CONTINUES) if continues else " " + token

    def split_word(self, word: str) -> list[str]:
        """The tokens of one word."""
        tokens = self._known.get(word)
        if tokens is None:
            if len(self._known) >= _CACHED_WORDS:
                self._known.clear()
            first, *others = (sub for part in _parts(word) for sub in self._split(part))
            tokens = [first, *(CONTINUES + subword for subword in others)]
            self._known[word] = tokens
        return tokens

    @cached_property
    def _split(self) -> Callable[[str], list[str]]:
        if self.preset == "bpe":
            return partial(split_bpe, {pair: rank for rank, pair in enumerate(self.entries)})
        scores = dict(self.entries)
        unknown = min(scores.values(), default=0.0) - UNKNOWN_PENALTY
        return partial(split_unigram, scores, unknown, max(map(len, scores), default=1))

    def to_values(self) -> dict[str, Any]:
        """What was learned, as ``from_values`` reads it; no subword has a space in it."""
        return {_FORMATS[self.preset][0]: [f"{left} {right}" for left, right in self.entries]}

    @classmethod
    def from_values(cls, preset: Learned, lowercase: bool, values: dict[str, Any]) -> Self:
        """Read what ``to_values`` wrote; raises ``ValueError`` if it is damaged."""
        name, key, rule = _FORMATS[preset]
        lines = values.get(name)
        if not isinstance(lines, list):
            raise ValueError(f"{name} must be a list; each entry is {rule}")  # noqa: TRY004
        entries: list[tuple[str, Any]] = []
        for line in lines:
            left, _, right = line.partition(" ") if isinstance(line, str) else ("", "", "")
            value = _pair_end(right) if preset == "bpe" else _score(right)
            if not left or value is None:
                raise ValueError(f"{name}: {line!r:.60} must be {rule}")
            entries.append((left, value))
        if len(set(entries) if preset == "bpe" else dict(entries)) != len(entries):
            raise ValueError(f"{key} occurs twice in {name}")
        return cls(preset, lowercase, tuple(entries))


def _pair_end(text: str) -> str | None:
    return text if text and " " not in text else None


def _score(text: str) -> float | None:
    try:
        return float(text) if math.isfinite(float(text)) else None
    except ValueError:
        return None


def split_bpe(ranks: dict[tuple[str, str], int], word: str) -> list[str]:
    """The subwords of ``word`` by byte-pair encoding (Sennrich et al., 2016), on code points.

    The most important pair is merged until none is left.
    """
    parts, none = list(word), len(ranks)
    while len(parts) > 1:
        rank, at = min((ranks.get(pair, none), at) for at, pair in enumerate(pairwise(parts)))
        if rank == none:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def split_unigram(scores: dict[str, float], unknown: float, longest: int, word: str) -> list[str]:
    """The subwords of ``word`` whose probabilities have the largest product (Kudo, 2018; Viterbi).

    ``unknown`` is the score of an unknown character, ``longest`` the length of a subword.
    """
    best = [0.0] + [-math.inf] * len(word)  # score of the first n code points
    came_from = [0] * (len(word) + 1)
    for start in range(len(word)):
        for end in range(start + 1, min(start + longest, len(word)) + 1):
            score = scores.get(word[start:end], unknown if end == start + 1 else -math.inf)
            if best[start] + score > best[end]:
                best[end], came_from[end] = best[start] + score, start
    parts, end = [], len(word)
    while end:
        parts.append(word[came_from[end] : end])
        end = came_from[end]
    return parts[::-1]


AnyTokenizer = Tokenizer | SubwordTokenizer


def word_tokenizer(lowercase: bool) -> Tokenizer:
    """Splits a text into the words that are split into subwords."""
    return Tokenizer("words", lowercase, runs=True)


def _parts(word: str) -> list[str]:
    return [word[at : at + MAX_WORD_LENGTH] for at in range(0, len(word), MAX_WORD_LENGTH)]


def learn_subwords(config: TextConfig, texts: TokenizedTexts) -> SubwordTokenizer:
    """Learn ``config.n_subwords`` subwords from the words of texts and their counts."""
    with needs_extra(f"text.tokenizer={config.tokenizer}", "subwords"):
        from tokenizers import models, trainers
    words = zip(texts.words, texts.counts.tolist(), strict=True)
    parts = [(part, count) for word, count in words for part in _parts(word)]
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
    # The library proposes what occurs in two distinct words, and so no whole word unless it is
    # part of another: written twice in a row it is.
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

    The library sums in the order of a hash table, which changes the last digits. The characters
    that it keeps only so that every word can be split it ranks by that order too, 1e-4 apart from
    below the least likely subword: here they are as likely as that subword.
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
    with _one_thread():
        library.train_from_iterator((" ".join([part] * count) for part, count in parts), trainer)
    described: dict[str, Any] = json.loads(library.to_str())["model"]
    return described


@contextmanager
def _one_thread() -> Iterator[None]:
    """Several threads sum probabilities in an order that changes from run to run."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.pop(name, None)
    os.environ[name] = "false"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
