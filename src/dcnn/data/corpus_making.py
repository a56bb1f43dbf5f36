"""Making a ``Corpus`` of encoded files: who is held out, which words are kept, and their ids.

All of it goes through the blocks one after another, three times at most, and reads labels and words
alone: the examples themselves stay where they are.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from dcnn.config import TextConfig
from dcnn.data.checksums import file_sha256
from dcnn.data.corpus import HELD_OUT, ID, INDEX, TABLES, TOKENIZER, Corpus, folder_of, load_corpus
from dcnn.data.encoding import EncodedFile
from dcnn.data.holding_out import ordinals_held_out, rows_held_out
from dcnn.data.turns import turn_at
from dcnn.data.word_counts import WordCounts
from dcnn.errors import ConfigError, DataError
from dcnn.files import write_folder_atomically
from dcnn.settings import to_plain
from dcnn.text.encoder import Encoder
from dcnn.text.sentences import Ints, Sentences
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import UNKNOWN, Vocabulary

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Split:
    """How a dev set is held out: the share of it, and the seed."""

    fraction: float
    seed: int


def corpus_key(files: Sequence[EncodedFile], text: TextConfig, split: Split | None) -> str:
    """A hash of all that a corpus is made from."""
    # What is said of vectors starts the embeddings, and leaves the ids as they are.
    settings = {
        name: value for name, value in to_plain(text).items() if not name.startswith("vectors")
    }
    made_from = {
        "format": FORMAT_VERSION,
        "files": [file.key for file in files],
        "text": settings,
        "split": None if split is None else asdict(split),
        "code": file_sha256(Path(__file__)),
    }
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


def prepare_corpus(
    files: Sequence[EncodedFile],
    text: TextConfig,
    split: Split | None,
    classes: Sequence[str],
    cache: Path,
) -> Corpus:
    """The corpus of ``files`` from the cache, or else made and left there.

    Args:
        files: encoded, in their order.
        text: which words are kept.
        split: how a dev set is held out; none is not at all.
        classes: the labels in the order of their numbers.
        cache: the folder of the cache.

    Raises:
        DataError: a block cannot be read, or every weight is zero.
        StorageError: the disk refused.
    """
    key = corpus_key(files, text, split)
    with suppress(DataError):
        return load_corpus(cache, key)
    with turn_at(cache, key):
        with suppress(DataError):  # another process may have made it meanwhile
            return load_corpus(cache, key)
        return _make(files, text, split, classes, cache, key)


def _make(
    files: Sequence[EncodedFile],
    text: TextConfig,
    split: Split | None,
    classes: Sequence[str],
    cache: Path,
    key: str,
) -> Corpus:
    blocks = [(file, number, facts) for file in files for number, facts in enumerate(file.blocks)]
    encoder = Encoder(tokenizer_of(text), Vocabulary([]))
    corpus = Corpus(key, tuple(classes), encoder, np.empty(0, np.int64), (), cache, blocks)
    corpus = replace(corpus, held_out=_hold_out(corpus, split))
    vocabulary = _count(corpus).vocabulary(text)
    corpus = replace(corpus, mass=_mass(corpus), encoder=Encoder(encoder.tokenizer, vocabulary))
    _save(corpus)
    return corpus


def tokenizer_of(text: TextConfig) -> Tokenizer:
    """What splits the texts of a corpus on disk, file by file.

    Raises:
        ConfigError: which pieces of words there are would have to be learned from all files first.
    """
    if text.tokenizer == "bpe" or text.tokenizer == "unigram":
        raise ConfigError(
            f"text.tokenizer={text.tokenizer} is learned from texts in memory; for a corpus on "
            "disk take words, tweet, whitespace or characters, or pass --no-stream"
        )
    return Tokenizer(text.tokenizer, text.lowercase)


def _hold_out(corpus: Corpus, split: Split | None) -> Ints:
    if split is None:
        return np.empty(0, np.int64)
    counts = dict.fromkeys(corpus.classes, 0)
    for _, _, facts in corpus.blocks:
        for label, count in zip(facts.labels, facts.counts, strict=True):
            counts[label] += count
    ordinals = ordinals_held_out(counts, split.fraction, split.seed)
    targets = (corpus.stored(place).targets() for place in range(len(corpus.blocks)))
    labels = (facts.labels for _, _, facts in corpus.blocks)
    return rows_held_out(ordinals, zip(labels, targets, strict=True))


def _mass(corpus: Corpus) -> tuple[float, ...]:
    mass = dict.fromkeys(corpus.classes, 0.0)
    for place, (_, _, facts) in enumerate(corpus.blocks):
        block = corpus.stored(place)
        targets, weights = block.targets(), block.weights()
        values = np.ones(facts.rows) if weights is None else weights.astype(np.float64)
        values[corpus.held_out_of(place)] = 0
        sums = np.bincount(targets, values, len(facts.labels))
        for label, value in zip(facts.labels, sums.tolist(), strict=True):
            mass[label] += value
    if not any(mass.values()):
        raise DataError("every training example has weight 0; give at least one a weight above 0")
    return tuple(mass.values())


def _count(corpus: Corpus) -> WordCounts:
    """Words of the training part."""
    total = WordCounts()
    for place in range(len(corpus.blocks)):
        block = corpus.stored(place)
        counts = block.counts().astype(np.int64)
        held_out = corpus.held_out_of(place)
        if len(held_out):
            offsets = np.cumsum(np.concatenate([[0], block.lengths()]))
            sentences = Sentences(block.numbers(0, int(offsets[-1])), offsets)
            dev = np.bincount(sentences.select(held_out).ids, minlength=len(counts) + 1)
            counts -= dev[: len(counts)]
        total.add(block.words(), counts.tolist())
    return total


def _save(corpus: Corpus) -> None:
    files = {file.key: file for file, _, _ in corpus.blocks}
    places = {key: place for place, key in enumerate(files)}
    index = {
        "key": corpus.key,
        "classes": corpus.classes,
        "mass": corpus.mass,
        "files": [asdict(file) for file in files.values()],
        "blocks": [[places[file.key], number] for file, number, _ in corpus.blocks],
    }
    with write_folder_atomically(folder_of(corpus.cache, corpus.key)) as temporary:
        with (temporary / TABLES).open("wb") as stream:
            for table in _make_tables(corpus):
                stream.write(table.tobytes())
        np.save(temporary / HELD_OUT, corpus.held_out, allow_pickle=False)
        (temporary / TOKENIZER).write_text(corpus.encoder.to_json(), encoding="utf-8")
        (temporary / INDEX).write_text(json.dumps(index), encoding="utf-8")


def _make_tables(corpus: Corpus) -> Iterator[Ints]:
    for place in range(len(corpus.blocks)):
        ids = corpus.encoder.vocabulary.ids(corpus.stored(place).words())
        yield np.array([*ids, UNKNOWN], ID)
