"""Fig. 3: a DCNN on a sentence, with every matrix between the words and the probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dcnn.inspection.picture import FOR, GREY, INK, LINE
from dcnn.inspection.trace import Trace, TracedLayer
from dcnn.ops import reference
from dcnn.ops.reference import softmax
from figures.canvas import Array, Canvas, shade

CELL = 30.0
WIDTH = 900.0
NAMES = 190.0  # room on the left
BETWEEN = 46.0  # one stage to the next
TOP = 30.0


@dataclass(frozen=True)
class Stage:
    """One row of the figure.

    Attributes:
        name: what it is.
        detail: its sizes.
        maps: one matrix a map.
        kept: for each map, the cells (rows, k) that pooling keeps of it; none if it keeps all.
        reads: columns below that one column reads, 1 where it is the same column.
    """

    name: str
    detail: str
    maps: Sequence[Array]
    kept: Sequence[Array] = ()
    reads: int = 1


def stages(trace: Trace) -> list[Stage]:
    """Every matrix, from the sentence to the topmost pooling."""
    d, s = trace.matrix.shape
    found = [Stage("sentence matrix", f"d = {d}, s = {s}", [trace.matrix])]
    below = trace.matrix[None]
    for number, layer in enumerate(trace.layers, start=1):
        found += _of_layer(number, layer, below)
        below = layer.values
    return found


def _of_layer(number: int, layer: TracedLayer, below: Array) -> list[Stage]:
    m = layer.filters.shape[-1]
    wide = reference.wide_convolution(below[None], layer.filters)[0]  # (o, d, w)
    k = layer.values.shape[-1]
    columns = wide.shape[-1]
    found = [Stage(f"wide convolution {number}", f"m = {m}, {columns} columns", list(wide), (), m)]
    kept = list(layer.positions)
    if layer.filters.shape[2] != layer.bias.shape[1]:  # the layer folds
        detail = f"{wide.shape[1]} rows to {layer.bias.shape[1]}"
        found.append(Stage("folding", detail, list(layer.convolution), kept))
    else:
        found[-1] = Stage(found[-1].name, found[-1].detail, list(wide), kept, m)
    pooling = f"{k}-max pooling, bias, tanh"
    found.append(Stage(pooling, f"k = {k} of {columns}", list(layer.values)))
    return found


def draw_network(trace: Trace) -> str:
    """The figure as SVG; the sentence is at the bottom."""
    rows = stages(trace)
    heights = [stage.maps[0].shape[0] * CELL for stage in rows]
    top = TOP + 2 * CELL + BETWEEN  # below the classes
    floor = top + sum(heights) + BETWEEN * len(rows) + CELL
    canvas = Canvas(WIDTH, floor + 62, f"A DCNN on: {' '.join(trace.words)}")
    y = floor
    places: list[list[tuple[float, float]]] = []  # the upper left corners of each stage's maps
    for stage, height in zip(rows, heights, strict=True):
        y -= height
        places.append([(x, y) for x in _lefts(stage)])
        y -= BETWEEN
    for number in range(1, len(rows)):
        _joins(canvas, rows, places, number)
    for stage, corners in zip(rows, places, strict=True):
        _stage(canvas, stage, corners)
    for word, column in zip(trace.words, range(len(trace.words)), strict=True):
        x = places[0][0][0] + (column + 0.5) * CELL
        at = x, floor + 20 + 17 * (column % 2)
        canvas.text(at, word, 15)
    _top(canvas, trace, places[-1])
    return canvas.svg(
        "Blue is above zero, red below; the full colour is the largest value of a stage, which "
        "stands at its right. Outlined cells are those that pooling keeps. A shaded window is what "
        "one column reads; a convolution reads all maps below it."
    )


def _lefts(stage: Stage) -> list[float]:
    """Where each map begins, side by side about the middle."""
    middle = NAMES + (WIDTH - NAMES - 90) / 2
    width = stage.maps[0].shape[1] * CELL
    gap = 60.0
    total = len(stage.maps) * width + (len(stage.maps) - 1) * gap
    return [middle - total / 2 + i * (width + gap) for i in range(len(stage.maps))]


def _stage(canvas: Canvas, stage: Stage, corners: Sequence[tuple[float, float]]) -> None:
    largest = max(float(np.abs(values).max()) for values in stage.maps)
    height = stage.maps[0].shape[0] * CELL
    middle = corners[0][1] + height / 2
    canvas.text((20, middle - 1), stage.name, 14.5, INK, "start", 600)
    canvas.text((20, middle + 16), stage.detail, 13, GREY, "start")
    canvas.text((WIDTH - 20, middle + 5), f"{largest:.2f}", 13, GREY, "end")
    for number, (corner, values) in enumerate(zip(corners, stage.maps, strict=True)):
        canvas.matrix(corner, CELL, values, largest)
        if stage.kept:
            for row, columns in enumerate(stage.kept[number]):
                for column in columns.tolist():
                    at = corner[0] + column * CELL + 2, corner[1] + row * CELL + 2
                    canvas.box(at, (CELL - 4, CELL - 4), "none", INK, 2.0)


def _joins(
    canvas: Canvas,
    rows: Sequence[Stage],
    places: Sequence[Sequence[tuple[float, float]]],
    number: int,
) -> None:
    """From each map of a stage down to what one of its columns reads."""
    stage, below = rows[number], rows[number - 1]
    for n, corner in enumerate(places[number]):
        bottom = corner[1] + stage.maps[n].shape[0] * CELL
        column, read = _example(stage, below, n)
        # A convolution reads all maps below it; the others their own.
        sources = places[number - 1] if stage.reads > 1 else [places[number - 1][n]]
        for source in sources:
            left, right = source[0] + read[0] * CELL, source[0] + (read[1] + 1) * CELL
            x = corner[0] + column * CELL
            canvas.area(
                [(x, bottom), (x + CELL, bottom), (right, source[1]), (left, source[1])], FOR, 0.13
            )


def _example(stage: Stage, below: Stage, n: int) -> tuple[int, tuple[int, int]]:
    """A column of a map, and the first and last column below that it reads."""
    if stage.reads > 1:  # the last column whose m-gram lies inside, so that the whole window shows
        column = below.maps[0].shape[1] - 1
        return column, (column - stage.reads + 1, column)
    if below.kept:
        last = int(below.kept[n][0][-1])
        return stage.maps[0].shape[1] - 1, (last, last)
    column = stage.maps[0].shape[1] // 2
    return column, (column, column)


def _top(canvas: Canvas, trace: Trace, corners: Sequence[tuple[float, float]]) -> None:
    """The classes, joined to every value of the topmost pooling."""
    probabilities = softmax(trace.logits)
    count = len(trace.classes)
    middle = NAMES + (WIDTH - NAMES - 90) / 2
    size = 150.0, 46.0
    gap = 40.0
    lefts = [
        middle - (count * size[0] + (count - 1) * gap) / 2 + i * (size[0] + gap)
        for i in range(count)
    ]
    values = trace.layers[-1].values
    maps, _, kept = values.shape
    contributions = (trace.head_weight * values.ravel()).reshape(count, maps, -1, kept).sum(axis=2)
    largest = float(np.abs(contributions).max())
    for number, left in enumerate(lefts):
        for n, column in np.ndindex(maps, kept):
            carried = float(contributions[number, n, column])
            canvas.line(
                (corners[n][0] + (column + 0.5) * CELL, corners[n][1]),
                (left + size[0] / 2, TOP + size[1]),
                shade(np.copysign(largest, carried), largest),
                0.8 + 5 * abs(carried) / largest,
                0.6,
            )
    for number, (left, label) in enumerate(zip(lefts, trace.classes, strict=True)):
        canvas.box((left, TOP), size, INK if number == trace.logits.argmax() else GREY, radius=9)
        canvas.text((left + size[0] / 2, TOP + 20), str(label), 15, "#ffffff", weight=600)
        canvas.text((left + size[0] / 2, TOP + 37), f"{probabilities[number]:.1%}", 13, LINE)
    canvas.text((20, TOP + 19), "fully connected,", 14.5, INK, "start", 600)
    canvas.text((20, TOP + 37), "softmax", 14.5, INK, "start", 600)
