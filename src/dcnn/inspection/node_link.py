"""The feature graph as node-link data, which is JSON, and as a networkx graph.

    graph   classes, bias and logits (a number for each class), words
    nodes   id, layer, row, map, position, value, margin; those of layer 0 also word
    edges   source, target, weight; those into the root also contribution (a number for each class)

A margin is null where nothing was dropped, and in layer 0. The root is in the layer above the
topmost one and has null for the rest. The weight of an edge into the root is the one towards the
predicted class.
"""

import json
from typing import Any

import numpy as np

from dcnn.errors import MissingExtraError
from dcnn.inspection.feature_graph import FeatureGraph

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
        "nodes": _nodes(graph, ids),
        "edges": _edges(graph, ids),
    }


def _nodes(graph: FeatureGraph, ids: list[str]) -> list[dict[str, Any]]:
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


def _edges(graph: FeatureGraph, ids: list[str]) -> list[dict[str, Any]]:
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
