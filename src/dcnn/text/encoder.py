"""Tokenizer and vocabulary together: what a model folder keeps as ``tokenizer.json``."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from dcnn.config import TextConfig
from dcnn.text.sentences import Sentences
from dcnn.text.tokenizer import PRESETS, Tokenizer
from dcnn.text.vocabulary import UNKNOWN, Vocabulary


@dataclass(frozen=True)
class Encoder:
    """From strings to ids, the same in training and in prediction."""

    tokenizer: Tokenizer
    vocabulary: Vocabulary

    @classmethod
    def build(cls, texts: Iterable[str], config: TextConfig) -> Self:
        """Learn the vocabulary of ``texts``."""
        tokenizer = Tokenizer(config.tokenizer, config.lowercase)
        words = Vocabulary.build(map(tokenizer, texts), config.min_count, config.max_size)
        return cls(tokenizer, words)

    def encode(self, text: str) -> list[int]:
        """Ids of the words of ``text``; an empty text is one unknown word."""
        return self.vocabulary.ids(self.tokenizer(text)) or [UNKNOWN]

    def encode_all(self, texts: Sequence[str]) -> Sentences:
        """Ids of many texts."""
        return Sentences.from_lists([self.encode(text) for text in texts])

    def to_json(self) -> str:
        """A text that ``from_json`` turns back into an equal encoder."""
        values = {
            "preset": self.tokenizer.preset,
            "lowercase": self.tokenizer.lowercase,
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
        if preset not in PRESETS:
            raise ValueError(f"preset={preset!r} must be one of {', '.join(PRESETS)}")
        if not isinstance(lowercase, bool):
            raise ValueError(f"lowercase={lowercase!r} must be true or false")  # noqa: TRY004
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError("vocabulary must be a list of strings")
        return cls(Tokenizer(preset, lowercase), Vocabulary(words))
