"""A picture of the feature graph as SVG, written as text.

Everything has its look in its own attributes, so that the file is the same in a browser, in a
README and in print. Ids in ``data-`` attributes let the HTML page follow the edges.


The feature graph as GraphML, for programs that draw and measure graphs.

GraphML has no lists and no null. Each class has a ``contribution`` attribute of its own, named
after it; ``classes``, ``bias``, ``logits`` and ``words`` are JSON; what is null is left out.


A picture of the feature graph as PNG, drawn with matplotlib from the places of the SVG.

The picture as a page of its own: the SVG and a little script, nothing from a network.

Pointing at a node, or reaching it with the Tab key, leaves only what it comes from and what it goes
to. The policy in the page's head forbids to load anything.


Files of a feature graph; the ending of a file's name chooses its format.
"""

import html
import io
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dcnn.errors import MissingExtraError, UserError
from dcnn.inspection.feature_graph import ROOT, FeatureGraph, to_networkx
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
    PlacedNode,
    PlacedWord,
    place,
)
from dcnn.inspection.picture import Picture

FAMILY = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escaped(text: str) -> str:
    """``text`` for the inside of an element or attribute; what XML cannot hold is replaced."""
    return html.escape(xml_characters(text))


def xml_characters(text: str) -> str:
    """``text`` with a replacement for every character that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)


def to_svg(picture: Picture) -> str:
    """The picture as an SVG document."""
    layout = place(picture)
    width, height = round(layout.width), round(layout.height)
    sentence = escaped(" ".join(picture.words))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" font-family="{FAMILY}" '
        f'aria-label="Feature graph of: {sentence}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *(_floor(layout, y, name) for y, name in layout.floors),
        *map(_edge, layout.edges),
        *map(_node, layout.nodes),
        *map(_word, layout.words),
        _root(layout),
        *(
            f'<text x="{width / 2:.1f}" y="{y:.1f}" font-size="{CAPTION_FONT}" '
            f'fill="{GREY}" text-anchor="middle">{escaped(line)}</text>'
            for y, line in layout.caption
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _floor(layout: Layout, y: float, name: str) -> str:
    return (
        f'<line x1="0" x2="{layout.width:.0f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>'
        f'<text x="16" y="{y - 6:.1f}" font-size="12.5" fill="{GREY}">{name}</text>'
    )


def _edge(edge: PlacedEdge) -> str:
    (x1, y1), (x2, y2) = edge.start, edge.end
    (cx1, cy1), (cx2, cy2) = edge.controls
    return (
        f'<path class="edge" data-from="{edge.source}" data-to="{edge.target}" '
        f'd="M{x1:.1f} {y1:.1f}C{cx1:.1f} {cy1:.1f} {cx2:.1f} {cy2:.1f} {x2:.1f} {y2:.1f}" '
        f'fill="none" stroke="{edge.colour}" stroke-width="{edge.width:.2f}" '
        f'stroke-opacity="0.55"><title>{edge.description}</title></path>'
    )


def _node(node: PlacedNode) -> str:
    return (
        f'<g class="node" data-id="{node.id}"><circle cx="{node.x:.1f}" cy="{node.y:.1f}" '
        f'r="{node.radius:.1f}" fill="{node.colour}" stroke="#ffffff" stroke-width="1.6"/>'
        f"<title>{node.description}</title></g>"
    )


def _word(word: PlacedWord) -> str:
    left, top = word.x - word.width / 2, word.y - WORD_HEIGHT / 2
    colour = FOR if word.strength >= 0 else AGAINST
    identity = f' class="node" data-id="{word.id}"' if word.id else ""
    return (
        f'<g{identity}><rect x="{left:.1f}" y="{top:.1f}" width="{word.width:.1f}" '
        f'height="{WORD_HEIGHT}" rx="6" fill="#ffffff"/>'
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{word.width:.1f}" height="{WORD_HEIGHT}" '
        f'rx="6" fill="{colour}" fill-opacity="{word.opacity:.2f}"/>'
        f'<text x="{word.x:.1f}" y="{word.y + 5:.1f}" font-size="{FONT}" fill="{INK}" '
        f'text-anchor="middle">{escaped(word.text)}</text>'
        f'<text x="{word.x:.1f}" y="{word.y + WORD_HEIGHT / 2 + 14:.1f}" font-size="11" '
        f'fill="{GREY}" text-anchor="middle">{word.number}</text>'
        f"<title>{escaped(word.description)}</title></g>"
    )


def _root(layout: Layout) -> str:
    x, y = layout.root
    label, numbers = layout.root_text
    return (
        f'<g class="node" data-id="{ROOT}"><rect x="{x - ROOT_WIDTH / 2:.1f}" '
        f'y="{y - ROOT_HEIGHT / 2:.1f}" width="{ROOT_WIDTH}" height="{ROOT_HEIGHT}" rx="10" '
        f'fill="{INK}"/><text x="{x:.1f}" y="{y - 2:.1f}" font-size="16" font-weight="600" '
        f'fill="#ffffff" text-anchor="middle">{escaped(label)}</text>'
        f'<text x="{x:.1f}" y="{y + 15:.1f}" font-size="11.5" fill="#cfd6de" '
        f'text-anchor="middle">{numbers}</text></g>'
    )


try:
    import networkx
except ImportError:
    raise MissingExtraError("Writing GraphML", "explain") from None


def to_graphml(graph: FeatureGraph) -> bytes:
    """The graph as GraphML."""
    g = to_networkx(graph)
    for attributes in g.nodes.values():
        _drop_nulls(attributes)
        if "word" in attributes:
            attributes["word"] = xml_characters(attributes["word"])
    names = [f"contribution {xml_characters(str(label))}" for label in graph.classes]
    for attributes in g.edges.values():
        attributes |= zip(names, attributes.pop("contribution", ()), strict=False)
    g.graph = {name: xml_characters(json.dumps(value)) for name, value in g.graph.items()}
    stream = io.BytesIO()
    networkx.write_graphml(g, stream)
    return stream.getvalue()


def _drop_nulls(attributes: dict[str, Any]) -> None:
    for name in [name for name, value in attributes.items() if value is None]:
        del attributes[name]


try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle, FancyBboxPatch, PathPatch
    from matplotlib.path import Path as Outline
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
        axes.add_patch(_edge_png(edge, order))
    above = len(layout.edges) + 1
    for node in layout.nodes:
        axes.add_patch(
            Circle((node.x, node.y), node.radius, fc=node.colour, ec="white", zorder=above)
        )
    for word in layout.words:
        _word_png(axes, word, above)
    x, y = layout.root
    axes.add_patch(_box(x, y, ROOT_WIDTH, ROOT_HEIGHT, 10, INK, 1, above))
    _text(axes, x, y - 8, layout.root_text[0], 16, "white", weight="bold", order=above + 1)
    _text(axes, x, y + 11, layout.root_text[1], 11.5, "#cfd6de", order=above + 1)
    for y, line in layout.caption:
        _text(axes, layout.width / 2, y - 4, line, CAPTION_FONT, GREY)


def _edge_png(edge: PlacedEdge, order: int) -> PathPatch:
    curve = Outline([edge.start, *edge.controls, edge.end], [Outline.MOVETO, *[Outline.CURVE4] * 3])
    return PathPatch(
        curve, fc="none", ec=edge.colour, linewidth=edge.width * POINT, alpha=0.55, zorder=order
    )


def _word_png(axes: Axes, word: PlacedWord, order: int) -> None:
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


_STYLE = """
body { margin: 2rem auto; max-width: 90rem; padding: 0 1rem; color: #1d2530; background: #f4f6f8;
  font-family: system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; }
