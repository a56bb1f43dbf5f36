"""The feature graph that a sentence induces (Sect. 4.2, Fig. 1), exactly.

A node is a value that pooling kept; below them stand the values of the sentence matrix. A node is
joined to a node of the next layer if it takes part in the convolution that computes it; with
folding a node is computed from the two rows that are summed. The nodes of the topmost layer are
joined to one root. Nodes from which no way leads to the root are left out: the logits do not depend
on them.

Nodes and edges are arrays, since the graph of a sentence of twenty words has tens of thousands of
edges; ``dcnn.inspection.feature_graph`` makes a networkx graph of them.


The feature graph as node-link data, which is JSON, and as a networkx graph.

    graph   classes, bias and logits (a number for each class), words
    nodes   id, layer, row, map, position, value, margin; those of layer 0 also word
    edges   source, target, weight; those into the root also contribution (a number for each class)

A margin is null where nothing was dropped, and in layer 0. The root is in the layer above the
topmost one and has null for the rest. The weight of an edge into the root is the one towards the
predicted class.

"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dcnn.artifact import Label
from dcnn.errors import MissingExtraError
from dcnn.inspection.trace import Floats, Trace, TracedLayer
from dcnn.metrics import sigmoid, softmax
from dcnn.text.vocabulary import Ints


@dataclass(frozen=True)
class Nodes:
    """All nodes but the root, N of them, each array (N,), from the lowest layer to the topmost.

    Attributes:
        layer: 0 is the sentence matrix.
        map: feature map; 0 in layer 0.
        row: row of the map.
        position: column of the convolution that the value was taken from; in layer 0 the word.
        value: after tanh; in layer 0 the value of the word's embedding.
        margin: by how much the convolution's value is above the best one that was dropped in its
            row; infinite where none was, and in layer 0.
        bias: added before tanh; 0 in layer 0.
        gain: value over what tanh was taken of; 1 in layer 0. With it the graph is linear:
            value = gain * (sum of weight * value below + bias).
    """

    layer: Ints
    map: Ints
    row: Ints
    position: Ints
    value: Floats
    margin: Floats
    bias: Floats
    gain: Floats

    def __len__(self) -> int:
        return len(self.layer)


@dataclass(frozen=True)
class Edges:
    """All edges but those into the root, E of them, each array (E,), ordered by target.

    Attributes:
        source: number of the lower node.
        target: number of the higher node.
        weight: the filter's weight between them.
    """

    source: Ints
    target: Ints
    weight: Floats

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class FeatureGraph:
    """The graph of one sentence.

    Attributes:
        words: the sentence, the words without a way to the root included.
        classes: the labels.
        bias: (classes,) the root's.
        logits: (classes,) bias plus the contributions of all root edges.
        nodes: every node but the root; the F of the topmost layer are the last.
        edges: every edge but the F into the root.
        root_weight: (F, classes) the weights of the edges into the root.
        multi_label: whether a text may have several labels, each with a probability of its own.
        unit: what a reader calls one of ``words``: ``word``, ``subword`` or ``character``.
    """

    words: tuple[str, ...]
    classes: tuple[Label, ...]
    bias: Floats
    logits: Floats
    nodes: Nodes
    edges: Edges
    root_weight: Floats
    multi_label: bool = False
    unit: str = "word"

    @property
    def probabilities(self) -> Floats:
        """(classes,)."""
        return sigmoid(self.logits) if self.multi_label else softmax(self.logits)

    @property
    def depth(self) -> int:
        """The number of convolutional layers; the root is one above."""
        return int(self.nodes.layer[-1])

    @property
    def top(self) -> Ints:
        """(F,) numbers of the nodes of the topmost layer."""
        return np.arange(len(self.nodes) - len(self.root_weight), len(self.nodes))

    @property
    def contribution(self) -> Floats:
        """(F, classes) what each node of the topmost layer adds to each logit."""
        contribution: Floats = self.nodes.value[self.top, None] * self.root_weight
        return contribution

    def edges_into(self, nodes: Ints) -> Ints:
        """Numbers of the edges whose targets are ``nodes``, grouped as these are ordered."""
        first = self._first_edge[nodes]
        count = self._first_edge[nodes + 1] - first
        starts = np.cumsum(count) - count
        return np.repeat(first - starts, count) + np.arange(count.sum())

    @cached_property
    def _first_edge(self) -> Ints:
        return np.searchsorted(self.edges.target, np.arange(len(self.nodes) + 1))


def build_graph(trace: Trace) -> FeatureGraph:
    """The feature graph of a traced sentence."""
    alive = _alive(trace)
    numbers, count = [], 0
    for mask in alive:
        numbers.append(np.where(mask, np.cumsum(mask).reshape(mask.shape) + count - 1, -1))
        count += int(mask.sum())
    return FeatureGraph(
        words=trace.words,
        classes=trace.classes,
        bias=trace.top_bias,
        logits=trace.logits,
        nodes=_nodes(trace, alive),
        edges=_edges(trace.layers, numbers),
        root_weight=trace.top_weight.T,  # features and topmost nodes have the same order
        multi_label=trace.multi_label,
        unit=trace.unit,
    )


def _alive(trace: Trace) -> list[Ints]:
    """For each layer from 0: (n, d, k) whether a way leads from the value to the root."""
    alive = [np.ones(trace.layers[-1].values.shape, bool)]
    below = [trace.matrix[None], *(layer.values for layer in trace.layers[:-1])]
    for x, layer in zip(reversed(below), reversed(trace.layers), strict=True):
        _, rows, columns = x.shape
        read = np.zeros((rows, columns), bool)
        _, row, _ = targets = np.nonzero(alive[0])
        for column in _window(layer, layer.positions[targets]).T:
            inside = (column >= 0) & (column < columns)
            for lower in _joined_rows(layer, row):
                read[lower[inside], column[inside]] = True
        # A convolution reads all maps below it at once.
        alive.insert(0, np.broadcast_to(read, x.shape))
    return alive


def _window(layer: TracedLayer, positions: Ints) -> Ints:
    """(T,) columns of the convolution -> (T, m) columns below that each one reads."""
    width = layer.filters.shape[-1]
    return positions[:, None] + np.arange(1 - width, 1)


def _joined_rows(layer: TracedLayer, row: Ints) -> list[Ints]:
    """The rows below that a row reads: itself, or the two that folding sums."""
    return [row, row + layer.bias.shape[1]] if layer.folded else [row]


def _nodes(trace: Trace, alive: Sequence[Ints]) -> Nodes:
    maps, rows, places = zip(*(np.nonzero(mask) for mask in alive), strict=True)
    words = places[0]
    position, value = [words], [trace.matrix[rows[0], words]]
    margin, bias, gain = ([np.full(len(words), x, np.float32)] for x in (np.inf, 0, 1))
    for number, layer in enumerate(trace.layers, start=1):
        at = maps[number], rows[number], places[number]
        position.append(layer.positions[at])
        value.append(layer.values[at])
        margin.append(layer.margins[at])
        bias.append(layer.bias[at[:2]])
        z = layer.pooled[at] + bias[-1]
        # The slope of the line from the origin; tanh itself has slope 1 there.
        gain.append(np.divide(value[-1], z, out=np.ones_like(z), where=z != 0))
    return Nodes(
        layer=np.repeat(np.arange(len(alive)), [len(m) for m in maps]),
        map=np.concatenate(maps),
        row=np.concatenate(rows),
        position=np.concatenate(position),
        value=np.concatenate(value),
        margin=np.concatenate(margin),
        bias=np.concatenate(bias),
        gain=np.concatenate(gain),
    )


def _edges(layers: Sequence[TracedLayer], numbers: Sequence[Ints]) -> Edges:
    parts = [
        _edges_of_layer(layer, below, above)
        for layer, below, above in zip(layers, numbers[:-1], numbers[1:], strict=True)
    ]
    source, target, weight = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Edges(source, target, weight)


def _edges_of_layer(layer: TracedLayer, below: Ints, above: Ints) -> tuple[Ints, Ints, Floats]:
    """The edges into the nodes of one layer; ``below`` and ``above`` number the nodes."""
    maps_below, _, columns = below.shape
    o, row, _ = targets = np.nonzero(above >= 0)  # T of them
    column = _window(layer, layer.positions[targets])[:, None, None]  # (T, 1, 1, m)
    lower = np.stack(_joined_rows(layer, row), axis=1)[:, :, None, None]  # (T, 1 or 2, 1, 1)
    n = np.arange(maps_below)[:, None]  # (n, 1)
    source = below[n, lower, np.clip(column, 0, columns - 1)]  # (T, 1 or 2, n, m)
    inside = np.broadcast_to((column >= 0) & (column < columns), source.shape)
    target = np.broadcast_to(above[targets][:, None, None, None], source.shape)
    place = np.arange(layer.filters.shape[-1])
    weight = layer.filters[o[:, None, None, None], n, lower, place]
    return source[inside], target[inside], weight[inside]


ROOT = "root"


def node_ids(graph: FeatureGraph) -> list[str]:
    """The id of every node but the root: layer, map, row and position."""
    nodes = graph.nodes
    columns = (a.tolist() for a in (nodes.layer, nodes.map, nodes.row, nodes.position))
    return [":".join(map(str, parts)) for parts in zip(*columns, strict=True)]


def node_id(graph: FeatureGraph, number: int) -> str:
    """The id of one node: where a few are drawn, to name them all takes longer than to draw."""
    nodes = graph.nodes
    return ":".join(str(a[number]) for a in (nodes.layer, nodes.map, nodes.row, nodes.position))


def to_node_link(graph: FeatureGraph) -> dict[str, Any]:
    """Plain values that ``networkx.node_link_graph(data, edges="edges")`` reads."""
    ids = node_ids(graph)
    return {
        "directed": True,
        "multigraph": False,
        "graph": {
            "classes": list(graph.classes),
            "bias": graph.bias.tolist(),
            "logits": graph.logits.tolist(),
            "words": list(graph.words),
        },
        "nodes": _nodes_node_link(graph, ids),
        "edges": _edges_node_link(graph, ids),
    }


def _nodes_node_link(graph: FeatureGraph, ids: list[str]) -> list[dict[str, Any]]:
    nodes = graph.nodes
    names = ("layer", "row", "map", "position", "value")
    columns = [getattr(nodes, name).tolist() for name in names]
    margins = [margin if np.isfinite(margin) else None for margin in nodes.margin.tolist()]
    described: list[dict[str, Any]] = [
        dict(zip((*names, "margin", "id"), values, strict=True))
        for values in zip(*columns, margins, ids, strict=True)
    ]
    for node in described[: int(np.count_nonzero(nodes.layer == 0))]:
        node["word"] = graph.words[node["position"]]
    unset = dict.fromkeys(("row", "map", "position", "value", "margin"))
    return [*described, {"layer": graph.depth + 1} | unset | {"id": ROOT}]


def _edges_node_link(graph: FeatureGraph, ids: list[str]) -> list[dict[str, Any]]:
    edges = graph.edges
    columns = (a.tolist() for a in (edges.weight, edges.source, edges.target))
    described: list[dict[str, Any]] = [
        {"weight": weight, "source": ids[source], "target": ids[target]}
        for weight, source, target in zip(*columns, strict=True)
    ]
    predicted = int(graph.logits.argmax())
    return described + [
        {"weight": weight, "contribution": contribution, "source": ids[node], "target": ROOT}
        for weight, contribution, node in zip(
            graph.root_weight[:, predicted].tolist(),
            graph.contribution.tolist(),
            graph.top.tolist(),
            strict=True,
        )
    ]


def to_json(graph: FeatureGraph) -> bytes:
    """The node-link data as JSON."""
    return json.dumps(to_node_link(graph), ensure_ascii=False, allow_nan=False).encode()


def to_networkx(graph: FeatureGraph) -> Any:
    """The graph as a ``networkx.DiGraph``, with the fields of the node-link data as attributes.

    Raises:
        MissingExtraError: networkx is not installed.
    """
    try:
        import networkx
    except ImportError:
        raise MissingExtraError("A networkx graph", "explain") from None
    return networkx.node_link_graph(to_node_link(graph), edges="edges")
