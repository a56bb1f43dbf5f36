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

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from dcnn.artifact import Artifact
from dcnn.config import DCNNConfig
from dcnn.errors import UserError
from dcnn.inspection.attribution import words_and_gaps
from dcnn.inspection.feature_graph import incoming_edges
from dcnn.inspection.trace import Floats
from dcnn.ops import native, reference
from dcnn.predictor import Predictor
from dcnn.text.encoder import in_parts
from dcnn.text.vocabulary import MOST_NEW_WORDS, UNKNOWN, Ints, Sentences

MOST_WORDS = 1000  # of a sentence that is traced, as in `explain`
CHUNK = 4096  # texts read together, unless they are long
BLOCK = 2048  # m-grams; the values of a map's rows for them fit into a core's own cache
PADDING = -1  # id after a sentence shorter than a filter; it selects the row of zeros at the end
BATCH = 256  # sentences
BATCH_WORDS = 1 << 14  # padded; bounds the memory of long sentences
# N-grams that a name is based on; fewer in higher layers, where each of them must be traced.
NAMED_BY, NAMED_BY_HIGHER = 30, 10

Words = Sequence[str]
Progress = Callable[[int], None]
# Of a detector and a place; equal for n-grams that are the same for the detector.
Key = Callable[[int, int], Hashable]
# Of a detector, a place, a value and a count; called only when an n-gram enters a list.
MakeDetection = Callable[[int, int, float, int], "Detection"]


@dataclass(frozen=True, order=True)
class Detector:
    """One feature detector."""

    layer: int  # from 1
    map: int  # from 0
    row: int  # from 0: before folding in the first layer, after it above

    def __str__(self) -> str:
        return f"{self.layer}:{self.map}:{self.row}"


@dataclass(frozen=True)
class Detection:
    """An n-gram on which a detector has a large value."""

    words: tuple[str, ...]  # as in the first occurrence
    # Ascending: in the m-gram for the first layer, in the sentence, with gaps, above it.
    positions: tuple[int, ...]
    value: float  # the dot product in the first layer, the node after tanh above it
    count: int  # how often this n-gram with this value occurs in the corpus
    # Positions of the fewest words that contribute half of what makes the value large.
    strongest: tuple[int, ...] = ()
    # Of the first occurrence; empty if it is too long to be traced.
    sentence: tuple[str, ...] = field(default=(), repr=False, compare=False)
    # First layer: where the n-gram starts in the sentence; above: among the k that its row kept.
    column: int = field(default=0, repr=False, compare=False)

    def __str__(self) -> str:
        return " ".join(part for part, _ in self.parts())

    def parts(self) -> Iterator[tuple[str, bool]]:
        """The words, with an ellipsis for every gap, and whether each is one of the strongest."""
        for part, position in words_and_gaps(self.words, self.positions, "\u2026"):
            yield part, position in self.strongest


class StrongestLists:
    """The distinct n-grams with the largest values of each of the D detectors of a layer."""

    def __init__(self, layer: int, maps: int, rows: int, length: int) -> None:
        self.layer, self.length, self._rows = layer, length, rows
        self._threshold: Floats = np.full(maps * rows, -np.inf, np.float32)
        # By key; the largest value first, and among equal ones the first occurrence.
        self._lists: list[dict[Hashable, Detection]] = [{} for _ in range(maps * rows)]
        self._sums, self._count = np.zeros(maps * rows), 0

    def update(
        self, values: Floats, counts: Ints, key: Key, detection: MakeDetection, start: int = 0
    ) -> None:
        """Add the n-grams with large enough values; ``values`` are (D, M), in corpus order.

        ``counts`` (M,) is how often each n-gram occurs, maybe 0; the first is at place ``start``.
        """
        self._sums += values @ counts.astype(np.float32)  # exact enough for M of them
        self._count += int(counts.sum())
        # After a while few detectors find anything: search the places of those alone.
        hopeful = np.flatnonzero(values.max(axis=1) >= self._threshold)
        strong = values[hopeful] >= self._threshold[hopeful, None]
        strong &= counts > 0
        rows, places = np.nonzero(strong)
        rows, found = hopeful[rows], values[hopeful[rows], places]
        order = np.lexsort((places, -found, rows))
        rows, places, found = rows[order], places[order], found[order]
        starts = np.flatnonzero(np.diff(rows, prepend=-1)).tolist()
        for first, last in pairwise([*starts, len(rows)]):
            at = places[first:last]
            columns = (at + start).tolist(), found[first:last].tolist(), counts[at].tolist()
            self._update_one(int(rows[first]), zip(*columns, strict=True), key, detection)

    def _update_one(
        self,
        number: int,
        found: Iterable[tuple[int, float, int]],
        make_key: Key,
        detection: MakeDetection,
    ) -> None:
        """Add places, values and counts, the largest value first, to the list of one detector."""
        detections, threshold = self._lists[number], float(self._threshold[number])
        before = [one.value for one in detections.values()]
        new, changed = 0, False
        for place, value, count in found:
            if value < threshold:
                break
            key = make_key(number, place)
            known = detections.get(key)
            if known is not None and known.value >= value:
                if known.value == value:
                    detections[key] = replace(known, count=known.count + count)
            elif value > threshold:  # among equal values the earlier one stays
                detections.pop(key, None)  # so that it comes after those of equal value
                detections[key] = detection(number, place, value, count)
                changed = True
                new += known is None
                if new == self.length:
                    threshold = value
                elif new + len(before) >= self.length:  # the last of ``before`` that will stay
                    threshold = max(threshold, before[self.length - new - 1])
        if changed:
            ranked = sorted(detections.items(), key=lambda item: -item[1].value)
            self._lists[number] = dict(ranked[: self.length])
            if len(ranked) >= self.length:
                self._threshold[number] = ranked[self.length - 1][1].value

    def results(self) -> Iterator[tuple[Detector, list[Detection], float]]:
        """Every detector with its list and the mean of all values; none if there was no n-gram."""
        means = (self._sums / self._count).tolist() if self._count else []
        for number, (found, mean) in enumerate(zip(self._lists, means, strict=False)):
            detector = Detector(self.layer, *divmod(number, self._rows))
            yield detector, list(found.values()), mean


