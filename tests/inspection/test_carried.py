"""What nodes carry and words bring adds up, as the attribution of the feature graph does."""

import numpy as np
from hypothesis import given, settings

from dcnn.inspection.attribution import descend, word_attributions
from dcnn.inspection.detector_lists import Detector, Entry, Met
from dcnn.inspection.detectors import Origins, brought_by_words, carried_by_nodes
from dcnn.ops import reference
from small_networks import inspected


@given(inspected(most_words=8))
@settings(max_examples=60)
def test_nodes_of_any_layer_and_the_biases_above_make_the_logits(seen):
    graph, trace = seen.graph, seen.trace
    for of_class in range(3):
        steps = descend(graph, graph.top, graph.root_weight[:, of_class].astype(float))
        biases = [step.biases for step in steps]  # from the topmost layer
        for layer in range(1, graph.depth + 1):
            worth = carried_by_nodes(trace, layer)[..., of_class]
            above = graph.bias[of_class] + sum(biases[: graph.depth - layer])
            total = above + float((worth * trace.layers[layer - 1].values).sum())
            np.testing.assert_allclose(total, graph.logits[of_class], atol=1e-4)


@given(inspected(most_words=6, depth=2))
@settings(max_examples=40)
def test_what_words_bring_to_the_topmost_nodes_is_their_relevance(seen):
    top = seen.trace.layers[-1].values.shape
    brought = [brought_by_words(seen.trace, seen.graph.depth, *at) for at in np.ndindex(top)]
    attribution = seen.trace.top_weight[1] @ np.array(brought)
    np.testing.assert_allclose(attribution, word_attributions(seen.graph, 1), atol=1e-4)


@given(inspected())
def test_the_detectors_that_folding_joins_carry_what_their_node_carries(seen):
    """Of an m-gram that pooling kept; what it dropped carries nothing."""
    origins, layer = Origins(seen.artifact), seen.trace.layers[0]
    matrix = seen.trace.matrix[None, None]
    wide = reference.wide_convolution(matrix, layer.filters)[0]
    worth = carried_by_nodes(seen.trace, 1)
    rows = layer.bias.shape[1]
    for o, row in np.ndindex(layer.bias.shape):
        for column in range(origins.width - 1, len(seen.words)):
            start = column - origins.width + 1
            met = Met((), (), tuple(seen.words), start)
            joined = range(row, wide.shape[1], rows)
            carried = sum(
                origins.carried(Detector(1, o, r), Entry(met, float(wide[o, r, column]), 1, 1))
                for r in joined
            )
            kept = np.flatnonzero(layer.positions[o, row] == column)
            if not len(kept):
                assert not carried.any()
                continue
            at = o, row, kept[0]
            z = layer.pooled[at] + layer.bias[o, row]
            share = layer.pooled[at] / z if z else 1.0  # the rest is the bias's
            expected = worth[at] * layer.values[at] * share
            np.testing.assert_allclose(carried, expected, atol=1e-5)
