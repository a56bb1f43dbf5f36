"""Small charts as SVG, drawn by matplotlib without any state of its own left behind."""

import io
from collections.abc import Callable
from typing import Any

from dcnn.errors import MissingExtraError

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
