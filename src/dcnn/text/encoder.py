"""String to ids: tokenizer and vocabulary, stored in a model folder as ``tokenizer.json``."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from dcnn.config import TextConfig
from dcnn.text.subwords import (
    LEARNED,
    MODELS,
    AnyTokenizer,
    SubwordTokenizer,
    learn_subwords,
    split_texts,
    word_tokenizer,
)
from dcnn.text.tokenizer import PRESETS, Preset, Tokenizer
from dcnn.text.vocabulary import (
    UNKNOWN,
    Sentences,
    TokenizedTexts,
    Vocabulary,
    most_frequent,
    tokenize_texts,
)


def unit_of(preset: str) -> str:
    """What a token of a preset is called: ``word``, ``subword`` or ``character``."""
    if preset in LEARNED:
        return "subword"
    return "character" if preset == "characters" else "word"


def learn_tokenizer(
    config: TextConfig, texts: Iterable[str], processes: int = 1
) -> tuple[AnyTokenizer, TokenizedTexts]:
    """The tokenizer of ``config``, learned if need be, and ``texts`` tokenized in one pass.

    Raises:
        MissingExtraError: subwords are to be learned, and the library is not installed.
    """
    if config.tokenizer in ("bpe", "unigram"):
        words = tokenize_texts(word_tokenizer(config.lowercase), texts, processes)
        learned = learn_subwords(config, words)
        return learned, split_texts(learned, words)
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

        The texts are read once. ``most_frequent`` says which words are kept, and
        ``tokenize_texts`` what several processes require of a program; their number does not
        change the result.
        """
        tokenizer, tokenized = learn_tokenizer(config, texts, processes)
        words = tokenized.words
        kept = most_frequent(np.bincount(tokenized.ids, minlength=len(words)), config)
        vocabulary = Vocabulary([words[index] for index in kept])
        ids = np.full(len(words) + 1, UNKNOWN, np.int32)  # the last is that of an empty text
        ids[kept] = np.arange(1, len(kept) + 1)
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
        model = tokenizer.model.to_values() if isinstance(tokenizer, SubwordTokenizer) else {}
        values = {
            "preset": tokenizer.preset,
            "lowercase": tokenizer.lowercase,
            **model,
            "vocabulary": self.vocabulary.words,
        }
        return json.dumps(values, ensure_ascii=False, indent=0)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: the text is damaged; the message says how.
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
        if preset in MODELS:
            model = MODELS[preset].from_values(values)
            return cls(SubwordTokenizer(preset, lowercase, model), Vocabulary(words))
        return cls(Tokenizer(preset, lowercase), Vocabulary(words))
