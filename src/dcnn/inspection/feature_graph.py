"""The feature graph that a sentence induces (Sect. 4.2, Fig. 1), as arrays, JSON and networkx.

The nodes are the values that pooling kept and, as layer 0, those of the sentence matrix. A node has
an edge to each node of the next layer whose convolution reads it; with folding, a node reads both
of the rows that are summed. Every node of the topmost layer has an edge to the root. Nodes without
a path to the root are left out: the logits do not depend on them.

Nodes and edges are arrays, since the graph of a sentence of twenty words has tens of thousands of
edges. In the node-link data a margin is null where nothing was dropped, and in layer 0. The root is
in the layer above the topmost one and has null for the rest. The weight of an edge into the root is
that of the predicted class.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.errors import needs_extra
from dcnn.inspection.trace import Floats, Trace
from dcnn.text.vocabulary import Ints

Records = np.recarray[Any, Any]  # each field is an array too: ``nodes.layer``
NODE = dict.fromkeys(("layer", "map", "row", "position"), "i8") | {"value": "f4", "margin": "f4"}
EDGE = {"source": "i8", "target": "i8", "weight": "f4"}
ROOT = "root"
NODE_FIELDS = ("layer", "row", "map", "position", "value", "margin", "id")


def incoming_edges(
    positions: Ints, filters: Floats, columns: int, nodes: Ints
) -> tuple[Ints, Ints, Floats]:
    """The edges into some nodes, (T,) numbers in a flattened layer, ordered by target.

    The layer pooled ``positions`` (o, d', k) with ``filters`` (o, n, d, m); the one below has shape
    (n, d, columns). Returns (E,) target as an index into ``nodes``, (E,) source as a number of the
    flattened layer below, and (E,) the filter's weight between them.
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
class FeatureGraph:
    """The graph of one sentence, with arrays of records; the root and its edges are implied."""

    trace: Trace
    # ``NODE`` records from layer 0 up; the topmost layer is complete, in the order of the trace. In
    # layer 0 the position is that of the word, and the margin is infinite, as where nothing was
    # dropped.
    nodes: Records
    edges: Records  # ``EDGE``, with numbers of nodes, ordered by target


def build_graph(trace: Trace) -> FeatureGraph:
    """The feature graph of a traced sentence."""
    nodes = [np.arange(trace.values(trace.depth).size)]  # per layer, from the topmost down
    found = []  # the edges into each layer of them
    for number in range(trace.depth, 0, -1):
        below, layer = trace.values(number - 1), trace.layers[number - 1]
        found.append(incoming_edges(layer.positions, layer.filters, below.shape[-1], nodes[-1]))
        read = np.zeros(below.size, bool)
        read[found[-1][1]] = True
        nodes.append(np.flatnonzero(read))
    nodes.reverse()
    first = np.cumsum([0, *map(len, nodes)])  # number of each layer's first node
    edges = []
    for number, (target, source, weight) in enumerate(reversed(found), start=1):
        graph_number = np.zeros(trace.values(number - 1).size, np.int64)
        graph_number[nodes[number - 1]] = np.arange(first[number - 1], first[number])
        edges.append((graph_number[source], target + first[number], weight))
    return FeatureGraph(trace, _records(NODE, _node_columns(trace, nodes)), _records(EDGE, edges))


def _records(fields: Any, parts: Iterable[tuple[NDArray[Any], ...]]) -> Records:
    columns = map(np.concatenate, zip(*parts, strict=True))
    return np.rec.fromarrays(list(columns), np.dtype(list(fields.items())))


def _node_columns(trace: Trace, nodes: Sequence[Ints]) -> Iterator[tuple[NDArray[Any], ...]]:
    for number, of_layer in enumerate(nodes):
        values = trace.values(number)
        map_, row, place = at = np.unravel_index(of_layer, values.shape)
        position: Ints = place
        margin = np.full(len(of_layer), np.inf, np.float32)
        if number:
            layer = trace.layers[number - 1]
            position, margin = layer.positions[at], layer.margins[at]
        yield np.full(len(of_layer), number), map_, row, position, values[at], margin


def to_node_link(graph: FeatureGraph) -> dict[str, Any]:
    """Plain values that ``networkx.node_link_graph(data, edges="edges")`` reads."""
    trace = graph.trace
    ids, nodes = [], []
    for layer, map_, row, position, value, margin in graph.nodes.tolist():
        ids.append(f"{layer}:{map_}:{row}:{position}")
        known = margin if isfinite(margin) else None
        described = layer, row, map_, position, value, known, ids[-1]
        nodes.append(dict(zip(NODE_FIELDS, described, strict=True)))
        if layer == 0:
            nodes[-1]["word"] = trace.words[position]
    nodes.append({"layer": trace.depth + 1, **dict.fromkeys(NODE_FIELDS[1:-1]), "id": ROOT})
    edges: list[dict[str, Any]] = [
        {"weight": weight, "source": ids[source], "target": ids[target]}
        for source, target, weight in graph.edges.tolist()
    ]
    weights = trace.head_weight[int(trace.logits.argmax())].tolist()
    contributions = trace.contributions.T.tolist()
    edges += [
        {"weight": weight, "contribution": contribution, "source": source, "target": ROOT}
        for weight, contribution, source in zip(
            weights, contributions, ids[-len(weights) :], strict=True
        )
    ]
    about = {
        "classes": list(trace.classes),
        "bias": trace.head_bias.tolist(),
        "logits": trace.logits.tolist(),
        "words": list(trace.words),
    }
    return {"directed": True, "multigraph": False, "graph": about, "nodes": nodes, "edges": edges}


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
