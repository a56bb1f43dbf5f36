"""Explanations of predictions, and feature detectors; the terms are defined in docs/inspection.md.

    explain(predictor, text) -> Explanation; explain_each: of every predicted label
    find_mistakes(predictor, texts, targets) -> list[Mistake]
    rank_detectors(predictor, texts) -> DetectorIndex

No extra is needed, except networkx for a networkx graph and GraphML, and matplotlib for a PNG.
"""

from dcnn.inspection.attribution import NGram, NGramTable, phrase_attribution, word_attributions
from dcnn.inspection.detector_ranking import Detection, Detector
from dcnn.inspection.detectors import DetectorIndex, rank_detectors
from dcnn.inspection.explanation import (
    Deletion,
    Explanation,
    PoolingChoice,
    Replacement,
    explain,
    explain_each,
)
from dcnn.inspection.feature_graph import FeatureGraph, build_graph, to_networkx
from dcnn.inspection.mistakes import Mistake, find_mistakes
from dcnn.inspection.similar import Suggestion, TextIndex, suggest
from dcnn.inspection.trace import Trace, trace_sentence

__all__ = [
    "Deletion",
    "Detection",
    "Detector",
    "DetectorIndex",
    "Explanation",
    "FeatureGraph",
    "Mistake",
    "NGram",
    "NGramTable",
    "PoolingChoice",
    "Replacement",
    "Suggestion",
    "TextIndex",
    "Trace",
    "build_graph",
    "explain",
    "explain_each",
    "find_mistakes",
    "phrase_attribution",
    "rank_detectors",
    "suggest",
    "to_networkx",
    "trace_sentence",
    "word_attributions",
]