def merged_counts(ids: Ints, counts: Ints, width: int) -> Ints:
    """(M,) counts of m-grams, equal ones added up at the first of them; ``ids`` is (M + m - 1,).

    Which m-grams are equal is the same for all detectors. Without this, each detector would look up
    the repetitions of a text one by one.
    """
    inside = np.flatnonzero(counts)
    grams = np.lib.stride_tricks.sliding_window_view(ids, width)[inside]
    whole = np.ascontiguousarray(grams).view(f"V{grams.itemsize * width}").ravel()
    _, first, same = np.unique(whole, return_index=True, return_inverse=True)
    merged = np.zeros_like(counts)
    np.add.at(merged, inside[first[same]], counts[inside])
    return merged


def key_of(ids: Ints, vocabulary: int, new_words: Sequence[str]) -> Hashable:
    """A key of words that is the same in every chunk, although the ids of new words differ."""
    beyond = ids >= vocabulary
    if not beyond.any():
        return ids.tobytes()
    words = tuple(new_words[i - vocabulary] for i in ids[beyond].tolist())
    return np.where(beyond, vocabulary, ids).tobytes(), words


def traced(sentence: Words) -> tuple[str, ...]:
    """``sentence``; empty if it is too long to be traced."""
    return tuple(sentence) if len(sentence) <= MOST_WORDS else ()


class FirstLayer:
    """The detectors of the first layer; ``block`` m-grams are computed together."""

    def __init__(self, artifact: Artifact, length: int, block: int = BLOCK) -> None:
        self._block = block
        self._filters: Floats = artifact.weights["layers.0.filters"][:, 0]  # (maps, d, m)
        self._maps, self._rows, self._width = map(int, self._filters.shape)
        self.lists = [StrongestLists(1, self._maps, self._rows, length)]

    def read(
        self, sentences: Sequence[Words], encoded: Sentences, times: Ints, table: Floats
    ) -> None:
        """Rank the m-grams of distinct sentences, each of which occurs some times.

        ``table`` (words, d) has the vectors of all ids.
        """
        # Sentences laid end to end, padded to the filter width; a place is where an m-gram starts.
        width = self._width
        lengths = np.maximum(encoded.lengths, width)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        ids = np.full(int(starts[-1]), PADDING, np.int64)
        shift = np.repeat(starts[:-1] - encoded.offsets[:-1], encoded.lengths)
        ids[shift + np.arange(len(encoded.ids))] = encoded.ids
        counts = np.repeat(times, lengths)
        counts[(starts[1:, None] - np.arange(1, width)).ravel()] = 0  # not inside a sentence

        padded = np.pad(table, ((0, 1), (0, 0)))
        known = len(table) - len(encoded.new_words)

        def key(_: int, place: int) -> Hashable:
            return key_of(ids[place : place + width], known, encoded.new_words)

        def detection(_: int, place: int, value: float, count: int) -> Detection:
            number = int(np.searchsorted(starts, place, side="right")) - 1
            sentence, at = sentences[number], place - int(starts[number])
            words = tuple(sentence[at : at + width])
            positions = tuple(range(len(words)))
            return Detection(words, positions, value, count, (), traced(sentence), at)

        places = len(ids) - width + 1
        for start in range(0, places, self._block):
            end = min(start + self._block, places)
            here = ids[start : end + width - 1]
            values = self._values(np.ascontiguousarray(padded[here].T))
            merged = merged_counts(here, counts[start:end], width)
            self.lists[0].update(values, merged, key, detection, start)

    def _values(self, matrix: Floats) -> Floats:
        """(d, M + m - 1) -> (maps * d, M)."""
        columns = matrix.shape[1] - self._width + 1
        values = np.empty((self._maps, self._rows, columns), np.float32)
        product = np.empty((self._rows, columns), np.float32)
        for total, filters in zip(values, self._filters, strict=True):
            np.multiply(matrix[:, :columns], filters[:, :1], out=total)
            for i in range(1, self._width):
                np.multiply(matrix[:, i : i + columns], filters[:, i : i + 1], out=product)
                total += product
        return values.reshape(-1, columns)