figure { margin: 0; padding: 1rem; background: #fff; border-radius: 12px; overflow-x: auto; }
svg { display: block; margin: auto; }
.node { cursor: pointer; outline: none; }
.node, .edge { transition: opacity 0.12s; }
.faint { opacity: 0.08; }
#about { min-height: 1.5em; color: #6b7684; }
"""

_SCRIPT = """
const edges = [...document.querySelectorAll('.edge')];
const nodes = [...document.querySelectorAll('.node')];
const about = document.getElementById('about');
const hint = about.textContent;

function reach(start, from, to) {
  const seen = new Set([start]), kept = new Set(), waiting = [start];
  while (waiting.length) {
    const here = waiting.pop();
    for (const edge of edges) {
      if (edge.dataset[from] !== here) continue;
      kept.add(edge);
      if (!seen.has(edge.dataset[to])) {
        seen.add(edge.dataset[to]);
        waiting.push(edge.dataset[to]);
      }
    }
  }
  return [seen, kept];
}

function show(node) {
  const [above, upward] = reach(node.dataset.id, 'from', 'to');
  const [below, downward] = reach(node.dataset.id, 'to', 'from');
  for (const other of nodes) {
    other.classList.toggle('faint', !above.has(other.dataset.id) && !below.has(other.dataset.id));
  }
  for (const edge of edges) {
    edge.classList.toggle('faint', !upward.has(edge) && !downward.has(edge));
  }
  const title = node.querySelector('title');
  about.textContent = title ? title.textContent : hint;
}

function clear() {
  for (const item of [...nodes, ...edges]) item.classList.remove('faint');
  about.textContent = hint;
}

for (const node of nodes) {
  node.setAttribute('tabindex', '0');
  node.addEventListener('mouseenter', () => show(node));
  node.addEventListener('mouseleave', clear);
  node.addEventListener('focus', () => show(node));
  node.addEventListener('blur', clear);
}
"""


def to_html(picture: Picture) -> str:
    """The picture as a self-contained HTML page."""
    sentence = escaped(" ".join(picture.words))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escaped(str(picture.label))}: {sentence}</title>
<style>{_STYLE}</style>
</head>
<body>
<figure>
{to_svg(picture)}</figure>
<p id="about">Point at a {picture.unit} or a node to see what it comes from and where it goes.</p>
<script>{_SCRIPT}</script>
</body>
</html>
"""


Writer = Callable[[FeatureGraph, Picture], bytes]

ENDINGS = (".svg", ".png", ".html", ".json", ".graphml")


def writer_for(path: Path) -> Writer:
    """What makes the bytes of a file named ``path``: the whole graph, or a picture of it.

    Raises:
        UserError: the ending is none of ``ENDINGS``.
        MissingExtraError: the format needs a package that is not installed.
    """
    match path.suffix.lower():  # a format's module is imported when it is asked for
        case ".svg":
            return lambda _, picture: to_svg(picture).encode()
        case ".png":
            return lambda _, picture: to_png(picture)
        case ".html":
            return lambda _, picture: to_html(picture).encode()
        case ".json":
            from dcnn.inspection.feature_graph import to_json

            return lambda graph, _: to_json(graph)
        case ".graphml":
            return lambda graph, _: to_graphml(graph)
        case ending:
            raise UserError(
                f"{path}: the ending {ending!r} names no format; use one of {', '.join(ENDINGS)}"
            )
