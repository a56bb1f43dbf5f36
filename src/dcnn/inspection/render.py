"""Files of a feature graph and of detectors; the ending of a file's name chooses its format.

Graph: SVG, PNG and HTML draw a ``Picture``; JSON and GraphML hold the whole graph. Detectors: JSON,
Markdown and HTML. HTML pages are self-contained: their content security policy forbids loading
anything.

- SVG: every element has its style in its own attributes, so the file looks the same in a browser,
  in a README and in print. The ids in ``data-`` attributes let the HTML page follow the edges.
- GraphML has neither lists nor null: each class has a ``contribution`` attribute of its own;
  ``classes``, ``bias``, ``logits`` and ``words`` are JSON; null values are left out.
"""

import html
import io
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, TypeVar

from dcnn.errors import MissingExtraError, UserError
from dcnn.inspection.feature_graph import ROOT, FeatureGraph, build_graph, to_json, to_networkx
from dcnn.inspection.picture import (
    CAPTION_FONT,
    FONT,
    GREY,
    INK,
    LINE,
    ROOT_HEIGHT,
    ROOT_WIDTH,
    WORD_HEIGHT,
    Layout,
    Picture,
    PlacedEdge,
    PlacedNode,
    PlacedWord,
    make_picture,
    place,
    sign_colour,
)
from dcnn.inspection.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dcnn.inspection.detector_ranking import Detection, Detector
    from dcnn.inspection.detectors import DetectorIndex, SelectedDetector

FAMILY = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
PIXELS_PER_INCH = 96  # of the layout
POINTS_PER_PIXEL = 72 / PIXELS_PER_INCH
PNG_DPI = 192
NEEDED_PACKAGES = {".png": "matplotlib", ".graphml": "networkx"}

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Writer = TypeVar("Writer")
GraphWriter = Callable[[Trace, int], bytes]  # of a sentence and the number of a class
ReportWriter = Callable[["DetectorIndex", Sequence["SelectedDetector"]], str]


def graph_writer(path: Path) -> GraphWriter:
    """The function that makes the content of a graph file named ``path``.

    Raises:
        UserError: the ending is not one of ``GRAPH_WRITERS``.
        MissingExtraError: the format needs a package that is not installed.
    """
    writer = _choose(path, GRAPH_WRITERS)
    ending = path.suffix.lower()
    if ending in NEEDED_PACKAGES:
        try:
            import_module(NEEDED_PACKAGES[ending])
        except ImportError:
            raise MissingExtraError(f"Writing {path.name}", "explain") from None
    return writer


def report_writer(path: Path) -> ReportWriter:
    """The function that makes the text of a file of detectors named ``path``.

    Raises:
        UserError: the ending is not one of ``REPORT_WRITERS``.
    """
    return _choose(path, REPORT_WRITERS)


def _choose(path: Path, writers: Mapping[str, Writer]) -> Writer:
    ending = path.suffix.lower()
    if ending not in writers:
        raise UserError(
            f"{path}: the ending {path.suffix!r} names no format; use one of {', '.join(writers)}"
        )
    return writers[ending]


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
    sentence = escaped(" ".join(picture.trace.words))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" font-family="{FAMILY}" '
        f'aria-label="Feature graph of: {sentence}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *(_layer_line(layout, y, name) for y, name in layout.layers),
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


def _layer_line(layout: Layout, y: float, name: str) -> str:
    return (
        f'<line x1="0" x2="{layout.width:.0f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>'
        f'<text x="16" y="{y - 6:.1f}" font-size="12.5" fill="{GREY}">{name}</text>'
    )


def _edge(placed: PlacedEdge) -> str:
    edge, (x1, y1), (x2, y2) = placed.edge, placed.start, placed.end
    (cx1, cy1), (cx2, cy2) = placed.controls
    return (
        f'<path class="edge" data-from="{edge.source}" data-to="{edge.target}" '
        f'd="M{x1:.1f} {y1:.1f}C{cx1:.1f} {cy1:.1f} {cx2:.1f} {cy2:.1f} {x2:.1f} {y2:.1f}" '
        f'fill="none" stroke="{sign_colour(edge.contribution)}" '
        f'stroke-width="{placed.width:.2f}" stroke-opacity="0.55">'
        f"<title>contributes {edge.contribution:+.3f}</title></path>"
    )


