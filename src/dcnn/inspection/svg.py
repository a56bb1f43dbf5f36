"""A picture of the feature graph as SVG, written as text.

Everything has its look in its own attributes, so that the file is the same in a browser, in a
README and in print. Ids in ``data-`` attributes let the HTML page follow the edges.
"""

import html
import re

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
from dcnn.inspection.node_link import ROOT
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
