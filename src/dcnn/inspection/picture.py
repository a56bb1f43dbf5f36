"""The part of a feature graph that contributes most to a logit, and where it is drawn.

There are two pictures. ``ngram_picture`` groups the topmost nodes by the n-gram that they saw,
until the n-grams drawn have ``COVERAGE`` of all absolute contributions; the other n-grams and the
biases are a box each, so that all boxes add up to the logit. ``node_picture`` has single nodes, of
the whole graph or of one n-gram: the strongest contributions are followed down, and of every node
the edges that contribute most are kept. The rows of a word are one node here, since a reader looks
for the word. A picture is a part of the graph, so its caption states what it covers.

The layout, in pixels from the upper left corner, has the words at the bottom, the nodes above them
and the root on top; where that is wider than the reader's room, the words are a column on the left
and the root is on the right. SVG, PNG and the page of the server are drawn from it.
"""

import textwrap
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from math import isfinite, sqrt

import numpy as np

from dcnn.inspection import attribution
from dcnn.inspection.attribution import (
    COVERAGE,
    Coefficients,
    ContributingEdges,
    ExplainedClass,
    NGram,
    NGramTable,
    ngram_table,
)
from dcnn.inspection.feature_graph import ROOT
from dcnn.inspection.trace import Doubles, Trace
from dcnn.ops.reference import sigmoid, softmax
from dcnn.text.vocabulary import Ints

TOP_NODES = 10
EDGES_PER_NODE = 3
OTHERS, BIASES = "others", "biases"  # ids of what is not drawn of the logit
STRONG_WORD = 0.25  # of the strongest word's contribution; words with as much have an edge too

FOR, AGAINST = "#1f6fb4", "#d1495b"  # distinct for the colour-blind too
INK, GREY, LINE = "#1d2530", "#6b7684", "#eef1f4"
FONT, NGRAM_FONT = 15, 13  # of a word; of an n-gram
LETTER = 0.56  # mean width of a letter, in font sizes
LONGEST_WORD, LONGEST_NGRAM = 20, 26  # letters; the rest of a longer one is cut off
MANY_WORDS = 30  # a longer sentence is drawn without the words that have no drawn edge
ROOM = 1100  # pixels that a reader is taken to have

MARGIN = 28
LEFT = 92  # room for the names of the layers
LAYER_HEIGHT = 118
LEAST_GAP = 24  # between the columns of a narrow picture
WORD_HEIGHT, NGRAM_HEIGHT = 30, 42
ROOT_WIDTH, ROOT_HEIGHT = 190, 46
NUMBER_WIDTH = 42  # of a word's attribution, left of it in a column
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
class PictureNGram:
    """The topmost nodes of an n-gram together; or all other n-grams, or the biases."""

    id: str  # ``ngram:POSITION-POSITION``, ``others`` or ``biases``
    text: str
    positions: tuple[int, ...]
    contribution: float  # to the logit
    absolute: float  # sum of the nodes' absolute contributions
    nodes: int
    layer: int = 1

    @property
    def description(self) -> str:
        """For people."""
        if self.id == BIASES:
            return f"biases of nodes and of the root: {self.contribution:+.3f}"
        return (
            f"{self.text}: {self.contribution:+.3f}, of {self.nodes} topmost nodes "
            f"({(self.absolute + self.contribution) / 2:+.3f} for, "
            f"{(self.contribution - self.absolute) / 2:+.3f} against)"
        )


@dataclass(frozen=True)
class PictureEdge:
    """An edge, or the edges of all rows of a word into one node or into the nodes of an n-gram."""

    source: str  # id of the lower node; of a word ``word:POSITION``
    target: str  # id of the higher node
    contribution: float  # of the paths through it to the logit; of a node picture, of those drawn


@dataclass(frozen=True)
class Picture(ExplainedClass):
    """What is drawn of a sentence for a class."""

    nodes: tuple[PictureNode | PictureNGram, ...]  # from the first layer to the topmost
    edges: tuple[PictureEdge, ...]  # between words, nodes and root
    node_contributions: float  # sum over the drawn n-grams or topmost nodes
    path_contributions: float  # sum over the drawn paths, from a word to the root
    coverage: float  # the part of all absolute contributions of topmost nodes that is drawn
    ngram: NGram | None = None  # whose nodes are drawn, if not those of the whole sentence

    @property
    def has_ngrams(self) -> bool:
        """Whether n-grams are drawn in place of single nodes."""
        return isinstance(self.nodes[0], PictureNGram)


