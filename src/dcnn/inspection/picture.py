"""The part of a feature graph that contributes most to a logit, and where it is drawn.

The strongest contributions to a class, for it and against it, are followed down: of every node the
edges that contribute most are kept. The rows of a word are one node here, since a reader looks for
the word. The picture is a part of the graph, so its caption states its share of the logit.

The layout, in pixels from the upper left corner, has the words at the bottom, the layers above them
and the root on top. SVG, PNG and the page of the server are drawn from it.
"""

import textwrap
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, sqrt

import numpy as np

from dcnn.inspection import attribution
from dcnn.inspection.attribution import Coefficients, ContributingEdges, ExplainedClass
from dcnn.inspection.feature_graph import ROOT
from dcnn.inspection.trace import Doubles, Trace
from dcnn.ops.reference import sigmoid, softmax
from dcnn.text.vocabulary import Ints

TOP_NODES = 10
EDGES_PER_NODE = 3

FOR, AGAINST = "#1f6fb4", "#d1495b"  # distinct for the colour-blind too
INK, GREY, LINE = "#1d2530", "#6b7684", "#eef1f4"
FONT = 15  # of a word
LETTER = 0.56 * FONT  # mean width of a letter
LONGEST_WORD = 20  # letters; the rest of a longer one is cut off
MANY_WORDS = 30  # a longer sentence is drawn without the words that have no drawn edge

MARGIN = 28
LEFT = 92  # room for the names of the layers
LAYER_HEIGHT = 118
WORD_HEIGHT = 30
ROOT_WIDTH, ROOT_HEIGHT = 190, 46
SPACING = 36  # between the nodes of a layer
THICKEST = 9.0  # edge
CAPTION_FONT, CAPTION_LINE = 12.5, 19
SMALLEST, LARGEST = 4.0, 10.0  # radius of a node


@dataclass(frozen=True)
class PictureNode:
    """A pooled node."""

    id: str  # as in the node-link data
    number: int  # in its flattened layer
    layer: int  # from 1
    map: int
    row: int
    position: int  # column of the convolution that was pooled
    value: float  # after tanh
    margin: float | None  # above the largest value dropped, if one was
    contribution: float  # of the drawn edges out of it to the logit

    @property
    def description(self) -> str:
        """For people."""
        margin = "nothing was dropped" if self.margin is None else f"margin {self.margin:.3g}"
        return (
            f"layer {self.layer}, map {self.map}, row {self.row}, position {self.position}: "
            f"{self.value:+.3f}, {margin}; contributes {self.contribution:+.3f}"
        )


@dataclass(frozen=True)
class PictureEdge:
    """An edge, or the edges of all rows of a word into one node."""

    source: str  # id of the lower node; of a word ``word:POSITION``
    target: str  # id of the higher node
    contribution: float  # of the drawn paths through it to the logit


@dataclass(frozen=True)
class Picture(ExplainedClass):
    """What is drawn of a sentence for a class."""

    nodes: tuple[PictureNode, ...]  # from the first layer to the topmost
    edges: tuple[PictureEdge, ...]  # between words, nodes and root
    node_contributions: float  # sum over the drawn topmost nodes
    path_contributions: float  # sum over the drawn paths, from a word to the root

    @property
    def share(self) -> float:
        """The part of the logit that the drawn topmost nodes contribute."""
        return self.node_contributions / self.logit if self.logit else 0.0