@dataclass(frozen=True)
class PooledLayer:
    """A layer of B sentences; an n-gram's place i is the pooled value i % K of sentence i // K."""

    sentences: Sequence[Words]
    ids: Ints  # (B, s)
    vocabulary: int  # number of its ids; ids from here on are those of ``new_words``
    new_words: Sequence[str]
    filters: Floats  # (o, n, d, m)
    values: Floats  # (B, o, d', K) after tanh
    positions: Ints  # (B, o, d', K); -1 past a sentence's own k
    below: "PooledLayer | None"
    _fields: dict[tuple[int, int, int], Ints] = field(default_factory=dict, init=False)

    def receptive_field(self, sentence: int, map_: int, row: int, place: int) -> Ints:
        """Positions of the words with a path to a node, ascending.

        The row is that after folding; ``place`` is among the values that the row kept.
        """
        position = int(self.positions[sentence, map_, row, place])
        key = sentence, row, position  # all maps read the same
        if key not in self._fields:
            nodes: Ints = np.array(
                [np.ravel_multi_index((map_, row, place), self.values.shape[1:])]
            )
            layer: PooledLayer | None = self
            while layer is not None:  # padding is read, but a position of -1 reads nothing
                below, at = layer.below, layer.positions[sentence]
                columns = self.ids.shape[1] if below is None else below.values.shape[-1]
                nodes = np.unique(incoming_edges(at, layer.filters, columns, nodes)[1])
                layer = below
            words = np.unique(nodes % self.ids.shape[1])
            self._fields[key] = words[words < len(self.sentences[sentence])]
        return self._fields[key]

    def key(self, detector: int, place: int) -> Hashable:
        """Ids of the words of the receptive field, and the gaps between them."""
        sentence, _, positions = self._node(detector, place)
        words = key_of(self.ids[sentence][positions], self.vocabulary, self.new_words)
        return words, (positions - positions[0]).tobytes()

    def detection(self, detector: int, place: int, value: float, count: int) -> Detection:
        """The words of the receptive field."""
        sentence, kept, positions = self._node(detector, place)
        words, at = self.sentences[sentence], tuple(positions.tolist())
        return Detection(tuple(words[i] for i in at), at, value, count, (), traced(words), kept)

    def _node(self, detector: int, place: int) -> tuple[int, int, Ints]:
        """The sentence of a place, which of its K it is, and the receptive field."""
        sentence, kept = divmod(place, self.values.shape[-1])
        map_, row = divmod(detector, self.values.shape[2])
        return sentence, kept, self.receptive_field(sentence, map_, row, kept)