def _node(placed: PlacedNode) -> str:
    node = placed.node
    return (
        f'<g class="node" data-id="{node.id}"><circle cx="{placed.x:.1f}" cy="{placed.y:.1f}" '
        f'r="{placed.radius:.1f}" fill="{sign_colour(node.contribution)}" stroke="#ffffff" '
        f'stroke-width="1.6"/><title>{node.description}</title></g>'
    )


def _word(word: PlacedWord) -> str:
    left, top = word.x - word.width / 2, word.y - WORD_HEIGHT / 2
    colour = sign_colour(word.strength)
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


def to_png(picture: Picture) -> bytes:
    """The picture as a PNG, two dots for every pixel of the SVG."""
    from matplotlib.figure import Figure

    layout = place(picture)
    size = layout.width / PIXELS_PER_INCH, layout.height / PIXELS_PER_INCH
    figure = Figure(size, dpi=PNG_DPI, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, layout.width)
    axes.set_ylim(layout.height, 0)
    axes.axis("off")
    _draw(axes, layout)
    stream = io.BytesIO()
    with warnings.catch_warnings():
        # A font that lacks a letter draws a box: no reason to warn the user.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _draw(axes: "Axes", layout: Layout) -> None:
    from matplotlib.patches import Circle, FancyBboxPatch, PathPatch
    from matplotlib.path import Path as Curve

    above = len(layout.edges) + 1  # z-order: edges, then nodes and boxes, then their text

    def text(x: float, y: float, string: str, size: float, **style: Any) -> None:
        options: dict[str, Any] = {"color": GREY, "ha": "center", "va": "center", "zorder": 0}
        # A word such as $x$ is not a formula.
        axes.text(
            x, y, string, fontsize=size * POINTS_PER_PIXEL, parse_math=False, **(options | style)
        )

    def box(x: float, y: float, width: float, height: float, radius: float, **style: Any) -> None:
        corner = x - width / 2, y - height / 2
        shape = f"round,pad=0,rounding_size={radius}"
        axes.add_patch(
            FancyBboxPatch(corner, width, height, boxstyle=shape, ec="none", zorder=above, **style)
        )

    for y, name in layout.layers:
        axes.plot([0, layout.width], [y, y], color=LINE, linewidth=POINTS_PER_PIXEL, zorder=0)
        text(16, y - 10, name, 12.5, ha="left")
    for order, edge in enumerate(layout.edges, start=1):
        curve = Curve([edge.start, *edge.controls, edge.end], [Curve.MOVETO, *[Curve.CURVE4] * 3])
        width, colour = edge.width * POINTS_PER_PIXEL, sign_colour(edge.edge.contribution)
        axes.add_patch(
            PathPatch(curve, fc="none", ec=colour, linewidth=width, alpha=0.55, zorder=order)
        )
    for node in layout.nodes:
        centre, colour = (node.x, node.y), sign_colour(node.node.contribution)
        axes.add_patch(Circle(centre, node.radius, fc=colour, ec="white", zorder=above))
    for word in layout.words:
        colour = sign_colour(word.strength)
        box(word.x, word.y, word.width, WORD_HEIGHT, 6, fc="white")
        box(word.x, word.y, word.width, WORD_HEIGHT, 6, fc=colour, alpha=word.opacity)
        text(word.x, word.y, word.text, FONT, color=INK, zorder=above + 1)
        text(word.x, word.y + WORD_HEIGHT / 2 + 10, word.number, 11)
    x, y = layout.root
    box(x, y, ROOT_WIDTH, ROOT_HEIGHT, 10, fc=INK)
    label, numbers = layout.root_text
    text(x, y - 8, label, 16, color="white", weight="bold", zorder=above + 1)
    text(x, y + 11, numbers, 11.5, color="#cfd6de", zorder=above + 1)
    for y, line in layout.caption:
        text(layout.width / 2, y - 4, line, CAPTION_FONT)


def to_graphml(graph: FeatureGraph) -> bytes:
    """The whole graph as GraphML, for programs that draw and measure graphs."""
    import networkx

    g = to_networkx(graph)
    for attributes in g.nodes.values():
        for name in [name for name, value in attributes.items() if value is None]:
            del attributes[name]
        if "word" in attributes:
            attributes["word"] = xml_characters(attributes["word"])
    names = [f"contribution {xml_characters(str(label))}" for label in graph.trace.classes]
    for attributes in g.edges.values():
        attributes |= zip(names, attributes.pop("contribution", ()), strict=False)
    g.graph = {name: xml_characters(json.dumps(value)) for name, value in g.graph.items()}
    stream = io.BytesIO()
    networkx.write_graphml(g, stream)
    return stream.getvalue()


