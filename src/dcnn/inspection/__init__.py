"""Looking inside: the feature graph of a sentence, and the feature detectors.

    explain(predictor, text) -> Explanation; explain_each: of every label that the text is given
    rank_detectors(predictor, texts) -> DetectorIndex

- ``trace``: the forward pass, with everything kept.
- ``feature_graph``: the exact graph of that pass, as arrays.
- ``attribution``: what words, n-grams and edges carry of a logit.
- ``counterfactuals``: deletions that change the label; values that were nearly dropped.
- ``picture``: the part of the graph that carries a decision; ``layout`` gives it places.
- ``node_link``, ``graphml``, ``svg``, ``png``, ``html``: files; ``writers`` chooses among them.
- ``explanation``: all of it together.
- ``detectors``: what the feature detectors of a network react to in a corpus (Sect. 5.5); below it
  ``corpus_ranking`` reads the corpus once, ``first_layer`` and ``higher_layers`` compute,
  ``strongest`` keeps, ``origins`` and ``carried`` look at what was kept, ``contrast`` names.

Neither torch nor any extra is needed, except networkx for a networkx graph and GraphML, and
matplotlib for a PNG.
"""

from dcnn.inspection.attribution import NGram, phrase_attribution, word_attributions
from dcnn.inspection.counterfactuals import Deletion, PoolingChoice
from dcnn.inspection.detectors import Detection, Detector, DetectorIndex, rank_detectors
from dcnn.inspection.explanation import Explanation, explain, explain_each
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