def make_picture(
    trace: Trace, of_class: int, top: int = TOP_NODES, edges: int = EDGES_PER_NODE
) -> Picture:
    """The ``top`` topmost nodes and the ``edges`` edges into every node that contribute most."""
    chosen = np.sort(attribution.strongest_nodes(trace, of_class, top))
    weights = trace.head_weight[of_class, chosen].astype(np.float64)
    front = Coefficients(trace.depth, chosen, np.zeros_like(chosen), weights)
    nodes = _picture_nodes(trace, front)
    drawn = [PictureEdge(node.id, ROOT, node.contribution) for node in nodes]
    node_contributions = float(front.contributions(trace).sum())
    for layer in range(trace.depth, 0, -1):
        keep = partial(_strongest_edges, trace, layer, edges)
        below, followed = attribution.backward_step(trace, front, keep)
        targets, sources, amounts, _ = _joined(trace, layer, followed)
        lower = [node_id(trace, layer - 1, number) for number in sources.tolist()]
        upper = [node_id(trace, layer, number) for number in front.nodes[targets].tolist()]
        drawn += map(PictureEdge, lower, upper, amounts.tolist())
        front = below
        if front.layer:
            nodes = [*_picture_nodes(trace, front), *nodes]
    return Picture(
        trace=trace,
        of_class=of_class,
        attributions=tuple(attribution.word_attributions(trace, of_class).tolist()),
        nodes=tuple(nodes),
        edges=tuple(drawn),
        node_contributions=node_contributions,
        path_contributions=float(front.contributions(trace).sum()),
    )


def node_id(trace: Trace, layer: int, number: int) -> str:
    """The id of a node, as in the node-link data; in layer 0, of the word at a position."""
    if layer == 0:
        return f"word:{number}"
    positions = trace.layers[layer - 1].positions
    map_, row, _ = at = np.unravel_index(number, positions.shape)
    return f"{layer}:{map_}:{row}:{positions[at]}"


def _picture_nodes(trace: Trace, front: Coefficients) -> list[PictureNode]:
    number, layer = front.layer, trace.layers[front.layer - 1]
    maps, rows, _ = at = np.unravel_index(front.nodes, layer.values.shape)
    arrays = maps, rows, layer.positions[at], layer.values[at], layer.margins[at]
    columns = (a.tolist() for a in (front.nodes, *arrays, front.contributions(trace)))
    return [
        PictureNode(
            f"{number}:{m}:{r}:{p}", node, number, m, r, p, v, g if isfinite(g) else None, amount
        )
        for node, m, r, p, v, g, amount in zip(*columns, strict=True)
    ]


def _joined(trace: Trace, layer: int, edges: ContributingEdges) -> tuple[Ints, Ints, Doubles, Ints]:
    """Edges that are drawn as one: (J,) targets, sources, contributions; (E,) which each is of.

    In layer 0 the rows of a word are one source, its position.
    """
    below = trace.values(layer - 1)
    source = edges.source if layer > 1 else edges.source % below.shape[-1]
    pairs, of_pair = np.unique(edges.target * below.size + source, return_inverse=True)
    amounts = np.bincount(of_pair, edges.contribution).astype(np.float64)
    return *np.divmod(pairs, below.size), amounts, of_pair


def _strongest_edges(trace: Trace, layer: int, count: int, edges: ContributingEdges) -> Ints:
    """Indices of the edges into each node with the largest contributions, for or against."""
    targets, _, amounts, of_pair = _joined(trace, layer, edges)
    order = np.lexsort((-np.abs(amounts), targets))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.searchsorted(targets, targets)[order]
    return np.flatnonzero((rank < count)[of_pair])


@dataclass(frozen=True)
class PlacedWord:
    """A word's box, or a gap where words were left out."""

    position: int | None  # none for a gap
    x: float
    y: float
    width: float
    text: str
    description: str
    number: str
    strength: float  # attribution over the largest one, -1 to 1

    @property
    def id(self) -> str:
        """As in the edges; empty for a gap."""
        return "" if self.position is None else f"word:{self.position}"

    @property
    def opacity(self) -> float:
        """Of the box's colour; dark letters stay readable on the strongest."""
        return 0.06 + 0.5 * abs(self.strength) if self.id else 0.0


@dataclass(frozen=True)
class PlacedNode:
    """A node's disc."""

    node: PictureNode
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class PlacedEdge:
    """An edge's curve, vertical at both ends."""

    edge: PictureEdge
    start: tuple[float, float]
    end: tuple[float, float]
    width: float


