"""String to ids: tokenizer and vocabulary, stored in a model folder as ``tokenizer.json``."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from dcnn.config import TextConfig
from dcnn.text import subwords
from dcnn.text.subwords import AnyTokenizer, SubwordTokenizer
from dcnn.text.tokenizer import PRESETS, Preset, Tokenizer
from dcnn.text.vocabulary import UNKNOWN, Sentences, TokenizedTexts, Vocabulary, tokenize_texts


def unit_of(preset: str) -> str:
    """What a token of a preset is called: ``word``, ``subword`` or ``character``."""
    if preset in subwords.LEARNED:
        return "subword"
    return "character" if preset == "characters" else "word"


def learn_tokenizer(
    config: TextConfig, texts: Iterable[str], processes: int = 1
) -> tuple[AnyTokenizer, TokenizedTexts]:
    """The tokenizer of ``config``, learned if need be, and ``texts`` tokenized in one pass."""
    if config.tokenizer in subwords.LEARNED:
        words = tokenize_texts(subwords.word_tokenizer(config.lowercase), texts, processes)
        learned = subwords.learn_subwords(config, words)
        return learned, subwords.split_texts(learned, words)
    tokenizer = Tokenizer(cast("Preset", config.tokenizer), config.lowercase)
    return tokenizer, tokenize_texts(tokenizer, texts, processes)


@dataclass(frozen=True)
class Encoder:
    """From strings to ids, the same in training and in prediction."""

    tokenizer: AnyTokenizer
    vocabulary: Vocabulary

    @property
    def unit(self) -> str:
        """What a token is called: ``word``, ``subword`` or ``character``."""
        return unit_of(self.tokenizer.preset)

    @classmethod
    def learn(
        cls, texts: Iterable[str], config: TextConfig, processes: int = 1
    ) -> tuple[Self, Sentences]:
        """Learn the vocabulary of ``texts``, and subwords if configured, and encode the texts.

        The texts are read once. ``Vocabulary.most_frequent`` says which words are kept, and
        ``tokenize_texts`` what several processes require of a program; their number does not
        change the result.
        """
        tokenizer, tokenized = learn_tokenizer(config, texts, processes)
        words = tokenized.words
        vocabulary = Vocabulary.most_frequent(words, tokenized.counts, config)
        ids = np.array([*vocabulary.ids(words), UNKNOWN], np.int32)  # last: an empty text
        filled = tokenized.without_empty()
        return cls(tokenizer, vocabulary), Sentences.from_flat(ids[filled.ids], filled.lengths)

    def with_words(self, words: Iterable[str]) -> Self:
        """An encoder that also knows ``words``; the ids of its own words stay."""
        known = dict.fromkeys(self.vocabulary.words)
        return type(self)(self.tokenizer, Vocabulary(list(known | dict.fromkeys(words))))

    def encode(self, text: str) -> list[int]:
        """Ids of the tokens of ``text``; an empty text is one unknown word."""
        return self.vocabulary.ids(self.tokenizer(text)) or [UNKNOWN]

    def encode_all(self, texts: Sequence[str]) -> Sentences:
        """Ids of many texts."""
        return Sentences.from_lists([self.encode(text) for text in texts])

    def to_json(self) -> str:
        """The encoder as JSON; ``from_json`` reads it."""
        tokenizer = self.tokenizer
        learned = tokenizer.to_values() if isinstance(tokenizer, SubwordTokenizer) else {}
        values = {
            "preset": tokenizer.preset,
            "lowercase": tokenizer.lowercase,
            **learned,
            "vocabulary": self.vocabulary.words,
        }
        return json.dumps(values, ensure_ascii=False, indent=0)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote; a ``ValueError`` says how a text is damaged."""
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("the top level is not an object")  # noqa: TRY004
        preset, lowercase, words = map(values.get, ("preset", "lowercase", "vocabulary"))
        if preset not in (*PRESETS, *subwords.LEARNED):
            names = ", ".join((*PRESETS, *subwords.LEARNED))
            raise ValueError(f"preset={preset!r} must be one of {names}")
        if not isinstance(lowercase, bool):
            raise ValueError(f"lowercase={lowercase!r} must be true or false")  # noqa: TRY004
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError("vocabulary must be a list of strings")
        tokenizer: AnyTokenizer
        if preset in subwords.LEARNED:
            tokenizer = SubwordTokenizer.from_values(preset, lowercase, values)
        else:
            tokenizer = Tokenizer(preset, lowercase)
        return cls(tokenizer, Vocabulary(words))
