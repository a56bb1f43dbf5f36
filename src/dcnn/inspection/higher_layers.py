"""The detectors above the first layer on a corpus: nodes, and the words that they really saw.

A node of a higher layer reads values that pooling kept, which may come from far apart in the
sentence. So its n-gram is followed down through the positions of every pooling: the words with a
way to the node, and no others. They may be separated.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dcnn.artifact import Artifact
from dcnn.config import DCNNConfig
from dcnn.inspection.strongest import MOST_WORDS, Bools, Floats, Met, StrongestLists, whole
from dcnn.ops import native, reference
from dcnn.ops.k_schedule import dynamic_k
from dcnn.text.sentences import Ints
from dcnn.text.vocabulary import UNKNOWN

BATCH = 256  # sentences
BATCH_WORDS = 1 << 14  # padded; bounds the memory of long sentences

Words = Sequence[str]


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
