"""Files: well-formed, self-contained, and nothing that a user typed gets out of its quotes."""

import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread

from dcnn.errors import MissingExtraError, UserError
from dcnn.inspection.feature_graph import build_graph
from dcnn.inspection.picture import FOR, ngram_picture, node_picture, place
from dcnn.inspection.render import GRAPH_WRITERS, choose_writer
from dcnn.inspection.trace import trace_sentence
from small_networks import example
from untrained import make_artifact

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    '<script>alert("1")</script>',
    "\"'><img/src=x>",
    "]]>",
    "&amp;",
    "$\\frac$",
    "\x01\x1b[31m",
]


def written(ending, words=None, classes=("neg", "pos"), nodes=None):
    artifact = make_artifact(classes=classes)
    trace = trace_sentence(artifact, words or example().words)
    return choose_writer(Path("graph" + ending), GRAPH_WRITERS)(trace, 0, nodes), trace


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.names, self.attributes = [], []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += attrs


@pytest.mark.parametrize("nodes", [None, 10])
def test_svg_is_well_formed_and_draws_every_part(nodes):
    content, trace = written(".svg", nodes=nodes)
    root = ElementTree.fromstring(content)
    layout = place(ngram_picture(trace, 0) if nodes is None else node_picture(trace, 0, nodes))
    assert len(root.findall(f"{SVG}path")) == len(layout.edges)
    assert len(root.findall(f".//{SVG}circle")) == len(layout.nodes)
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    layers = ("layer 1", "layer 2") if nodes else ("n-grams", "biases")
    for word in (*example().words, "neg", *layers, "words"):
        assert word in texts
    for box in layout.ngrams:
        assert box.text in texts
    assert any("absolute contributions" in text for text in texts)


def test_a_column_of_words_is_drawn_where_a_row_does_not_fit():
    words = example().words * 4
    content, trace = written(".svg", words)
    root = ElementTree.fromstring(content)
    assert place(ngram_picture(trace, 0)).vertical
    assert float(root.get("width")) <= 1100
    assert any("rotate(-90" in group.get("transform", "") for group in root.iter(f"{SVG}g"))


def test_colour_shows_the_sign_and_width_the_amount():
    content, trace = written(".svg")
    picture = ngram_picture(trace, 0)
    flows = {(edge.source, edge.target): edge.contribution for edge in picture.edges}
    drawn = ElementTree.fromstring(content).findall(f"{SVG}path")
    for path in drawn:
        flow = flows[path.get("data-from"), path.get("data-to")]
        assert (path.get("stroke") == FOR) == (flow >= 0)
    strength = [abs(flows[path.get("data-from"), path.get("data-to")]) for path in drawn]
    widths = [float(path.get("stroke-width")) for path in drawn]
    assert np.argmax(strength) == np.argmax(widths)
    assert widths == sorted(widths)


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=6))
@settings(max_examples=40)
def test_svg_of_any_words_is_well_formed(words):
    words = [word.encode(errors="replace").decode() for word in words]
    content, _ = written(".svg", words, classes=(words[0] + "<", "other"))
    ElementTree.fromstring(content)


def test_words_cannot_inject_elements_into_the_page():
    plain, hostile = Tags(), Tags()
    plain.feed(written(".html", ["word"] * len(HOSTILE))[0].decode())
    page = written(".html", HOSTILE, classes=("<b>neg</b>", "pos"))[0].decode()
    hostile.feed(page)
    counted = lambda names: {name: names.count(name) for name in ("script", "img", "b")}  # noqa: E731
    assert counted(hostile.names) == counted(plain.names) == {"script": 1, "img": 0, "b": 0}
    assert "\x1b" not in page


def test_the_page_needs_no_network():
    content, _ = written(".html")
    page = content.decode()
    tags = Tags()
    tags.feed(page)
    assert not {"link", "iframe", "object", "embed", "base", "form"} & set(tags.names)
    assert not {"src", "href", "xlink:href", "action"} & {name for name, _ in tags.attributes}
    assert set(re.findall(r"(?:https?:)?//[a-z][^\s\"'<]*", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page


def test_every_end_of_an_edge_can_be_found_in_the_page():
    page = written(".html")[0].decode()
    ids = set(re.findall(r'data-id="([^"]+)"', page))
    ends = set(re.findall(r'data-(?:from|to)="([^"]+)"', page))
    assert ends <= ids
    assert "root" in ends


def test_the_page_has_the_nodes_of_every_ngram_drawn():
    content, trace = written(".html")
    hidden = re.findall(r'<figure hidden data-of="([^"]+)">', content.decode())
    drawn = [node.id for node in ngram_picture(trace, 0).nodes if node.positions]
    assert hidden == drawn


def test_png_has_two_dots_for_a_pixel_of_the_layout():
    content, trace = written(".png", [*example().words, *HOSTILE, "電影"])
    image = imread(io.BytesIO(content))
    layout = place(ngram_picture(trace, 0))
    assert image.shape[:2] == pytest.approx((2 * layout.height, 2 * layout.width), abs=2)
    few = image[::16, ::16].reshape(-1, image.shape[-1])
    assert len(np.unique(few, axis=0)) > 20  # colours: something was drawn


def test_graphml_is_read_back_with_its_attributes():
    content, trace = written(".graphml", [*example().words, "\x01<&"], classes=("a&b", "c"))
    read = networkx.read_graphml(io.BytesIO(content))
    assert read.is_directed()
    graph = build_graph(trace)
    assert read.number_of_nodes() == len(graph.nodes) + 1
    assert read.number_of_edges() == len(graph.edges) + trace.head_weight.shape[1]
    assert json.loads(read.graph["logits"]) == trace.logits.tolist()
    total = sum(edge["contribution a&b"] for _, _, edge in read.in_edges("root", data=True))
    assert total + trace.head_bias[0] == pytest.approx(trace.logits[0], abs=1e-5)
    words = {at["word"] for _, at in read.nodes(data=True) if "word" in at}
    assert words <= {*example().words, "\ufffd<&"}


def test_json_is_the_node_link_data():
    content, trace = written(".json")
    assert json.loads(content)["graph"]["words"] == list(trace.words)


@pytest.mark.parametrize("name", ["graph.pdf", "graph", ".svg"])
def test_an_unknown_ending_raises_an_error_with_the_known_ones(name):
    with pytest.raises(UserError, match="names no format; use one of") as error:
        choose_writer(Path(name), GRAPH_WRITERS)
    for ending in GRAPH_WRITERS:
        assert ending in str(error.value)


def test_an_ending_may_be_in_capitals():
    assert choose_writer(Path("GRAPH.SVG"), GRAPH_WRITERS)


@pytest.mark.parametrize(("missing", "ending"), [("matplotlib", ".png"), ("networkx", ".graphml")])
def test_a_missing_extra_is_named_with_its_install_command(missing, ending):
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from pathlib import Path\n"
        "from dcnn.inspection.render import GRAPH_WRITERS, choose_writer\n"
        f"try: choose_writer(Path('graph{ending}'), GRAPH_WRITERS)\n"
        f"except {MissingExtraError.__module__}.MissingExtraError as error: sys.exit(str(error))"
    ).replace("from pathlib", "import dcnn.errors\nfrom pathlib")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "pip install 'dcnn[explain]'" in done.stderr
    assert "Traceback" not in done.stderr
