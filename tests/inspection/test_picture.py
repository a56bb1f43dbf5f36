"""A picture is a part of the graph, states what it covers, and fits on its sheet."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn.inspection.attribution import (
    COVERAGE,
    backward_step,
    logit_coefficients,
    ngram_table,
    word_attributions,
)
from dcnn.inspection.feature_graph import to_networkx
from dcnn.inspection.picture import (
    BIASES,
    MANY_WORDS,
    OTHERS,
    ngram_picture,
    node_picture,
    place,
    shortened,
    spread,
)
from small_networks import example, inspected


@given(inspected(), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=60)
def test_nodes_and_edges_of_a_picture_are_those_of_the_graph(seen, top, edges):
    graph, picture = to_networkx(seen.graph), node_picture(seen.trace, 1, top, edges)
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
    picture = node_picture(trace, 0, trace.head_weight.shape[1], len(seen.graph.nodes))
    shown = picture.node_contributions
    assert shown == pytest.approx(picture.logit - trace.head_bias[0], abs=1e-5)
    words = word_attributions(trace, 0).sum()
    assert picture.path_contributions == pytest.approx(words, abs=1e-5)
    arriving = sum(edge.contribution for edge in picture.edges if edge.target == "root")
    assert arriving == pytest.approx(shown, abs=1e-5)


def test_the_strongest_edges_are_the_ones_kept():
    trace = example(fold=False).trace  # without folding a word's rows stay apart
    one = node_picture(trace, 0, top=1, edges=1)
    (top,) = (edge.source for edge in one.edges if edge.target == "root")
    (kept,) = (edge for edge in one.edges if edge.target == top)
    every = logit_coefficients(trace, [0], trace.depth)
    _, edges = backward_step(trace, every)
    node = int(np.argmax(np.abs(trace.contributions[0])))
    largest = np.abs(edges.contribution[edges.target == node]).max()
    assert abs(kept.contribution) == pytest.approx(largest)


def test_the_coverage_is_of_all_absolute_contributions_to_the_class():
    trace = example().trace
    for of_class, label in enumerate(trace.classes):
        picture = node_picture(trace, of_class, top=4)
        every = trace.contributions[of_class]
        strongest = np.argsort(-np.abs(every))[:4]
        assert picture.label == label
        assert picture.logit == pytest.approx(trace.logits[of_class])
        assert picture.node_contributions == pytest.approx(every[strongest].sum(), abs=1e-6)
        share = np.abs(every[strongest]).sum() / np.abs(every).sum()
        assert picture.coverage == pytest.approx(share)
    assert node_picture(trace, 0, top=10_000).coverage == pytest.approx(1)


@given(inspected(), st.floats(0.1, 1))
def test_the_boxes_of_a_picture_of_ngrams_add_up_to_the_logit(seen, coverage):
    picture = ngram_picture(seen.trace, 1, coverage)
    assert sum(node.contribution for node in picture.nodes) == pytest.approx(
        picture.logit, abs=1e-5
    )
    arriving = [edge for edge in picture.edges if edge.target == "root"]
    assert {edge.source for edge in arriving} == {node.id for node in picture.nodes}
    assert sum(edge.contribution for edge in arriving) == pytest.approx(picture.logit, abs=1e-5)
    assert picture.coverage >= coverage - 1e-9
    named = [node for node in picture.nodes if node.id not in (OTHERS, BIASES)]
    assert picture.node_contributions == pytest.approx(sum(node.contribution for node in named))
    table = ngram_table(seen.trace, 1)
    assert [node.positions for node in named] == [n.positions for n in table.ngrams[: len(named)]]
    drawn = {(edge.source, edge.target) for edge in picture.edges}
    for node in named:
        assert {(f"word:{i}", node.id) for i in node.positions} <= drawn


def test_an_ngram_expands_to_its_own_nodes():
    trace = example().trace
    table = ngram_table(trace, 0)
    found = []
    for ngram, nodes in zip(table.ngrams, table.nodes, strict=True):
        picture = node_picture(trace, 0, 10_000, among=(ngram, nodes))
        assert picture.ngram == ngram
        top = [node.number for node in picture.nodes if node.layer == trace.depth]
        assert sorted(top) == sorted(nodes.tolist())
        found += top
    assert sorted(found) == list(range(trace.head_weight.shape[1]))


def test_a_node_is_described_with_its_margin():
    long, short = example(), example("good", widths=(4,), maps=(2,), k_top=4)
    assert "margin" in node_picture(long.trace, 0).nodes[0].description
    assert "nothing was dropped" in node_picture(short.trace, 0).nodes[0].description


LONG = "the plot is not dull but acting was good and ending bad " * 6


@given(st.lists(st.floats(0, 1000), max_size=12).map(sorted), st.floats(1, 50))
def test_spreading_keeps_order_distance_and_bounds(wishes, spacing):
    places = spread(wishes, [spacing] * (len(wishes) - 1), 0, 1000)
    assert len(places) == len(wishes)
    for before, after in pairwise(places):
        assert after - before >= spacing - 1e-6
    assert all(-1e-6 <= x <= 1000 + 1e-6 for x in places)


def test_spreading_moves_nothing_that_has_room_and_shares_the_rest():
    assert spread([10, 50, 90], [20, 20], 0, 100) == [10, 50, 90]
    assert spread([50, 50, 50], [20, 20], 0, 100) == [30, 50, 70]
    assert spread([0, 0], [20], 0, 100) == [0, 20]
    assert spread([50, 50, 50], [10, 30], 0, 100) == pytest.approx([100 / 3, 130 / 3, 220 / 3])


@given(inspected(), st.sampled_from([300, 700, 1100]), st.booleans())
@settings(max_examples=60)
def test_everything_is_on_the_sheet_and_nothing_overlaps(seen, room, single):
    picture = node_picture(seen.trace, 0) if single else ngram_picture(seen.trace, 0)
    layout = place(picture, room)
    assert layout.width <= room + 1e-6 or single
    boxes = [(w.x, w.y, w.width, 30) for w in layout.words]
    boxes += [(n.x, n.y, n.width, 42) for n in layout.ngrams]
    boxes += [(n.x, n.y, 2 * n.radius, 2 * n.radius) for n in layout.nodes]
    boxes.append((layout.root.x, layout.root.y, layout.root.width, layout.root.height))
    for x, y, width, height in boxes:
        assert width / 2 - 1e-6 <= x <= layout.width - width / 2 + 1e-6
        assert height / 2 - 1e-6 <= y <= layout.height - height / 2 + 1e-6
    for (x, y, w, h), (x2, y2, w2, h2) in combinations(boxes, 2):
        assert abs(x - x2) >= (w + w2) / 2 - 1e-6 or abs(y - y2) >= (h + h2) / 2 - 1e-6
    for edge in layout.edges:
        (x1, y1), (x2, y2) = edge.start, edge.end
        assert x1 < x2 if layout.vertical else y1 > y2
    assert all(0 < y < layout.height for y, _ in layout.caption)


def test_words_are_a_column_where_a_row_does_not_fit():
    picture = ngram_picture(example().trace, 0)
    row = place(picture, 4000)
    assert not row.vertical
    column = place(picture, row.width - 1)
    assert column.vertical
    assert column.width <= row.width - 1
    assert [word.text for word in column.words] == [word.text for word in row.words]


def test_a_long_sentence_is_drawn_without_the_words_without_a_drawn_edge():
    seen = example(LONG)
    assert len(seen.words) > MANY_WORDS
    picture = node_picture(seen.trace, 0, top=3, edges=1)
    layout = place(picture)
    drawn = {edge.source for edge in picture.edges if edge.source.startswith("word:")}
    assert {word.id for word in layout.words if word.id} == drawn
    gaps = [word for word in layout.words if not word.id]
    assert gaps
    assert all(gap.opacity == 0 for gap in gaps)
    for before, after in pairwise(layout.words):
        assert before.id or after.id


def test_the_caption_states_the_coverage():
    trace = example().trace
    for picture, start in (
        (node_picture(trace, 0, top=4), "The 4 strongest nodes have"),
        (ngram_picture(trace, 0), "n-grams drawn have"),
    ):
        lines = " ".join(line for _, line in place(picture).caption)
        total = trace.head_weight.shape[1]
        covered = f"{picture.coverage:.0%} of the absolute contributions of all {total} topmost"
        assert start in lines
        assert covered in lines
        assert f"{picture.logit:+.2f}" in lines
    assert ngram_picture(trace, 0).coverage >= COVERAGE


@pytest.mark.parametrize(("text", "short"), [("good", "good"), ("a" * 30, "a" * 19 + "…")])
def test_a_long_word_is_cut(text, short):
    assert shortened(text) == short
