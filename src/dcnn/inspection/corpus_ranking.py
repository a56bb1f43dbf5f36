"""One pass over a corpus: every detector's strongest n-grams, and what is common in the corpus."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dcnn.artifact import Artifact
from dcnn.inspection.detections import Detector
from dcnn.inspection.first_layer import Chunk, FirstLayer
from dcnn.inspection.higher_layers import HigherLayers, LayerOfBatch, Words, batches
from dcnn.inspection.strongest import Entry, StrongestLists
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import UNKNOWN

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
        present = [words for words in texts if words]
        if present:
            met += len(present)
            ids = artifact.encoder.vocabulary.ids(word for words in present for word in words)
            counts += np.bincount(ids, minlength=len(counts))
            for one in passes:
                one.show(present)
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


Found = Iterator[tuple[Detector, list[Entry], float]]


class _FirstLayerPass:
    def __init__(self, artifact: Artifact, length: int) -> None:
        self._layer = FirstLayer(artifact)
        self._lists = StrongestLists(len(self._layer), length)
        # How often a word stands at a place of an m-gram: mean activations are linear in it.
        self._places = np.zeros((self._layer.width, self._layer.padding + 1), np.int64)

    def show(self, sentences: Sequence[Words]) -> None:
        chunk = self._layer.chunk(sentences)
        self._layer.rank(chunk, self._lists)
        self._count(chunk)

    def _count(self, chunk: Chunk) -> None:
        starts = np.flatnonzero(chunk.inside)
        for place, counts in enumerate(self._places):
            counts += np.bincount(chunk.ids[starts + place], minlength=len(counts))

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

    def show(self, sentences: Sequence[Words]) -> None:
        for batch in batches(sentences):
            pooled = self._network.pool(batch, self._layers[-1])
            for layer in self._layers:
                here = LayerOfBatch(pooled, layer)
                here.rank(self._lists[layer])
                self._sums[layer] += here.values.sum(axis=1, dtype=np.float64)  # 0 past a k
                self._nodes[layer] += int(here.inside.sum())

    def results(self) -> Found:
        for layer in self._layers:
            means = self._sums[layer] / max(self._nodes[layer], 1)
            for number, mean in enumerate(means.tolist()):
                detector = Detector(layer, *divmod(number, self._rows[layer]))
                yield detector, self._lists[layer].entries(number), mean
