"""Explanations of predictions, and feature detectors.

    explain(predictor, text) -> Explanation; explain_each: of every predicted label
    rank_detectors(predictor, texts) -> DetectorIndex

- ``trace``: the forward pass of a sentence, with every intermediate value.
- ``feature_graph``: the exact graph of that pass (Sect. 4.2); as JSON and networkx.
- ``attribution``: the contributions of words, n-grams, nodes and edges to the logits.
- ``explanation``: all of it in one object; deletions, pooling choices, comparison of two texts.
- ``picture``: the strongest part of the graph, with a layout; ``render`` writes files.
- ``detectors``: n-grams and names of feature detectors (Sect. 5.5); ``detector_ranking`` reads the
  corpus.

No extra is needed, except networkx for a networkx graph and GraphML, and matplotlib for a PNG.
"""

from dcnn.inspection.attribution import NGram, phrase_attribution, word_attributions
from dcnn.inspection.detector_ranking import Detection, Detector
from dcnn.inspection.detectors import DetectorIndex, rank_detectors
from dcnn.inspection.explanation import (
    Deletion,
    Explanation,
    PoolingChoice,
    explain,
    explain_each,
)
from dcnn.inspection.feature_graph import FeatureGraph, build_graph, to_networkx
from dcnn.inspection.trace import Trace, trace_sentence

__all__ = [
    "Deletion",
    "Detection",
    "Detector",
    "DetectorIndex",
    "Explanation",
    "FeatureGraph",
    "NGram",
    "PoolingChoice",
    "Trace",
    "build_graph",
    "explain",
    "explain_each",
    "phrase_attribution",
    "rank_detectors",
    "to_networkx",
    "trace_sentence",
    "word_attributions",
]
