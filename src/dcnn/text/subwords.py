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
from itertools import pairwise
from typing import Any, Literal, Self, TypeVar, cast

import numpy as np

from dcnn.config import TextConfig
from dcnn.errors import MissingExtraError
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

_T = TypeVar("_T")


@dataclass(frozen=True)
class BPE:
    """Byte-pair encoding (Sennrich et al., 2016), on code points.

    Attributes:
        merges: pairs of neighbours that become one subword, the most important first.
    """

    merges: tuple[tuple[str, str], ...]
    _ranks: dict[tuple[str, str], int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        if len(ranks) != len(self.merges):
            raise ValueError("a pair occurs twice in merges")
        object.__setattr__(self, "_ranks", ranks)

    def split(self, word: str) -> list[str]:
        """The subwords of ``word``: the most important pair is merged until none is left."""
        parts, ranks, none = list(word), self._ranks, len(self._ranks)
        while len(parts) > 1:
            rank, at = min((ranks.get(pair, none), at) for at, pair in enumerate(pairwise(parts)))
            if rank == none:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return parts

    def to_values(self) -> dict[str, Any]:
        """What ``from_values`` reads; no subword has a space in it."""
        return {"merges": [f"{left} {right}" for left, right in self.merges]}

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        """Read what ``to_values`` wrote; raises ``ValueError`` if it is damaged."""
        return cls(_parsed(values, "merges", _pair, "two subwords separated by a space"))


@dataclass(frozen=True)
class Unigram:
    """The unigram language model (Kudo, 2018): the most likely sequence of subwords.

    Attributes:
        subwords: each with its logarithmic probability.
    """

    subwords: tuple[tuple[str, float], ...]
    _scores: dict[str, float] = field(init=False, repr=False, compare=False)
    _longest: int = field(init=False, repr=False, compare=False)
    _unknown: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        scores = dict(self.subwords)
        if len(scores) != len(self.subwords):
            raise ValueError("a subword occurs twice in pieces")
        object.__setattr__(self, "_scores", scores)
        object.__setattr__(self, "_longest", max(map(len, scores), default=1))
        object.__setattr__(self, "_unknown", min(scores.values(), default=0.0) - UNKNOWN_PENALTY)

    def split(self, word: str) -> list[str]:
        """The subwords of ``word`` whose probabilities have the largest product (Viterbi)."""
        best = [0.0] + [-math.inf] * len(word)  # score of the first n code points
        came_from = [0] * (len(word) + 1)
        for start in range(len(word)):
            for end in range(start + 1, min(start + self._longest, len(word)) + 1):
                score = self._scores.get(word[start:end])
                if score is None:
                    if end > start + 1:
                        continue
                    score = self._unknown
                if best[start] + score > best[end]:
                    best[end], came_from[end] = best[start] + score, start
        parts, end = [], len(word)
        while end:
            parts.append(word[came_from[end] : end])
            end = came_from[end]
        return parts[::-1]

    def to_values(self) -> dict[str, Any]:
        """What ``from_values`` reads."""
        return {"pieces": [f"{subword} {score!r}" for subword, score in self.subwords]}

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        """Read what ``to_values`` wrote; raises ``ValueError`` if it is damaged."""
        return cls(_parsed(values, "pieces", _scored, "a subword, a space and a finite number"))


def _parsed(
    values: dict[str, Any], name: str, parse: Callable[[str], _T | None], rule: str
) -> tuple[_T, ...]:
    """The entries of a list; ``parse`` gives none for one that breaks the rule."""
    lines = values.get(name)
    if not isinstance(lines, list):
        raise ValueError(f"{name} must be a list; each entry is {rule}")  # noqa: TRY004
    entries = []
    for line in lines:
        entry = parse(line) if isinstance(line, str) else None
        if entry is None:
            raise ValueError(f"{name}: {line!r:.60} must be {rule}")
        entries.append(entry)
    return tuple(entries)


def _pair(line: str) -> tuple[str, str] | None:
    left, _, right = line.partition(" ")
    return (left, right) if left and right and " " not in right else None


def _scored(line: str) -> tuple[str, float] | None:
    subword, _, number = line.partition(" ")
    try:
        score = float(number)
    except ValueError:
        return None
    return (subword, score) if subword and math.isfinite(score) else None


SubwordModel = BPE | Unigram
MODELS: dict[Learned, type[BPE] | type[Unigram]] = {"bpe": BPE, "unigram": Unigram}


@dataclass(frozen=True)
class SubwordTokenizer:
    """Splits a text into subwords; callers use it as they use ``Tokenizer``."""

    preset: Learned
    lowercase: bool
    model: SubwordModel
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
            first, *others = (sub for part in _parts(word) for sub in self.model.split(part))
            tokens = [first, *(CONTINUES + subword for subword in others)]
            self._known[word] = tokens
        return tokens


AnyTokenizer = Tokenizer | SubwordTokenizer


def word_tokenizer(lowercase: bool) -> Tokenizer:
    """Splits a text into the words that are split into subwords."""
    return Tokenizer("words", lowercase, runs=True)


def _parts(word: str) -> list[str]:
    return [word[at : at + MAX_WORD_LENGTH] for at in range(0, len(word), MAX_WORD_LENGTH)]


def learn_subwords(config: TextConfig, texts: TokenizedTexts) -> SubwordTokenizer:
    """Learn ``config.n_subwords`` subwords from the words of texts and their counts.

    Raises:
        MissingExtraError: the library is not installed.
    """
    if library_version() is None:
        raise MissingExtraError(f"text.tokenizer={config.tokenizer}", "subwords")
    counts = np.bincount(texts.ids, minlength=len(texts.words)).tolist()
    parts = [
        (part, count)
        for word, count in zip(texts.words, counts, strict=True)
        for part in _parts(word)
    ]
    learn = _learn_bpe if config.tokenizer == "bpe" else _learn_unigram
    preset = cast("Learned", config.tokenizer)
    return SubwordTokenizer(preset, config.lowercase, learn(config.n_subwords, parts))


def library_version() -> str | None:
    """The version of the ``tokenizers`` library, or none if it is not installed."""
    try:
        import tokenizers
    except ImportError:
        return None
    return str(tokenizers.__version__)


def _learn_bpe(size: int, parts: list[tuple[str, int]]) -> SubwordModel:
    from tokenizers import models, trainers

    # A pair that occurs once teaches nothing.
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False)
    merges = _train(models.BPE(), trainer, parts)["merges"]
    return BPE(tuple((left, right) for left, right in merges))


