"""A picture of the feature graph as PNG, drawn with matplotlib from the places of the SVG."""

import io
import warnings

from dcnn.errors import MissingExtraError
from dcnn.inspection.layout import (
    AGAINST,
    CAPTION_FONT,
    FONT,
    FOR,
    GREY,
    INK,
    LINE,
    ROOT_HEIGHT,
    ROOT_WIDTH,
    WORD_HEIGHT,
    Layout,
    PlacedEdge,
    PlacedWord,
    place,
)
from dcnn.inspection.picture import Picture

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle, FancyBboxPatch, PathPatch
    from matplotlib.path import Path
except ImportError:
    raise MissingExtraError("Drawing a PNG", "explain") from None

INCH = 96  # pixels of the layout
POINT = 72 / INCH  # a pixel of the layout, in points
DOTS = 192  # an inch


def to_png(picture: Picture) -> bytes:
    """The picture as a PNG, two dots for every pixel of the SVG."""
    layout = place(picture)
    figure = Figure((layout.width / INCH, layout.height / INCH), dpi=DOTS, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, layout.width)
    axes.set_ylim(layout.height, 0)
    axes.axis("off")
    _draw(axes, layout)
    stream = io.BytesIO()
    with warnings.catch_warnings():
        # A font that lacks a letter draws a box: no reason to trouble the user.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _draw(axes: Axes, layout: Layout) -> None:
    for y, name in layout.floors:
        axes.plot([0, layout.width], [y, y], color=LINE, linewidth=POINT, zorder=0)
        _text(axes, 16, y - 10, name, 12.5, GREY, align="left")
    for order, edge in enumerate(layout.edges, start=1):
        axes.add_patch(_edge(edge, order))
    above = len(layout.edges) + 1
    for node in layout.nodes:
        axes.add_patch(
            Circle((node.x, node.y), node.radius, fc=node.colour, ec="white", zorder=above)
        )
    for word in layout.words:
        _word(axes, word, above)
    x, y = layout.root
    axes.add_patch(_box(x, y, ROOT_WIDTH, ROOT_HEIGHT, 10, INK, 1, above))
    _text(axes, x, y - 8, layout.root_text[0], 16, "white", weight="bold", order=above + 1)
    _text(axes, x, y + 11, layout.root_text[1], 11.5, "#cfd6de", order=above + 1)
    for y, line in layout.caption:
        _text(axes, layout.width / 2, y - 4, line, CAPTION_FONT, GREY)


def _edge(edge: PlacedEdge, order: int) -> PathPatch:
    curve = Path(
        [edge.start, *edge.controls, edge.end], [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    )
    return PathPatch(
        curve, fc="none", ec=edge.colour, linewidth=edge.width * POINT, alpha=0.55, zorder=order
    )


def _word(axes: Axes, word: PlacedWord, order: int) -> None:
    colour = FOR if word.strength >= 0 else AGAINST
    axes.add_patch(_box(word.x, word.y, word.width, WORD_HEIGHT, 6, "white", 1, order))
    axes.add_patch(_box(word.x, word.y, word.width, WORD_HEIGHT, 6, colour, word.opacity, order))
    _text(axes, word.x, word.y, word.text, FONT, INK, order=order + 1)
    _text(axes, word.x, word.y + WORD_HEIGHT / 2 + 10, word.number, 11, GREY)


def _box(
    x: float,
    y: float,
    width: float,
    height: float,
    radius: float,
    colour: str,
    alpha: float,
    z: int,
) -> FancyBboxPatch:
    return FancyBboxPatch(
        (x - width / 2, y - height / 2),
        width,
        height,
        boxstyle=f"round,pad=0,rounding_size={radius}",
        fc=colour,
        ec="none",
        alpha=alpha,
        zorder=z,
    )


def _text(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    size: float,
    colour: str,
    align: str = "center",
    weight: str = "normal",
    order: int = 0,
) -> None:
    axes.text(
        x,
        y,
        text,
        fontsize=size * POINT,
        color=colour,
        ha=align,
        va="center",
        weight=weight,
        zorder=order,
        parse_math=False,  # a word such as $x$ is no formula
    )
