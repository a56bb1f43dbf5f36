"""The contribution of every word, n-gram, node and edge to the logits, without remainder.

Given its gain, tanh(z)/z, every node is linear in its inputs: its value is the gain times z, the
bias plus the sum of weight times value over its edges. So a logit is a sum over paths of the
feature graph: a path that starts at a word, or at a node's bias, and ends at the root contributes
the product of what it starts from, the weights of its edges and the gains of its nodes.

One backward pass computes all of it. A coefficient is what one unit of a node's value contributes
to an output; ``backward_step`` propagates coefficients from some nodes of a layer to the nodes
below that they read.
The outputs may be a logit (word attributions, edges of a picture), single nodes (n-grams, words of
a node), groups of nodes (comparison of two texts) or all logits (detectors).

The attribution of a word is the sum over all paths that start at it: words, biases of nodes and the
root's bias add up to the logit. The n-gram of a topmost node is the fewest words that contribute at
least ``NGRAM_SHARE`` of what words contribute in the direction of their sum. The attribution of an
n-gram is the sum over all paths through its nodes that start at a word. So n-grams and words are
the rows and columns of one table (``NGramTable``), and either add up to the logit with the biases.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcnn.data.labels import Label
from dcnn.inspection.feature_graph import incoming_edges
from dcnn.inspection.trace import Doubles, Trace
from dcnn.text.vocabulary import Ints

NGRAM_SHARE = 0.5  # the part of a node's contribution that its n-gram has to explain
COVERAGE = 0.8  # the part of all absolute contributions that a reader is shown
MOST_NGRAMS = 20  # that may be needed for it; if more are, the n-grams are made coarser
# Edges times words that are held at once; bounds the memory of long sentences.
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
    trace: Trace, above: Coefficients, keep: Callable[[ContributingEdges], Ints] | None = None
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
    if size > 16 * len(place):  # sorting the few that are reached is faster
        places, which = np.unique(place, return_inverse=True)
        values = np.bincount(which, passed)
    else:
        reached = np.zeros(size, bool)
        reached[place] = True
        places = np.flatnonzero(reached)
        values = np.bincount(place, passed, minlength=size)[places]
    outputs, nodes = np.divmod(places, below.size)
    return Coefficients(above.layer - 1, nodes, outputs, values.astype(np.float64)), edges


def logit_coefficients(
    trace: Trace, classes: Sequence[int], layer: int, row: int | None = None
) -> Coefficients:
    """Coefficients of the nodes of a layer that reach the root; output i is ``classes[i]``'s logit.

    With ``row``, those of the nodes of that row only.
    """
    _, rows, kept = trace.values(trace.depth).shape
    top = np.arange(trace.head_weight.shape[1])
    if row is not None:  # only folding combines rows: it sums row and row + rows
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
    """(T, s) the contribution of every word to the value of each of some nodes of a layer.

    Computed bottom-up: a node's row is the weighted sum of the rows of the nodes that it reads.
    """
    words, traced = len(trace.words), trace.layers[layer - 1]
    rows = traced.filters[0, :, :, 0].size // traced.bias.shape[1]  # that a node reads
    step = max(1, MOST_COEFFICIENTS // (rows * traced.filters.shape[-1] * words))
    parts = []
    for start in range(0, len(nodes), step):
        part = nodes[start : start + step]
        below = trace.values(layer - 1)
        target, source, weight = incoming_edges(
            traced.positions, traced.filters, below.shape[-1], part
        )
        passed = weight * traced.gains.ravel()[part][target]
        if layer == 1:
            amounts = passed * below.ravel()[source]
            flat = np.bincount(target * words + source % words, amounts, len(part) * words)
            parts.append(flat.astype(np.float64).reshape(len(part), words))
            continue
        read, which = np.unique(source, return_inverse=True)
        amounts = passed[:, None] * node_word_contributions(trace, layer - 1, read)[which]
        parts.append(np.add.reduceat(amounts, np.searchsorted(target, np.arange(len(part)))))
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
        attribution: contribution of all paths from words through these nodes to the logit.
        absolute: the sum of the nodes' absolute contributions; larger where they disagree.
        nodes: how many topmost nodes have this n-gram.
    """

    positions: tuple[int, ...]
    words: tuple[str, ...]
    attribution: float
    absolute: float
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


