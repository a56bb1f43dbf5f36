"""Simple shapes as SVG text; every element has its own style attributes."""

import textwrap
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dcnn.inspection.picture import AGAINST, FOR, GREY, INK
from dcnn.inspection.render import FAMILY, escaped

Array = NDArray[np.floating]
Point = tuple[float, float]

WHITE = "#ffffff"
CAPTION = 14.0
CAPTION_LINE = 20.0
LETTER = 0.55  # mean width of a letter, in font sizes


def shade(value: float, largest: float) -> str:
    """From white for 0 to blue for the largest value and red for its negative."""
    full = FOR if value >= 0 else AGAINST
    share = min(1.0, abs(value) / largest) if largest else 0.0
    channels = (int(full[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 + (c - 255) * share):02x}" for c in channels)


def ink_on(value: float, largest: float) -> str:
    """A text colour that is readable on the shade of a value."""
    return WHITE if largest and abs(value) > 0.6 * largest else INK


class Canvas:
    """A white canvas.

    Args:
        width: in pixels.
        height: in pixels, without the caption.
        title: a description, for screen readers.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def line(
        self,
        start: Point,
        end: Point,
        colour: str = GREY,
        width: float = 1.0,
        opacity: float = 1.0,
        dash: str = "",
    ) -> None:
        """A straight line."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
            f'stroke="{colour}" stroke-width="{width:.2f}" stroke-opacity="{opacity:.2f}" '
            f'stroke-linecap="round"{dashed}/>'
        )

    def area(self, points: Sequence[Point], colour: str, opacity: float) -> None:
        """A filled polygon."""
        at = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polygon points="{at}" fill="{colour}" fill-opacity="{opacity:.2f}"/>')

    def disc(
        self, centre: Point, radius: float, fill: str, stroke: str = INK, width: float = 1.0
    ) -> None:
        """A circle."""
        self._parts.append(
            f'<circle cx="{centre[0]:.1f}" cy="{centre[1]:.1f}" r="{radius:.1f}" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="{width:.1f}"/>'
        )

    def box(
        self,
        corner: Point,
        size: Point,
        fill: str,
        stroke: str = "none",
        width: float = 1.0,
        tooltip: str = "",
        radius: float = 0.0,
    ) -> None:
        """A rectangle from its upper left corner."""
        title = f"<title>{escaped(tooltip)}</title>" if tooltip else ""
        self._parts.append(
            f'<rect x="{corner[0]:.1f}" y="{corner[1]:.1f}" width="{size[0]:.1f}" '
            f'height="{size[1]:.1f}" rx="{radius:.1f}" fill="{fill}" stroke="{stroke}" '
            f'stroke-width="{width:.1f}">{title}</rect>'
        )

    def text(
        self,
        at: Point,
        text: str,
        size: float = 15.0,
        colour: str = INK,
        anchor: str = "middle",
        weight: int = 400,
    ) -> None:
        """A line of text; ``at`` is on its base line."""
        self._parts.append(
            f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" font-size="{size:.1f}" fill="{colour}" '
            f'text-anchor="{anchor}" font-weight="{weight}">{escaped(text)}</text>'
        )

    def matrix(self, corner: Point, cell: float, values: Array, largest: float) -> None:
        """(rows, columns) as coloured cells."""
        for row, column in np.ndindex(values.shape):
            value = float(values[row, column])
            self.box(
                (corner[0] + column * cell, corner[1] + row * cell),
                (cell, cell),
                shade(value, largest),
                "#b9c2cc",
                0.8,
                f"row {row}, column {column}: {value:+.3f}",
            )

    def svg(self, caption: str = "") -> str:
        """The document, with a wrapped caption below."""
        lines = textwrap.wrap(caption, int((self.width - 60) / (CAPTION * LETTER)))
        for number, line in enumerate(lines):
            at = self.width / 2, self.height + (number + 0.7) * CAPTION_LINE
            self.text(at, line, CAPTION, GREY)
        height = round(self.height + len(lines) * CAPTION_LINE + (10 if lines else 0))
        width = round(self.width)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" font-family="{FAMILY}" '
            f'aria-label="{escaped(self.title)}">\n<rect width="{width}" height="{height}" '
            f'fill="{WHITE}"/>'
        )
        return "\n".join([head, *self._parts, "</svg>"]) + "\n"
