"""A picture is a part of the graph, and says truly which part of the logit it holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn.inspection.attribution import descend, word_attributions
from dcnn.inspection.feature_graph import to_networkx
from dcnn.inspection.picture import make_picture
from small_networks import example, inspected


@given(inspected(), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=60)
def test_its_nodes_and_edges_are_those_of_the_graph(seen, top, edges):
    graph, picture = to_networkx(seen.graph), make_picture(seen.graph, 1, top, edges)
    into = {}
    for edge in picture.edges:
        into.setdefault(edge.target, []).append(edge)
        if edge.source.startswith("word:"):
            position = int(edge.source.removeprefix("word:"))
            rows = [n for n in graph.predecessors(edge.target) if graph.nodes[n]["layer"] == 0]
            assert position in {graph.nodes[n]["position"] for n in rows}
        else:
            assert graph.has_edge(edge.source, edge.target)
    assert len(into.pop("root")) == min(top, len(seen.graph.top))
    assert {node.id for node in picture.nodes} == set(into)
    assert all(1 <= len(found) <= edges for found in into.values())


@given(inspected())
@settings(max_examples=40)
def test_a_picture_of_everything_accounts_for_everything(seen):
    graph = seen.graph
    picture = make_picture(graph, 0, len(graph.top), len(graph.nodes))
    assert picture.shown == pytest.approx(picture.logit - graph.bias[0], abs=1e-5)
    assert picture.followed == pytest.approx(word_attributions(graph, 0).sum(), abs=1e-5)
    arriving = sum(edge.contribution for edge in picture.edges if edge.target == "root")
    assert arriving == pytest.approx(picture.shown, abs=1e-5)


def test_the_strongest_edges_are_the_ones_kept():
    graph = example(fold=False).graph  # without folding a word's rows stay apart
    one = make_picture(graph, 0, top=1, edges=1)
    (top,) = (edge.source for edge in one.edges if edge.target == "root")
    (kept,) = (edge for edge in one.edges if edge.target == top)
    number = int(np.argmax(np.abs(graph.contribution[:, 0])))
    first = next(
        descend(graph, graph.top[[number]], graph.root_weight[[number], 0].astype(np.float64))
    )
    assert abs(kept.contribution) == pytest.approx(np.abs(first.flow).max())


def test_the_share_is_of_the_logit_of_the_class():
    graph = example().graph
    for of_class, label in enumerate(graph.classes):
        picture = make_picture(graph, of_class, top=4)
        strongest = np.sort(np.abs(graph.contribution[:, of_class]))[-4]
        chosen = np.abs(graph.contribution[:, of_class]) >= strongest
        assert picture.label == label
        assert picture.logit == pytest.approx(graph.logits[of_class])
        assert picture.shown == pytest.approx(graph.contribution[chosen, of_class].sum(), abs=1e-6)
        assert picture.share == pytest.approx(picture.shown / picture.logit)


def test_a_node_is_described_with_its_margin():
    long, short = example(), example("good", widths=(4,), maps=(2,), k_top=4)
    assert "kept by" in make_picture(long.graph, 0).nodes[0].description
    assert "nothing was dropped" in make_picture(short.graph, 0).nodes[0].description
