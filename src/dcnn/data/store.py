"""Counting the words of a corpus whose distinct words need not fit into memory.

Most distinct words of a large corpus occur once or twice: names, typing errors, addresses. Beyond a
bound the rarest of the words counted so far are forgotten; a forgotten word that comes again counts
from 0. Such a word is rare in all that was read before, so that the vocabulary's frequent words and
their order do not depend on the bound. Nothing is forgotten below it.


A corpus on disk that is larger than memory: vocabulary, dev set, and windows to learn from.

Its examples stay in the blocks of the files (``dcnn.data.encode``). What is made here, once for
the files and settings of a corpus, is what these have in common:

    index.json      the blocks in their order, the labels, and what each label weighs
    tokenizer.json  the encoder, as in a model folder
    tables.bin      for every block in turn the ids of its words, int32, and last the unknown word's
    held_out.npy    the rows of the dev set

A window is some blocks in memory, and a part of a window what one of several processes reads.


Making a ``Corpus`` of encoded files: who is held out, which words are kept, and their ids.

All of it goes through the blocks one after another, three times at most, and reads labels and words
alone: the examples themselves stay where they are.


The labels of a corpus in many files that were read apart: counted, and checked to be one coding.

Read one after another, a file is compared with those before it while its rows come
(``dcnn.data.readers``). Here all have been read, in any order, and what they say is put
together.

"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.config import TextConfig, to_plain
from dcnn.data.batching import Examples
from dcnn.data.columns import shown, shown_names
from dcnn.data.encode import BlockFacts, EncodedFile, StoredBlock, turn_at
from dcnn.data.readers import one_label_only
from dcnn.data.split import ordinals_held_out, rows_held_out
from dcnn.errors import ConfigError, DataError
from dcnn.files import file_sha256, write_folder_atomically
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import UNKNOWN, Ints, Sentences, Vocabulary

LARGEST = 4_000_000  # words counted at a time: about half a gigabyte


class WordCounts:
    """How often each word occurs, in the order in which words were first seen."""

    def __init__(self, largest: int = LARGEST) -> None:
        self._largest = largest
        self._counts: dict[str, int] = {}

    def add(self, words: Sequence[str], counts: Iterable[int]) -> None:
        """Take in words of one block, each once; a count may be negative to take some back."""
        total = self._counts
        known = total.get
        for word, count in zip(words, counts, strict=True):
            total[word] = known(word, 0) + count
        if len(total) > self._largest:
            self._forget()

    def _forget(self) -> None:
        """Keep at most half of what there is room for: the most frequent words."""
        counts = np.fromiter(self._counts.values(), np.int64, len(self._counts))
        least = np.partition(counts, len(counts) - self._largest // 2)[-self._largest // 2]
        self._counts = {word: count for word, count in self._counts.items() if count > least}

    def vocabulary(self, config: TextConfig) -> Vocabulary:
        """The words that ``Encoder.learn`` would keep, in its order."""
        words = list(self._counts)
        counts = np.fromiter(self._counts.values(), np.int64, len(words))
        by_count = np.argsort(-counts, kind="stable")
        kept = by_count[counts[by_count] >= config.min_count]
        if config.max_size:
            kept = kept[: config.max_size]
        return Vocabulary([words[number] for number in kept])


FOLDER = "corpora"
INDEX, TOKENIZER, TABLES, HELD_OUT = "index.json", "tokenizer.json", "tables.bin", "held_out.npy"

ID = np.dtype("<i4")


@dataclass(frozen=True)
class Window:
    """Some blocks, of which a part is in memory.

    Attributes:
        lengths: (sentences,) words of every sentence of the window.
        first: the first sentence that is here.
        last: the one after those that are this process's; may be ``first``.
        examples: the sentences from ``first`` on, with class numbers and weights; one more than
            there should be where there would be none.
    """

    lengths: Ints
    first: int
    last: int
    examples: Examples


@dataclass(frozen=True)
class Corpus:
    """A corpus that was prepared; see the module.

    Attributes:
        key: of all that it was made from.
        classes: the labels, by class number.
        encoder: with the vocabulary of the training part.
        held_out: rows of the dev set, ascending.
        mass: what the training examples of each class weigh together.
        cache: the folder that holds it and its blocks.
        blocks: the folder, number and facts of each.
    """

    key: str
    classes: tuple[str, ...]
    encoder: Encoder
    held_out: Ints
    mass: tuple[float, ...]
    cache: Path
    blocks: list[tuple[EncodedFile, int, BlockFacts]]

    def __len__(self) -> int:
        """Examples to learn from."""
        return int(self.first_rows[-1]) - len(self.held_out)

    @cached_property
    def first_rows(self) -> Ints:
        """The row that each block starts with, and the number of all rows."""
        return np.cumsum([0, *(metadata.rows for _, _, metadata in self.blocks)])

    @cached_property
    def table_starts(self) -> Ints:
        """Where the table of each block starts."""
        return np.cumsum([0, *(metadata.words + 1 for _, _, metadata in self.blocks)])

    def dev(self) -> Examples:
        """The examples that are held out."""
        parts = []
        for place in range(len(self.blocks)):
            rows = self.held_out_of(place)
            if len(rows):
                lengths = self.stored(place).lengths()
                parts.append(self._examples(place, lengths, rows))
        return _joined(parts)

    def window(self, places: Sequence[int], part: tuple[int, int] = (0, 1)) -> Window:
        """The training examples of the blocks at ``places``.

        Args:
            places: of the blocks.
            part: the number of this process and how many there are; each reads its share of rows.
        """
        lengths = {place: self.stored(place).lengths() for place in places}
        kept = {
            place: np.delete(np.arange(len(lengths[place])), self.held_out_of(place))
            for place in places
        }
        total = sum(map(len, kept.values()))
        first, last = (total * rank // part[1] for rank in (part[0], part[0] + 1))
        # One sentence at least is read, so that there is something to compute with.
        start = max(min(first, total - 1), 0)
        end, before, parts = max(last, start + 1), 0, []
        for place in places:
            rows = kept[place][max(start - before, 0) : max(end - before, 0)]
            before += len(kept[place])
            if len(rows):
                parts.append(self._examples(place, lengths[place], rows))
        all_lengths = np.concatenate([lengths[place][kept[place]] for place in places])
        return Window(all_lengths, first, last, _joined(parts))

    def _examples(self, place: int, lengths: Ints, rows: Ints) -> Examples:
        """The examples at ``rows``, ascending, of a block; nothing outside of these is read."""
        block, (_, _, metadata) = self.stored(place), self.blocks[place]
        offsets = np.cumsum(np.concatenate([[0], lengths]))
        first, last = int(rows[0]), int(rows[-1]) + 1
        numbers = block.numbers(int(offsets[first]), int(offsets[last]))
        ids = self._table(place)[numbers]
        sentences = Sentences(ids, offsets[first : last + 1] - offsets[first])
        if len(rows) < last - first:
            sentences = sentences.select(rows - first)
        own = np.array([self.classes.index(label) for label in metadata.labels])
        weights = block.weights()
        return Examples(
            sentences, own[block.targets()[rows]], None if weights is None else weights[rows]
        )

    def held_out_of(self, place: int) -> Ints:
        """Rows of the dev set in a block, counted from its start."""
        first, last = self.first_rows[place], self.first_rows[place + 1]
        low, high = np.searchsorted(self.held_out, (first, last))
        rows: Ints = self.held_out[low:high] - first
        return rows

    def stored(self, place: int) -> StoredBlock:
        """A block, to read from."""
        file, number, _ = self.blocks[place]
        return StoredBlock(file.path(self.cache, number))

    def _table(self, place: int) -> Ints:
        first, last = self.table_starts[place], self.table_starts[place + 1]
        path = folder_of(self.cache, self.key) / TABLES
        try:
            table = np.fromfile(path, ID, last - first, offset=int(first) * ID.itemsize)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        if len(table) != last - first:
            raise DataError(f"{path}: cut short; delete {path.parent}, and it is made again")
        return table


def _joined(parts: Sequence[Examples]) -> Examples:
    if not parts:
        return Examples(Sentences.from_lists([]), np.empty(0, np.int64))
    weights = [part.weights for part in parts if part.weights is not None]
    return Examples(
        Sentences.from_flat(
            np.concatenate([part.sentences.ids for part in parts]),
            np.concatenate([part.sentences.lengths for part in parts]),
        ),
        np.concatenate([part.targets for part in parts]),
        np.concatenate(weights) if weights else None,
    )


def load_corpus(cache: Path, key: str) -> Corpus:
    """A corpus that was prepared before.

    Raises:
        DataError: it is not there, or not complete.
    """
    folder = folder_of(cache, key)
    try:
        index: Any = json.loads((folder / INDEX).read_bytes())
        files = [
            EncodedFile(
                **file | {"blocks": [BlockFacts(**metadata) for metadata in file["blocks"]]}
            )
            for file in index["files"]
        ]
        corpus = Corpus(
            key=index["key"],
            classes=tuple(index["classes"]),
            encoder=Encoder.from_json((folder / TOKENIZER).read_text(encoding="utf-8")),
            held_out=np.load(folder / HELD_OUT, allow_pickle=False),
            mass=tuple(index["mass"]),
            cache=cache,
            blocks=[
                (files[at], number, files[at].blocks[number]) for at, number in index["blocks"]
            ],
        )
        size = (folder / TABLES).stat().st_size
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise DataError(f"{folder}: no complete corpus is there ({error})") from error
    if corpus.key != key or size != corpus.table_starts[-1] * ID.itemsize:
        raise DataError(f"{folder}: no complete corpus is there; delete it, and it is made again")
    return corpus


def folder_of(cache: Path, key: str) -> Path:
    """The folder of a corpus in the cache."""
    return cache / FOLDER / key


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
    blocks = [
        (file, number, metadata) for file in files for number, metadata in enumerate(file.blocks)
    ]
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
    for _, _, metadata in corpus.blocks:
        for label, count in zip(metadata.labels, metadata.counts, strict=True):
            counts[label] += count
    ordinals = ordinals_held_out(counts, split.fraction, split.seed)
    targets = (corpus.stored(place).targets() for place in range(len(corpus.blocks)))
    labels = (metadata.labels for _, _, metadata in corpus.blocks)
    return rows_held_out(ordinals, zip(labels, targets, strict=True))


def _mass(corpus: Corpus) -> tuple[float, ...]:
    mass = dict.fromkeys(corpus.classes, 0.0)
    for place, (_, _, metadata) in enumerate(corpus.blocks):
        block = corpus.stored(place)
        targets, weights = block.targets(), block.weights()
        values = np.ones(metadata.rows) if weights is None else weights.astype(np.float64)
        values[corpus.held_out_of(place)] = 0
        sums = np.bincount(targets, values, len(metadata.labels))
        for label, value in zip(metadata.labels, sums.tolist(), strict=True):
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


_KINDS = {"str": "strings", "bool": "booleans", "int": "integers", "float": "numbers"}


def count_labels(files: Sequence[EncodedFile], source: str, *, splits: bool) -> Counter[str]:
    """Examples of each label.

    Args:
        files: of one corpus, in their order.
        source: what the user named, for messages.
        splits: whether a dev set is held out, so that every label is needed twice.

    Raises:
        DataError: the labels change from one file to another, or nothing can be learned from them.
    """
    _check_kinds(files)
    _check_codings(files)
    counts: Counter[str] = Counter()
    for file in files:
        counts.update(_labels(file))
    if not counts:
        raise DataError(f"{source}: no rows can be read from any of its {len(files)} files")
    if len(counts) == 1:
        raise one_label_only(source, next(iter(counts)))
    single = [label for label, count in counts.items() if count == 1]
    if splits and single:
        where = next(file.source for file in files if single[0] in _labels(file))
        raise DataError(
            f"{where}: the label {shown(single[0])} has a single example in all files, too few for "
            "both training and the dev set held out from it; add examples, drop the label, or give "
            "a dev file"
        )
    return counts


def _labels(file: EncodedFile) -> Counter[str]:
    counts: Counter[str] = Counter()
    for block in file.blocks:
        counts.update(dict(zip(block.labels, block.counts, strict=True)))
    return counts


def _check_kinds(files: Sequence[EncodedFile]) -> None:
    """Integers in one file and strings in another are likely two codings."""
    known: dict[str, str] = {}
    for file in files:
        for kind in file.kinds:
            others = {source: other for other, source in known.items() if source != file.source}
            if kind not in known and others:
                source, other = next(iter(others.items()))
                raise DataError(
                    f"{file.source}: its labels are {_KINDS[kind]}, where those of {source} are "
                    f"{_KINDS[other]}; write the labels of all files alike"
                )
            known.setdefault(kind, file.source)


def _check_codings(files: Sequence[EncodedFile]) -> None:
    """Two files of several labels each that share none of them do not mean the same ones.

    A file with one label says nothing: a corpus may be sorted by label.
    """
    first: EncodedFile | None = None
    known: set[str] = set()
    for file in files:
        labels = _labels(file)
        if len(labels) < 2:
            continue
        if first is not None and known.isdisjoint(labels):
            raise DataError(
                f"{file.source}: its labels are {shown_names(labels)}, and {first.source} has "
                f"{shown_names(_labels(first))} and none of these; write the labels of all files "
                "alike, or leave out the files that are not of this corpus"
            )
        first = first or file
        known |= set(labels)
