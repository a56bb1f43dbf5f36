"""Files of a feature graph and of detectors; the ending of a file's name chooses its format.

Graph: SVG, PNG and HTML draw a ``Picture``; JSON and GraphML hold the whole graph. Detectors: JSON,
Markdown and HTML. HTML pages are self-contained: their content security policy forbids loading
anything.

- SVG: every element has its style in its own attributes, so the file looks the same in a browser,
  in a README and in print. The ids in ``data-`` attributes let the HTML page follow the edges.
- PNG: the elements of the SVG, drawn by matplotlib.
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

from dcnn.errors import UserError, needs_extra
from dcnn.inspection import picture as pictures
from dcnn.inspection.attribution import ngram_table
from dcnn.inspection.feature_graph import ROOT, FeatureGraph, build_graph, to_json, to_networkx
from dcnn.inspection.picture import (
    GREY,
    INK,
    Picture,
    PlacedWord,
    ngram_picture,
    node_picture,
    sign_colour,
)
from dcnn.inspection.trace import Trace

if TYPE_CHECKING:
    from dcnn.inspection.detector_ranking import Detection, Detector
    from dcnn.inspection.detectors import DetectorIndex, SelectedDetector

FAMILY = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
PIXELS_PER_INCH = 96  # of the layout
NEEDED_PACKAGES = {".png": "matplotlib", ".graphml": "networkx"}

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Writer = TypeVar("Writer")
# From a trace, a class number, and the number of single nodes to draw; None draws n-grams.
GraphWriter = Callable[[Trace, int, int | None], bytes]
ReportWriter = Callable[["DetectorIndex", Sequence["SelectedDetector"]], str]


def choose_writer(path: Path, writers: Mapping[str, Writer]) -> Writer:
    """The one of ``writers`` that makes the content of a file named ``path``.

    A wrong ending, or a package that its format needs and that is not installed, raises an error.
    """
    ending = path.suffix.lower()
    if ending not in writers:
        raise UserError(
            f"{path}: the ending {path.suffix!r} names no format; use one of {', '.join(writers)}"
        )
    with needs_extra(f"Writing {path.name}", "explain"):
        if ending in NEEDED_PACKAGES:
            import_module(NEEDED_PACKAGES[ending])
    return writers[ending]


def escaped(text: str) -> str:
    """``text`` for the inside of an element or attribute; what XML cannot hold is replaced."""
    return html.escape(xml_characters(text))


def xml_characters(text: str) -> str:
    """``text`` with a replacement for every character that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)


