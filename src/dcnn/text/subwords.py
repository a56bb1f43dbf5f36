"""Pieces of words, learned from the training texts: byte-pair encoding, and the unigram model.

A text is split into words as by the preset ``words``, except that neighbouring letters of a script
without spaces are one word; then each word is cut into pieces. A piece that goes on inside a word
is written ``##piece``, so that "able" and the end of "unable" are two tokens and a reader can tell
where a word ends. No word has two ``#`` in it, so the two never collide.

The ``tokenizers`` library learns which pieces there are (``dcnn.text.subwords``). Cutting is
done here, in plain Python and once a word: a model folder holds all that it takes, and predicting
needs no library and no native threads.


Splitting a training set: with the ``tokenizers`` library learning the pieces of its words.

The library gets the distinct words with their counts, not the texts: splitting is the same code
as in prediction, and a corpus is still read once.

"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, Self, cast

import numpy as np

from dcnn.config import TextConfig
from dcnn.errors import MissingExtraError
from dcnn.text.sentences import Sentences
from dcnn.text.tokenizer import Preset, Tokenizer
from dcnn.text.vocabulary import NumberedTexts, number_words

Learned = Literal["bpe", "unigram"]
LEARNED: tuple[Learned, ...] = ("bpe", "unigram")
CONTINUES = "##"

# A word of more code points is cut there first, so that the time a text takes grows with its
# length alone: merging looks at all pairs of a word again after each merge.
LONGEST_WORD = 64

# What a character that no piece has costs beyond the least likely piece, as in SentencePiece.
UNKNOWN_PENALTY = 10.0

_CACHED_WORDS = 1 << 17  # words repeat


@dataclass(frozen=True)
class BytePairs:
    """Byte-pair encoding (Sennrich et al., 2016), on code points.

    Attributes:
        merges: pairs of neighbours that become one piece, the most important first.
    """

    merges: tuple[tuple[str, str], ...]
    _ranks: dict[tuple[str, str], int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        if len(ranks) != len(self.merges):
            raise ValueError("a pair occurs twice in merges")
        object.__setattr__(self, "_ranks", ranks)

    def cut(self, word: str) -> list[str]:
        """The pieces of ``word``: of all pairs the most important is merged, until none is left."""
        parts, ranks, none = list(word), self._ranks, len(self._ranks)
        while len(parts) > 1:
            rank, at = min((ranks.get(pair, none), at) for at, pair in enumerate(pairwise(parts)))
            if rank == none:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return parts

    def to_values(self) -> dict[str, Any]:
        """What ``from_values`` reads; no piece has a space in it."""
        return {"merges": [f"{left} {right}" for left, right in self.merges]}

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        """Read a description.

        Raises:
            ValueError: it is none; the message says why.
        """
        lines = values.get("merges")
        if not isinstance(lines, list):
            raise ValueError("merges must be a list of pairs")  # noqa: TRY004
        return cls(tuple(map(_pair, lines)))


@dataclass(frozen=True)
class UnigramPieces:
    """The unigram language model (Kudo, 2018): a word's likeliest way to be made of pieces.

    Attributes:
        pieces: each with its logarithmic probability.
    """

    pieces: tuple[tuple[str, float], ...]
    _scores: dict[str, float] = field(init=False, repr=False, compare=False)
    _longest: int = field(init=False, repr=False, compare=False)
    _unknown: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        scores = dict(self.pieces)
        if len(scores) != len(self.pieces):
            raise ValueError("a piece occurs twice in pieces")
        object.__setattr__(self, "_scores", scores)
        object.__setattr__(self, "_longest", max(map(len, scores), default=1))
        object.__setattr__(self, "_unknown", min(scores.values(), default=0.0) - UNKNOWN_PENALTY)

    def cut(self, word: str) -> list[str]:
        """The pieces of ``word`` whose probabilities have the largest product (Viterbi)."""
        best = [0.0] + [-math.inf] * len(word)  # of the first so many code points
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
        return {"pieces": [f"{piece} {score!r}" for piece, score in self.pieces]}

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        """Read a description.

        Raises:
            ValueError: it is none; the message says why.
        """
        lines = values.get("pieces")
        if not isinstance(lines, list):
            raise ValueError("pieces must be a list")  # noqa: TRY004
        return cls(tuple(map(_scored_piece, lines)))


def _pair(line: object) -> tuple[str, str]:
    if isinstance(line, str):
        left, _, right = line.partition(" ")
        if left and right and " " not in right:
            return left, right
    raise ValueError(f"merges: {line!r:.60} must be two pieces and a space between")


def _scored_piece(line: object) -> tuple[str, float]:
    if isinstance(line, str):
        piece, _, number = line.partition(" ")
        try:
            score = float(number)
        except ValueError:
            score = math.nan
        if piece and math.isfinite(score):
            return piece, score
    raise ValueError(f"pieces: {line!r:.60} must be a piece, a space and a finite number")


Pieces = BytePairs | UnigramPieces
KINDS: dict[Learned, type[BytePairs] | type[UnigramPieces]] = {
    "bpe": BytePairs,
    "unigram": UnigramPieces,
}


@dataclass(frozen=True)
class SubwordTokenizer:
    """Splits a text into pieces of words; to its callers it is like ``Tokenizer``."""

    preset: Learned
    lowercase: bool
    pieces: Pieces
    _known: dict[str, list[str]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __call__(self, text: str) -> list[str]:
        """Return the tokens of ``text`` in order; an empty or blank text has none."""
        tokens: list[str] = []
        for word in word_splitter(self.lowercase)(text):
            tokens += self.cut(word)
        return tokens

    def spell(self, token: str) -> str:
        """What a token adds to a text: one that begins a word has a space before it."""
        continues = len(token) > len(CONTINUES) and token.startswith(CONTINUES)
        return token.removeprefix(CONTINUES) if continues else " " + token

    def cut(self, word: str) -> list[str]:
        """The tokens of one word."""
        tokens = self._known.get(word)
        if tokens is None:
            if len(self._known) >= _CACHED_WORDS:
                self._known.clear()
            first, *others = (piece for part in shortened(word) for piece in self.pieces.cut(part))
            tokens = [first, *(CONTINUES + piece for piece in others)]
            self._known[word] = tokens
        return tokens


AnyTokenizer = Tokenizer | SubwordTokenizer


def unit_of(preset: str) -> str:
    """What a reader calls a token of a preset: ``word``, ``piece`` or ``character``."""
    if preset in LEARNED:
        return "piece"
    return "character" if preset == "characters" else "word"


def word_splitter(lowercase: bool) -> Tokenizer:
    """What splits a text into the words that are cut."""
    return Tokenizer("words", lowercase, runs=True)


def shortened(word: str) -> list[str]:
    """A word in parts of at most ``LONGEST_WORD`` code points."""
    return [word[at : at + LONGEST_WORD] for at in range(0, len(word), LONGEST_WORD)]


LONGEST_PIECE = 16


def learn_tokenizer(
    config: TextConfig, texts: Iterable[str], processes: int = 1
) -> tuple[AnyTokenizer, NumberedTexts]:
    """The tokenizer that the settings ask for, and ``texts`` split by it, in one pass over them.

    Raises:
        MissingExtraError: pieces have to be learned, and the library is not installed.
    """
    if config.tokenizer in ("bpe", "unigram"):
        words = number_words(word_splitter(config.lowercase), texts, processes)
        learned = learn_subwords(config, words)
        return learned, cut_texts(learned, words)
    preset = cast("Preset", config.tokenizer)
    tokenizer = Tokenizer(preset, config.lowercase)
    return tokenizer, number_words(tokenizer, texts, processes)


def learn_subwords(config: TextConfig, texts: NumberedTexts) -> SubwordTokenizer:
    """Learn ``config.n_subwords`` pieces from the words of texts and how often each occurs.

    Raises:
        MissingExtraError: the library is not installed.
    """
    try:
        import tokenizers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"text.tokenizer={config.tokenizer}", "subwords") from error

    counts = np.bincount(texts.numbers, minlength=len(texts.words)).tolist()
    parts = [
        (part, count)
        for word, count in zip(texts.words, counts, strict=True)
        for part in shortened(word)
    ]
    if config.tokenizer == "bpe":
        return SubwordTokenizer(
            "bpe", config.lowercase, _learn_byte_pairs(config.n_subwords, parts)
        )
    return SubwordTokenizer("unigram", config.lowercase, _learn_unigram(config.n_subwords, parts))


def _learn_byte_pairs(size: int, parts: list[tuple[str, int]]) -> BytePairs:
    from tokenizers import models, trainers

    # A pair that occurs once teaches nothing.
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False)
    merges = _trained(models.BPE(), trainer, parts)["merges"]
    return BytePairs(tuple((left, right) for left, right in merges))


def _learn_unigram(size: int, parts: list[tuple[str, int]]) -> UnigramPieces:
    from tokenizers import models, trainers

    if not parts:
        return UnigramPieces(())
    # With no more pieces than characters the library fails, or never ends.
    size = max(size, len({character for part, _ in parts for character in part}) + 1)
    trainer = trainers.UnigramTrainer(
        vocab_size=size, max_piece_length=LONGEST_PIECE, show_progress=False
    )
    # The library proposes what occurs in two distinct words, and so no word as a whole unless it
    # is part of another: twice in a row it is.
    twice = [(part + part, 1) for part, count in parts if count > 1 and len(part) > 1]
    return UnigramPieces(_repeatable(_trained(models.Unigram(), trainer, parts + twice)["vocab"]))


def _repeatable(scored: list[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """The pieces with scores and an order that are the same from run to run.

    The library adds up in the order of a hash table, which changes the last digits. By that order
    it also ranks, a ten-thousandth apart and from below the least likely piece, the characters that
    it only keeps so that every word can be cut: here they are as likely as that piece.
    """
    least = min((score for piece, score in scored if len(piece) > 1), default=0.0)
    ranked_up_to = least + 1e-4 * sum(len(piece) == 1 for piece, _ in scored)
    rounded = [
        (piece, round(least if len(piece) == 1 and score <= ranked_up_to else score, 4))
        for piece, score in scored
    ]
    return tuple(sorted(rounded, key=lambda entry: (-entry[1], entry[0])))


def cut_texts(tokenizer: SubwordTokenizer, texts: NumberedTexts) -> NumberedTexts:
    """Numbered texts of words as numbered texts of pieces, numbered as first seen too."""
    numbering: dict[str, int] = {}
    cut = [
        [numbering.setdefault(piece, len(numbering)) for piece in tokenizer.cut(word)]
        for word in texts.words
    ]
    pieces = Sentences.from_lists(cut)
    ends = np.cumsum(texts.lengths)
    # Pieces up to the end of each text; a text without words ends where it starts.
    done = np.concatenate([[0], np.cumsum(pieces.lengths[texts.numbers])])[ends]
    lengths = np.diff(done, prepend=0).astype(np.int32)
    return NumberedTexts(list(numbering), pieces.select(texts.numbers).ids, lengths)


def _trained(model: Any, trainer: Any, parts: list[tuple[str, int]]) -> dict[str, Any]:
    """The model part of the library's own description."""
    import tokenizers

    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    with _one_thread():
        library.train_from_iterator((" ".join([part] * count) for part, count in parts), trainer)
    described: dict[str, Any] = json.loads(library.to_str())["model"]
    return described


@contextmanager
def _one_thread() -> Iterator[None]:
    """Several threads add up probabilities in an order that changes from run to run."""
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
