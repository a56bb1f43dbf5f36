"""The part of a feature graph that carries a decision, small enough to be drawn.

The strongest contributions to a class, for it and against it, are followed down: of every node the
edges that carry most are kept. The rows of a word are one node here, since a reader looks for the
word. What is drawn is a part of the graph, so the picture says which part of the logit it holds.
"""

from dataclasses import dataclass

import numpy as np

from dcnn.artifact import Label
from dcnn.inspection.attribution import (
    Doubles,
    KeepEdges,
    Step,
    descend,
    strongest_nodes,
    word_attributions,
)
from dcnn.inspection.feature_graph import ROOT, FeatureGraph, node_id
from dcnn.text.vocabulary import Ints

TOP = 10  # topmost nodes
EDGES = 3  # into every node


@dataclass(frozen=True)
class PictureNode:
    """A pooled node.

    Attributes:
        id: as in the node-link data.
        number: in the graph.
        layer: from 1.
        contribution: of the drawn edges out of it to the logit.
        description: layer, map, row, position, value and margin, for people.
    """

    id: str
    number: int
    layer: int
    contribution: float
    description: str


@dataclass(frozen=True)
class PictureEdge:
    """An edge, or the edges of all rows of a word into one node.

    Attributes:
        source: id of the lower node; of a word ``word:POSITION``.
        target: id of the higher node.
        contribution: of the drawn paths through it to the logit.
    """

    source: str
    target: str
    contribution: float


@dataclass(frozen=True)
class Picture:
    """What is drawn.

    Attributes:
        words: the sentence.
        attributions: of every word, over the whole graph, for the class.
        label: the class.
        logit: the class's.
        probability: the class's.
        nodes: pooled nodes, from the lowest layer to the topmost.
        edges: the edges between words, nodes and root.
        top: how many nodes the topmost layer of the whole graph has.
        shown: what the drawn topmost nodes contribute to the logit.
        followed: what the drawn paths, from a word to the root, carry of it.
        unit: what a reader calls one of ``words``: ``word``, ``subword`` or ``character``.
    """

    words: tuple[str, ...]
    attributions: tuple[float, ...]
    label: Label
    logit: float
    probability: float
    nodes: tuple[PictureNode, ...]
    edges: tuple[PictureEdge, ...]
    top: int
    shown: float
    followed: float
    unit: str = "word"

    @property
    def share(self) -> float:
        """The part of the logit that the drawn topmost nodes account for.

        Contributions have both signs, so a part may be more than the whole, or below 0.
        """
        return self.shown / self.logit if self.logit else 0.0


def word_id(position: int) -> str:
    """The id of a word in a picture."""
    return f"word:{position}"


def make_picture(graph: FeatureGraph, of_class: int, top: int = TOP, edges: int = EDGES) -> Picture:
    """Choose what to draw.

    Args:
        graph: the graph.
        of_class: number of the class.
        top: how many of the topmost nodes, those of the largest contributions.
        edges: how many of the edges into every node, those that carry most.
    """
    places = np.sort(strongest_nodes(graph, of_class, top))
    chosen = graph.top[places]
    contribution = graph.contribution[places, of_class]
    weights = graph.root_weight[places, of_class].astype(np.float64)
    steps = list(descend(graph, chosen, weights, _strongest_edges(graph, edges)))
    drawn = [
        PictureEdge(node_id(graph, node), ROOT, float(flow))
        for node, flow in zip(chosen.tolist(), contribution, strict=True)
    ]
    for step in steps:
        drawn += _joined_edges(graph, step)
    carried: dict[str, float] = {}
    for edge in drawn:
        carried[edge.source] = carried.get(edge.source, 0.0) + edge.contribution
    numbers = np.unique(np.concatenate([graph.edges.target[step.edges] for step in steps]))
    ids = {number: node_id(graph, number) for number in numbers.tolist()}
    return Picture(
        words=graph.words,
        attributions=tuple(word_attributions(graph, of_class).tolist()),
        label=graph.classes[of_class],
        logit=float(graph.logits[of_class]),
        probability=float(graph.probabilities[of_class]),
        nodes=tuple(
            PictureNode(name, n, int(graph.nodes.layer[n]), carried[name], _describe(graph, n))
            for n, name in ids.items()
        ),
        edges=tuple(drawn),
        top=len(graph.top),
        shown=float(contribution.sum()),
        followed=float(steps[-1].flow.sum()),
        unit=graph.unit,
    )


def _joins(graph: FeatureGraph, numbers: Ints) -> tuple[Ints, Ints, Ints]:
    """Edges that are drawn as one: targets and sources of these, and which one each edge is of.

    The source is a node, or a word's position, of which all rows are one.
    """
    nodes, source = graph.nodes, graph.edges.source[numbers]
    source = np.where(nodes.layer[source] == 0, nodes.position[source], source)
    base = max(len(nodes), len(graph.words))  # above every source, node or position
    pairs, of_pair = np.unique(graph.edges.target[numbers] * base + source, return_inverse=True)
    return pairs // base, pairs % base, of_pair


def _strongest_edges(graph: FeatureGraph, count: int) -> KeepEdges:
    """Keep the ``count`` edges into each node that carry most, for or against."""

    def keep(numbers: Ints, flow: Doubles) -> Ints:
        targets, _, of_pair = _joins(graph, numbers)
        strength = np.abs(np.bincount(of_pair, flow, minlength=len(targets)))
        order = np.lexsort((-strength, targets))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - np.searchsorted(targets, targets)[order]
        return np.flatnonzero((rank < count)[of_pair])

    return keep


def _joined_edges(graph: FeatureGraph, step: Step) -> list[PictureEdge]:
    targets, sources, of_pair = _joins(graph, step.edges)
    flows = np.bincount(of_pair, step.flow)
    lowest = graph.nodes.layer[targets[0]] == 1
    return [
        PictureEdge(
            word_id(source) if lowest else node_id(graph, source), node_id(graph, target), flow
        )
        for source, target, flow in zip(
            sources.tolist(), targets.tolist(), flows.tolist(), strict=True
        )
    ]


def _describe(graph: FeatureGraph, number: int) -> str:
    nodes = graph.nodes
    where = ", ".join(
        f"{name} {int(getattr(nodes, name)[number])}" for name in ("layer", "map", "row")
    )
    margin = float(nodes.margin[number])
    kept = f"kept by {margin:.3g}" if np.isfinite(margin) else "nothing was dropped beside it"
    return f"{where}, position {nodes.position[number]}: {nodes.value[number]:+.3f}, {kept}"
