"""Splitting a training set: with the ``tokenizers`` library learning the pieces of its words.

The library gets the distinct words with their counts, not the texts: splitting is the same code
as in prediction, and a corpus is still read once.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from dcnn.config import TextConfig
from dcnn.errors import MissingExtraError
from dcnn.text.numbering import NumberedTexts, number_words
from dcnn.text.sentences import Sentences
from dcnn.text.subwords import (
    AnyTokenizer,
    BytePairs,
    SubwordTokenizer,
    UnigramPieces,
    shortened,
    word_splitter,
)
from dcnn.text.tokenizer import Preset, Tokenizer

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
    """Learn ``config.subwords`` pieces from the words of texts and how often each occurs.

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
        return SubwordTokenizer("bpe", config.lowercase, _learn_byte_pairs(config.subwords, parts))
    return SubwordTokenizer("unigram", config.lowercase, _learn_unigram(config.subwords, parts))


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