def _learn_unigram(size: int, parts: list[tuple[str, int]]) -> SubwordModel:
    from tokenizers import models, trainers

    if not parts:
        return Unigram(())
    # With no more subwords than characters the library fails, or never ends.
    size = max(size, len({character for part, _ in parts for character in part}) + 1)
    trainer = trainers.UnigramTrainer(
        vocab_size=size, max_piece_length=MAX_SUBWORD_LENGTH, show_progress=False
    )
    # The library proposes what occurs in two distinct words, and so no whole word unless it is
    # part of another: written twice in a row it is.
    twice = [(part + part, 1) for part, count in parts if count > 1 and len(part) > 1]
    return Unigram(_repeatable(_train(models.Unigram(), trainer, parts + twice)["vocab"]))


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
    subwords = Sentences.from_lists(
        [
            [index.setdefault(subword, len(index)) for subword in tokenizer.split_word(word)]
            for word in texts.words
        ]
    )
    ends = np.cumsum(texts.lengths)
    # Subwords up to the end of each text; a text without words ends where it starts.
    done = np.concatenate([[0], np.cumsum(subwords.lengths[texts.ids])])[ends]
    lengths = np.diff(done, prepend=0).astype(np.int32)
    return TokenizedTexts(list(index), subwords.select(texts.ids).ids, lengths)


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
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