def to_svg(picture: Picture) -> str:
    """The picture as an SVG document."""
    layout = pictures.place(picture)
    width, height = round(layout.width), round(layout.height)
    sentence = escaped(" ".join(picture.trace.words))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" font-family="{FAMILY}" '
        f'aria-label="Feature graph of: {sentence}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for x, y, name in layout.layers:
        anchor = ' text-anchor="middle"' if layout.vertical else ""
        if not layout.vertical:
            line = y + 6
            parts.append(
                f'<line x1="0" x2="{width}" y1="{line:.1f}" y2="{line:.1f}" '
                f'stroke="{pictures.LINE}"/>'
            )
        parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="12.5" fill="{GREY}"{anchor}>{name}</text>'
        )
    for placed in layout.edges:
        edge, (x1, y1), (x2, y2) = placed.edge, placed.start, placed.end
        middle = (x1 + x2) / 2 if layout.vertical else (y1 + y2) / 2
        bends = (middle, y1, middle, y2) if layout.vertical else (x1, middle, x2, middle)
        numbers = [f"{number:.1f}" for number in (x1, y1, *bends, x2, y2)]
        parts.append(
            f'<path class="edge" data-from="{edge.source}" data-to="{edge.target}" '
            f'd="M{" ".join(numbers[:2])}C{" ".join(numbers[2:])}" '
            f'fill="none" stroke="{sign_colour(edge.contribution)}" '
            f'stroke-width="{placed.width:.2f}" stroke-opacity="0.55">'
            f"<title>contributes {edge.contribution:+.3f}</title></path>"
        )
    for disc in layout.nodes:
        node = disc.node
        parts.append(
            f'<g class="node" data-id="{node.id}"><circle cx="{disc.x:.1f}" cy="{disc.y:.1f}" '
            f'r="{disc.radius:.1f}" fill="{sign_colour(node.contribution)}" stroke="#ffffff" '
            f'stroke-width="1.6"/><title>{node.description}</title></g>'
        )
    for one in layout.ngrams:
        box, colour = (one.x, one.y, one.width, pictures.NGRAM_HEIGHT, 8), sign_colour(one.strength)
        parts += [
            f'<g class="node" data-id="{one.ngram.id}">{_box(*box, "#ffffff")}',
            _box(*box, colour, 0.06 + 0.34 * abs(one.strength), colour),
            _text(one.x, one.y - 3, one.text, pictures.NGRAM_FONT, INK),
            _text(one.x, one.y + 13, f"{one.ngram.contribution:+.2f}", 11.5),
            f"<title>{escaped(one.ngram.description)}</title></g>",
        ]
    for word in layout.words:
        identity = f' class="node" data-id="{word.id}"' if word.id else ""
        box = word.x, word.y, word.width, pictures.WORD_HEIGHT, 6
        parts += [
            f"<g{identity}>{_box(*box, '#ffffff')}",
            _box(*box, sign_colour(word.strength), word.opacity),
            _text(word.x, word.y + 5, word.text, pictures.FONT, INK),
            _number(word, layout.vertical),
            f"<title>{escaped(word.description)}</title></g>",
        ]
    root = layout.root
    turn = f' transform="rotate(-90 {root.x:.1f} {root.text_y:.1f})"' if layout.vertical else ""
    label, numbers_text = root.text
    texts = (
        [_text(root.x, root.text_y + 5, f"{label}, {numbers_text}", 12.5, "#ffffff", weight=600)]
        if layout.vertical
        else [
            _text(root.x, root.y - 2, label, 16, "#ffffff", weight=600),
            _text(root.x, root.y + 15, numbers_text, 11.5, "#cfd6de"),
        ]
    )
    parts += [
        f'<g class="node" data-id="{ROOT}">',
        _box(root.x, root.y, root.width, root.height, 10, INK),
        f"<g{turn}>{''.join(texts)}</g></g>",
        *(_text(width / 2, y, line, pictures.CAPTION_FONT) for y, line in layout.caption),
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _number(word: PlacedWord, vertical: bool) -> str:
    """The attribution of a word, below it or left of it."""
    if vertical:
        return _text(word.x - word.width / 2 - 22, word.y + 4, word.number, 11)
    return _text(word.x, word.y + pictures.WORD_HEIGHT / 2 + 14, word.number, 11)


def _box(
    x: float,
    y: float,
    width: float,
    height: float,
    radius: float,
    fill: str,
    opacity: float = 1,
    stroke: str = "",
) -> str:
    line = f' stroke="{stroke}" stroke-opacity="0.6"' if stroke else ""
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" '
        f'height="{height:.0f}" rx="{radius}" fill="{fill}" fill-opacity="{opacity:.2f}"{line}/>'
    )


def _text(x: float, y: float, text: str, size: float, colour: str = GREY, weight: int = 400) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'fill="{colour}" text-anchor="middle">{escaped(text)}</text>'
    )