class HigherLayers:
    """The detectors of some layers above the first, ascending."""

    def __init__(self, predictor: Predictor, layers: Sequence[int], length: int) -> None:
        self._config, self._parameters = check_dcnn(predictor), predictor.artifact.layers
        backend = native if predictor.backend == "native" else reference
        self._layer: Callable[..., tuple[Floats, Ints]] = backend.layer
        sizes = [(self._config.maps[layer - 1], self._config.rows(layer)) for layer in layers]
        self.lists = [
            StrongestLists(layer, *size, length) for layer, size in zip(layers, sizes, strict=True)
        ]

    def read(
        self, sentences: Sequence[Words], encoded: Sentences, times: Ints, table: Floats
    ) -> None:
        """Rank the nodes of distinct sentences; those of more than ``MOST_WORDS`` are skipped."""
        for indices in batches(encoded.lengths):
            pooled, counts = self.pool(sentences, encoded, indices, table), times[indices]
            for lists in self.lists:
                layer = pooled[lists.layer - 1]
                values = np.moveaxis(layer.values, 0, 2)  # (o, d', B, K)
                values = values.reshape(values.shape[0] * values.shape[1], -1)
                # 0 past a sentence's own k.
                each = np.where(layer.positions[:, 0, 0] >= 0, counts[:, None], 0).ravel()
                lists.update(values, each, layer.key, layer.detection)

    def pool(
        self, sentences: Sequence[Words], encoded: Sentences, indices: Ints, table: Floats
    ) -> list[PooledLayer]:
        """Run the layers on some of the sentences."""
        ids, lengths = encoded.padded(indices, UNKNOWN)
        words = [sentences[i] for i in indices.tolist()]
        x = table[ids].transpose(0, 2, 1)[:, None]  # (B, 1, d, s)
        known = len(table) - len(encoded.new_words)
        valid, pooled, below = lengths, [], None
        for number in range(self.lists[-1].layer):
            k = reference.dynamic_k(lengths, number + 1, self._config.depth, self._config.k_top)
            filters, bias = self._parameters[number]
            x, positions = self._layer(x, valid, filters, bias, k, self._config.fold)
            of_words = words, ids, known, encoded.new_words
            below = PooledLayer(*of_words, filters, x, positions, below)
            pooled.append(below)
            valid = k
        return pooled


def check_dcnn(predictor: Predictor) -> DCNNConfig:
    """The settings of a DCNN; an error if the model is of another kind."""
    config = predictor.artifact.config.model
    if not isinstance(config, DCNNConfig):
        raise UserError(
            f"the model is of the kind {config.kind}, whose detectors cannot be ranked; "
            "only those of dcnn can"
        )
    return config


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
    words: Counter[str]  # that the network can tell apart; approximate with very many new words
    total: int  # words of the corpus, unknown ones included


def rank_corpus(
    sentences: Iterable[Words],
    predictor: Predictor,
    layers: Sequence[int],
    top: int,
    progress: Progress | None = None,
    chunk: int = CHUNK,
) -> RankedCorpus:
    """Rank the ``top`` n-grams, or more, of a corpus for every detector of some layers, ascending.

    ``progress`` is called with the number of sentences read so far; ``chunk``, the sentences read
    together, changes no result.
    """
    encoder = predictor.artifact.encoder
    vocabulary = encoder.vocabulary
    counts = np.zeros(len(vocabulary), np.int64)
    new_words: Counter[str] = Counter()
    total = 0
    passes: list[FirstLayer | HigherLayers] = []
    if layers[0] == 1:
        passes.append(FirstLayer(predictor.artifact, max(top, NAMED_BY)))
    if higher := [layer for layer in layers if layer > 1]:
        passes.append(HigherLayers(predictor, higher, max(top, NAMED_BY_HIGHER)))
    read = present = 0
    for texts in in_parts(sentences, chunk):
        read += len(texts)
        # A sentence that occurs again, as tweets do, is computed once per chunk.
        found = Counter(tuple(words) for words in texts if words)
        if found:
            present += found.total()
            encoded = encoder.encode_words(found)
            each, distinct = np.array(list(found.values())), list(found)
            here = np.zeros(len(vocabulary) + len(encoded.new_words), np.int64)
            np.add.at(here, encoded.ids, np.repeat(each, encoded.lengths))
            counts += here[: len(vocabulary)]
            total += int(here.sum())
            beyond = here[len(vocabulary) :].tolist()
            new_words.update(dict(zip(encoded.new_words, beyond, strict=True)))
            table = predictor.artifact.embed(np.arange(len(here)), encoded.new_words)
            for one in passes:
                one.read(distinct, encoded, each, table)
            if len(new_words) > MOST_NEW_WORDS:
                new_words = _without_rarest(new_words, passes)
        if progress is not None:
            progress(read)
    results = [item for one in passes for lists in one.lists for item in lists.results()]
    known = [i for i in np.flatnonzero(counts).tolist() if i != UNKNOWN]
    return RankedCorpus(
        detections={detector: detections for detector, detections, _ in results},
        means={detector: mean for detector, _, mean in results},
        sentences=present,
        words=Counter({vocabulary.words[i - 1]: int(counts[i]) for i in known}) + new_words,
        total=total,
    )


def _without_rarest(
    counts: Counter[str], passes: Sequence[FirstLayer | HigherLayers]
) -> Counter[str]:
    """Half as many words as the limit, the most frequent, and those that are on a list.

    Nearly all new words of a large corpus occur once. One that occurs again counts from 0.
    """
    lists = (results for one in passes for some in one.lists for _, results, _ in some.results())
    listed = {word for results in lists for detection in results for word in detection.words}
    kept = dict(counts.most_common(MOST_NEW_WORDS // 2))
    return Counter(kept | {word: counts[word] for word in listed if word in counts})
