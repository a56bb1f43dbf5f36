"""Small charts as SVG, drawn by matplotlib without any state of its own left behind.

The reliability diagram as an SVG: how often predictions of each confidence are right.

Bars that end at the diagonal are honest. What lies between the share that is right and the mean
confidence is red where the network is too sure, blue where it is not sure enough; below, how many
predictions there are of each confidence. Drawn by hand, as evaluating takes no extra.

"""

import io
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from dcnn.errors import MissingExtraError
from dcnn.metrics import Bin, calibration_error

GREEN, RED, GREY = "#0b6e4f", "#c1554d", "#8a8f98"

# Text stays text, and the same figures give the same file.
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dcnn",
    "font.size": 9,
    "axes.grid": True,
}
_STYLE |= {"grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False}


def draw_svg(draw: Callable[[Any], None], width: float = 6.4, height: float = 3.4) -> str:
    """An SVG element of what ``draw`` puts on the axes that it is given; sizes in inches.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("A chart", "tune") from None
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="tight")
        draw(figure.add_subplot())
        stream = io.StringIO()
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(stream, metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]  # without the XML declaration, so that a page can hold it


GREEN_RELIABILITY_PICTURE, RED_RELIABILITY_PICTURE, BLUE, INK, PALE = (
    "#0b6e4f",
    "#c1554d",
    "#2f6db3",
    "#22262b",
    "#c9cdd3",
)
SIDE, COUNTS = 320, 70  # of the square, and the height of the counts below it
LEFT, TOP, GAP = 58, 54, 18
WIDTH, HEIGHT = LEFT + SIDE + 24, TOP + SIDE + GAP + COUNTS + 46


def reliability_svg(bins: tuple[Bin, ...], title: str, right: str = "share that is right") -> str:
    """The diagram of ``bins``; ``right`` names what is counted upwards."""
    error = f"calibration error {100 * calibration_error(bins):.1f} %"
    total = f"{sum(one.count for one in bins):,} predictions"
    parts = [
        _text(LEFT, 20, title, size=13, weight=600),
        _text(LEFT, 38, f"{error}, {total}"),
        *_grid(),
        *(line for one in bins if one.count for line in _bar(one)),
        f'<path d="M{LEFT} {TOP + SIDE}L{LEFT + SIDE} {TOP}" stroke="{INK}" '
        'stroke-dasharray="4 4" fill="none"/>',
        *_counts(bins),
        *_legend(),
        _text(LEFT + SIDE / 2, HEIGHT - 10, "confidence", anchor="middle"),
        f'<g transform="translate(16 {TOP + SIDE / 2}) rotate(-90)">'
        f"{_text(0, 0, right, anchor='middle')}</g>",
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" role="img" aria-label="{escape(title)}">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _grid() -> Iterator[str]:
    for tenth in range(0, 11, 2):
        share = tenth / 10
        y, x = TOP + SIDE * (1 - share), LEFT + SIDE * share
        yield f'<path d="M{LEFT} {y:g}h{SIDE}" stroke="{PALE}" stroke-width="0.5"/>'
        yield _text(LEFT - 8, y + 4, f"{share:g}", anchor="end")
        yield _text(x, TOP + SIDE + GAP + COUNTS + 16, f"{share:g}", anchor="middle")


def _bar(one: Bin) -> Iterator[str]:
    left, width = LEFT + SIDE * one.low, SIDE * (one.high - one.low)
    low, high = sorted((one.accuracy, one.confidence))
    yield _box(left, TOP + SIDE * (1 - low), width, SIDE * low, GREEN_RELIABILITY_PICTURE, 0.75)
    gap = RED_RELIABILITY_PICTURE if one.confidence > one.accuracy else BLUE
    yield _box(left, TOP + SIDE * (1 - high), width, SIDE * (high - low), gap, 0.55)


def _legend() -> Iterator[str]:
    for line, (colour, meaning) in enumerate(
        ((RED_RELIABILITY_PICTURE, "too sure"), (BLUE, "not sure enough"))
    ):
        yield _box(LEFT + 8, TOP + 8 + 16 * line, 11, 10, colour, 0.55)
        yield _text(LEFT + 24, TOP + 17 + 16 * line, meaning)


def _counts(bins: tuple[Bin, ...]) -> Iterator[str]:
    most = max(1, *(one.count for one in bins))
    floor = TOP + SIDE + GAP + COUNTS
    yield f'<path d="M{LEFT} {floor}h{SIDE}" stroke="{PALE}"/>'
    yield _text(LEFT - 8, floor - COUNTS + 8, f"{most:,}", anchor="end")
    for one in bins:
        height = COUNTS * one.count / most
        width = SIDE * (one.high - one.low)
        yield _box(LEFT + SIDE * one.low, floor - height, width, height, INK, 0.45)


def _box(left: float, top: float, width: float, height: float, fill: str, opacity: float) -> str:
    return (
        f'<rect x="{left + 0.5:.2f}" y="{top:.2f}" width="{width - 1:.2f}" '
        f'height="{max(height, 0):.2f}" fill="{fill}" fill-opacity="{opacity}"/>'
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, weight: int = 400
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}" fill="{INK}">{escape(text)}</text>'
    )