@dataclass(frozen=True)
class Layout:
    """A picture with coordinates."""

    width: float
    height: float
    words: tuple[PlacedWord, ...]
    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    root: tuple[float, float]  # centre of its box
    root_text: tuple[str, str]
    layers: tuple[tuple[float, str], ...]  # heights and names
    caption: tuple[tuple[float, str], ...]  # heights and lines


def sign_colour(amount: float) -> str:
    """Of a contribution: for or against."""
    return FOR if amount >= 0 else AGAINST


def shortened(text: str, letters: int = LONGEST_WORD) -> str:
    """``text``, cut where it is longer than ``letters``."""
    return text if len(text) <= letters else text[: letters - 1] + "\u2026"


def place(picture: Picture) -> Layout:
    """Find the coordinates of everything."""
    trace, depth = picture.trace, picture.trace.depth
    height = [MARGIN + ROOT_HEIGHT / 2 + i * LAYER_HEIGHT for i in range(depth + 1, -1, -1)]
    of_layer = {i: [node for node in picture.nodes if node.layer == i] for i in range(1, depth + 1)}
    widest = max(map(len, of_layer.values())) * SPACING
    words, inner = _place_words(picture, height[0], max(widest, 3 * ROOT_WIDTH))
    x = {word.id: word.x for word in words}
    largest = max(abs(node.contribution) for node in picture.nodes) or 1.0
    nodes = []
    for layer, drawn in of_layer.items():
        x |= _place_layer(picture, drawn, x, inner)
        for node in drawn:
            radius = SMALLEST + (LARGEST - SMALLEST) * sqrt(abs(node.contribution) / largest)
            nodes.append(PlacedNode(node, x[node.id], height[layer], radius))
    x[ROOT] = LEFT + inner / 2
    width = LEFT + inner + MARGIN
    lines = [line for text in caption(picture) for line in textwrap.wrap(text, int(width / 6.8))]
    below = height[0] + WORD_HEIGHT + MARGIN
    probabilities = (sigmoid if trace.multi_label else softmax)(trace.logits)
    return Layout(
        width=width,
        height=below + len(lines) * CAPTION_LINE + 6,
        words=tuple(words),
        nodes=tuple(nodes),
        edges=_place_edges(picture, x, {node.node.id: node.y for node in nodes}, words),
        root=(x[ROOT], height[depth + 1]),
        root_text=(
            shortened(str(picture.label)),
            f"logit {picture.logit:+.2f}, {probabilities[picture.of_class]:.1%}",
        ),
        layers=(
            (height[0], f"{trace.unit}s"),
            *((height[i], f"layer {i}") for i in range(1, depth + 1)),
        ),
        caption=tuple((below + i * CAPTION_LINE, line) for i, line in enumerate(lines)),
    )


def caption(picture: Picture) -> tuple[str, str]:
    """Which part of the logit the picture shows, and how to read it."""
    shown = sum(edge.target == ROOT for edge in picture.edges)
    # With nodes for and against, some of them may be more than all of them, or have another sign.
    share = f" ({picture.share:.0%})" if 0 <= picture.share <= 1 else ""
    return (
        f"The {shown} strongest of {picture.trace.head_weight.shape[1]} topmost nodes: "
        f"{picture.node_contributions:+.2f} of the logit {picture.logit:+.2f}{share}; the paths "
        f"drawn: {picture.path_contributions:+.2f}; biases, not drawn: {picture.biases:+.2f}.",
        f"Blue is for {shortened(str(picture.label))}, red against. Width: contribution to the "
        f"logit. Below a {picture.trace.unit}: its attribution.",
    )


