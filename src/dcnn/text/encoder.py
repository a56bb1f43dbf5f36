"""Tokenizer and vocabulary together: what a model folder keeps as ``tokenizer.json``."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from dcnn.config import TextConfig
from dcnn.text.sentences import Ints, Sentences
from dcnn.text.subwords import KINDS, LEARNED, AnyTokenizer, SubwordTokenizer, unit_of
from dcnn.text.tokenizer import PRESETS, Tokenizer
from dcnn.text.vocabulary import UNKNOWN, Vocabulary


@dataclass(frozen=True)
class Encoder:
    """From strings to ids, the same in training and in prediction."""

    tokenizer: AnyTokenizer
    vocabulary: Vocabulary

    @property
    def unit(self) -> str:
        """What a reader calls a token: ``word``, ``piece`` or ``character``."""
        return unit_of(self.tokenizer.preset)

    @classmethod
    def learn(
        cls, texts: Iterable[str], config: TextConfig, processes: int = 1
    ) -> tuple[Self, Sentences]:
        """Learn the vocabulary of ``texts`` and encode them, in one pass over the texts.

        Where the tokens are pieces of words, which pieces there are is learned before. The words,
        or pieces, seen ``config.min_count`` times or more are kept, at most ``config.max_size`` of
        them (0: all). The most frequent come first; among equals, the one seen first. The result
        does not depend on the number of processes; see ``number_words`` for what they ask of a
        program.
        """
        # Here, since only learning needs it: it brings multiprocessing.
        from dcnn.text.subwords import learn_tokenizer

        tokenizer, (words, numbers, lengths) = learn_tokenizer(config, texts, processes)
        counts = np.bincount(numbers, minlength=len(words))
        by_count = np.argsort(-counts, kind="stable")
        kept = by_count[counts[by_count] >= config.min_count]
        if config.max_size:
            kept = kept[: config.max_size]
        vocabulary = Vocabulary([words[number] for number in kept])
        ids = np.full(len(words) + 1, UNKNOWN, np.int32)  # the last is the text without words
        ids[kept] = np.arange(1, len(kept) + 1)
        return cls(tokenizer, vocabulary), _join(ids, numbers, lengths)

    def with_words(self, words: Iterable[str]) -> Self:
        """An encoder that knows ``words`` too; the ids of its own words stay."""
        known = dict.fromkeys(self.vocabulary.words)
        return type(self)(self.tokenizer, Vocabulary(list(known | dict.fromkeys(words))))

    def encode(self, text: str) -> list[int]:
        """Ids of the words of ``text``; an empty text is one unknown word."""
        return self.vocabulary.ids(self.tokenizer(text)) or [UNKNOWN]

    def encode_all(self, texts: Sequence[str]) -> Sentences:
        """Ids of many texts."""
        return Sentences.from_lists([self.encode(text) for text in texts])

    def to_json(self) -> str:
        """A text that ``from_json`` turns back into an equal encoder."""
        tokenizer = self.tokenizer
        pieces = tokenizer.pieces.to_values() if isinstance(tokenizer, SubwordTokenizer) else {}
        values = {
            "preset": tokenizer.preset,
            "lowercase": tokenizer.lowercase,
            **pieces,
            "vocabulary": self.vocabulary.words,
        }
        return json.dumps(values, ensure_ascii=False, indent=0)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: the text is not such a description; the message says why.
        """
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("the top level is not an object")  # noqa: TRY004
        preset, lowercase, words = (
            values.get(key) for key in ("preset", "lowercase", "vocabulary")
        )
        if preset not in (*PRESETS, *LEARNED):
            names = ", ".join((*PRESETS, *LEARNED))
            raise ValueError(f"preset={preset!r} must be one of {names}")
        if not isinstance(lowercase, bool):
            raise ValueError(f"lowercase={lowercase!r} must be true or false")  # noqa: TRY004
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError("vocabulary must be a list of strings")
        if preset in KINDS:
            pieces = KINDS[preset].from_values(values)
            return cls(SubwordTokenizer(preset, lowercase, pieces), Vocabulary(words))
        return cls(Tokenizer(preset, lowercase), Vocabulary(words))


def _join(ids: Ints, numbers: Ints, lengths: Ints) -> Sentences:
    """Ids of numbered words, with one unknown word in the place of every empty text."""
    empty = np.flatnonzero(lengths == 0)
    if len(empty):
        starts = np.cumsum(lengths) - lengths
        numbers = np.insert(numbers, starts[empty], len(ids) - 1)
        lengths = np.maximum(lengths, 1)
    return Sentences.from_flat(ids[numbers], lengths)