def ngram_picture(
    trace: Trace, of_class: int, coverage: float = COVERAGE, table: NGramTable | None = None
) -> Picture:
    """The n-grams that have ``coverage`` of all absolute contributions, the rest, and the biases.

    ``table`` is that of the sentence and the class, where it is known.
    """
    table = table or ngram_table(trace, of_class)
    count, words = table.covering(coverage), attribution.word_attributions(trace, of_class)
    nodes, edges = [], []
    for ngram, row in zip(table.ngrams[:count], table.shares, strict=False):
        node = PictureNGram(
            f"ngram:{'-'.join(map(str, ngram.positions))}", str(ngram), ngram.positions,
            ngram.attribution, ngram.absolute, ngram.nodes,
        )  # fmt: skip
        nodes.append(node)
        strongest = STRONG_WORD * np.abs(row).max()
        drawn = set(np.flatnonzero(np.abs(row) >= strongest).tolist()).union(ngram.positions)
        edges += [PictureEdge(f"word:{i}", node.id, float(row[i])) for i in sorted(drawn)]
    shown = sum(node.contribution for node in nodes)
    paths = sum(edge.contribution for edge in edges)
    if rest := table.ngrams[count:]:
        left = sum(one.attribution for one in rest), sum(one.absolute for one in rest)
        text, n_nodes = f"{len(rest)} other{'s' * (len(rest) > 1)}", sum(one.nodes for one in rest)
        nodes.append(PictureNGram(OTHERS, text, (), *left, n_nodes))
    biases = float(trace.logits[of_class] - words.sum())
    nodes.append(PictureNGram(BIASES, "biases", (), biases, abs(biases), 0))
    edges += [PictureEdge(node.id, ROOT, node.contribution) for node in nodes]
    return Picture(
        trace=trace,
        of_class=of_class,
        attributions=tuple(words.tolist()),
        nodes=tuple(nodes),
        edges=tuple(edges),
        node_contributions=shown,
        path_contributions=paths,
        coverage=table.coverage(count),
    )


def node_picture(
    trace: Trace,
    of_class: int,
    top: int = TOP_NODES,
    edges: int = EDGES_PER_NODE,
    among: tuple[NGram, Ints] | None = None,
) -> Picture:
    """The ``top`` topmost nodes and the ``edges`` edges into every node that contribute most.

    ``among`` is the n-gram whose nodes are drawn, and their numbers.
    """
    ngram, numbers = among or (None, None)
    chosen = np.sort(attribution.strongest_nodes(trace, of_class, numbers)[:top])
    every = np.abs(trace.contributions[of_class].astype(np.float64))
    weights = trace.head_weight[of_class, chosen].astype(np.float64)
    front = Coefficients(trace.depth, chosen, np.zeros_like(chosen), weights)
    nodes: list[PictureNode | PictureNGram] = [*_picture_nodes(trace, front)]
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
        coverage=float(every[chosen].sum() / (every.sum() or 1.0)),
        ngram=ngram,
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
    """Edges merged as drawn: (J,) targets, sources, contributions; (E,) the merged edge of each.

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
class PlacedNGram:
    """An n-gram's box, with its text and contribution."""

    ngram: PictureNGram
    x: float
    y: float
    width: float
    text: str
    strength: float  # contribution over the largest one, -1 to 1


@dataclass(frozen=True)
class PlacedEdge:
    """An edge's curve, which leaves and arrives at right angles to the words."""

    edge: PictureEdge
    start: tuple[float, float]
    end: tuple[float, float]
    width: float


@dataclass(frozen=True)
class PlacedRoot:
    """The root's box; in a picture of columns it is a bar, with its text from bottom to top."""

    x: float
    y: float
    width: float
    height: float
    text_y: float  # middle of its text; in a tall picture near the top
    text: tuple[str, str]


@dataclass(frozen=True)
class Layout:
    """A picture with coordinates."""

    width: float
    height: float
    vertical: bool  # whether words are a column, on the left
    words: tuple[PlacedWord, ...]
    nodes: tuple[PlacedNode, ...]
    ngrams: tuple[PlacedNGram, ...]
    edges: tuple[PlacedEdge, ...]
    root: PlacedRoot
    layers: tuple[tuple[float, float, str], ...]  # x, y and name
    caption: tuple[tuple[float, str], ...]  # heights and lines


def sign_colour(amount: float) -> str:
    """Of a contribution: for or against."""
    return FOR if amount >= 0 else AGAINST


def shortened(text: str, letters: int = LONGEST_WORD) -> str:
    """``text``, cut where it is longer than ``letters``."""
    return text if len(text) <= letters else text[: letters - 1] + "\u2026"


