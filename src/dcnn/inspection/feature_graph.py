"""The feature graph that a sentence induces (Sect. 4.2, Fig. 1), as arrays, JSON and networkx.

A node is a value that pooling kept; below them are the values of the sentence matrix. A node has an
edge to a node of the next layer if it takes part in the convolution that computes it; with folding
a node is computed from the two rows that are summed. The nodes of the topmost layer have an edge to
the one root. Nodes without a path to the root are left out: the logits do not depend on them.

Nodes and edges are arrays, since the graph of a sentence of twenty words has tens of thousands of
edges. As node-link data:

    graph   classes, bias and logits (one number per class), words
    nodes   id, layer, row, map, position, value, margin; in layer 0 also word
    edges   source, target, weight; into the root also contribution (one number per class)

A margin is null where nothing was dropped, and in layer 0. The root is in the layer above the
topmost one and has null for the rest. The weight of an edge into the root is that of the predicted
class.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dcnn.errors import needs_extra
from dcnn.inspection.trace import Floats, Trace
from dcnn.text.vocabulary import Ints

ROOT = "root"
NODE_FIELDS = ("layer", "row", "map", "position", "value", "margin", "id")


def incoming_edges(
    positions: Ints, filters: Floats, columns: int, nodes: Ints
) -> tuple[Ints, Ints, Floats]:
    """The edges into some nodes of a layer, ordered by target.

    Args:
        positions: (o, d', k) columns that the layer pooled.
        filters: (o, n, d, m) of the layer.
        columns: of the layer below, which has shape (n, d, columns).
        nodes: (T,) numbers of nodes in the flattened layer.

    Returns:
        (E,) target as an index into ``nodes``, (E,) source as a number of the flattened layer
        below, and (E,) the filter's weight between them.
    """
    maps_below, rows_below, width = filters.shape[1:]
    _, rows, kept = positions.shape
    window = positions.ravel()[nodes][:, None] + np.arange(1 - width, 1)  # (T, m)
    target, place = np.nonzero((window >= 0) & (window < columns))  # (P,)
    map_, row = np.divmod(nodes[target] // kept, rows)
    # The rows that each row reads: itself, or the two that folding sums; of every map below.
    below = np.arange(maps_below * rows_below).reshape(maps_below, -1, rows)
    read = below.transpose(2, 0, 1).reshape(rows, -1)  # (rows, n * rows read)
    source = (read * columns)[row] + window[target, place][:, None]
    first = map_ * (maps_below * rows_below * width) + place
    weight = filters.ravel().take((read * width)[row] + first[:, None])
    return np.repeat(target, read.shape[1]), source.ravel(), weight.ravel()


@dataclass(frozen=True)
class Nodes:
    """All nodes but the root, N of them, each array (N,), from layer 0 to the topmost."""

    layer: Ints  # 0 is the sentence matrix
    map: Ints  # 0 in layer 0
    row: Ints
    position: Ints  # column of the convolution that was pooled; in layer 0 the word
    value: Floats  # after tanh; in layer 0 of the word's embedding
    margin: Floats  # above the largest value dropped; infinite if none was, and in layer 0

    def __len__(self) -> int:
        return len(self.layer)


@dataclass(frozen=True)
class Edges:
    """All edges but those into the root, E of them, each array (E,), ordered by target."""

    source: Ints  # number of the lower node
    target: Ints  # number of the higher node
    weight: Floats  # the filter's weight between them

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class FeatureGraph:
    """The graph of one sentence."""

    trace: Trace
    nodes: Nodes  # but the root; the last are all topmost nodes, in the trace's order
    edges: Edges  # but those into the root


def build_graph(trace: Trace) -> FeatureGraph:
    """The feature graph of a traced sentence."""
    nodes = [np.arange(trace.values(trace.depth).size)]  # per layer, from the topmost down
    found = []  # the edges into each layer of them
    for number in range(trace.depth, 0, -1):
        below, layer = trace.values(number - 1), trace.layers[number - 1]
        edges = incoming_edges(layer.positions, layer.filters, below.shape[-1], nodes[-1])
        read = np.zeros(below.size, bool)
        read[edges[1]] = True
        nodes.append(np.flatnonzero(read))
        found.append(edges)
    nodes.reverse()
    first = np.cumsum([0, *map(len, nodes)])  # number of each layer's first node
    sources, targets, weights = [], [], []
    for number, (target, source, weight) in enumerate(reversed(found), start=1):
        graph_number = np.zeros(trace.values(number - 1).size, np.int64)
        graph_number[nodes[number - 1]] = np.arange(first[number - 1], first[number])
        sources.append(graph_number[source])
        targets.append(target + first[number])
        weights.append(weight)
    edges_of_graph = Edges(*map(np.concatenate, (sources, targets, weights)))
    return FeatureGraph(trace, _nodes(trace, nodes), edges_of_graph)


def _nodes(trace: Trace, nodes: Sequence[Ints]) -> Nodes:
    columns = []
    for number, of_layer in enumerate(nodes):
        map_, row, place = at = np.unravel_index(of_layer, trace.values(number).shape)
        position: Ints = place
        margin = np.full(len(of_layer), np.inf, np.float32)
        if number:
            layer = trace.layers[number - 1]
            position, margin = layer.positions[at], layer.margins[at]
        layers = np.full(len(of_layer), number)
        columns.append((layers, map_, row, position, trace.values(number)[at], margin))
    return Nodes(*map(np.concatenate, zip(*columns, strict=True)))


def to_node_link(graph: FeatureGraph) -> dict[str, Any]:
    """Plain values that ``networkx.node_link_graph(data, edges="edges")`` reads."""
    trace, nodes, edges = graph.trace, graph.nodes, graph.edges
    arrays = (nodes.layer, nodes.row, nodes.map, nodes.position, nodes.value)
    columns = [array.tolist() for array in arrays]
    margins = [margin if np.isfinite(margin) else None for margin in nodes.margin.tolist()]
    layers, rows, maps, positions, _ = columns
    ids = list(map("{}:{}:{}:{}".format, layers, maps, rows, positions))
    described: list[dict[str, Any]] = [
        dict(zip(NODE_FIELDS, values, strict=True))
        for values in zip(*columns, margins, ids, strict=True)
    ]
    for node in described[: layers.count(0)]:
        node["word"] = trace.words[node["position"]]
    root = {"layer": trace.depth + 1, **dict.fromkeys(NODE_FIELDS[1:-1]), "id": ROOT}
    weights = trace.head_weight[int(trace.logits.argmax())].tolist()
    contributions = trace.contributions.T.tolist()
    between = (array.tolist() for array in (edges.weight, edges.source, edges.target))
    into_root = zip(weights, contributions, ids[-len(weights) :], strict=True)
    return {
        "directed": True,
        "multigraph": False,
        "graph": {
            "classes": list(trace.classes),
            "bias": trace.head_bias.tolist(),
            "logits": trace.logits.tolist(),
            "words": list(trace.words),
        },
        "nodes": [*described, root],
        "edges": [
            *(
                {"weight": weight, "source": ids[source], "target": ids[target]}
                for weight, source, target in zip(*between, strict=True)
            ),
            *(
                {"weight": weight, "contribution": amounts, "source": source, "target": ROOT}
                for weight, amounts, source in into_root
            ),
        ],
    }


def to_json(graph: FeatureGraph) -> bytes:
    """The node-link data as JSON."""
    return json.dumps(to_node_link(graph), ensure_ascii=False, allow_nan=False).encode()


def to_networkx(graph: FeatureGraph) -> Any:
    """The graph as a ``networkx.DiGraph``, with the fields of the node-link data as attributes.

    Raises:
        MissingExtraError: networkx is not installed.
    """
    with needs_extra("A networkx graph", "explain"):
        import networkx
    return networkx.node_link_graph(to_node_link(graph), edges="edges")
