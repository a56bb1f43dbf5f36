"""The detectors of the first layer on every m-gram of a corpus (Sect. 5.5).

A detector is the filter of one row of one map, before folding: 6 maps of 48 rows are the 288 of the
SST binary network. Its activation on an m-gram is the dot product of the filter with the row's
values of the m words: the column of the narrow convolution. A sentence shorter than the filter is
one m-gram, with zeros on its right.

The activations of a block of m-grams are computed with one multiplication and one addition a
weight, along the sentences: elementwise, so that an m-gram has the same bits wherever it stands.


The detectors above the first layer on a corpus: nodes, and the words that they really saw.

A node of a higher layer reads values that pooling kept, which may come from far apart in the
sentence. So its n-gram is followed down through the positions of every pooling: the words with a
way to the node, and no others. They may be separated.

"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dcnn.artifact import Artifact
from dcnn.config import DCNNConfig
from dcnn.inspection.detector_lists import MOST_WORDS, Bools, Floats, Met, StrongestLists, whole
from dcnn.ops import native, reference
from dcnn.ops.reference import dynamic_k
from dcnn.text.vocabulary import UNKNOWN, Ints, Sentences

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


BATCH = 256  # sentences
BATCH_WORDS = 1 << 14  # padded; bounds the memory of long sentences


@dataclass(frozen=True)
class PooledLayer:
    """What a layer made of B sentences.

    Attributes:
        values: (B, o, d', K) after tanh.
        positions: (B, o, d', K) columns of the convolution; -1 past a sentence's own k.
        width: of the filters.
    """

    values: Floats
    positions: Ints
    width: int


@dataclass(frozen=True)
class Pooled:
    """B sentences and all that pooling kept of them, from the lowest layer to the topmost."""

    sentences: Sequence[Words]
    ids: Ints
    layers: Sequence[PooledLayer]
    _known: dict[tuple[int, int, int, int], Ints] = field(default_factory=dict, init=False)

    def seen(self, sentence: int, layer: int, map_: int, row: int, place: int) -> Ints:
        """Positions of the words that a node saw, ascending.

        Args:
            sentence: its number.
            layer: of the node, from 1.
            map_: of the node.
            row: of the node, after folding.
            place: of the node among the values that its row kept.
        """
        positions = self.layers[layer - 1].positions
        # What a node saw depends on its row and column alone; its map does not matter.
        node = sentence, layer, row, int(positions[sentence, map_, row, place])
        if node not in self._known:
            self._known[node] = self._seen(sentence, layer, map_, row, place)
        return self._known[node]

    def _seen(self, sentence: int, layer: int, map_: int, row: int, place: int) -> Ints:
        positions = self.layers[layer - 1].positions
        reading = np.zeros(positions.shape[1:], np.bool_)
        reading[map_, row, place] = True
        for number in range(layer, 0, -1):
            here = self.layers[number - 1]
            if number == 1:
                reading = self._read(here, sentence, reading, 1, len(self.sentences[sentence]))
            else:
                below = self.layers[number - 2].positions[sentence]  # (o, d, K)
                read = self._read(here, sentence, reading, below.shape[1], below.shape[2])
                reading = np.broadcast_to(read, below.shape)  # all maps below at once
        return np.flatnonzero(reading[0])

    @staticmethod
    def _read(layer: PooledLayer, sentence: int, reading: Bools, rows: int, columns: int) -> Bools:
        """(o, d', K) nodes -> (rows, columns) below that they read; one row is all rows.

        Past a sentence's own k positions are -1, from where nothing is read.
        """
        kept_rows = layer.positions.shape[2]
        _, row, _ = at = np.nonzero(reading)
        ends = layer.positions[sentence][at]
        read = np.zeros((rows, columns), np.bool_)
        for i in range(layer.width):
            column = ends - i
            exists = (column >= 0) & (column < columns)
            if rows == 1:
                read[0, column[exists]] = True
                continue
            for first in range(0, rows, kept_rows):  # itself, or the two that folding sums
                read[(row + first)[exists], column[exists]] = True
        return read


class HigherLayers:
    """A DCNN that tells what pooling kept.

    Args:
        artifact: a DCNN.
        backend: ``native`` or ``reference``, as a predictor has it.
    """

    def __init__(self, artifact: Artifact, backend: str) -> None:
        config = artifact.config.model
        if not isinstance(config, DCNNConfig):
            raise TypeError(f"a {config.kind} has no pooled layers")
        self.config, self._weights = config, artifact.weights
        self._layer: Callable[..., tuple[Floats, Ints]] = (
            native.layer if backend == "native" else reference.layer
        )
        self._ids = artifact.encoder.vocabulary.ids

    def pool(self, sentences: Sequence[Words], up_to: int) -> Pooled:
        """Run the layers up to one of them on sentences of one word or more."""
        lengths = np.array([len(words) for words in sentences])
        ids = np.full((len(sentences), int(lengths.max())), UNKNOWN, np.int64)
        for row, words in zip(ids, sentences, strict=True):
            row[: len(words)] = self._ids(words)
        x = self._weights["embeddings"][ids].transpose(0, 2, 1)[:, None]  # (B, 1, d, s)
        valid, layers = lengths, []
        for number in range(1, up_to + 1):
            k = dynamic_k(lengths, number, self.config.depth, self.config.k_top)
            filters, bias = (
                self._weights[f"layers.{number - 1}.{part}"] for part in ("filters", "bias")
            )
            x, positions = self._layer(x, valid, filters, bias, k, self.config.fold)
            layers.append(PooledLayer(x, positions, filters.shape[-1]))
            valid = k
        return Pooled(sentences, ids, layers)


def batches(sentences: Iterable[tuple[Words, int]]) -> Iterator[list[tuple[Words, int]]]:
    """Sentences and how often they occur, in their order, as many at a time as memory allows.

    Those of more than ``MOST_WORDS`` words are left out.
    """
    batch: list[tuple[Words, int]] = []
    longest = 0
    for words, times in sentences:
        if len(words) > MOST_WORDS:
            continue
        longest = max(longest, len(words))
        if batch and (len(batch) == BATCH or longest * (len(batch) + 1) > BATCH_WORDS):
            yield batch
            batch, longest = [], len(words)
        batch.append((words, times))
    if batch:
        yield batch


@dataclass(frozen=True)
class LayerOfBatch:
    """One layer of a batch, as its detectors rank it: a place is a sentence's and one of its K.

    Attributes:
        pooled: the batch.
        times_each: (B,) how often each sentence occurs.
        layer: which layer, from 1.
    """

    pooled: Pooled
    times_each: Ints
    layer: int

    @cached_property
    def _here(self) -> PooledLayer:
        return self.pooled.layers[self.layer - 1]

    @property
    def values(self) -> Floats:
        """(o * d', B * K), sentence by sentence."""
        values = self._here.values  # (B, o, d', K)
        maps, rows = values.shape[1:3]
        return np.ascontiguousarray(values.transpose(1, 2, 0, 3)).reshape(maps * rows, -1)

    @property
    def times(self) -> Ints:
        """(B * K,) how often the node occurs; 0 past a sentence's own k."""
        return np.where(self._here.positions[:, 0, 0] >= 0, self.times_each[:, None], 0).ravel()

    def rank(self, lists: StrongestLists) -> None:
        """Offer every node to its detector's list."""
        lists.offer(self.values, self.times, self)

    def key(self, detector: int, place: int) -> tuple[bytes, bytes]:
        """Ids of the words seen, and how far apart they stand."""
        sentence, positions = self._seen(detector, place)
        ids = self.pooled.ids[sentence][positions]
        return ids.tobytes(), (positions - positions[0]).tobytes()

    def met(self, detector: int, place: int) -> Met:
        """The words seen."""
        sentence, positions = self._seen(detector, place)
        words = self.pooled.sentences[sentence]
        at = tuple(positions.tolist())
        kept = place % self._here.values.shape[-1]
        return Met(tuple(words[i] for i in at), at, whole(words), kept)

    def _seen(self, detector: int, place: int) -> tuple[int, Ints]:
        _, _, rows, kept = self._here.values.shape
        sentence, at = divmod(place, kept)
        map_, row = divmod(detector, rows)
        return sentence, self.pooled.seen(sentence, self.layer, map_, row, at)