def _place_words(picture: Picture, y: float, least: float) -> tuple[list[PlacedWord], float]:
    """The words in the middle of at least ``least`` pixels, and these pixels."""
    words, unit = picture.trace.words, picture.trace.unit
    drawn = {edge.source for edge in picture.edges}
    largest = max(map(abs, picture.attributions)) or 1.0
    placed: list[PlacedWord] = []
    for i, (word, amount) in enumerate(zip(words, picture.attributions, strict=True)):
        if len(words) <= MANY_WORDS or node_id(picture.trace, 0, i) in drawn:
            text, about, number = shortened(word), f"{word}: {amount:+.3f}", f"{amount:+.2f}"
            one = PlacedWord(i, 0, y, _width(text), text, about, number, amount / largest)
        elif placed and placed[-1].position is None:
            continue
        else:
            one = PlacedWord(None, 0, y, _width("\u2026"), "\u2026", f"{unit}s left out", "", 0.0)
        placed.append(one)
    used = sum(word.width + 6 for word in placed) - 6
    inner = max(used, least)
    gap = min(24.0, (inner - used) / (len(placed) + 1))  # spread out a little where there is room
    left = LEFT + (inner - used - gap * (len(placed) - 1)) / 2
    for i, one in enumerate(placed):
        placed[i] = replace(one, x=left + one.width / 2)
        left += one.width + 6 + gap
    return placed, inner


def _width(text: str) -> float:
    """Of a word's box: East Asian wide letters are two letters wide, combining marks none."""
    letters = sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )
    return max(letters, 4) * LETTER + 12


def _place_layer(
    picture: Picture, nodes: Sequence[PictureNode], below: dict[str, float], inner: float
) -> dict[str, float]:
    """Each node above its sources, as near as the others allow."""
    total: defaultdict[str, float] = defaultdict(float)
    weights: defaultdict[str, float] = defaultdict(float)
    for edge in picture.edges:
        if edge.source in below:
            weight = abs(edge.contribution) + 1e-9
            total[edge.target] += weight * below[edge.source]
            weights[edge.target] += weight
    wanted = {node.id: total[node.id] / weights[node.id] for node in nodes}
    ordered = sorted(wanted, key=wanted.__getitem__)
    places = spread([wanted[name] for name in ordered], SPACING, LEFT, LEFT + inner)
    return dict(zip(ordered, places, strict=True))


def spread(wanted: Sequence[float], spacing: float, low: float, high: float) -> list[float]:
    """Ascending coordinates, moved as little as possible (least squares) to be ``spacing`` apart.

    With i * spacing subtracted, that is an isotonic regression: neighbours that would descend are
    given their mean, until none do.
    """
    blocks: list[tuple[float, int]] = []  # mean, size
    for i, x in enumerate(wanted):
        mean, size = x - i * spacing, 1
        while blocks and blocks[-1][0] > mean:
            before, others = blocks.pop()
            mean = (mean * size + before * others) / (size + others)
            size += others
        blocks.append((mean, size))
    highest = max(low, high - (len(wanted) - 1) * spacing)
    flat = [min(max(mean, low), highest) for mean, size in blocks for _ in range(size)]
    return [x + i * spacing for i, x in enumerate(flat)]


def _place_edges(
    picture: Picture, x: dict[str, float], y: dict[str, float], words: Sequence[PlacedWord]
) -> tuple[PlacedEdge, ...]:
    largest = max(abs(edge.contribution) for edge in picture.edges) or 1.0
    boxes = {word.id: (word.width, word.y - WORD_HEIGHT / 2) for word in words}
    boxes[ROOT] = (ROOT_WIDTH, MARGIN + ROOT_HEIGHT)
    others: defaultdict[str, list[float]] = defaultdict(list)
    for edge in picture.edges:
        others[edge.source].append(x[edge.target])
        others[edge.target].append(x[edge.source])

    def end(here: str, other: str) -> tuple[float, float]:
        if here not in boxes:
            return x[here], y[here]
        # Along a box the ends are side by side, in the order of where their edges go.
        width, edge_y = boxes[here]
        order = sorted(others[here])
        step = min(THICKEST, 0.8 * width / len(order))
        return x[here] + (order.index(x[other]) - (len(order) - 1) / 2) * step, edge_y

    return tuple(
        PlacedEdge(
            edge=edge,
            start=end(edge.source, edge.target),
            end=end(edge.target, edge.source),
            width=max(0.7, THICKEST * abs(edge.contribution) / largest),
        )
        # The strongest are drawn last, above the others.
        for edge in sorted(picture.edges, key=lambda edge: abs(edge.contribution))
    )
