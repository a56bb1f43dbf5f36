"""Small charts: drawn by matplotlib as SVG or PNG, and two diagrams of ``dcnn evaluate``.

The reliability diagram shows the accuracy of predictions at each confidence; bars that end at the
diagonal are calibrated. The gap between accuracy and mean confidence is red where the network is
overconfident and blue where it is underconfident; below are the numbers of predictions. The
risk-coverage curve shows the error rate of the texts that get a label against the share of texts
that get one.
Both are written by hand, as evaluating needs no extra.
"""

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.errors import UserError, needs_extra
from dcnn.files import check_place
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


PICTURES = (".svg", ".png")


def draw_svg(draw: Callable[[Any], None], width: float = 6.4, height: float = 3.4) -> str:
    """An SVG element of what ``draw`` puts on the axes that it is given; sizes in inches."""
    text = draw_picture(draw, ".svg", width, height, extra="tune").decode()
    return text[text.index("<svg") :]  # without the XML declaration, to be embedded in a page


def draw_picture(
    draw: Callable[[Any], None], suffix: str, width: float, height: float, extra: str = "explain"
) -> bytes:
    """What ``draw`` puts on the axes that it is given, as SVG or PNG."""
    with needs_extra("A chart", extra):
        import matplotlib
        from matplotlib.figure import Figure
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = Figure(figsize=(width, height), layout="tight")
        draw(figure.add_subplot())
        stream = io.BytesIO()
        metadata = {"Date": None} if suffix == ".svg" else None
        figure.savefig(stream, format=suffix[1:], metadata=metadata, dpi=150)
    return stream.getvalue()


def check_picture(option: str, path: Path) -> None:
    """Check before any work is done that a picture can be written; errors name ``option``."""
    if path.suffix.lower() not in PICTURES:
        raise UserError(
            f"{option} {path}: a picture is an SVG or a PNG; name a file that ends in .svg or .png"
        )
    check_place(option, path)
    with needs_extra(f"Drawing {path.name}", "explain"):
        import matplotlib  # noqa: F401


MATRIX_CLASSES = 30  # of a confusion matrix; more do not fit a screen
_LONGEST_NAME = 28  # of a class, in characters


def draw_confusion(
    pairs: NDArray[np.int64], labels: Sequence[str], title: str, suffix: str
) -> bytes:
    """The confusion matrix of the ``pairs`` of an ``Evaluation``.

    Rows are true, columns predicted; cells are shaded by their share of the row. Of more than
    ``MATRIX_CLASSES`` classes those with most errors are shown, the others together.
    """
    true, predicted, counts = pairs.T
    wrong = true != predicted
    accuracy = counts[~wrong].sum() / max(1, counts.sum())
    about = f"{counts.sum():,} texts, accuracy {100 * accuracy:.1f} %"
    names = [name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in labels]
    places = np.arange(len(names))
    if len(names) > MATRIX_CLASSES:
        errors = np.bincount(pairs[wrong, :2].ravel(), np.repeat(counts[wrong], 2), len(names))
        chosen = np.sort(np.argsort(-errors, kind="stable")[: MATRIX_CLASSES - 1])
        places = np.full(len(names), len(chosen))
        places[chosen] = np.arange(len(chosen))
        about += f"; the {len(chosen)} classes with most errors of {len(names)}"
        names = [*(names[one] for one in chosen), f"{len(names) - len(chosen)} others"]
    n = len(names)
    confusion = np.zeros((n, n), np.int64)
    np.add.at(confusion, (places[true], places[predicted]), counts)
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    cell, size = (0.62, 8.0) if n <= 12 else (0.36, 7.0)  # inches, points
    margin = 0.9 + 0.009 * max(map(len, names)) * size

    def draw(axes: Any) -> None:
        diagonal, colours = np.eye(n, dtype=bool), np.ones((n, n, 3))
        for where, colour in ((diagonal, GREEN), (~diagonal, RED)):
            rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
            # The square root makes a few errors among many visible.
            colours[where] = 1 - np.sqrt(shares)[where][:, None] * (1 - rgb)
        axes.imshow(colours, interpolation="nearest")
        for row, column in np.argwhere(confusion):
            ink = "white" if shares[row, column] > 0.35 else INK
            number = f"{confusion[row, column]}"
            axes.text(column, row, number, ha="center", va="center", fontsize=size, color=ink)
        axes.set_xticks(range(n), names, rotation=90, fontsize=size)
        axes.set_yticks(range(n), names, fontsize=size)
        axes.set_xticks(np.arange(n + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(n + 1) - 0.5, minor=True)
        axes.grid(False)
        axes.grid(which="minor", color=PALE, linewidth=0.3)
        axes.tick_params(which="minor", length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(f"{title}\n{about}", fontsize=9, loc="left")
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")

    side = cell * n
    return draw_picture(draw, suffix, max(4.2, side + margin), max(2.4, side + margin + 0.2))


def draw_learning_curve(
    points: Sequence[tuple[int, float, float]], measure: str, title: str, suffix: str
) -> bytes:
    """Accuracy, called ``measure``, and macro F1 against the number of examples.

    ``points`` are one per training; lines are means, bands reach from the lowest to the highest.
    """
    sizes = sorted({examples for examples, *_ in points})

    def draw(axes: Any) -> None:
        for place, name, colour in ((1, measure, GREEN), (2, "macro F1", BLUE)):
            found = [[100 * p[place] for p in points if p[0] == size] for size in sizes]
            axes.plot(sizes, [sum(s) / len(s) for s in found], "o-", color=colour, label=name)
            lows, highs = [min(some) for some in found], [max(some) for some in found]
            axes.fill_between(sizes, lows, highs, color=colour, alpha=0.18, linewidth=0)
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("training examples")
        axes.set_ylabel("%")
        axes.set_title(title, fontsize=10, loc="left")
        axes.legend(frameon=False)

    return draw_picture(draw, suffix, 6.4, 3.6)


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
    y_label = "risk: error rate of texts with a label"
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
