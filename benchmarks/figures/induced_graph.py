"""Fig. 1: the feature graph over a sentence, one map and one row of each layer.

On the left every column of the convolutions, those that pooling kept filled in; on the right the
graph alone. The whole graph has such a part for each choice of maps and rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dcnn.inspection.picture import GREY, INK
from dcnn.inspection.trace import Trace
from figures.canvas import WHITE, Canvas, shade

HALF = 520.0  # width
MARGIN = 30.0
FLOOR = 420.0  # height of the words
LAYER = 120.0
RADIUS = 10.0


@dataclass(frozen=True)
class Edge:
    """An edge of the part.

    Attributes:
        layer: of the node above; the root is one above the topmost layer.
        source: column of the node below; a word in the lowest layer.
        target: column of the node above; 0 for the root.
        brought: what the edge contributes to the node above.
    """

    layer: int
    source: int
    target: int
    brought: float


@dataclass(frozen=True)
class Part:
    """The chosen map and row of each layer: (map, row) from the first layer up."""

    rows: tuple[tuple[int, int], ...]


def strongest_part(trace: Trace) -> Part:
    """From the root down, always the map and row that contribute most to the one chosen above."""
    chosen: list[tuple[int, int]] = []
    predicted = int(trace.logits.argmax())
    top = trace.layers[-1].values
    brought = np.abs(trace.head_weight[predicted].reshape(top.shape) * top).sum(axis=-1)  # (o, d')
    for number in range(len(trace.layers) - 1, -1, -1):
        at = np.unravel_index(int(brought.argmax()), brought.shape)
        chosen.insert(0, (int(at[0]), int(at[1])))
        if number == 0:
            break
        layer, below = trace.layers[number], trace.layers[number - 1].values
        o, row = chosen[0]
        brought = np.zeros(below.shape[:2])
        for lower in range(row, below.shape[1], layer.bias.shape[1]):  # those that folding sums
            weight = np.abs(layer.filters[o, :, lower]).sum(axis=-1)  # (n,)
            brought[:, lower] = weight * np.abs(below[:, lower]).sum(axis=-1)
    return Part(tuple(chosen))


def edges_of(trace: Trace, part: Part) -> list[Edge]:
    """All edges among the pooled nodes of the part, its words and the root."""
    edges = []
    below_at = list(range(len(trace.words)))
    for number, layer in enumerate(trace.layers, start=1):
        o, row = part.rows[number - 1]
        m = layer.filters.shape[-1]
        for position in layer.positions[o, row].tolist():
            for i in range(m):
                column = position - m + 1 + i
                if 0 <= column < len(below_at):
                    brought = _brought(trace, part, number, i, column)
                    edges.append(Edge(number, below_at[column], position, brought))
        below_at = layer.positions[o, row].tolist()
    o, row = part.rows[-1]
    top = trace.layers[-1].values
    weights = trace.head_weight[int(trace.logits.argmax())].reshape(top.shape)
    carried = (weights * top)[o, row].tolist()
    root = len(trace.layers) + 1
    return edges + [Edge(root, at, 0, c) for at, c in zip(below_at, carried, strict=True)]


def _brought(trace: Trace, part: Part, number: int, i: int, column: int) -> float:
    """The contribution of a column below through weight ``i`` of a layer's filter."""
    layer = trace.layers[number - 1]
    o, row = part.rows[number - 1]
    if number > 1:
        n, lower = part.rows[number - 2]
        return float(
            layer.filters[o, n, lower, i] * trace.layers[number - 2].values[n, lower, column]
        )
    rows = slice(row, None, layer.bias.shape[1])  # the one, or the two that folding sums
    return float(layer.filters[o, 0, rows, i] @ trace.matrix[rows, column])


def reaching_root(edges: Sequence[Edge]) -> list[Edge]:
    """The edges on a path to the root inside the part."""
    root = max(edge.layer for edge in edges)
    alive = {(root, 0)}
    kept = []
    for edge in sorted(edges, key=lambda edge: -edge.layer):
        if (edge.layer, edge.target) in alive:
            alive.add((edge.layer - 1, edge.source))
            kept.append(edge)
    return kept


