"""Where everything of a picture stands: words at the bottom, layers above, the root on top.

The SVG and the PNG are drawn from the same places, in pixels from the upper left corner.
"""

import textwrap
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from dcnn.inspection.feature_graph import ROOT
from dcnn.inspection.picture import Picture, PictureNode, word_id

FOR, AGAINST = "#1f6fb4", "#d1495b"  # told apart by the colour-blind too
INK, GREY, LINE = "#1d2530", "#6b7684", "#eef1f4"
FONT = 15  # of a word
LETTER = 0.56 * FONT  # mean width of a letter
LONGEST_WORD = 20  # letters; the rest of a longer one is cut off
MANY_WORDS = 30  # a longer sentence is drawn without the words that carry nothing drawn

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
class PlacedWord:
    """A word's box; ``strength`` is its attribution over the largest one, -1 to 1.

    A gap, where words were left out, has no id.
    """

    id: str
    x: float
    y: float
    width: float
    text: str
    description: str
    number: str
    strength: float

    @property
    def opacity(self) -> float:
        """Of the box's colour; the strongest ends where dark letters stay easy to read."""
        return 0.06 + 0.5 * abs(self.strength) if self.id else 0.0


@dataclass(frozen=True)
class PlacedNode:
    """A pooled node's disc."""

    id: str
    x: float
    y: float
    radius: float
    colour: str
    description: str


