"""One pass over a corpus: the n-grams with the largest values of each detector (Sect. 5.5).

First layer: a detector is the filter of one row of one map, before folding: 6 maps of 48 rows are
the 288 of the SST binary network. Its value on an m-gram is the dot product of the filter with the
row's values of the m words: the column of the narrow convolution. A sentence shorter than the
filter is one m-gram, with zeros on its right. The values of a block of m-grams are computed
elementwise, one multiplication and one addition per weight, so an m-gram has the same bits wherever
it occurs.

Higher layers: a detector is a row of a map, after folding, and its values are those of the nodes
that pooling kept. A node reads pooled values, which may come from far apart in the sentence, so its
n-gram is its receptive field: the words with a path to the node. It may have gaps.

Each detector has a short list of distinct n-grams. A value below the smallest of a full list
changes nothing, so after the first few thousand n-grams nearly all are skipped by one comparison.
An n-gram that is on a list at the end has been on it since its first occurrence: a list only gets
harder to enter, and the same n-gram has the same value everywhere. So the counts are exact although
nothing is stored about n-grams that were dropped. Among equal values the first one stays.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dcnn.artifact import Artifact
from dcnn.config import DCNNConfig
from dcnn.inspection.feature_graph import incoming_edges
from dcnn.inspection.trace import Doubles, Floats
from dcnn.ops import native, reference
from dcnn.ops.reference import dynamic_k
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import UNKNOWN, Ints, Sentences

MOST_WORDS = 1000  # of a sentence that is traced, as in `explain`
CHUNK = 4096  # texts read together,
CHUNK_WORDS = 1 << 17  # unless they have more words than this
BLOCK = 2048  # m-grams; the values of a map's rows for them fit into a core's own cache
BATCH = 256  # sentences
BATCH_WORDS = 1 << 14  # padded; bounds the memory of long sentences
# A name needs more n-grams than are shown. Those of the higher layers have to be traced for it.
NAMED_BY, NAMED_BY_HIGHER = 30, 10

Words = Sequence[str]
Progress = Callable[[int], None]


@dataclass(frozen=True, order=True)
class Detector:
    """One feature detector.

    Attributes:
        layer: from 1.
        map: feature map, from 0.
        row: row of the map, from 0: before folding in the first layer, after it above.
    """

    layer: int
    map: int
    row: int

    def __str__(self) -> str:
        return f"{self.layer}:{self.map}:{self.row}"


@dataclass(frozen=True)
class Detection:
    """An n-gram on which a detector has a large value.

    Attributes:
        words: the words, as in the first occurrence.
        positions: of the words, ascending: in the m-gram for the first layer, in the sentence
            above it, where there may be gaps.
        value: of the detector: the dot product in the first layer, the node after tanh above it.
        count: how often this n-gram with this value occurs in the corpus.
        strongest: those of ``positions`` whose words, the fewest, contribute at least half of what
            all words contribute to make the value large; empty if none does.
        sentence: the whole sentence of the first occurrence; empty if it is too long to be traced.
        column: first layer: where the n-gram starts in the sentence; above it: the place of the
            value among the k that its row kept.
    """

    words: tuple[str, ...]
    positions: tuple[int, ...]
    value: float
    count: int
    strongest: tuple[int, ...] = ()
    sentence: tuple[str, ...] = field(default=(), repr=False, compare=False)
    column: int = field(default=0, repr=False, compare=False)

    def __str__(self) -> str:
        return " ".join(part for part, _ in self.parts())

    def parts(self) -> Iterator[tuple[str, bool]]:
        """The words, with an ellipsis for every gap, and whether each is one of the strongest."""
        before = self.positions[0] - 1
        for word, position in zip(self.words, self.positions, strict=True):
            if position != before + 1:
                yield "\u2026", False
            yield word, position in self.strongest
            before = position


class Candidates(Protocol):
    """N-grams of a part of the corpus, each identified by its place."""

    def key(self, detector: int, place: int) -> Hashable:
        """Equal for n-grams that are the same for a detector."""

    def detection(self, detector: int, place: int, value: float, count: int) -> Detection:
        """The n-gram; called only when it enters a list."""


class StrongestLists:
    """The n-grams with the largest values of each of D detectors.

    Args:
        detectors: D.
        length: number of distinct n-grams per list.
    """

    def __init__(self, detectors: int, length: int) -> None:
        self.length = length
        self._threshold: Floats = np.full(detectors, -np.inf, np.float32)
        self._lists = [_ShortList() for _ in range(detectors)]

    def update(self, values: Floats, counts: Ints, candidates: Candidates, start: int = 0) -> None:
        """Take what is strong enough.

        Args:
            values: (D, M) of M n-grams, in the order of the corpus.
            counts: (M,) how often each occurs; 0 is not at all.
            candidates: the n-grams.
            start: place of the first of them.
        """
        # After a while few detectors find anything: search the places of those alone.
        hopeful = np.flatnonzero(values.max(axis=1) >= self._threshold)
        strong = values[hopeful] >= self._threshold[hopeful, None]
        strong &= counts > 0
        rows, places = np.nonzero(strong)
        if not len(rows):
            return
        rows = hopeful[rows]
        found = values[rows, places]
        order = np.lexsort((places, -found, rows))
        rows, places, found = rows[order], places[order], found[order]
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        for first, last in pairwise([*starts.tolist(), len(rows)]):
            at = places[first:last]
            columns = (at + start).tolist(), found[first:last].tolist(), counts[at].tolist()
            self._update_one(int(rows[first]), zip(*columns, strict=True), candidates)

    def _update_one(
        self, number: int, found: Iterable[tuple[int, float, int]], candidates: Candidates
    ) -> None:
        """Offer places, values and counts to one list until the values are too small for it."""
        short, threshold = self._lists[number], float(self._threshold[number])
        for place, value, count in found:
            if value < threshold:
                break
            key = candidates.key(number, place)
            known = short.detections.get(key)
            if known is not None and known.value >= value:
                if known.value == value:
                    short.detections[key] = replace(known, count=known.count + count)
                continue
            if known is not None:
                short.remove(key)
            elif len(short.ranked) == self.length:
                if value == threshold:  # equal to the last one, and later
                    continue
                short.remove(short.ranked[-1][2])
            short.add(key, candidates.detection(number, place, value, count))
            if len(short.ranked) == self.length:
                threshold = -short.ranked[-1][0]
        self._threshold[number] = threshold

    def detections(self, number: int) -> list[Detection]:
        """The list of a detector, the largest value first."""
        short = self._lists[number]
        return [short.detections[key] for _, _, key in short.ranked]


class _ShortList:
    """The n-grams of one detector, sorted by descending value and then by first occurrence."""

    def __init__(self) -> None:
        self.detections: dict[Hashable, Detection] = {}
        self.ranked: list[tuple[float, int, Hashable]] = []  # -value, order of arrival, key
        self._added = 0

    def add(self, key: Hashable, detection: Detection) -> None:
        self._added += 1
        self.detections[key] = detection
        insort(self.ranked, (-detection.value, self._added, key))

    def remove(self, key: Hashable) -> None:
        at = bisect_left(self.ranked, -self.detections.pop(key).value, key=lambda entry: entry[0])
        while self.ranked[at][2] != key:  # among equal values
            at += 1
        del self.ranked[at]


class DistinctSentences(NamedTuple):
    """Distinct sentences of a chunk: their words, ids, and how often each occurs in it."""

    words: Sequence[Words]
    ids: Sentences
    counts: Ints


Results = Iterator[tuple[Detector, list[Detection], float]]  # with the mean value


@dataclass(frozen=True)
class MGrams:
    """The m-grams of sentences laid end to end, each sentence at least as long as the filter."""

    sentences: Sequence[Words]
    ids: Ints  # (words,) with the padding word where a sentence is too short
    starts: Ints  # (sentences + 1,) where each begins
    # (words,) how often the m-gram that starts there occurs; 0 if not inside a sentence.
    counts: Ints
    width: int

    def merged_counts(self, start: int, end: int) -> Ints:
        """Counts of a block; equal m-grams are counted at the first of them.

        All detectors agree on which m-grams are equal; each would find out again, one by one, where
        a text repeats itself.
        """
        counts = self.counts[start:end]
        inside = np.flatnonzero(counts)
        ids = self.ids[start : end + self.width - 1]
        grams = np.lib.stride_tricks.sliding_window_view(ids, self.width)[inside]
        whole = np.ascontiguousarray(grams).view(f"V{grams.itemsize * self.width}").ravel()
        _, first, same = np.unique(whole, return_index=True, return_inverse=True)
        merged = np.zeros_like(counts)
        np.add.at(merged, inside[first[same]], counts[inside])
        return merged

    def key(self, _: int, place: int) -> bytes:
        """The ids of the m-gram."""
        return self.ids[place : place + self.width].tobytes()

    def detection(self, _: int, place: int, value: float, count: int) -> Detection:
        """The m-gram in its sentence."""
        number = int(np.searchsorted(self.starts, place, side="right")) - 1
        sentence, at = self.sentences[number], place - int(self.starts[number])
        words = tuple(sentence[at : at + self.width])
        positions = tuple(range(len(words)))
        return Detection(words, positions, value, count, (), _traceable(sentence), at)


def _traceable(sentence: Words) -> tuple[str, ...]:
    return tuple(sentence) if len(sentence) <= MOST_WORDS else ()


class FirstLayer:
    """The detectors of the first layer.

    Args:
        artifact: a DCNN.
        length: number of n-grams per detector.
        block: m-grams computed together; it changes no result.
    """

    def __init__(self, artifact: Artifact, length: int, block: int = BLOCK) -> None:
        embeddings = artifact.weights["embeddings"]
        self.filters: Floats = artifact.weights["layers.0.filters"][:, 0]  # (maps, d, m)
        self.maps, self.rows, self.width = map(int, self.filters.shape)
        self.padding = len(embeddings)  # an id of its own, with zeros
        zeros = np.zeros((1, self.rows), np.float32)
        self._embeddings = np.concatenate([embeddings, zeros])
        self._block = block
        self.lists = StrongestLists(self.maps * self.rows, length)
        # How often a word is at a place of an m-gram: mean values are linear in it.
        self._word_counts = np.zeros((self.width, self.padding + 1), np.int64)

    def read(self, sentences: DistinctSentences) -> None:
        """Rank the m-grams of some sentences."""
        grams = self.mgrams(sentences)
        places = len(grams.ids) - self.width + 1
        for start in range(0, places, self._block):
            end = min(start + self._block, places)
            words = self._embeddings[grams.ids[start : end + self.width - 1]]
            values = self._values(np.ascontiguousarray(words.T))
            self.lists.update(values, grams.merged_counts(start, end), grams, start)
        starts = np.flatnonzero(grams.counts)
        for place, counts in enumerate(self._word_counts):
            counts += _weighted_counts(grams.ids[starts + place], grams.counts[starts], len(counts))

    def mgrams(self, sentences: DistinctSentences) -> MGrams:
        """Lay sentences end to end."""
        encoded = sentences.ids
        lengths = np.maximum(encoded.lengths, self.width)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        ids = np.full(int(starts[-1]), self.padding, np.int64)
        shift = np.repeat(starts[:-1] - encoded.offsets[:-1], encoded.lengths)
        ids[shift + np.arange(len(encoded.ids))] = encoded.ids
        counts = np.repeat(sentences.counts, lengths)
        counts[(starts[1:, None] - np.arange(1, self.width)).ravel()] = 0
        return MGrams(sentences.words, ids, starts, counts, self.width)

    def _values(self, matrix: Floats) -> Floats:
        """(d, M + m - 1) -> (maps * d, M)."""
        columns = matrix.shape[1] - self.width + 1
        values = np.empty((self.maps, self.rows, columns), np.float32)
        product = np.empty((self.rows, columns), np.float32)
        for total, filters in zip(values, self.filters, strict=True):
            np.multiply(matrix[:, :columns], filters[:, :1], out=total)
            for i in range(1, self.width):
                np.multiply(matrix[:, i : i + columns], filters[:, i : i + 1], out=product)
                total += product
        return values.reshape(-1, columns)

    def results(self) -> Results:
        """Every detector with its n-grams and its mean over all m-grams."""
        counts = self._word_counts
        words = counts @ self._embeddings.astype(np.float64) / counts[0].sum()  # (m, d)
        means: Doubles = np.einsum("id,odi->od", words, self.filters).ravel()
        for number, mean in enumerate(means.tolist()):
            detector = Detector(1, *divmod(number, self.rows))
            yield detector, self.lists.detections(number), mean


class PooledLayer(NamedTuple):
    """A layer of B sentences: values (B, o, d', K) after tanh, and positions (B, o, d', K).

    Past a sentence's own k positions are -1.
    """

    values: Floats
    positions: Ints
    filters: Floats


@dataclass(frozen=True)
class PooledBatch:
    """B sentences and their layers, from the first one."""

    sentences: Sequence[Words]
    ids: Ints
    layers: Sequence[PooledLayer]
    _fields: dict[tuple[int, int, int, int], Ints] = field(default_factory=dict, init=False)

    def receptive_field(self, sentence: int, layer: int, map_: int, row: int, place: int) -> Ints:
        """Positions of the words with a path to a node, ascending.

        The row is that after folding; ``place`` is among the values that the row kept.
        """
        position = int(self.layers[layer - 1].positions[sentence, map_, row, place])
        key = sentence, layer, row, position  # all maps of a layer read the same
        if key not in self._fields:
            at = [self._positions(sentence, number) for number in range(1, layer + 1)]
            length = len(self.sentences[sentence])
            columns = [length, *(positions.shape[-1] for positions in at)]
            nodes: Ints = np.array([np.ravel_multi_index((map_, row, place), at[-1].shape)])
            for i in range(layer - 1, -1, -1):
                edges = incoming_edges(at[i], self.layers[i].filters, columns[i], nodes)
                nodes = np.unique(edges[1])
            self._fields[key] = np.unique(nodes % length)
        return self._fields[key]

    def _positions(self, sentence: int, layer: int) -> Ints:
        """(o, d', k) of a sentence alone."""
        positions: Ints = self.layers[layer - 1].positions[sentence]
        own: Ints = positions[..., : np.count_nonzero(positions[0, 0] >= 0)]
        return own


@dataclass(frozen=True)
class LayerNodes:
    """The nodes of one layer of a batch; a place is a sentence's and one of its K."""

    batch: PooledBatch
    layer: int

    @cached_property
    def _pooled(self) -> PooledLayer:
        return self.batch.layers[self.layer - 1]

    def values(self) -> Floats:
        """(o * d', B * K), sentence by sentence."""
        values = self._pooled.values  # (B, o, d', K)
        maps, rows = values.shape[1:3]
        return np.ascontiguousarray(values.transpose(1, 2, 0, 3)).reshape(maps * rows, -1)

    def counts(self, of_sentences: Ints) -> Ints:
        """(B * K,) how often each node occurs; 0 past a sentence's own k."""
        return np.where(self._pooled.positions[:, 0, 0] >= 0, of_sentences[:, None], 0).ravel()

    def key(self, detector: int, place: int) -> tuple[bytes, bytes]:
        """Ids of the words of the receptive field, and the gaps between them."""
        sentence, positions = self._receptive_field(detector, place)
        ids = self.batch.ids[sentence][positions]
        return ids.tobytes(), (positions - positions[0]).tobytes()

    def detection(self, detector: int, place: int, value: float, count: int) -> Detection:
        """The words of the receptive field."""
        sentence, positions = self._receptive_field(detector, place)
        words, at = self.batch.sentences[sentence], tuple(positions.tolist())
        kept = place % self._pooled.values.shape[-1]
        ngram = tuple(words[i] for i in at)
        return Detection(ngram, at, value, count, (), _traceable(words), kept)

    def _receptive_field(self, detector: int, place: int) -> tuple[int, Ints]:
        _, _, rows, kept = self._pooled.values.shape
        sentence, at = divmod(place, kept)
        map_, row = divmod(detector, rows)
        return sentence, self.batch.receptive_field(sentence, self.layer, map_, row, at)


class HigherLayers:
    """The detectors above the first layer.

    Args:
        predictor: a DCNN.
        layers: which layers, ascending.
        length: number of n-grams per detector.
    """

    def __init__(self, predictor: Predictor, layers: Sequence[int], length: int) -> None:
        artifact = predictor.artifact
        config = artifact.config.model
        if not isinstance(config, DCNNConfig):
            raise TypeError(f"a {config.kind} has no pooled layers")
        self._config, self._weights, self._layers = config, artifact.weights, layers
        backend = native if predictor.backend == "native" else reference
        self._layer: Callable[..., tuple[Floats, Ints]] = backend.layer
        sizes = {layer: config.maps[layer - 1] * config.rows(layer) for layer in layers}
        self._lists = {layer: StrongestLists(size, length) for layer, size in sizes.items()}
        self._sums = {layer: np.zeros(size) for layer, size in sizes.items()}
        self._nodes = dict.fromkeys(layers, 0)

    def read(self, sentences: DistinctSentences) -> None:
        """Rank the nodes of some sentences; those of more than ``MOST_WORDS`` are skipped."""
        for indices in batches(sentences.ids.lengths):
            batch = self.pool(sentences, indices)
            for layer in self._layers:
                nodes = LayerNodes(batch, layer)
                values, counts = nodes.values(), nodes.counts(sentences.counts[indices])
                self._lists[layer].update(values, counts, nodes)
                self._sums[layer] += values @ counts.astype(np.float64)
                self._nodes[layer] += int(counts.sum())

    def pool(self, sentences: DistinctSentences, indices: Ints) -> PooledBatch:
        """Run the layers on some of the sentences."""
        ids, lengths = sentences.ids.padded(indices, UNKNOWN)
        x = self._weights["embeddings"][ids].transpose(0, 2, 1)[:, None]  # (B, 1, d, s)
        valid, layers = lengths, []
        for number in range(1, self._layers[-1] + 1):
            k = dynamic_k(lengths, number, self._config.depth, self._config.k_top)
            filters, bias = (
                self._weights[f"layers.{number - 1}.{part}"] for part in ("filters", "bias")
            )
            x, positions = self._layer(x, valid, filters, bias, k, self._config.fold)
            layers.append(PooledLayer(x, positions, filters))
            valid = k
        return PooledBatch([sentences.words[i] for i in indices.tolist()], ids, layers)

    def results(self) -> Results:
        """Every detector with its n-grams and its mean over all nodes."""
        for layer in self._layers:
            if not self._nodes[layer]:  # every sentence was too long
                continue
            means = self._sums[layer] / self._nodes[layer]
            for number, mean in enumerate(means.tolist()):
                detector = Detector(layer, *divmod(number, self._config.rows(layer)))
                yield detector, self._lists[layer].detections(number), mean


def batches(lengths: Ints) -> Iterator[Ints]:
    """Indices of sentences, in their order, as many at a time as memory allows.

    Those of more than ``MOST_WORDS`` words are left out.
    """
    batch: list[int] = []
    longest = 0
    for index, words in enumerate(lengths.tolist()):
        if words > MOST_WORDS:
            continue
        longest = max(longest, words)
        if batch and (len(batch) == BATCH or longest * (len(batch) + 1) > BATCH_WORDS):
            yield np.array(batch)
            batch, longest = [], words
        batch.append(index)
    if batch:
        yield np.array(batch)


@dataclass(frozen=True)
class RankedCorpus:
    """The result of a pass over a corpus."""

    detections: dict[Detector, list[Detection]]  # the largest value first
    means: dict[Detector, float]  # over all m-grams or nodes
    sentences: int  # texts with a word
    words: Counter[str]  # of the vocabulary
    total: int  # words of the corpus, unknown ones included


def rank_corpus(
    sentences: Iterable[Words],
    predictor: Predictor,
    layers: Sequence[int],
    top: int,
    progress: Progress | None = None,
    chunk: int = CHUNK,
) -> RankedCorpus:
    """Rank the n-grams of a corpus for every detector of some layers.

    Args:
        sentences: as words; empty ones are skipped.
        predictor: a DCNN.
        layers: which layers, from 1, ascending.
        top: least number of n-grams per detector.
        progress: called with the number of sentences read so far.
        chunk: sentences read together; it changes no result.
    """
    artifact = predictor.artifact
    vocabulary = artifact.encoder.vocabulary
    counts = np.zeros(len(vocabulary), np.int64)
    passes: list[FirstLayer | HigherLayers] = []
    if layers[0] == 1:
        passes.append(FirstLayer(artifact, max(top, NAMED_BY)))
    if higher := [layer for layer in layers if layer > 1]:
        passes.append(HigherLayers(predictor, higher, max(top, NAMED_BY_HIGHER)))
    read = present = 0
    for texts in _chunks(sentences, chunk):
        read += len(texts)
        # A sentence that occurs again, as tweets do, is computed once per chunk.
        found = Counter(tuple(words) for words in texts if words)
        if found:
            present += found.total()
            distinct = _distinct_sentences(artifact, found)
            each = np.repeat(distinct.counts, distinct.ids.lengths)
            counts += _weighted_counts(distinct.ids.ids, each, len(counts))
            for one in passes:
                one.read(distinct)
        if progress is not None:
            progress(read)
    known = [i for i in np.flatnonzero(counts).tolist() if i != UNKNOWN]
    results = [item for one in passes for item in one.results()] if present else []
    return RankedCorpus(
        detections={detector: detections for detector, detections, _ in results},
        means={detector: mean for detector, _, mean in results},
        sentences=present,
        words=Counter({vocabulary.words[i - 1]: int(counts[i]) for i in known}),
        total=int(counts.sum()),
    )


def _chunks(sentences: Iterable[Words], most: int) -> Iterator[list[Words]]:
    chunk: list[Words] = []
    size = 0
    for words in sentences:
        chunk.append(words)
        size += len(words)
        if len(chunk) == most or size >= CHUNK_WORDS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _distinct_sentences(
    artifact: Artifact, sentences: Counter[tuple[str, ...]]
) -> DistinctSentences:
    words = list(sentences)
    ids = artifact.encoder.vocabulary.ids(chain.from_iterable(words))
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    counts = np.fromiter(sentences.values(), np.int64, len(words))
    return DistinctSentences(words, Sentences.from_flat(np.array(ids, np.int32), lengths), counts)


def _weighted_counts(ids: Ints, counts: Ints, size: int) -> NDArray[np.int64]:
    """How often each id occurs; sums of whole numbers below 2**53 are exact."""
    return np.bincount(ids, counts, minlength=size).astype(np.int64)
