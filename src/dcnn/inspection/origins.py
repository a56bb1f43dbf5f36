"""Where the n-grams of a detector come from: the sentences in which they were first met.

What the words of an n-gram bring to the detector, and what the n-gram carries of the logits there.
Both are exact, since a node is linear in what it reads; see ``dcnn.inspection.carried``.
"""

from functools import lru_cache

import numpy as np

from dcnn.artifact import Artifact
from dcnn.inspection.carried import Doubles, brought_by_words, carried_by_nodes, gains
from dcnn.inspection.detections import Detector
from dcnn.inspection.relevance import fewest
from dcnn.inspection.strongest import Entry
from dcnn.inspection.trace import Trace, trace_sentence

TRACES = 64  # kept at hand; detectors of a map often react to the same sentences


class Origins:
    """The sentences of n-grams, traced again when asked for.

    Args:
        artifact: a DCNN.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self.width = int(artifact.weights["layers.0.filters"].shape[-1])
        self._trace = lru_cache(TRACES)(self._traced)

    def strongest_words(self, detector: Detector, entry: Entry) -> tuple[int, ...]:
        """Positions of the fewest words that bring half of what raises the value."""
        met = entry.met
        if detector.layer > 1:
            node = detector.layer, detector.map, detector.row, met.column
            return fewest(brought_by_words(self._trace(met.sentence), *node))
        weights = self._artifact.weights
        ids = self._artifact.encoder.vocabulary.ids(met.words)
        filters = weights["layers.0.filters"][detector.map, 0, detector.row]
        brought = weights["embeddings"][ids, detector.row] * filters[: len(ids)]
        return fewest(brought.astype(np.float64))

    def carried(self, detector: Detector, entry: Entry) -> Doubles:
        """(classes,) what the n-gram carries of each logit; nothing if pooling dropped it."""
        trace = self._trace(entry.met.sentence)
        worth = carried_by_nodes(trace, detector.layer)  # (o, d', k, classes)
        layer, row, place = trace.layers[detector.layer - 1], detector.row, entry.met.column
        if detector.layer == 1:  # an m-gram that starts at a word is at the column of its end
            row %= layer.bias.shape[1]
            kept = np.flatnonzero(layer.positions[detector.map, row] == place + self.width - 1)
            if not len(kept):
                return np.zeros(len(trace.classes))
            place = int(kept[0])
            worth = worth * gains(layer)[..., None]  # of what tanh is taken of
        carried: Doubles = worth[detector.map, row, place] * entry.value
        return carried

    def _traced(self, words: tuple[str, ...]) -> Trace:
        return trace_sentence(self._artifact, words)