def to_html(picture: Picture) -> str:
    """The picture as a page; pointing at a node leaves what it comes from and what it goes to."""
    title = f"{escaped(str(picture.label))}: {escaped(' '.join(picture.trace.words))}"
    return _page("graph.html", title=title, svg=to_svg(picture), unit=picture.trace.unit)


def _page(template: str, **values: str) -> str:
    """A self-contained HTML page; the values are escaped already."""
    text = resources.files(__package__).joinpath(template).read_text(encoding="utf-8")
    return Template(text).substitute(values)


GRAPH_WRITERS: dict[str, GraphWriter] = {
    ".svg": lambda trace, of_class: to_svg(make_picture(trace, of_class)).encode(),
    ".png": lambda trace, of_class: to_png(make_picture(trace, of_class)),
    ".html": lambda trace, of_class: to_html(make_picture(trace, of_class)).encode(),
    ".json": lambda trace, _: to_json(build_graph(trace)),
    ".graphml": lambda trace, _: to_graphml(build_graph(trace)),
}


def corpus_summary(index: "DetectorIndex") -> str:
    """A sentence on the corpus and the number of detectors."""
    corpus = index.corpus
    return (
        f"{corpus.sentences:,} sentences, {corpus.total:,} {index.unit}s in all, shown to "
        f"{len(index.detectors)} detectors."
    )


def class_contributions(index: "DetectorIndex", detector: "Detector") -> str:
    """The mean contribution of a detector's n-grams to each logit, for people."""
    amounts = zip(index.predictor.classes, index.class_contributions(detector), strict=True)
    return "contributes " + ", ".join(f"{label} {amount:+.3f}" for label, amount in amounts)


def report_markdown(index: "DetectorIndex", selected: Sequence["SelectedDetector"]) -> str:
    """One table per detector."""
    parts = ["# Feature detectors", corpus_summary(index)]
    for one in selected:
        notes = [note for note in (one.note, class_contributions(index, one.detector)) if note]
        rows = [
            f"| {found.value:+.3f} | {found.count:,} | {_marked_words(found, _literal, '**{}**')} |"
            for found in index.top(one.detector)
        ]
        parts += [
            f"## {one.detector}: {_literal(index.name(one.detector))}",
            _literal("; ".join(notes)),
            "\n".join(["| value | count | n-gram |", "|---:|---:|---|", *rows]),
        ]
    return "\n\n".join(parts) + "\n"


def _literal(text: str) -> str:
    """``text`` without a meaning in Markdown or HTML."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]()#+!|~<>&" else c for c in " ".join(text.split()))


def _marked_words(found: "Detection", escape: Callable[[str], str], mark: str) -> str:
    return " ".join(
        mark.format(escape(part)) if strong else escape(part) for part, strong in found.parts()
    )


def report_html(index: "DetectorIndex", selected: Sequence["SelectedDetector"]) -> str:
    """A page with a search box."""
    return _page(
        "detectors.html",
        summary=escaped(corpus_summary(index)),
        unit=index.unit,
        count=str(len(selected)),
        sections="\n".join(_section(index, one) for one in selected),
    )


def _section(index: "DetectorIndex", one: "SelectedDetector") -> str:
    rows = "\n".join(
        f'<tr><td class="number">{found.value:+.3f}</td>'
        f'<td class="number">{found.count:,}\u00d7</td>'
        f"<td>{_marked_words(found, escaped, '<mark>{}</mark>')}</td></tr>"
        for found in index.top(one.detector)
    )
    note = f"<p>{escaped(one.note)}</p>\n" if one.note else ""
    return (
        f"<section>\n<h2><code>{one.detector}</code> {escaped(index.name(one.detector))}</h2>\n"
        f"{note}<p>{escaped(class_contributions(index, one.detector))}</p>\n"
        f"<table>\n{rows}\n</table>\n</section>"
    )


REPORT_WRITERS: dict[str, ReportWriter] = {
    ".json": lambda index, selected: index.to_json(selected),
    ".html": report_html,
    ".md": report_markdown,
}