def place(picture: Picture, room: float = ROOM) -> Layout:
    """Find the coordinates of everything, for a reader who has ``room`` pixels beside each other.

    Words are a row where that fits, else a column.
    """
    row = _place(picture, room, vertical=False)
    return row if row.width <= room else _place(picture, room, vertical=True)


def _place(picture: Picture, room: float, *, vertical: bool) -> Layout:
    """Lay out along the words and away from them, towards the root; ``vertical`` swaps the axes."""
    depth = max(node.layer for node in picture.nodes)
    letters = LONGEST_WORD if not vertical or room > 600 else 12 if room > 420 else 8
    words = _drawn_words(picture, letters)
    widest = max(word.width for word in words)
    away, thick, box = _layers(picture, room, widest, depth, vertical=vertical)
    start = MARGIN + 6.0 if vertical else float(LEFT)
    bottom = 0.0 if vertical else MARGIN + ROOT_HEIGHT / 2 + away[-1]
    # Along the words: the size of everything.
    sizes = {
        word.id: WORD_HEIGHT + 4.0 if vertical else word.width + 6 for word in words if word.id
    }
    texts: dict[str, str] = {}
    for node in picture.nodes:
        sizes[node.id] = 2 * LARGEST + 3 if vertical else SPACING
        if isinstance(node, PictureNGram):
            letters = int((box - 14) / (LETTER * NGRAM_FONT)) if vertical else LONGEST_NGRAM
            texts[node.id] = shortened(node.text, letters)
            width = _width(texts[node.id], NGRAM_FONT) + 16
            sizes[node.id] = NGRAM_HEIGHT + 8.0 if vertical else width
    of_layer = [[node for node in picture.nodes if node.layer == i] for i in range(1, depth + 1)]
    least = 0 if vertical else 3 * ROOT_WIDTH
    inner = max(least, *(sum(sizes[node.id] for node in layer) for layer in of_layer))
    row = [WORD_HEIGHT + 4.0 if word.id else WORD_HEIGHT / 2 for word in words]
    own = row if vertical else [word.width + 6 for word in words]
    inner = max(inner, sum(own))
    middles = _in_the_middle(own, start, inner)
    along = {word.id: middle for word, middle in zip(words, middles, strict=True) if word.id}
    for layer in of_layer:
        along |= _place_layer(picture, layer, along, sizes, (start, start + inner))
    trace = picture.trace
    share = (sigmoid if trace.multi_label else softmax)(trace.logits)[picture.of_class]
    text = shortened(str(picture.label)), f"logit {picture.logit:+.2f}, {share:.1%}"
    root_size, half = float(ROOT_WIDTH), _width(", ".join(text), NGRAM_FONT) / 2 + 10
    if vertical:
        inner = root_size = max(inner, 2 * half)
    along[ROOT] = start + inner / 2

    def turned(at: float, layer_at: float) -> tuple[float, float]:
        return (layer_at, at) if vertical else (at, bottom - layer_at)

    discs, boxes = _place_nodes(
        picture,
        texts,
        lambda name, layer: turned(along[name], away[layer]),
        lambda name: box if vertical else sizes[name] - 10,
    )
    layer_of = {node.id: node.layer for node in picture.nodes} | {ROOT: depth + 1}
    spans = {name: size - 8 for name, size in sizes.items()} | {ROOT: root_size}

    def end(name: str, side: int) -> tuple[float, float]:
        """The span of the side, towards the root (1) or the words (-1), and how far it is."""
        layer = layer_of.get(name, 0)
        disc = layer and name != ROOT and not picture.has_ngrams
        return (0.0, away[layer]) if disc else (spans[name], away[layer] + side * thick[layer] / 2)

    edges = _place_edges(picture, along, end, turned)
    x, y = turned(along[ROOT], away[-1])
    width, height = (WORD_HEIGHT, root_size) if vertical else (root_size, ROOT_HEIGHT)
    right = away[0] + widest / 2  # in a column, where all words end
    placed = [
        replace(word, x=right - word.width / 2, y=middle)
        if vertical
        else replace(word, x=middle, y=bottom)
        for word, middle in zip(words, middles, strict=True)
    ]
    names = ["n-grams"] if picture.has_ngrams else [f"layer {i}" for i in range(1, depth + 1)]
    where = [(at, MARGIN / 2 + 4) if vertical else (16.0, bottom - at - 6) for at in away]
    full = away[-1] + WORD_HEIGHT / 2 + MARGIN / 2 if vertical else LEFT + inner + MARGIN
    below = start + inner + MARGIN if vertical else bottom + WORD_HEIGHT + MARGIN
    lines = [line for part in caption(picture) for line in textwrap.wrap(part, int(full / 6.8))]
    return Layout(
        width=full,
        height=below + len(lines) * CAPTION_LINE + 6,
        vertical=vertical,
        words=tuple(placed),
        nodes=tuple(discs),
        ngrams=tuple(boxes),
        edges=edges,
        root=PlacedRoot(x, y, width, height, min(y, start + half) if vertical else y, text),
        layers=tuple(
            (*at, name) for at, name in zip(where, [f"{trace.unit}s", *names], strict=False)
        ),
        caption=tuple((below + i * CAPTION_LINE, line) for i, line in enumerate(lines)),
    )


