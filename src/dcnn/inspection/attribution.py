"""How much of a logit comes from which word, n-gram and edge of the feature graph.

Along the graph every node is linear: its value is its gain times the sum of what its edges bring
and its bias (the gain is tanh(z)/z, the slope of the line from the origin to the point on tanh). So
a logit is a sum over paths, without remainder: a path that starts at a word, or at a node's bias,
and ends at the root carries the product of what it starts from, the weights of its edges and the
gains of its nodes.

- The attribution of a word for a class is the sum over all paths that start at it. All words, all
  biases of nodes and the root's own bias add up to the logit.
- What an edge carries is the sum over the paths through it.
- The n-gram of a topmost node is the fewest words that bring at least half of what its words bring
  in the direction of its contribution. Words in between are not part of it: it may be separated.
- The attribution of a phrase, of any words of the sentence, is the sum over the paths that start at
  its words and end in topmost nodes which all of its words reach: where the phrase meets before the
  root does. For one word that is its attribution; for words that never meet it is 0.


What a node saw: how much every word of the sentence brings to its value.

Along the graph every node is linear (``dcnn.inspection.attribution``), so the value of a node is a
sum over the paths that end in it: those that start at words, and those that start at biases.

"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcnn.inspection.feature_graph import FeatureGraph
from dcnn.text.vocabulary import Ints

Doubles = NDArray[np.float64]
KeepEdges = Callable[[Ints, Doubles], Ints]

STRONGEST = 32  # topmost nodes whose n-grams are told
CARRIED = 0.5  # the part of a topmost node that its n-gram has to bring


@dataclass(frozen=True)
class Step:
    """One layer of a descent: edges and what the paths through each of them carry.

    Attributes:
        edges: numbers of the edges.
        flow: what each carries of the logit.
        biases: what the biases of the layer's nodes carry.
    """

    edges: Ints
    flow: Doubles
    biases: float


@dataclass(frozen=True)
class NGram:
    """Words, next to each other or apart, that topmost nodes come from.

    Attributes:
        positions: of the words in the sentence, ascending.
        words: the words.
        attribution: what the paths from these words through these nodes carry of the logit.
        nodes: how many topmost nodes have this n-gram.
    """

    positions: tuple[int, ...]
    words: tuple[str, ...]
    attribution: float
    nodes: int

    def __str__(self) -> str:
        parts = [self.words[0]]
        for before, here, word in zip(
            self.positions, self.positions[1:], self.words[1:], strict=False
        ):
            parts.append(word if here == before + 1 else f"... {word}")
        return " ".join(parts)


def descend(
    graph: FeatureGraph, nodes: Ints, weights: Doubles, keep: KeepEdges | None = None
) -> Iterator[Step]:
    """Follow all paths from topmost nodes down to the words, a layer at a time.

    Args:
        graph: the graph.
        nodes: (T,) topmost nodes, ascending.
        weights: (T,) of their edges into the root, for one class.
        keep: chooses among a layer's edges, from their numbers and flows; paths through the others
            end there.
    """
    edges, values, gains = graph.edges, graph.nodes.value, graph.nodes.gain
    carried = np.zeros(len(graph.nodes))  # from a node's value to the logit
    carried[nodes] = weights
    for _ in range(graph.depth):
        through = carried[nodes] * gains[nodes]
        biases = float(through @ graph.nodes.bias[nodes])
        carried[nodes] = through
        numbers = graph.edges_into(nodes)
        brought = carried[edges.target[numbers]] * edges.weight[numbers]
        flow = brought * values[edges.source[numbers]]
        if keep is not None:
            kept = keep(numbers, flow)
            numbers, flow, brought = numbers[kept], flow[kept], brought[kept]
        yield Step(numbers, flow, biases)
        sources = edges.source[numbers]
        carried += np.bincount(sources, brought, minlength=len(carried))
        reached = np.zeros(len(carried), bool)
        reached[sources] = True
        nodes = np.flatnonzero(reached)


def word_attributions(graph: FeatureGraph, of_class: int) -> Doubles:
    """(s,) the attribution of every word for a class; a word without a way to the root has 0."""
    return _words(graph, graph.top, graph.root_weight[:, of_class])


def phrase_attribution(graph: FeatureGraph, of_class: int, positions: Iterable[int]) -> float:
    """The attribution of some words together, next to each other or apart.

    Args:
        graph: the graph.
        of_class: number of the class.
        positions: of the words in the sentence, one or more.

    Raises:
        ValueError: there is no word, or none at one of the positions.
    """
    phrase = sorted(set(positions))
    if not phrase or phrase[0] < 0 or phrase[-1] >= len(graph.words):
        raise ValueError(f"positions={phrase} must be one or more from 0 to {len(graph.words) - 1}")
    meet = np.logical_and.reduce([_reached(graph, position) for position in phrase])
    words = _words(graph, graph.top[meet], graph.root_weight[meet, of_class])
    return float(words[phrase].sum())


def strongest_nodes(graph: FeatureGraph, of_class: int, count: int) -> Ints:
    """Places in ``graph.top`` of the largest contributions, for or against; largest first."""
    return np.argsort(-np.abs(graph.contribution[:, of_class]), kind="stable")[:count]


def strongest_ngrams(graph: FeatureGraph, of_class: int, count: int = STRONGEST) -> list[NGram]:
    """The n-grams of the ``count`` strongest topmost nodes; the most relevant first."""
    found: dict[tuple[int, ...], list[float]] = {}
    direction = np.sign(graph.contribution[:, of_class])
    for place in strongest_nodes(graph, of_class, count):
        node = graph.top[place : place + 1]
        words = _words(graph, node, graph.root_weight[place : place + 1, of_class])
        positions = fewest(words * direction[place])
        if positions:
            found.setdefault(positions, []).append(float(words[list(positions)].sum()))
    ngrams = (
        NGram(positions, tuple(graph.words[i] for i in positions), sum(shares), len(shares))
        for positions, shares in found.items()
    )
    return sorted(ngrams, key=lambda ngram: -abs(ngram.attribution))


def _words(graph: FeatureGraph, nodes: Ints, weights: NDArray[np.floating]) -> Doubles:
    """(s,) what the paths from each word through some topmost nodes carry."""
    *_, lowest = descend(graph, nodes, weights.astype(np.float64))
    words = graph.nodes.position[graph.edges.source[lowest.edges]]
    return np.bincount(words, lowest.flow, minlength=len(graph.words)).astype(np.float64)


def fewest(share: Doubles) -> tuple[int, ...]:
    """The fewest words that bring ``CARRIED`` of what is brought in the right direction.

    Args:
        share: (s,) what each word brings; above 0 is the right direction.
    """
    order = np.argsort(-share, kind="stable")
    brought = np.cumsum(np.maximum(share[order], 0))
    if brought[-1] == 0:  # the biases alone speak
        return ()
    enough = int(np.searchsorted(brought, CARRIED * brought[-1])) + 1
    return tuple(sorted(order[:enough].tolist()))


def _reached(graph: FeatureGraph, position: int) -> NDArray[np.bool_]:
    """(F,) which topmost nodes a word has a way to."""
    nodes, edges = graph.nodes, graph.edges
    reached = (nodes.layer == 0) & (nodes.position == position)
    first = 0
    for layer in range(1, graph.depth + 1):  # an edge goes up one layer, and sources come first
        last = int(np.searchsorted(nodes.layer[edges.target], layer, side="right"))
        part = slice(first, last)
        reached[edges.target[part][reached[edges.source[part]]]] = True
        first = last
    at_top: NDArray[np.bool_] = reached[graph.top]
    return at_top


def word_contributions(graph: FeatureGraph, nodes: Ints) -> Doubles:
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