def to_png(picture: Picture) -> bytes:
    """The picture as a PNG, two dots for every pixel of the SVG."""
    from xml.etree import ElementTree

    from matplotlib.figure import Figure

    root = ElementTree.fromstring(to_svg(picture))  # noqa: S314 our own
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    size = width / PIXELS_PER_INCH, height / PIXELS_PER_INCH
    figure = Figure(size, dpi=2 * PIXELS_PER_INCH, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    turned = {text for group in root.iter() if "transform" in group.attrib for text in group}
    for order, element in enumerate(root.iter()):
        at = element.attrib | ({"rotate": "90"} if element in turned else {})
        _draw(axes, element.tag.rpartition("}")[2], at, element.text or "", order)
    stream = io.BytesIO()
    with warnings.catch_warnings():
        # A font that lacks a letter draws a box: no reason to warn the user.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _draw(axes: Any, tag: str, at: dict[str, str], text: str, order: int) -> None:
    from matplotlib.patches import Circle, FancyBboxPatch, PathPatch
    from matplotlib.path import Path as Curve

    def number(name: str, default: float = 0) -> float:
        return float(at.get(name, default))

    points = 72 / PIXELS_PER_INCH
    style: dict[str, Any] = {
        "facecolor": at.get("fill", "none"),
        "edgecolor": at.get("stroke", "none"),
        "alpha": number("fill-opacity", number("stroke-opacity", 1)),
        "linewidth": number("stroke-width", 1) * points,
        "zorder": order,
    }
    if tag == "rect":
        corner, box = (number("x"), number("y")), f"round,pad=0,rounding_size={number('rx')}"
        size = number("width"), number("height")
        axes.add_patch(FancyBboxPatch(corner, *size, boxstyle=box, **style))
    elif tag == "circle":
        axes.add_patch(Circle((number("cx"), number("cy")), number("r"), **style))
    elif tag == "line":
        ends = (number("x1"), number("x2")), (number("y1"), number("y2"))
        axes.plot(*ends, color=at["stroke"], linewidth=points, zorder=order)
    elif tag == "path":
        curve = [tuple(map(float, point)) for point in re.findall(r"([-.\d]+) ([-.\d]+)", at["d"])]
        axes.add_patch(PathPatch(Curve(curve, [Curve.MOVETO, *[Curve.CURVE4] * 3]), **style))
    elif tag == "text":
        options = {
            "color": at["fill"],
            "fontsize": number("font-size") * points,
            "weight": "bold" if number("font-weight") > 400 else "normal",
            "ha": "center" if "text-anchor" in at else "left",
            "rotation": number("rotate"),
            "parse_math": False,  # a word such as $x$ is not a formula
            "zorder": order,
        }
        axes.text(number("x"), number("y"), text, **options)


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


def to_html(trace: Trace, of_class: int) -> str:
    """The n-grams as a page; hovering over one shows only its paths, clicking shows its nodes."""
    table = ngram_table(trace, of_class)
    picture = ngram_picture(trace, of_class, table=table)
    title = f"{escaped(str(picture.label))}: {escaped(' '.join(trace.words))}"
    figures = []
    for node, among in zip(
        picture.nodes, zip(table.ngrams, table.nodes, strict=True), strict=False
    ):
        if node.id.startswith("ngram:"):
            svg = to_svg(node_picture(trace, of_class, among=among))
            figures.append(f'<figure hidden data-of="{node.id}">\n{svg}</figure>')
    svg, expanded = to_svg(picture), "\n".join(figures)
    return _page("graph.html", title=title, svg=svg, expanded=expanded, unit=trace.unit)


def _page(template: str, **values: str) -> str:
    """A self-contained HTML page; the values are escaped already."""
    text = resources.files(__package__).joinpath(template).read_text(encoding="utf-8")
    return Template(text).substitute(values)


def _picture(trace: Trace, of_class: int, nodes: int | None) -> Picture:
    if nodes is None:
        return ngram_picture(trace, of_class)
    return node_picture(trace, of_class, nodes)


GRAPH_WRITERS: dict[str, GraphWriter] = {
    ".svg": lambda trace, of_class, nodes: to_svg(_picture(trace, of_class, nodes)).encode(),
    ".png": lambda trace, of_class, nodes: to_png(_picture(trace, of_class, nodes)),
    ".html": lambda trace, of_class, _: to_html(trace, of_class).encode(),
    ".json": lambda trace, *_: to_json(build_graph(trace)),
    ".graphml": lambda trace, *_: to_graphml(build_graph(trace)),
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
