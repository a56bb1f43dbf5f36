"""The contribution of every word, n-gram, node and edge to the logits, without remainder.

With its gain, tanh(z)/z, every node is linear in its inputs: its value is the gain times the sum of
weight times value over its edges, plus the bias. So a logit is a sum over paths of the feature
graph: a path that starts at a word, or at a node's bias, and ends at the root contributes the
product of what it starts from, the weights of its edges and the gains of its nodes.

One backward pass computes all of it: ``backward_step`` takes coefficients, what one unit of a
node's value contributes to an output, from some nodes of a layer to the nodes below that they read.
The outputs may be a logit (word attributions, edges of a picture), single nodes (n-grams, words of
a node), groups of nodes (comparison of two texts) or all logits (detectors).

The attribution of a word is the sum over all paths that start at it: words, biases of nodes and the
root's bias add up to the logit. The n-gram of a topmost node is the fewest words that contribute at
least ``NGRAM_SHARE`` of what words contribute in the direction of the node's own contribution.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcnn.artifact import Label
from dcnn.inspection.feature_graph import incoming_edges
from dcnn.inspection.trace import Doubles, Trace
from dcnn.text.vocabulary import Ints

TOP_NODES = 32  # topmost nodes whose n-grams are listed
NGRAM_SHARE = 0.5  # the part of a node's contribution that its n-gram has to explain
# Outputs of one pass times nodes of a layer; bounds the memory of long sentences.
MOST_COEFFICIENTS = 1 << 22


@dataclass(frozen=True)
class Coefficients:
    """What one unit of the value of some nodes of a layer contributes to some outputs."""

    layer: int  # of the nodes; 0 is the sentence matrix
    nodes: Ints  # (T,) numbers in the flattened layer
    outputs: Ints  # (T,) number of the output of each, from 0
    values: Doubles  # (T,)

    def contributions(self, trace: Trace) -> Doubles:
        """(T,) of each node's value to its output."""
        return self.values * trace.values(self.layer).ravel()[self.nodes]


@dataclass(frozen=True)
class ContributingEdges:
    """The edges that a backward step follows, each array (E,)."""

    target: Ints  # index into the nodes of the upper layer's ``Coefficients``
    source: Ints  # number of the node in the flattened lower layer
    contribution: Doubles  # of the paths through the edge to the output of its target


def backward_step(
    trace: Trace,
    above: Coefficients,
    keep: Callable[[ContributingEdges], Ints] | None = None,
) -> tuple[Coefficients, ContributingEdges]:
    """The coefficients of the nodes that some nodes of layer 1 or above read, and the edges.

    ``keep`` gives the indices of the edges to follow; paths through the others end there.
    """
    layer, below = trace.layers[above.layer - 1], trace.values(above.layer - 1)
    target, source, weight = incoming_edges(
        layer.positions, layer.filters, below.shape[-1], above.nodes
    )
    passed = (above.values * layer.gains.ravel()[above.nodes])[target] * weight
    edges = ContributingEdges(target, source, passed * below.ravel()[source])
    if keep is not None:
        kept = keep(edges)
        passed = passed[kept]
        edges = ContributingEdges(target[kept], source[kept], edges.contribution[kept])
    place = above.outputs[edges.target] * below.size + edges.source
    size = (int(above.outputs.max()) + 1) * below.size
    reached = np.zeros(size, bool)
    reached[place] = True
    places = np.flatnonzero(reached)
    outputs, nodes = np.divmod(places, below.size)
    values = np.bincount(place, passed, minlength=size)[places].astype(np.float64)
    return Coefficients(above.layer - 1, nodes, outputs, values), edges


