"""Small charts as SVG: drawn by matplotlib, and the two diagrams of ``dcnn evaluate``.

The reliability diagram shows the accuracy of predictions at each confidence; bars that end at the
diagonal are calibrated. The gap between accuracy and mean confidence is red where the network is
overconfident and blue where it is underconfident; below are the numbers of predictions. The
risk-coverage curve shows the errors among the texts that get a label by the share that gets one.
Both are written by hand, as evaluating needs no extra.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from dcnn.errors import needs_extra
from dcnn.metrics import Bin, RiskCoverage, calibration_error

GREEN, RED, BLUE, GREY = "#0b6e4f", "#c1554d", "#2f6db3", "#8a8f98"
INK, PALE = "#22262b", "#c9cdd3"

# Text stays text, and the same data gives the same file.
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dcnn",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_svg(draw: Callable[[Any], None], width: float = 6.4, height: float = 3.4) -> str:
    """An SVG element of what ``draw`` puts on the axes that it is given; sizes in inches."""
    with needs_extra("A chart", "tune"):
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="tight")
        draw(figure.add_subplot())
        stream = io.StringIO()
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(stream, metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]  # without the XML declaration, to be embedded in a page


_SIDE, _COUNTS = 320, 70  # of the square, and the height of the counts below it
_LEFT, _TOP, _GAP = 58, 54, 18
_BOTTOM, _FLOOR = _TOP + _SIDE, _TOP + _SIDE + _GAP + _COUNTS
_WIDTH, _HEIGHT = _LEFT + _SIDE + 24, _FLOOR + 46


def reliability_svg(bins: Sequence[Bin], title: str, y_label: str = "accuracy") -> str:
    """The reliability diagram of ``bins``."""
    error = f"calibration error {100 * calibration_error(bins):.1f} %"
    total = f"{sum(one.count for one in bins):,} predictions"
    parts = [
        *_grid(),
        *(shape for one in bins for shape in _bar(one, max(1, *(each.count for each in bins)))),
        f'<path d="M{_LEFT} {_BOTTOM}L{_LEFT + _SIDE} {_TOP}" stroke="{INK}" '
        'stroke-dasharray="4 4" fill="none"/>',
        f'<path d="M{_LEFT} {_FLOOR}h{_SIDE}" stroke="{PALE}"/>',
        _text(_LEFT - 8, _FLOOR - _COUNTS + 8, f"{max(one.count for one in bins):,}", _END),
    ]
    for line, (colour, meaning) in enumerate(((RED, "overconfident"), (BLUE, "underconfident"))):
        parts.append(_box(_LEFT + 8, _TOP + 8 + 16 * line, 11, 10, colour, 0.55))
        parts.append(_text(_LEFT + 24, _TOP + 17 + 16 * line, meaning))
    return _svg(title, f"{error}, {total}", "confidence", y_label, parts, _HEIGHT)


def risk_coverage_svg(curve: RiskCoverage, title: str, threshold: float | None = None) -> str:
    """The risk at each coverage, and the point of ``threshold`` if it is one of the curve's."""
    risks, coverages = 1 - curve.precision, curve.coverage
    # The risk of the first few answers may be anything from 0 to 1.
    top = max(0.01, float(risks[coverages >= 0.1].max(initial=0)))
    xs = _LEFT + _SIDE * coverages
    ys = _BOTTOM - _SIDE * (risks / top).clip(max=1)
    steps = "".join(f"L{x:.2f} {y:.2f}" for x, y in zip(xs, ys, strict=True))
    texts = f"{curve.examples:,} texts"
    if curve.outside_examples:
        texts += f", {curve.outside_examples:,} out of scope"
    parts = list(_grid(top, _BOTTOM))
    if steps:
        parts.append(f'<path d="M{steps[1:]}" stroke="{GREEN}" stroke-width="1.5" fill="none"/>')
    for place in [] if threshold is None else (curve.thresholds == threshold).nonzero()[0]:
        x, y, anchor = xs[place], ys[place], _END if coverages[place] > 0.5 else ""
        parts.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4" fill="{RED}"/>')
        parts.append(_text(x - 8 if anchor else x + 8, y - 8, f"below {threshold:.4f}", anchor))
    y_label = "risk: errors among the answered"
    return _svg(title, texts, "coverage", y_label, parts, _BOTTOM + 46)


def _svg(
    title: str, about: str, x_label: str, y_label: str, parts: Sequence[str], height: float
) -> str:
    parts = [
        _text(_LEFT, 20, title, 'font-size="13" font-weight="600"'),
        _text(_LEFT, 38, about),
        *parts,
        _text(_LEFT + _SIDE / 2, height - 10, x_label, _MIDDLE),
        f'<g transform="translate(16 {_TOP + _SIDE / 2}) rotate(-90)">'
        f"{_text(0, 0, y_label, _MIDDLE)}</g>",
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="11" '
        f'fill="{INK}" role="img" aria-label="{escape(title)}">'
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _grid(top: float = 1.0, floor: float = _FLOOR) -> Iterator[str]:
    """Five steps from 0 to ``top`` upwards and to 1 sideways, whose numbers are below ``floor``."""
    for fifth in range(6):
        share = fifth / 5
        y = _BOTTOM - _SIDE * share
        yield f'<path d="M{_LEFT} {y:g}h{_SIDE}" stroke="{PALE}" stroke-width="0.5"/>'
        yield _text(_LEFT - 8, y + 4, f"{share * top:.3g}", _END)
        yield _text(_LEFT + _SIDE * share, floor + 16, f"{share:g}", _MIDDLE)


def _bar(one: Bin, most: int) -> Iterator[str]:
    """The accuracy of a bin, its gap to the confidence, and below its count."""
    if not one.count:
        return
    left, width = _LEFT + _SIDE * one.low, _SIDE * (one.high - one.low)
    low, high = (_SIDE * share for share in sorted((one.accuracy, one.confidence)))
    gap = RED if one.confidence > one.accuracy else BLUE
    count = _COUNTS * one.count / most
    yield _box(left, _BOTTOM - low, width, low, GREEN, 0.75)
    yield _box(left, _BOTTOM - high, width, high - low, gap, 0.55)
    yield _box(left, _FLOOR - count, width, count, INK, 0.45)


def _box(left: float, top: float, width: float, height: float, fill: str, opacity: float) -> str:
    return (
        f'<rect x="{left + 0.5:.2f}" y="{top:.2f}" width="{width - 1:.2f}" '
        f'height="{height:.2f}" fill="{fill}" fill-opacity="{opacity}"/>'
    )


_MIDDLE, _END = 'text-anchor="middle"', 'text-anchor="end"'


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(text)}</text>'
