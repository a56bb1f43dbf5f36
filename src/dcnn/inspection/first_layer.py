"""The detectors of the first layer on every m-gram of a corpus (Sect. 5.5).

A detector is the filter of one row of one map, before folding: 6 maps of 48 rows are the 288 of the
SST binary network. Its activation on an m-gram is the dot product of the filter with the row's
values of the m words: the column of the narrow convolution. A sentence shorter than the filter is
one m-gram, with zeros on its right.

The activations of a block of m-grams are computed with one multiplication and one addition a
weight, along the sentences: elementwise, so that an m-gram has the same bits wherever it stands.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcnn.artifact import Artifact
from dcnn.inspection.strongest import Floats, Met, StrongestLists, whole
from dcnn.text.sentences import Ints, Sentences

BLOCK = 2048  # m-grams; what a map's rows take for them stays in a core's own cache

Words = Sequence[str]


@dataclass(frozen=True)
class Block:
    """M m-grams next to each other in a chunk of sentences that stand end to end.

    Attributes:
        start: place of the first in the chunk.
        values: (detectors, M) activations, map by map and row by row.
        times: (M,) how often the m-gram occurs; 0 if it lies across two sentences.
    """

    start: int
    values: Floats
    times: Ints


@dataclass(frozen=True)
class Chunk:
    """Sentences end to end, each at least as long as the filter.

    Attributes:
        sentences: their words.
        ids: (words,) their ids, with the padding word where a sentence is too short.
        starts: (sentences + 1,) where each begins.
        times: (words,) how often the sentence of an m-gram that starts there occurs; 0 if the
            m-gram does not lie inside it.
    """

    sentences: Sequence[Words]
    ids: Ints
    starts: Ints
    times: Ints

    def sentence_at(self, place: int) -> tuple[Words, int]:
        """The sentence that a place lies in, and where in it."""
        number = int(np.searchsorted(self.starts, place, side="right")) - 1
        return self.sentences[number], place - int(self.starts[number])


class FirstLayer:
    """The first layer's filters and the word embeddings, laid out for whole corpora.

    Args:
        artifact: a DCNN.
        block: m-grams computed together; it changes no result.
    """

    def __init__(self, artifact: Artifact, block: int = BLOCK) -> None:
        embeddings = artifact.weights["embeddings"]
        self.filters: Floats = artifact.weights["layers.0.filters"][:, 0]  # (maps, d, m)
        self.maps, self.rows, self.width = map(int, self.filters.shape)
        self.padding = len(embeddings)  # an id of its own, with zeros
        zeros = np.zeros((1, self.rows), np.float32)
        self._embeddings = np.concatenate([embeddings, zeros])
        self._block = block

    def __len__(self) -> int:
        return self.maps * self.rows

    def chunk(self, sentences: Sequence[Words], encoded: Sentences, times: Ints) -> Chunk:
        """Lay sentences end to end.

        Args:
            sentences: their words, one or more of each.
            encoded: the same as ids.
            times: how often each occurs.
        """
        lengths = np.maximum(encoded.lengths, self.width)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        ids = np.full(int(starts[-1]), self.padding, np.int64)
        shift = np.repeat(starts[:-1] - encoded.offsets[:-1], encoded.lengths)
        ids[shift + np.arange(len(encoded.ids))] = encoded.ids
        occurs = np.repeat(times, lengths)
        occurs[(starts[1:, None] - np.arange(1, self.width)).ravel()] = 0
        return Chunk(sentences, ids, starts, occurs)

    def blocks(self, chunk: Chunk) -> Iterator[Block]:
        """The activations of all detectors on the m-grams of a chunk."""
        places = len(chunk.ids) - self.width + 1
        for start in range(0, places, self._block):
            end = min(start + self._block, places)
            words = self._embeddings[chunk.ids[start : end + self.width - 1]]
            values = self._activations(np.ascontiguousarray(words.T))
            yield Block(start, values, chunk.times[start:end])

    def _activations(self, matrix: Floats) -> Floats:
        """(d, M + m - 1) -> (maps * d, M)."""
        columns = matrix.shape[1] - self.width + 1
        values = np.empty((self.maps, self.rows, columns), np.float32)
        product = np.empty((self.rows, columns), np.float32)
        for total, filters in zip(values, self.filters, strict=True):
            np.multiply(matrix[:, :columns], filters[:, :1], out=total)
            for i in range(1, self.width):
                np.multiply(matrix[:, i : i + columns], filters[:, i : i + 1], out=product)
                total += product
        return values.reshape(len(self), columns)

    def mean_activations(self, places: Ints) -> NDArray[np.float64]:
        """(detectors,) over m-grams that have each word so often at each place: (m, words)."""
        words = places @ self._embeddings.astype(np.float64) / places[0].sum()  # (m, d)
        means: NDArray[np.float64] = np.einsum("id,odi->od", words, self.filters).ravel()
        return means

    def rank(self, chunk: Chunk, lists: StrongestLists) -> None:
        """Offer every m-gram of a chunk to every detector's list."""
        for block in self.blocks(chunk):
            ids = chunk.ids[block.start : block.start + len(block.times) + self.width - 1]
            times = _merged(ids, block.times, self.width)
            lists.offer(block.values, times, _Offered(chunk, block.start, self.width))


def _merged(ids: Ints, times: Ints, width: int) -> Ints:
    """(M,) how often each m-gram occurs, all of it told at the first of those that are equal.

    All detectors agree on which m-grams are equal; each would find out again, one by one, where a
    text repeats itself.
    """
    inside = np.flatnonzero(times)
    grams = np.lib.stride_tricks.sliding_window_view(ids, width)[inside]
    whole_grams = np.ascontiguousarray(grams).view(f"V{grams.itemsize * width}").ravel()
    _, first, same = np.unique(whole_grams, return_index=True, return_inverse=True)
    merged = np.zeros_like(times)
    np.add.at(merged, inside[first[same]], times[inside])
    return merged


@dataclass(frozen=True)
class _Offered:
    """The m-grams of a block; all detectors see the same."""

    chunk: Chunk
    start: int
    width: int

    def key(self, _: int, place: int) -> bytes:
        at = self.start + place
        return self.chunk.ids[at : at + self.width].tobytes()

    def met(self, _: int, place: int) -> Met:
        sentence, at = self.chunk.sentence_at(self.start + place)
        words = tuple(sentence[at : at + self.width])
        return Met(words, tuple(range(len(words))), whole(sentence), at)
