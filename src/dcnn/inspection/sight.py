"""What a node saw: how much every word of the sentence brings to its value.

Along the graph every node is linear (``dcnn.inspection.relevance``), so the value of a node is a
sum over the paths that end in it: those that start at words, and those that start at biases.
"""

import numpy as np

from dcnn.inspection.feature_graph import FeatureGraph
from dcnn.inspection.relevance import Doubles
from dcnn.text.sentences import Ints


def words_seen(graph: FeatureGraph, nodes: Ints) -> Doubles:
    """(T, s) what each word brings to the value of each of some nodes; the rest is biases.

    Args:
        graph: the graph.
        nodes: (T,) numbers of nodes of layer 1 or above, in any order.
    """
    seen = np.zeros((len(nodes), len(graph.words)))
    layers = graph.nodes.layer[nodes]
    for layer in np.unique(layers):
        of_layer = np.flatnonzero(layers == layer)
        seen[of_layer] = _seen_in_layer(graph, nodes[of_layer])
    return seen


def _seen_in_layer(graph: FeatureGraph, nodes: Ints) -> Doubles:
    """(T, s) the same for nodes of one layer."""
    edges, numbers = graph.edges, graph.edges_into(nodes)
    source, weight = edges.source[numbers], edges.weight[numbers].astype(np.float64)
    first = np.flatnonzero(np.diff(edges.target[numbers], prepend=-1))  # of every node's edges
    words = len(graph.words)
    if graph.nodes.layer[nodes[0]] == 1:
        of_node = np.repeat(np.arange(len(nodes)), np.diff(first, append=len(numbers)))
        place = of_node * words + graph.nodes.position[source]
        brought = np.bincount(place, weight * graph.nodes.value[source], len(nodes) * words)
        brought = brought.reshape(len(nodes), words)
    else:
        below, of_source = np.unique(source, return_inverse=True)
        brought = np.add.reduceat(weight[:, None] * _seen_in_layer(graph, below)[of_source], first)
    return (graph.nodes.gain[nodes, None] * brought).astype(np.float64)