def strongest_nodes(trace: Trace, of_class: int, among: Ints | None = None) -> Ints:
    """Topmost nodes, all or those of ``among``, by contribution for or against; largest first."""
    amounts = np.abs(trace.contributions[of_class])
    among = np.arange(len(amounts)) if among is None else among
    return among[np.argsort(-amounts[among], kind="stable")]


@dataclass(frozen=True)
class NGramTable:
    """What every word contributes to a logit through the topmost nodes of every n-gram.

    A row sums to the attribution of an n-gram, a column to that of a word.
    """

    ngrams: tuple[NGram, ...]  # the largest absolute contribution first
    nodes: tuple[Ints, ...]  # numbers of the topmost nodes of each
    shares: Doubles  # (n-grams, s)

    def coverage(self, count: int) -> float:
        """The part of all absolute contributions that the first ``count`` n-grams have."""
        amounts = [ngram.absolute for ngram in self.ngrams]
        return sum(amounts[:count]) / total if (total := sum(amounts)) else 1.0

    def covering(self, share: float) -> int:
        """How many n-grams are needed to have this part of all absolute contributions."""
        total = np.cumsum([ngram.absolute for ngram in self.ngrams])
        return min(int((total < share * total[-1:]).sum()) + 1, len(total))


def ngram_table(trace: Trace, of_class: int) -> NGramTable:
    """The topmost nodes by their n-grams.

    Where ``COVERAGE`` takes more than ``MOST_NGRAMS`` n-grams, a node is assigned to its strongest
    word alone; if that is not enough, the strongest words within blocks of 2, 4, 8 ... positions
    are merged into one n-gram.
    """
    nodes = np.arange(trace.head_weight.shape[1])
    words = node_word_contributions(trace, trace.depth, nodes)
    words *= trace.head_weight[of_class, :, None]  # to the logit
    nodes = np.flatnonzero(words.any(axis=1))  # to the others only biases contribute
    words = words[nodes]
    toward = words * np.where(words.sum(axis=1, keepdims=True) < 0, -1, 1)
    strongest, ngrams, block = toward.argmax(axis=1), fewest_words(toward), 1
    while True:
        table = _by_ngram(trace, words, nodes, ngrams)
        if table.covering(COVERAGE) <= MOST_NGRAMS:
            return table
        blocks = (strongest // block).tolist()
        merged = {
            one: tuple(np.unique(strongest[strongest // block == one]).tolist())
            for one in set(blocks)
        }
        ngrams, block = [merged[one] for one in blocks], 2 * block


def _by_ngram(
    trace: Trace, words: Doubles, nodes: Ints, ngrams: Sequence[tuple[int, ...]]
) -> NGramTable:
    known: dict[tuple[int, ...], int] = {}
    group = np.array([known.setdefault(one, len(known)) for one in ngrams], np.int64)
    own = words.sum(axis=1)
    absolute = np.bincount(group, np.abs(own))
    largest_first = np.argsort(-absolute, kind="stable")
    rank = np.argsort(largest_first)[group]  # of every node's n-gram
    order = np.argsort(rank, kind="stable")
    starts = np.searchsorted(rank[order], np.arange(len(known)))
    positions = list(known)
    amounts = zip(
        (positions[i] for i in largest_first),
        np.bincount(rank, own).tolist(),
        absolute[largest_first].tolist(),
        np.bincount(rank).tolist(),
        strict=True,
    )
    found = tuple(NGram(at, tuple(trace.words[i] for i in at), *rest) for at, *rest in amounts)
    shares = np.add.reduceat(words[order], starts, axis=0)  # (n-grams, s)
    return NGramTable(found, tuple(np.split(nodes[order], starts)[1:]), shares)


def fewest_words(contributions: Doubles) -> list[tuple[int, ...]]:
    """For each row, the positions of the fewest words with ``NGRAM_SHARE`` of its positive total.

    Empty for a row in which no word contributes.
    """
    order = np.argsort(-contributions, axis=1, kind="stable")
    total = np.cumsum(np.maximum(np.take_along_axis(contributions, order, 1), 0), axis=1)
    enough = (total < NGRAM_SHARE * total[:, -1:]).sum(axis=1) + 1
    enough[total[:, -1] == 0] = 0  # only biases contribute
    rows = zip(order.tolist(), enough.tolist(), strict=True)
    return [tuple(sorted(row[:count])) for row, count in rows]
