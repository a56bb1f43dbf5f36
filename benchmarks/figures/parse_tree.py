"""The feature graph of a sentence beside its parse tree (Sect. 4.2).

Both are structures over the same words: the tree is given and has one node per phrase; the graph is
what convolution and pooling leave of a trained network, and joins words that no phrase joins.
"""

from collections.abc import Sequence

from dcnn.data.corpora.sst import NEUTRAL, Phrase
from dcnn.inspection.picture import GREY, INK
from dcnn.inspection.trace import Trace
from figures.canvas import Canvas, shade
from figures.induced_graph import (
    FLOOR,
    HALF,
    LAYER,
    MARGIN,
    RADIUS,
    draw_part,
    edges_of,
    reaching_root,
    spread,
    strongest_part,
)


def draw_graph_and_tree(trace: Trace, tree: Sequence[Phrase], about: str) -> str:
    """The figure as SVG; ``tree`` has the phrases of the traced sentence, root first."""
    canvas = Canvas(2 * HALF, FLOOR + 40, f"Feature graph and parse tree: {' '.join(trace.words)}")
    part = strongest_part(trace)
    edges = reaching_root(edges_of(trace, part))
    places = dict(zip(((0, at) for at in range(len(trace.words))), _words(trace, 0), strict=True))
    for number in range(1, len(trace.layers) + 1):
        here = sorted({edge.source for edge in edges if edge.layer == number + 1})
        across = spread(len(here), 0, 0.72)
        places |= {(number, column): x for column, x in zip(here, across, strict=True)}
    draw_part(canvas, trace, part, edges, places)
    draw_tree(canvas, tree, _words(trace, HALF))
    canvas.text((MARGIN, 26), "feature graph of a trained network", 14, GREY, "start")
    canvas.text((HALF + MARGIN, 26), "parse tree of the treebank", 14, GREY, "start")
    rows = ", ".join(f"layer {i} map {o} row {r}" for i, (o, r) in enumerate(part.rows, start=1))
    return canvas.svg(
        f"Left: {about}; the part of {rows}, with the edges on a path to the root. Blue edges "
        "raise what is above them, red ones lower it. Right: the tree that RecNN and RecNTN use; "
        "a phrase is blue if it is labelled positive, red if negative. The tree joins neighbours, "
        "one pair at a time. The graph is not given: pooling decides which words meet."
    )


def _words(trace: Trace, left: float) -> list[float]:
    return spread(len(trace.words), left)


def draw_tree(canvas: Canvas, tree: Sequence[Phrase], words: Sequence[float]) -> None:
    """Nodes above the middle of their words, the higher the deeper the tree below them."""
    heights: dict[int, int] = {}
    places: dict[int, tuple[float, float]] = {}
    children: dict[int, tuple[int, int]] = {}
    for node in reversed(range(len(tree))):
        if len(tree[node].words) > 1:  # root first: a subtree of n words has 2 n - 1 nodes
            children[node] = node + 1, node + 2 * len(tree[node + 1].words)
        heights[node] = 1 + max((heights[child] for child in children.get(node, ())), default=-1)
    step = 3 * LAYER / max(heights[0], 1)
    for node in reversed(range(len(tree))):
        below = [places[child][0] for child in children.get(node, ())]
        x = sum(below) / 2 if below else words[tree[node].start]
        places[node] = x, FLOOR - heights[node] * step - (0 if below else 16)
    for node, both in children.items():
        for child in both:
            canvas.line(places[node], places[child], GREY, 1.6)
    for node, phrase in enumerate(tree):
        if len(phrase.words) > 1:
            canvas.disc(places[node], RADIUS - 1, shade(phrase.label - NEUTRAL, 2), INK, 1.4)
        else:
            canvas.text((places[node][0], FLOOR + 8), phrase.words[0], 16)
