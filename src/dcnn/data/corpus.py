"""A corpus on disk that is larger than memory: vocabulary, dev set, and windows to learn from.

Its examples stay in the blocks of the files (``dcnn.data.encoding``). What is made here, once for
the files and settings of a corpus, is what these have in common:

    index.json      the blocks in their order, the labels, and what each label weighs
    tokenizer.json  the encoder, as in a model folder
    tables.bin      for every block in turn the ids of its words, int32, and last the unknown word's
    held_out.npy    the rows of the dev set

A window is some blocks in memory, and a part of a window what one of several processes reads.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.data.batching import Examples
from dcnn.data.blocks import BlockFacts, StoredBlock
from dcnn.data.encoding import EncodedFile
from dcnn.errors import DataError
from dcnn.text.encoder import Encoder
from dcnn.text.sentences import Ints, Sentences

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
        return np.cumsum([0, *(facts.rows for _, _, facts in self.blocks)])

    @cached_property
    def table_starts(self) -> Ints:
        """Where the table of each block starts."""
        return np.cumsum([0, *(facts.words + 1 for _, _, facts in self.blocks)])

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
        block, (_, _, facts) = self.stored(place), self.blocks[place]
        offsets = np.cumsum(np.concatenate([[0], lengths]))
        first, last = int(rows[0]), int(rows[-1]) + 1
        numbers = block.numbers(int(offsets[first]), int(offsets[last]))
        ids = self._table(place)[numbers]
        sentences = Sentences(ids, offsets[first : last + 1] - offsets[first])
        if len(rows) < last - first:
            sentences = sentences.select(rows - first)
        own = np.array([self.classes.index(label) for label in facts.labels])
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
            EncodedFile(**file | {"blocks": [BlockFacts(**facts) for facts in file["blocks"]]})
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