def draw_induced_graph(trace: Trace) -> str:
    """The figure as SVG."""
    part = strongest_part(trace)
    canvas = Canvas(2 * HALF, FLOOR + 40, f"Feature graph induced over: {' '.join(trace.words)}")
    columns = [len(trace.words)] + [layer.convolution.shape[-1] for layer in trace.layers]
    everywhere = [spread(count, 0) for count in columns]
    places = {(n, c): x for n, row in enumerate(everywhere) for c, x in enumerate(row)}
    edges = edges_of(trace, part)
    pooled = {(edge.layer, edge.target) for edge in edges}
    for (number, column), x in places.items():
        if number and (number, column) not in pooled:
            canvas.disc((x, FLOOR - number * LAYER), RADIUS - 3, WHITE, "#b9c2cc")
    draw_part(canvas, trace, part, edges, places)
    left = reaching_root(edges)
    for number in range(len(columns)):
        here = sorted({edge.source for edge in left if edge.layer == number + 1})
        here = here if number else list(range(len(trace.words)))
        across = spread(len(here), HALF, 0.9 if number == 0 else 0.72)
        places |= {(number, column): x for column, x in zip(here, across, strict=True)}
    draw_part(canvas, trace, part, left, places)
    widths = " and ".join(str(layer.filters.shape[-1]) for layer in trace.layers)
    ks = " and ".join(str(layer.values.shape[-1]) for layer in trace.layers)
    rows = ", ".join(f"layer {i} map {o} row {r}" for i, (o, r) in enumerate(part.rows, start=1))
    canvas.text((MARGIN, 26), "every column; pooling keeps the large nodes", 14, GREY, "start")
    canvas.text((HALF + MARGIN, 26), "the graph that is left", 14, GREY, "start")
    return canvas.svg(
        f"Filters of width {widths}, k = {ks}; the part of {rows}. Blue edges raise what is above "
        "them, red ones lower it, the wider the more; a node is blue above zero and red below. A "
        "narrow filter of a higher layer joins words that are far apart, since pooling has left "
        "out what was between them."
    )


def spread(count: int, left: float, share: float = 0.9) -> list[float]:
    """``count`` places about the middle of one half."""
    step = min(62.0, (HALF - 2 * MARGIN) * share / max(count - 1, 1))
    start = left + HALF / 2 - step * (count - 1) / 2
    return [start + i * step for i in range(count)]


def draw_part(
    canvas: Canvas,
    trace: Trace,
    part: Part,
    edges: Sequence[Edge],
    places: dict[tuple[int, int], float],
) -> None:
    """One half; ``places`` has an x for every layer and column."""
    root = len(trace.layers) + 1
    middle = (places[0, 0] + places[0, len(trace.words) - 1]) / 2
    places = places | {(root, 0): middle}
    for number in range(1, root + 1):
        here = [edge for edge in edges if edge.layer == number]
        largest = max((abs(edge.brought) for edge in here), default=0.0) or 1.0
        y = FLOOR - number * LAYER
        for edge in here:
            start = places[number - 1, edge.source], y + LAYER - (16 if number == 1 else 0)
            width = 0.9 + 5.0 * abs(edge.brought) / largest
            colour = shade(np.copysign(1.0, edge.brought), 1.0)
            canvas.line(start, (places[number, edge.target], y), colour, width, 0.7)
    for number, layer in enumerate(trace.layers, start=1):
        values = layer.values[part.rows[number - 1]]
        largest = float(np.abs(values).max())
        present = {edge.target for edge in edges if edge.layer == number}
        positions = layer.positions[part.rows[number - 1]].tolist()
        for position, value in zip(positions, values.tolist(), strict=True):
            if position in present:
                at = places[number, position], FLOOR - number * LAYER
                canvas.disc(at, RADIUS, shade(value, largest), INK, 1.6)
    top = FLOOR - root * LAYER
    canvas.disc((middle, top), RADIUS + 3, INK)
    label = str(trace.classes[int(trace.logits.argmax())])
    canvas.text((middle + 24, top + 5), label, 15, anchor="start")
    read = {edge.source for edge in edges if edge.layer == 1}
    for column, word in enumerate(trace.words):
        colour = INK if column in read else "#9aa5b1"
        canvas.text((places[0, column], FLOOR + 8), word, 16, colour)
