"""Small random networks with a sentence each, for laws that hold for every one of them."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from dcnn.artifact import Artifact
from dcnn.config import DCNNConfig
from dcnn.inspection.feature_graph import FeatureGraph, build_graph
from dcnn.inspection.trace import Trace, trace_sentence
from untrained import VOCABULARY_TEXT, make_artifact


@dataclass(frozen=True)
class Inspected:
    """A network, a sentence, and what the package under test makes of them."""

    artifact: Artifact
    words: list[str]
    trace: Trace
    graph: FeatureGraph


@st.composite
def inspected(draw, fold=None, most_words=14, depth=3):
    """One to three layers; words may repeat, so pooling meets ties, and may be unknown."""
    fold = draw(st.booleans()) if fold is None else fold
    widths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=depth))
    config = DCNNConfig(
        dim=2 ** len(widths) * draw(st.integers(1, 2)) if fold else draw(st.integers(1, 3)),
        widths=tuple(widths),
        maps=tuple(draw(st.integers(1, 2)) for _ in widths),
        k_top=draw(st.integers(1, widths[0])),
        fold=fold,
    )
    vocabulary = st.sampled_from([*VOCABULARY_TEXT.split(), "xyzzy"])
    words = draw(st.lists(vocabulary, min_size=1, max_size=most_words))
    artifact = make_artifact(config, draw(st.integers(0, 999)), classes=("a", "b", "c"))
    return inspect(artifact, words)


def inspect(artifact, words):
    trace = trace_sentence(artifact, words)
    return Inspected(artifact, words, trace, build_graph(trace))


def example(text="the plot is not dull but acting was good and ending bad", **config):
    """A fixed one, folded, of two layers."""
    model = DCNNConfig(**({"dim": 8, "widths": (4, 3), "maps": (2, 3), "k_top": 3} | config))
    return inspect(make_artifact(model), text.split())


def paths(seen: Inspected, of_class: int):
    """Every path from a word to the root, by the definition: (words, topmost nodes, amounts).

    Built from the network's weights and the pooled positions, not from the graph under test.
    """
    found = []
    rows, length = seen.trace.matrix.shape
    for row, word in np.ndindex(rows, length):
        start = float(seen.trace.matrix[row, word])
        found += [(word, *end) for end in _upward(seen, 0, 0, row, word, start, of_class)]
    return found


def _upward(seen, number, n, row, column, amount, of_class):
    """Ends (topmost node, amount) of the paths from column ``column`` of a map's row."""
    if number == len(seen.trace.layers):
        shape = seen.trace.layers[-1].values.shape
        feature = int(np.ravel_multi_index((n, row, column), shape))
        return [(feature, amount * float(seen.trace.head_weight[of_class, feature]))]
    layer = seen.trace.layers[number]
    maps, rows, kept = layer.values.shape
    ends = []
    for o, j in np.ndindex(maps, kept):
        place = column - int(layer.positions[o, row % rows, j]) + layer.filters.shape[-1] - 1
        if not 0 <= place < layer.filters.shape[-1]:
            continue
        z = float(layer.pooled[o, row % rows, j] + layer.bias[o, row % rows])
        gain = np.tanh(z) / z if z else 1.0
        onward = amount * float(layer.filters[o, n, row, place]) * gain
        ends += _upward(seen, number + 1, o, row % rows, j, onward, of_class)
    return ends


@st.composite
def network_with_corpus(draw, depth=3):
    """A network and some sentences, with words that repeat, unknown words and short sentences."""
    seen = draw(inspected(depth=depth))
    vocabulary = st.sampled_from([*VOCABULARY_TEXT.split()[:6], "xyzzy", "plugh"])
    sentence = st.lists(vocabulary, min_size=1, max_size=9)
    return seen.artifact, draw(st.lists(sentence, min_size=1, max_size=12))