@dataclass(frozen=True)
class PlacedEdge:
    """An edge's curve, which leaves and arrives upright."""

    source: str
    target: str
    start: tuple[float, float]
    end: tuple[float, float]
    width: float
    colour: str
    description: str

    @property
    def controls(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The two inner points of the cubic curve."""
        middle = (self.start[1] + self.end[1]) / 2
        return (self.start[0], middle), (self.end[0], middle)


@dataclass(frozen=True)
class Layout:
    """A picture with places.

    ``root`` is the middle of its box; ``layers`` are heights and names of the layers, ``caption``
    heights and lines.
    """

    width: float
    height: float
    words: tuple[PlacedWord, ...]
    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    root: tuple[float, float]
    root_text: tuple[str, str]
    layers: tuple[tuple[float, str], ...]
    caption: tuple[tuple[float, str], ...]


def shortened(text: str, letters: int = LONGEST_WORD) -> str:
    """``text``, cut where it is longer than ``letters``."""
    return text if len(text) <= letters else text[: letters - 1] + "\u2026"


def place(picture: Picture) -> Layout:
    """Find a place for everything."""
    depth = max(node.layer for node in picture.nodes)
    floor = {
        layer: MARGIN + ROOT_HEIGHT / 2 + (depth + 1 - layer) * LAYER_HEIGHT
        for layer in range(depth + 2)
    }
    words = _place_words(picture, floor[0])
    busiest = max(sum(node.layer == layer for node in picture.nodes) for layer in floor)
    inner = max(words[-1].x + words[-1].width / 2 - LEFT, busiest * SPACING, 3 * ROOT_WIDTH)
    words = _centred(words, inner)
    x = {word.id: word.x for word in words}
    nodes = []
    for layer in range(1, depth + 1):
        of_layer = [node for node in picture.nodes if node.layer == layer]
        x |= _place_layer(picture, of_layer, x, inner)
        nodes += [_placed_node(picture, node, x[node.id], floor[layer]) for node in of_layer]
    x[ROOT] = LEFT + inner / 2
    width = LEFT + inner + MARGIN
    lines = [line for text in caption(picture) for line in textwrap.wrap(text, int(width / 6.8))]
    return Layout(
        width=width,
        height=floor[0] + WORD_HEIGHT + MARGIN + len(lines) * CAPTION_LINE + 6,
        words=tuple(words),
        nodes=tuple(nodes),
        edges=_place_edges(picture, x, {node.id: node.y for node in nodes}, words),
        root=(x[ROOT], floor[depth + 1]),
        root_text=(
            shortened(str(picture.label)),
            f"logit {picture.logit:+.2f}, {picture.probability:.1%}",
        ),
        layers=(
            (floor[0], f"{picture.unit}s"),
            *((floor[i], f"layer {i}") for i in range(1, depth + 1)),
        ),
        caption=tuple(
            (floor[0] + WORD_HEIGHT + MARGIN + i * CAPTION_LINE, line)
            for i, line in enumerate(lines)
        ),
    )


def caption(picture: Picture) -> tuple[str, str]:
    """What the picture accounts for, and how to read it."""
    shown = sum(edge.target == ROOT for edge in picture.edges)
    # With nodes for and against, some of them may be more than all of them, or have another sign.
    share = f" ({picture.share:.0%})" if 0 <= picture.share <= 1 else ""
    biases = picture.logit - sum(picture.attributions)
    return (
        f"The {shown} strongest of {picture.top} topmost nodes: {picture.shown:+.2f} of the logit "
        f"{picture.logit:+.2f}{share}; the paths drawn: {picture.followed:+.2f}; "
        f"biases, not drawn: {biases:+.2f}.",
        f"Blue is for {shortened(str(picture.label))}, red against. Width: how much of the logit. "
        f"Below a {picture.unit}: its attribution.",
    )


def _place_words(picture: Picture, y: float) -> list[PlacedWord]:
    drawn = {edge.source for edge in picture.edges}
    largest = max(map(abs, picture.attributions)) or 1.0
    placed: list[PlacedWord] = []
    x = float(LEFT)
    for position, (word, attribution) in enumerate(
        zip(picture.words, picture.attributions, strict=True)
    ):
        here = word_id(position)
        if len(picture.words) > MANY_WORDS and here not in drawn:
            if placed and not placed[-1].id:
                continue
            here, text, number, strength = "", "\u2026", "", 0.0
            description = f"{picture.unit}s left out"
        else:
            text, number = shortened(word), f"{attribution:+.2f}"
            strength, description = attribution / largest, f"{word}: {attribution:+.3f}"
        width = max(_letters(text), 4) * LETTER + 12
        placed.append(
            PlacedWord(here, x + width / 2, y, width, text, description, number, strength)
        )
        x += width + 6
    return placed


def _centred(words: Sequence[PlacedWord], inner: float) -> list[PlacedWord]:
    """The words in the middle of ``inner`` pixels, spread out a little where there is room."""
    used = words[-1].x + words[-1].width / 2 - LEFT
    gap = min(24.0, (inner - used) / (len(words) + 1))
    start = (inner - used - gap * (len(words) - 1)) / 2
    return [
        PlacedWord(**(vars(word) | {"x": word.x + start + i * gap})) for i, word in enumerate(words)
    ]


def _place_layer(
    picture: Picture, nodes: Sequence[PictureNode], below: dict[str, float], inner: float
) -> dict[str, float]:
    """Each node above what it comes from, as near as the others allow."""
    pull: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for edge in picture.edges:
        if edge.source in below:
            pull[edge.target].append((below[edge.source], abs(edge.contribution) + 1e-9))
    wish = {
        node.id: sum(x * w for x, w in pull[node.id]) / sum(w for _, w in pull[node.id])
        for node in nodes
    }
    ordered = sorted(wish, key=lambda name: wish[name])
    places = spread([wish[name] for name in ordered], SPACING, LEFT, LEFT + inner)
    return dict(zip(ordered, places, strict=True))


def spread(wishes: Sequence[float], spacing: float, low: float, high: float) -> list[float]:
    """Ascending wishes, moved as little as possible (least squares) to be ``spacing`` apart.

    With i * spacing taken off, that is to ask for places that do not descend: neighbours that
    would are given their mean, until none do.
    """
    blocks: list[tuple[float, int]] = []  # mean, members
    for i, wish in enumerate(wishes):
        mean, members = wish - i * spacing, 1
        while blocks and blocks[-1][0] > mean:
            before, others = blocks.pop()
            mean = (mean * members + before * others) / (members + others)
            members += others
        blocks.append((mean, members))
    highest = max(low, high - (len(wishes) - 1) * spacing)
    flat = [min(max(mean, low), highest) for mean, members in blocks for _ in range(members)]
    return [x + i * spacing for i, x in enumerate(flat)]


def _placed_node(picture: Picture, node: PictureNode, x: float, y: float) -> PlacedNode:
    largest = max(abs(other.contribution) for other in picture.nodes) or 1.0
    radius = SMALLEST + (LARGEST - SMALLEST) * sqrt(abs(node.contribution) / largest)
    description = f"{node.description}; carries {node.contribution:+.3f}"
    return PlacedNode(node.id, x, y, radius, _colour(node.contribution), description)


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
        # Along a box the ends stand side by side, in the order of where their edges go.
        width, edge_y = boxes[here]
        order = sorted(others[here])
        step = min(THICKEST, 0.8 * width / len(order))
        return x[here] + (order.index(x[other]) - (len(order) - 1) / 2) * step, edge_y

    return tuple(
        PlacedEdge(
            source=edge.source,
            target=edge.target,
            start=end(edge.source, edge.target),
            end=end(edge.target, edge.source),
            width=max(0.7, THICKEST * abs(edge.contribution) / largest),
            colour=_colour(edge.contribution),
            description=f"carries {edge.contribution:+.3f}",
        )
        # The strongest are drawn last, above the others.
        for edge in sorted(picture.edges, key=lambda edge: abs(edge.contribution))
    )


def _colour(amount: float) -> str:
    return FOR if amount >= 0 else AGAINST


def _letters(text: str) -> float:
    """Width in letters: twice for East Asian ones, none for marks on a letter."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )
