"""A picture is a part of the graph, states its share of the logit, and fits on its sheet."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn.inspection.attribution import backward_step, logit_coefficients, word_attributions
from dcnn.inspection.feature_graph import to_networkx
from dcnn.inspection.picture import MANY_WORDS, caption, make_picture, place, shortened, spread
from small_networks import example, inspected


@given(inspected(), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=60)
def test_nodes_and_edges_of_a_picture_are_those_of_the_graph(seen, top, edges):
    graph, picture = to_networkx(seen.graph), make_picture(seen.trace, 1, top, edges)
    into = {}
    for edge in picture.edges:
        into.setdefault(edge.target, []).append(edge)
        if edge.source.startswith("word:"):
            position = int(edge.source.removeprefix("word:"))
            rows = [n for n in graph.predecessors(edge.target) if graph.nodes[n]["layer"] == 0]
            assert position in {graph.nodes[n]["position"] for n in rows}
        else:
            assert graph.has_edge(edge.source, edge.target)
    assert len(into.pop("root")) == min(top, seen.trace.head_weight.shape[1])
    assert {node.id for node in picture.nodes} == set(into)
    for node in picture.nodes:
        out = [edge.contribution for edge in picture.edges if edge.source == node.id]
        assert node.contribution == pytest.approx(sum(out))
    assert all(1 <= len(found) <= edges for found in into.values())


@given(inspected())
@settings(max_examples=40)
def test_a_picture_of_everything_accounts_for_everything(seen):
    trace = seen.trace
    picture = make_picture(trace, 0, trace.head_weight.shape[1], len(seen.graph.nodes))
    shown = picture.node_contributions
    assert shown == pytest.approx(picture.logit - trace.head_bias[0], abs=1e-5)
    words = word_attributions(trace, 0).sum()
    assert picture.path_contributions == pytest.approx(words, abs=1e-5)
    arriving = sum(edge.contribution for edge in picture.edges if edge.target == "root")
    assert arriving == pytest.approx(shown, abs=1e-5)


def test_the_strongest_edges_are_the_ones_kept():
    trace = example(fold=False).trace  # without folding a word's rows stay apart
    one = make_picture(trace, 0, top=1, edges=1)
    (top,) = (edge.source for edge in one.edges if edge.target == "root")
    (kept,) = (edge for edge in one.edges if edge.target == top)
    every = logit_coefficients(trace, [0], trace.depth)
    _, edges = backward_step(trace, every)
    node = int(np.argmax(np.abs(trace.contributions[0])))
    largest = np.abs(edges.contribution[edges.target == node]).max()
    assert abs(kept.contribution) == pytest.approx(largest)


def test_the_share_is_of_the_logit_of_the_class():
    trace = example().trace
    for of_class, label in enumerate(trace.classes):
        picture = make_picture(trace, of_class, top=4)
        every = trace.contributions[of_class]
        strongest = np.argsort(-np.abs(every))[:4]
        assert picture.label == label
        assert picture.logit == pytest.approx(trace.logits[of_class])
        assert picture.node_contributions == pytest.approx(every[strongest].sum(), abs=1e-6)
        assert picture.share == pytest.approx(picture.node_contributions / picture.logit)


def test_a_node_is_described_with_its_margin():
    long, short = example(), example("good", widths=(4,), maps=(2,), k_top=4)
    assert "margin" in make_picture(long.trace, 0).nodes[0].description
    assert "nothing was dropped" in make_picture(short.trace, 0).nodes[0].description


LONG = "the plot is not dull but acting was good and ending bad " * 6


@given(st.lists(st.floats(0, 1000), max_size=12).map(sorted), st.floats(1, 50))
def test_spreading_keeps_order_distance_and_bounds(wishes, spacing):
    places = spread(wishes, spacing, 0, 1000)
    assert len(places) == len(wishes)
    for before, after in pairwise(places):
        assert after - before >= spacing - 1e-6
    assert all(-1e-6 <= x <= 1000 + 1e-6 for x in places)


def test_spreading_moves_nothing_that_has_room_and_shares_the_rest():
    assert spread([10, 50, 90], 20, 0, 100) == [10, 50, 90]
    assert spread([50, 50, 50], 20, 0, 100) == [30, 50, 70]
    assert spread([0, 0], 20, 0, 100) == [0, 20]


@given(inspected())
@settings(max_examples=40)
def test_everything_is_on_the_sheet_and_words_do_not_overlap(seen):
    layout = place(make_picture(seen.trace, 0))
    for before, after in pairwise(layout.words):
        assert before.x + before.width / 2 < after.x - after.width / 2
    for word in layout.words:
        assert word.x - word.width / 2 >= 0
        assert word.x + word.width / 2 <= layout.width
    for node in layout.nodes:
        assert node.radius <= node.x <= layout.width - node.radius
        assert layout.root[1] < node.y < layout.words[0].y
    heights = {node.node.id: node.y for node in layout.nodes}
    for edge in layout.edges:
        assert edge.start[1] > edge.end[1]
        assert edge.start[1] == heights.get(edge.edge.source, edge.start[1])
    assert all(0 < y < layout.height for y, _ in layout.caption)


def test_a_long_sentence_is_drawn_without_the_words_without_a_drawn_edge():
    seen = example(LONG)
    assert len(seen.words) > MANY_WORDS
    picture = make_picture(seen.trace, 0, top=3, edges=1)
    layout = place(picture)
    drawn = {edge.source for edge in picture.edges if edge.source.startswith("word:")}
    assert {word.id for word in layout.words if word.id} == drawn
    gaps = [word for word in layout.words if not word.id]
    assert gaps
    assert all(gap.opacity == 0 for gap in gaps)
    for before, after in pairwise(layout.words):
        assert before.id or after.id


def test_the_caption_states_the_share():
    picture = make_picture(example().trace, 0, top=4)
    lines = " ".join(line for _, line in place(picture).caption)
    assert f"The 4 strongest of {picture.trace.head_weight.shape[1]} topmost nodes" in lines
    assert (f"({picture.share:.0%})" in lines) == (0 <= picture.share <= 1)
    biases = picture.logit - sum(picture.attributions)
    assert f"biases, not drawn: {biases:+.2f}" in lines


@pytest.mark.parametrize(("share", "stated"), [(0.5, True), (-0.5, False), (1.5, False)])
def test_a_share_outside_0_to_1_is_not_stated(share, stated):
    picture = make_picture(example().trace, 0, top=4)
    picture = replace(picture, node_contributions=share * picture.logit)
    assert (f"({share:.0%})" in " ".join(caption(picture))) == stated


@pytest.mark.parametrize(("text", "short"), [("good", "good"), ("a" * 30, "a" * 19 + "…")])
def test_a_long_word_is_cut(text, short):
    assert shortened(text) == short
