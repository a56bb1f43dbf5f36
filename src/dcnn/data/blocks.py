"""Some ten thousand encoded examples in one file: what a corpus larger than memory is made of.

A block numbers its own words as they are first seen, so that it needs to know nothing of other
blocks: they are made in parallel, and a number mostly takes two bytes. Which id a word has in a
corpus is said by a table beside it (``dcnn.data.corpus``).

The file is in safetensors, which nothing can hide code in. Readers map it into memory for as long
as it takes to copy what they want: pages that stay mapped count as resident memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from dcnn.data.shard_reader import Row
from dcnn.errors import DataError
from dcnn.files import write_atomically
from dcnn.text.numbering import number_chunk
from dcnn.text.sentences import Ints
from dcnn.text.tokenizer import Tokenizer

ROWS = 1 << 16  # examples of a block: tweets of that number have fewer than 2**16 words

_SEPARATOR = "\n"  # between words, none of which holds white space


@dataclass(frozen=True)
class BlockFacts:
    """What is known of a block without opening it.

    Attributes:
        rows: its examples.
        words: its distinct words.
        labels: its labels as first seen; ``StoredBlock.targets`` are places in this list.
        counts: examples of each label.
    """

    rows: int
    words: int
    labels: list[str]
    counts: list[int]


def write_block(path: Path, rows: Sequence[Row], tokenizer: Tokenizer) -> BlockFacts:
    """Tokenize ``rows``, at least one, and write them as a block.

    Raises:
        StorageError: the disk refused.
    """
    words, numbers, lengths = number_chunk(tokenizer, (row.text for row in rows))
    counts = np.bincount(numbers, minlength=len(words))
    numbers, lengths = _with_empty_texts(len(words), numbers, lengths)
    places: dict[str, int] = {}
    targets = np.array([places.setdefault(str(row.label), len(places)) for row in rows])
    tensors: dict[str, NDArray[Any]] = {
        "words": np.frombuffer(_SEPARATOR.join(words).encode(), np.uint8),
        "counts": counts.astype(np.uint32),
        "numbers": _smallest(numbers, len(words)),
        "lengths": _smallest(lengths, int(lengths.max())),
        "targets": _smallest(targets, len(places)),
    }
    if rows[0].weight is not None:
        tensors["weights"] = np.array([row.weight for row in rows], np.float32)
    with write_atomically(path) as stream:
        stream.write(safetensors.numpy.save(tensors))
    return BlockFacts(len(rows), len(words), list(places), np.bincount(targets).tolist())


def _with_empty_texts(words: int, numbers: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """A text without words gets one, with the number after all others."""
    empty = np.flatnonzero(lengths == 0)
    if len(empty):
        starts = np.cumsum(lengths) - lengths
        numbers = np.insert(numbers, starts[empty], words)
        lengths = np.maximum(lengths, 1)
    return numbers, lengths


def _smallest(values: Ints, largest: int) -> Ints:
    """``values`` in the type with the fewest bytes that holds ``largest``."""
    return values.astype(np.min_scalar_type(largest))


class StoredBlock:
    """A block on disk; every method reads what it returns.

    Raises:
        DataError: the file is gone or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def words(self) -> list[str]:
        """The words in the order of their numbers."""
        text = self._read("words").tobytes().decode()
        return text.split(_SEPARATOR) if text else []

    def counts(self) -> Ints:
        """(words,) how often each occurs."""
        return self._read("counts")

    def lengths(self) -> Ints:
        """(rows,) int64."""
        return self._read("lengths").astype(np.int64)

    def numbers(self, first: int, last: int) -> Ints:
        """The words from ``first`` on and before ``last``, counted over all rows."""
        with self._opened() as block:
            return np.asarray(block.get_slice("numbers")[first:last])

    def targets(self) -> Ints:
        """(rows,) places of the labels among the block's own."""
        return self._read("targets")

    def weights(self) -> NDArray[np.float32] | None:
        """(rows,) or none."""
        with self._opened() as block:
            return block.get_tensor("weights") if "weights" in block.keys() else None  # noqa: SIM118

    def _read(self, name: str) -> NDArray[Any]:
        with self._opened() as block:
            return np.asarray(block.get_tensor(name))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            with safetensors.safe_open(self.path, "np") as block:
                yield block
        except (OSError, safetensors.SafetensorError) as error:
            raise DataError(
                f"{self.path}: a part of the encoded corpus is gone or damaged ({error}); "
                f"delete {self.path.parent}, and the same command encodes it again"
            ) from error
