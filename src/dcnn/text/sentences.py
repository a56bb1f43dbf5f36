"""Many sentences as ids, end to end in one array.

A list of lists of 1.6 million tweets takes gigabytes; one flat array and the offsets into it takes
megabytes, saves and hashes in one go, and pads a batch without a loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Sentences:
    """Sentence i is ``ids[offsets[i]:offsets[i + 1]]``, and never empty.

    Attributes:
        ids: (words,) int32.
        offsets: (sentences + 1,) int64, from 0 to the number of words.
    """

    ids: Ints
    offsets: Ints

    @classmethod
    def from_lists(cls, sentences: Sequence[Sequence[int]]) -> Self:
        """Join lists of ids."""
        return cls.from_flat(
            np.fromiter(chain.from_iterable(sentences), np.int32),
            np.fromiter(map(len, sentences), np.int64, len(sentences)),
        )

    @classmethod
    def from_flat(cls, ids: Ints, lengths: Ints) -> Self:
        """Take ids that stand end to end already, and the length of each sentence."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(ids, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        """(sentences,) number of words of each."""
        return np.diff(self.offsets)

    def _lengths_at(self, indices: Ints) -> Ints:
        """Of these alone: a batch need not look at all sentences."""
        return self.offsets[1:][indices] - self.offsets[indices]

    def padded(self, indices: Ints, padding: int = 0) -> tuple[Ints, Ints]:
        """Ids (B, s) of the sentences at ``indices`` with their lengths (B,); s is the longest."""
        lengths = self._lengths_at(indices)
        columns = np.arange(lengths.max())
        inside = columns < lengths[:, None]  # (B, s)
        places = np.where(inside, self.offsets[indices, None] + columns, 0)
        return np.where(inside, self.ids[places], padding).astype(np.int64), lengths

    def select(self, indices: Ints) -> Self:
        """The sentences at ``indices``, in that order."""
        lengths = self._lengths_at(indices)
        starts = np.cumsum(lengths) - lengths
        places = np.repeat(self.offsets[indices] - starts, lengths) + np.arange(lengths.sum())
        return self.from_flat(self.ids[places], lengths)