def logit_coefficients(
    trace: Trace, classes: Sequence[int], layer: int, row: int | None = None
) -> Coefficients:
    """Of the nodes of a layer with a path to the root; output i is the logit of ``classes[i]``.

    With ``row``, of the nodes of that row alone.
    """
    _, rows, kept = trace.values(trace.depth).shape
    top = np.arange(trace.head_weight.shape[1])
    if row is not None:  # rows meet by folding alone, which joins row and row + rows
        top = top[top // kept % rows == row % rows]
    weights = trace.head_weight[list(classes)][:, top].astype(np.float64).ravel()
    nodes, outputs = np.tile(top, len(classes)), np.repeat(np.arange(len(classes)), len(top))
    coefficients = Coefficients(trace.depth, nodes, outputs, weights)
    while coefficients.layer > layer:
        coefficients, _ = backward_step(trace, coefficients)
    return coefficients


def word_contributions(trace: Trace, coefficients: Coefficients) -> Doubles:
    """(outputs, s) the contribution of every word to every output; the rest is biases."""
    count, words = int(coefficients.outputs.max()) + 1, len(trace.words)
    while coefficients.layer > 0:
        coefficients, _ = backward_step(trace, coefficients)
    place = coefficients.outputs * words + coefficients.nodes % words
    flat = np.bincount(place, coefficients.contributions(trace), minlength=count * words)
    return flat.astype(np.float64).reshape(count, words)


def node_word_contributions(trace: Trace, layer: int, nodes: Ints) -> Doubles:
    """(T, s) the contribution of every word to the value of each of some nodes of a layer."""
    largest = max(trace.values(number).size for number in range(layer))
    step = max(1, MOST_COEFFICIENTS // largest)
    parts = []
    for start in range(0, len(nodes), step):
        part = nodes[start : start + step]
        ones = Coefficients(layer, part, np.arange(len(part)), np.ones(len(part)))
        parts.append(word_contributions(trace, ones))
    return np.concatenate(parts)


def word_attributions(trace: Trace, of_class: int) -> Doubles:
    """(s,) the attribution of every word for a class; 0 for words without a path to the root."""
    return word_contributions(trace, logit_coefficients(trace, [of_class], trace.depth)).ravel()


def phrase_attribution(trace: Trace, of_class: int, positions: Iterable[int]) -> float:
    """The attribution of the words at some positions together, next to each other or apart.

    That is the sum over the paths that start at them and end in topmost nodes with all of them in
    their receptive field: 0 for words that never meet below the root.

    Raises:
        ValueError: there is no position, or one is outside the sentence.
    """
    phrase = sorted(set(positions))
    if not phrase or phrase[0] < 0 or phrase[-1] >= len(trace.words):
        raise ValueError(f"positions={phrase} must be one or more from 0 to {len(trace.words) - 1}")
    meet = np.logical_and.reduce([_reached_from(trace, position) for position in phrase])
    if not meet.any():
        return 0.0
    nodes = np.flatnonzero(meet)
    weights = trace.head_weight[of_class, nodes].astype(np.float64)
    through = Coefficients(trace.depth, nodes, np.zeros_like(nodes), weights)
    return float(word_contributions(trace, through)[0, phrase].sum())


def _reached_from(trace: Trace, position: int) -> NDArray[np.bool_]:
    """(features,) which topmost nodes have a word in their receptive field."""
    columns = trace.matrix.shape[1]
    reached: NDArray[np.bool_] = np.arange(trace.matrix.size) % columns == position
    for layer in trace.layers:
        nodes = np.arange(layer.values.size)
        target, source, _ = incoming_edges(layer.positions, layer.filters, columns, nodes)
        reached = np.bincount(target, reached[source], minlength=len(nodes)) > 0
        columns = layer.values.shape[-1]
    return reached


@dataclass(frozen=True)
class ExplainedClass:
    """A class of a sentence, and the attribution of every word for it."""

    trace: Trace
    of_class: int  # number of the class
    attributions: tuple[float, ...]

    @property
    def label(self) -> Label:
        """The class."""
        return self.trace.classes[self.of_class]

    @property
    def logit(self) -> float:
        """Of the class."""
        return float(self.trace.logits[self.of_class])

    @property
    def biases(self) -> float:
        """The contribution of the biases of all nodes and of the root; the rest is the words'."""
        return self.logit - sum(self.attributions)


@dataclass(frozen=True)
class NGram:
    """Words, next to each other or apart, that topmost nodes come from.

    Attributes:
        positions: of the words in the sentence, ascending.
        words: the words.
        attribution: contribution of the paths from these words through these nodes to the logit.
        nodes: how many topmost nodes have this n-gram.
    """

    positions: tuple[int, ...]
    words: tuple[str, ...]
    attribution: float
    nodes: int

    def __str__(self) -> str:
        return " ".join(part for part, _ in words_and_gaps(self.words, self.positions, "..."))


def words_and_gaps(
    words: Sequence[str], positions: Sequence[int], gap: str
) -> Iterator[tuple[str, int | None]]:
    """Every word with its position; ``gap`` with none where words of the sentence are left out."""
    before = positions[0] - 1
    for word, position in zip(words, positions, strict=True):
        if position != before + 1:
            yield gap, None
        yield word, position
        before = position


def strongest_nodes(trace: Trace, of_class: int, count: int) -> Ints:
    """The topmost nodes of the largest contributions, for or against; largest first."""
    return np.argsort(-np.abs(trace.contributions[of_class]), kind="stable")[:count]


def strongest_ngrams(trace: Trace, of_class: int, count: int = TOP_NODES) -> list[NGram]:
    """The n-grams of the ``count`` strongest topmost nodes; the largest attribution first."""
    nodes = strongest_nodes(trace, of_class, count)
    words = node_word_contributions(trace, trace.depth, nodes)
    words *= trace.head_weight[of_class, nodes, None]  # to the logit
    direction = np.sign(trace.contributions[of_class, nodes])
    found: dict[tuple[int, ...], list[float]] = {}
    for row, sign in zip(words, direction, strict=True):
        if positions := fewest_words(row * sign):
            found.setdefault(positions, []).append(float(row[list(positions)].sum()))
    ngrams = (
        NGram(positions, tuple(trace.words[i] for i in positions), sum(shares), len(shares))
        for positions, shares in found.items()
    )
    return sorted(ngrams, key=lambda ngram: -abs(ngram.attribution))


def fewest_words(contributions: Doubles) -> tuple[int, ...]:
    """Positions of the fewest words that make up ``NGRAM_SHARE`` of all positive contributions."""
    order = np.argsort(-contributions, kind="stable")
    total = np.cumsum(np.maximum(contributions[order], 0))
    if total[-1] == 0:  # only biases contribute
        return ()
    enough = int(np.searchsorted(total, NGRAM_SHARE * total[-1])) + 1
    return tuple(sorted(order[:enough].tolist()))
