"""The figures show what was computed."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings

from dcnn.data.corpora.sst import _phrases
from dcnn.inspection import rank_detectors
from dcnn.inspection.detector_ranking import Detector
from dcnn.inspection.feature_graph import to_networkx
from dcnn.ops import reference
from dcnn.predictor import Predictor
from figures.canvas import Canvas, shade
from figures.convolution import draw_convolutions
from figures.induced_graph import (
    draw_induced_graph,
    edges_of,
    reaching_root,
    strongest_part,
)
from figures.network import draw_network, stages
from figures.parse_tree import draw_tree
from figures.top_ngrams import (
    Block,
    detector_for_class,
    detector_for_word,
    draw_top_ngrams,
    ngrams_with,
)
from not_detector import NOT_DETECTOR, artifact_with_a_not_detector, corpus_with_not
from small_networks import example, inspected

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.fixture(scope="module")
def seen():
    return example("the plot is not dull but good", dim=4, widths=(3, 2), maps=(2, 2), k_top=3)


def test_colours_go_from_white_to_the_full_one():
    assert (shade(0, 2), shade(2, 2), shade(-2, 2)) == ("#ffffff", "#1f6fb4", "#d1495b")
    assert shade(5, 0) == "#ffffff"


def test_a_caption_is_wrapped():
    canvas = Canvas(300, 100, "title")
    svg = canvas.svg("many words " * 12)
    lines = texts(svg)
    assert len(lines) > 3
    assert max(map(len, lines)) * 14 * 0.55 < 300
    assert 'aria-label="title"' in svg


def test_figure_1_draws_only_edges_of_the_feature_graph(seen):
    assert_part_of_graph(seen)
    found = texts(draw_induced_graph(seen.trace))
    assert [text for text in found if text in seen.words] == seen.words * 2


@given(inspected())
@settings(max_examples=50)
def test_every_edge_of_figure_1_is_in_the_graph(seen):
    assert_part_of_graph(seen)


def assert_part_of_graph(seen):
    graph, part = to_networkx(seen.graph), strongest_part(seen.trace)
    depth = len(seen.trace.layers)
    edges = reaching_root(edges_of(seen.trace, part))
    assert {edge.layer for edge in edges} == set(range(1, depth + 2))
    for edge in edges:
        target = "root"
        if edge.layer <= depth:
            target = ":".join(map(str, (edge.layer, *part.rows[edge.layer - 1], edge.target)))
        if edge.layer == 1:
            below = {graph.nodes[n]["position"] for n in graph.predecessors(target)}
            assert edge.source in below
            continue
        o, row = part.rows[edge.layer - 2]
        source = f"{edge.layer - 1}:{o}:{row}:{edge.source}"
        weight = graph.edges[source, target]["weight"]
        assert edge.brought == pytest.approx(weight * graph.nodes[source]["value"], abs=1e-5)


def test_figure_2_shows_both_convolutions_of_the_sequence():
    sequence, weights = (2, 1, 0, 3, -1, 2, 1), (1, 0, -1, 2, 1)
    wide = [
        sum(w * sequence[t - 4 + i] for i, w in enumerate(weights) if 0 <= t - 4 + i < 7)
        for t in range(11)
    ]
    shown = texts(draw_convolutions(sequence, weights))
    numbers = [int(t.replace("\u2212", "-")) for t in shown if re.fullmatch(r"\u2212?\d", t)]
    halves = [*sequence, *wide[4:7]], [*[0] * 4, *sequence, *[0] * 4, *wide]
    assert numbers == [*halves[0], *halves[1]]


def test_figure_3_has_every_matrix(seen):
    found = {(stage.name, stage.maps[0].shape): stage for stage in stages(seen.trace)}
    assert [shape for _, shape in found] == [
        *((4, 7), (4, 9), (2, 9), (2, 4)),
        *((2, 5), (1, 5), (1, 3)),
    ]
    first = found["wide convolution 1", (4, 9)]
    folded = found["folding", (2, 9)]
    for n in range(2):
        np.testing.assert_allclose(reference.fold(first.maps[n]), folded.maps[n], atol=1e-6)
        kept = np.take_along_axis(folded.maps[n], folded.kept[n], axis=-1)
        bias = seen.trace.layers[0].bias[n][:, None]
        np.testing.assert_allclose(
            np.tanh(kept + bias), found["4-max pooling, bias, tanh", (2, 4)].maps[n], atol=1e-6
        )
    svg = draw_network(seen.trace)
    cells = len(re.findall(r"<title>row", svg))
    assert cells == 28 + 2 * (36 + 18 + 8 + 10 + 5 + 3)
    assert set(seen.words) <= set(texts(svg))


def test_figure_3_draws_a_network_without_folding():
    seen = example("the plot is not dull", dim=3, widths=(3,), maps=(2,), k_top=2, fold=False)
    assert [stage.name for stage in stages(seen.trace)][1:] == [
        "wide convolution 1",
        "2-max pooling, bias, tanh",
    ]
    ElementTree.fromstring(draw_network(seen.trace))


@pytest.fixture(scope="module")
def index():
    texts = [*corpus_with_not(), "x&y was not <b> good"]
    return rank_detectors(Predictor(artifact_with_a_not_detector()), texts, layers=[1])


def test_figure_4_finds_the_detector_of_a_word_and_says_where_there_is_none(index):
    assert detector_for_word(index, "not") == NOT_DETECTOR
    artifact = artifact_with_a_not_detector()
    artifact.weights["layers.0.filters"][:, 0, NOT_DETECTOR.row] /= 5  # the others are not weak
    index = rank_detectors(Predictor(artifact), corpus_with_not(), top=30, layers=[1])
    lacking = 0
    for word in index.predictor.artifact.encoder.vocabulary.words:
        heard = [detector for detector in index.find(word) if not index.is_weak(detector)]
        holding = [ngrams_with(index, detector, word)[1] for detector in heard]
        enough = any(2 * count > index.shown for count in holding)
        assert (detector_for_word(index, word) is not None) == enough
        lacking += bool(holding) and not enough
        if found := detector_for_word(index, word):
            best = max(
                ngrams_with(index, d, word)[0]
                for d, n in zip(heard, holding, strict=True)
                if 2 * n > index.shown
            )
            assert ngrams_with(index, found, word)[0] == best
    assert lacking  # some words have detectors, and none that is clear


def test_figure_4_takes_a_class_s_detector_by_all_its_ngrams(index):
    detector = detector_for_class(index, "pos")
    if not all(carried[1] > 0 for carried in index.ngram_contributions(detector)):
        every = [index.ngram_contributions(d) for d in index.detectors]
        assert not any(all(carried[1] > 0 for carried in ngrams) for ngrams in every)
    assert index.class_contributions(detector)[1] > 0


def test_figure_4_shows_the_ngrams_as_they_are(index):
    blocks = [Block("<not>", NOT_DETECTOR), Block("other", Detector(1, 0, 0))]
    found = texts(draw_top_ngrams(index, blocks, "A caption."))
    for block in blocks:
        assert block.title in found
        for detection in index.top(block.detector):
            assert set(detection.words) <= set(found)
            assert f"{detection.value:.2f}" in found
    assert found[-1] == "A caption."


def test_a_parse_tree_has_its_words_once_and_two_edges_per_phrase():
    canvas = Canvas(100, 100, "tree")
    text = "(3 (2 a) (4 (4 good) (2 film)))"
    draw_tree(canvas, _phrases(text), [10.0, 20.0, 30.0])
    drawn = canvas.svg()
    assert drawn.count("<line") == 4
    assert drawn.count("<circle") == 2
    for word, x in (("a", 10), ("good", 20), ("film", 30)):
        assert f'x="{x}.0"' in drawn
        assert f">{word}</text>" in drawn
    # The phrase "good film" is above the middle of its words, and the root above the phrase.
    assert 'cx="25.0"' in drawn
    assert 'cx="17.5"' in drawn