def _layers(
    picture: Picture, room: float, widest: float, depth: int, *, vertical: bool
) -> tuple[list[float], list[float], float]:
    """Away from the words: middle and thickness of each layer, words first; width of a column."""
    if not vertical:
        between = NGRAM_HEIGHT if picture.has_ngrams else 0
        away = [float(i * LAYER_HEIGHT) for i in range(depth + 2)]
        return away, [WORD_HEIGHT, *[between] * depth, ROOT_HEIGHT], 0.0
    inside = room - NUMBER_WIDTH - widest - MARGIN - WORD_HEIGHT
    box = min(LETTER * NGRAM_FONT * LONGEST_NGRAM + 16, inside - 2 * LEAST_GAP)
    thick = [widest, *[box if picture.has_ngrams else 2 * LARGEST] * depth, WORD_HEIGHT]
    gap = min(max((inside - sum(thick[1:-1])) / (depth + 1), LEAST_GAP), 1.5 * LAYER_HEIGHT)
    steps = [(a + b) / 2 + gap for a, b in pairwise(thick)]
    first = MARGIN / 2 + NUMBER_WIDTH + widest / 2
    return [first + step for step in accumulate(steps, initial=0.0)], thick, box


def _in_the_middle(sizes: Sequence[float], start: float, inner: float) -> list[float]:
    """Middles of things of some sizes, spread out a little where there is room."""
    gap = min(24.0, (inner - sum(sizes)) / (len(sizes) + 1))
    before = start + (inner - sum(sizes) - gap * (len(sizes) - 1)) / 2
    starts = accumulate((size + gap for size in sizes), initial=before)
    return [at + size / 2 for at, size in zip(starts, sizes, strict=False)]


def _place_nodes(
    picture: Picture,
    texts: dict[str, str],
    at: Callable[[str, int], tuple[float, float]],
    width: Callable[[str], float],
) -> tuple[list[PlacedNode], list[PlacedNGram]]:
    """Discs of single nodes, or boxes of n-grams."""
    largest = max(abs(node.contribution) for node in picture.nodes) or 1.0
    discs, boxes = [], []
    for node in picture.nodes:
        place, amount = at(node.id, node.layer), node.contribution / largest
        if isinstance(node, PictureNGram):
            boxes.append(PlacedNGram(node, *place, width(node.id), texts[node.id], amount))
        else:
            radius = SMALLEST + (LARGEST - SMALLEST) * sqrt(abs(amount))
            discs.append(PlacedNode(node, *place, radius))
    return discs, boxes


def caption(picture: Picture) -> tuple[str, str]:
    """Which part of the logit the picture shows, and how to read it."""
    trace, total = picture.trace, picture.trace.head_weight.shape[1]
    covered = f"{picture.coverage:.0%} of the absolute contributions of all {total} topmost nodes"
    if picture.has_ngrams:
        count = sum(bool(edge.target == ROOT) for edge in picture.edges)
        extra = sum(node.id in (OTHERS, BIASES) for node in picture.nodes)
        first = (
            f"The {count - extra} n-grams drawn have {covered}. All boxes add up to the logit "
            f"{picture.logit:+.2f}."
        )
    else:
        shown = sum(edge.target == ROOT for edge in picture.edges)
        of = f" of \u201c{shortened(str(picture.ngram), 40)}\u201d" if picture.ngram else ""
        first = (
            f"The {shown} strongest nodes{of} have {covered}: {picture.node_contributions:+.2f} of "
            f"the logit {picture.logit:+.2f}; the paths drawn: {picture.path_contributions:+.2f}."
        )
    return first, (
        f"Blue is for {shortened(str(picture.label))}, red against. Width: contribution to the "
        f"logit. Numbers at {trace.unit}s: attributions."
    )


