"""One pass over a corpus: every detector's strongest n-grams, and what is common in the corpus."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from dcnn.artifact import Artifact
from dcnn.inspection.detector_layers import (
    Chunk,
    FirstLayer,
    HigherLayers,
    LayerOfBatch,
    Words,
    batches,
)
from dcnn.inspection.detector_lists import Detector, Entry, StrongestLists
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import UNKNOWN, Ints, Sentences

CHUNK = 4096  # texts read together,
CHUNK_WORDS = 1 << 17  # unless they have more words than this
# A name needs more n-grams than are shown. Those of the higher layers have to be traced for it.
NAMED_BY, NAMED_BY_HIGHER = 30, 10

Progress = Callable[[int], None]


@dataclass(frozen=True)
class RankedCorpus:
    """What a pass over a corpus found.

    Attributes:
        entries: of each detector its strongest n-grams, the strongest first.
        means: of each detector, over all its m-grams or nodes.
        sentences: texts of one word or more.
        words: how often each word that the network knows occurs.
        total: words of the corpus, unknown ones included.
    """

    entries: dict[Detector, list[Entry]]
    means: dict[Detector, float]
    sentences: int
    words: Counter[str]
    total: int


def rank_corpus(
    sentences: Iterable[Words],
    predictor: Predictor,
    layers: Sequence[int],
    top: int,
    progress: Progress | None = None,
    chunk: int = CHUNK,
) -> RankedCorpus:
    """Show every sentence to every detector of some layers.

    Args:
        sentences: as words; those without any are passed over.
        predictor: a DCNN.
        layers: which layers, from 1, ascending.
        top: n-grams to keep of each detector, at the least.
        progress: called with the number of sentences read so far.
        chunk: sentences read together; it changes no result.
    """
    artifact = predictor.artifact
    counts = np.zeros(len(artifact.encoder.vocabulary), np.int64)
    passes: list[_FirstLayerPass | _HigherLayersPass] = []
    if layers[0] == 1:
        passes.append(_FirstLayerPass(artifact, max(top, NAMED_BY)))
    if higher := [layer for layer in layers if layer > 1]:
        network = HigherLayers(artifact, predictor.backend)
        passes.append(_HigherLayersPass(network, higher, max(top, NAMED_BY_HIGHER)))
    read = met = 0
    for texts in _chunks(sentences, chunk):
        read += len(texts)
        # A sentence that occurs again, as tweets do, is looked at once a chunk.
        present = Counter(tuple(words) for words in texts if words)
        if present:
            met += present.total()
            part = _encoded(artifact, present)
            each = np.repeat(part.times, part.ids.lengths)
            counts += _weighed(part.ids.ids, each, len(counts))
            for one in passes:
                one.show(part)
        if progress is not None:
            progress(read)
    names = artifact.encoder.vocabulary.words
    known = np.flatnonzero(counts)
    found = [item for one in passes for item in one.results()] if met else []
    return RankedCorpus(
        entries={detector: entries for detector, entries, _ in found},
        means={detector: mean for detector, _, mean in found},
        sentences=met,
        words=Counter({names[i - 1]: int(counts[i]) for i in known.tolist() if i != UNKNOWN}),
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


@dataclass(frozen=True)
class _Part:
    """Distinct sentences of a chunk, and how often each occurs in it."""

    words: list[tuple[str, ...]]
    ids: Sentences
    times: Ints


def _encoded(artifact: Artifact, sentences: Counter[tuple[str, ...]]) -> _Part:
    words = list(sentences)
    ids = artifact.encoder.vocabulary.ids(chain.from_iterable(words))
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    times = np.fromiter(sentences.values(), np.int64, len(words))
    return _Part(words, Sentences.from_flat(np.array(ids, np.int32), lengths), times)


def _weighed(ids: Ints, times: Ints, size: int) -> Ints:
    """How often each id occurs; sums of whole numbers below 2**53 are exact."""
    return np.bincount(ids, times, minlength=size).astype(np.int64)


Found = Iterator[tuple[Detector, list[Entry], float]]


class _FirstLayerPass:
    def __init__(self, artifact: Artifact, length: int) -> None:
        self._layer = FirstLayer(artifact)
        self._lists = StrongestLists(len(self._layer), length)
        # How often a word stands at a place of an m-gram: mean activations are linear in it.
        self._places = np.zeros((self._layer.width, self._layer.padding + 1), np.int64)

    def show(self, part: _Part) -> None:
        chunk = self._layer.chunk(part.words, part.ids, part.times)
        self._layer.rank(chunk, self._lists)
        self._count(chunk)

    def _count(self, chunk: Chunk) -> None:
        starts = np.flatnonzero(chunk.times)
        for place, counts in enumerate(self._places):
            counts += _weighed(chunk.ids[starts + place], chunk.times[starts], len(counts))

    def results(self) -> Found:
        means = self._layer.mean_activations(self._places)
        for number, mean in enumerate(means.tolist()):
            detector = Detector(1, *divmod(number, self._layer.rows))
            yield detector, self._lists.entries(number), mean


class _HigherLayersPass:
    def __init__(self, network: HigherLayers, layers: Sequence[int], length: int) -> None:
        self._network, self._layers = network, layers
        config = network.config
        self._rows = {layer: config.rows(layer) for layer in layers}
        sizes = {layer: config.maps[layer - 1] * self._rows[layer] for layer in layers}
        self._lists = {layer: StrongestLists(size, length) for layer, size in sizes.items()}
        self._sums = {layer: np.zeros(size) for layer, size in sizes.items()}
        self._nodes: dict[int, int] = dict.fromkeys(layers, 0)

    def show(self, part: _Part) -> None:
        for batch in batches(zip(part.words, part.times.tolist(), strict=True)):
            pooled = self._network.pool([words for words, _ in batch], self._layers[-1])
            times = np.array([times for _, times in batch])
            for layer in self._layers:
                here = LayerOfBatch(pooled, times, layer)
                here.rank(self._lists[layer])
                self._sums[layer] += here.values @ here.times.astype(np.float64)
                self._nodes[layer] += int(here.times.sum())

    def results(self) -> Found:
        for layer in self._layers:
            if not self._nodes[layer]:  # every sentence was too long
                continue
            means = self._sums[layer] / self._nodes[layer]
            for number, mean in enumerate(means.tolist()):
                detector = Detector(layer, *divmod(number, self._rows[layer]))
                yield detector, self._lists[layer].entries(number), mean