def _drawn_words(picture: Picture, letters: int) -> list[PlacedWord]:
    """The words, not yet placed; of a long sentence or an n-gram, those that have a drawn edge."""
    words, unit = picture.trace.words, picture.trace.unit
    drawn = {edge.source for edge in picture.edges}
    largest = max(map(abs, picture.attributions)) or 1.0
    every = len(words) <= MANY_WORDS and picture.ngram is None
    found: list[PlacedWord] = []
    for i, (word, amount) in enumerate(zip(words, picture.attributions, strict=True)):
        if every or f"word:{i}" in drawn:
            text, about, number = (
                shortened(word, letters),
                f"{word}: {amount:+.3f}",
                f"{amount:+.2f}",
            )
            found.append(PlacedWord(i, 0, 0, _width(text), text, about, number, amount / largest))
        elif not found or found[-1].position is not None:
            gap = "\u2026"
            found.append(PlacedWord(None, 0, 0, _width(gap), gap, f"{unit}s left out", "", 0.0))
    return found


def _width(text: str, font: float = FONT) -> float:
    """Of a box: East Asian wide letters are two letters wide, combining marks none."""
    letters = sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )
    return max(letters, 4) * LETTER * font + 12


def _place_layer(
    picture: Picture,
    nodes: Sequence[PictureNode | PictureNGram],
    below: dict[str, float],
    sizes: dict[str, float],
    bounds: tuple[float, float],
) -> dict[str, float]:
    """Each node beside its sources, as near as the others allow; those without one at the end."""
    total: defaultdict[str, float] = defaultdict(float)
    weights: defaultdict[str, float] = defaultdict(float)
    for edge in picture.edges:
        if edge.source in below:
            weight = abs(edge.contribution) + 1e-9
            total[edge.target] += weight * below[edge.source]
            weights[edge.target] += weight
    wanted = {n.id: total[n.id] / weights[n.id] if weights[n.id] else bounds[1] for n in nodes}
    ordered = sorted(wanted, key=wanted.__getitem__)
    steps = [(sizes[a] + sizes[b]) / 2 for a, b in pairwise(ordered)]
    low, high = bounds[0] + sizes[ordered[0]] / 2, bounds[1] - sizes[ordered[-1]] / 2
    places = spread([wanted[name] for name in ordered], steps, low, high)
    return dict(zip(ordered, places, strict=True))


def spread(wanted: Sequence[float], steps: Sequence[float], low: float, high: float) -> list[float]:
    """Ascending coordinates, moved as little as possible (least squares) to be ``steps`` apart.

    With the sum of the steps before each subtracted, that is an isotonic regression: neighbours
    that would descend are given their mean, until none do.
    """
    offsets = [0.0, *accumulate(steps)]
    blocks: list[tuple[float, int]] = []  # mean, size
    for x, offset in zip(wanted, offsets, strict=False):
        mean, size = x - offset, 1
        while blocks and blocks[-1][0] > mean:
            before, others = blocks.pop()
            mean = (mean * size + before * others) / (size + others)
            size += others
        blocks.append((mean, size))
    highest = max(low, high - offsets[-1])
    flat = [min(max(mean, low), highest) for mean, size in blocks for _ in range(size)]
    return [x + offset for x, offset in zip(flat, offsets, strict=False)]


def _place_edges(
    picture: Picture,
    along: dict[str, float],
    end: Callable[[str, int], tuple[float, float]],
    turned: Callable[[float, float], tuple[float, float]],
) -> tuple[PlacedEdge, ...]:
    """Edges whose ends are side by side along each box, in the order of their other ends."""
    largest = max(abs(edge.contribution) for edge in picture.edges) or 1.0
    leaving, arriving = defaultdict(list), defaultdict(list)
    for edge in picture.edges:
        leaving[edge.source].append(along[edge.target])
        arriving[edge.target].append(along[edge.source])

    def at(name: str, side: int, other: str, others: Iterable[float]) -> tuple[float, float]:
        (span, away), order = end(name, side), sorted(others)
        if name == ROOT and turned(0, 1) == (1, 0):  # a bar beside all nodes
            return turned(along[other], away)
        step = min(THICKEST, 0.8 * span / len(order))
        offset = (order.index(along[other]) - (len(order) - 1) / 2) * step
        return turned(along[name] + offset, away)

    return tuple(
        PlacedEdge(
            edge=edge,
            start=at(edge.source, 1, edge.target, leaving[edge.source]),
            end=at(edge.target, -1, edge.source, arriving[edge.target]),
            width=max(0.7, THICKEST * abs(edge.contribution) / largest),
        )
        # The strongest are drawn last, above the others.
        for edge in sorted(picture.edges, key=lambda edge: abs(edge.contribution))
    )
