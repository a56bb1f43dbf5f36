"""The laws of the induced feature graph (Sect. 4.2), and its node-link data."""

import json
from collections import defaultdict

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn.errors import MissingExtraError
from dcnn.inspection.feature_graph import incoming_edges, to_json, to_networkx
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import Sentences
from networks import build_model
from small_networks import example, inspected


def matrix_gradient(seen, of_class):
    """(d, s) by autograd, on the torch module: of a logit with respect to the sentence matrix."""
    artifact = seen.artifact
    sizes = len(artifact.encoder.vocabulary), len(artifact.classes)
    model = build_model(artifact.config.model, *sizes).eval()
    model.load_state_dict({name: torch.tensor(v) for name, v in artifact.weights.items()})
    ids = torch.tensor([artifact.encoder.vocabulary.ids(seen.words)])
    matrix = model.sentence_matrix(ids).detach().requires_grad_()
    model.sentence_matrix = lambda _: matrix
    # Layer by layer: a backend that takes the whole network at once has no matrix to look at.
    model.head(model.encode(ids, torch.tensor([len(seen.words)])))[0, of_class].backward()
    return matrix.grad[0, 0].numpy()


@given(inspected())
def test_root_edges_and_bias_add_up_to_the_logits_of_the_predictor(seen):
    graph = to_networkx(seen.graph)
    total = np.array(graph.graph["bias"])
    for _, _, edge in graph.in_edges("root", data=True):
        total = total + edge["contribution"]
    np.testing.assert_allclose(total, graph.graph["logits"], atol=1e-5)
    ids = seen.artifact.encoder.vocabulary.ids(seen.words)
    (logits,) = Predictor(seen.artifact).logits(Sentences.from_lists([ids]))
    np.testing.assert_allclose(graph.graph["logits"], logits, atol=1e-5)
    assert graph.graph["classes"] == ["a", "b", "c"]


@given(inspected())
def test_the_graph_is_a_dag_in_which_every_node_reaches_the_root(seen):
    graph = to_networkx(seen.graph)
    assert networkx.is_directed_acyclic_graph(graph)
    assert networkx.ancestors(graph, "root") == set(graph) - {"root"}
    assert [node for node in graph if graph.out_degree(node) == 0] == ["root"]
    for source, target in graph.edges:
        assert graph.nodes[target]["layer"] == graph.nodes[source]["layer"] + 1


@given(inspected())
def test_a_value_is_recomputed_from_the_edges_below_it(seen):
    graph = to_networkx(seen.graph)
    for node, at in graph.nodes(data=True):
        if node == "root" or at["layer"] == 0:
            continue
        bias = seen.artifact.weights[f"layers.{at['layer'] - 1}.bias"][at["map"], at["row"]]
        total = sum(
            edge["weight"] * graph.nodes[source]["value"]
            for source, _, edge in graph.in_edges(node, data=True)
        )
        np.testing.assert_allclose(at["value"], np.tanh(total + bias), atol=1e-5)


@given(inspected())
@settings(max_examples=60)
def test_values_without_a_path_to_the_root_have_zero_gradient(seen):
    inside = np.zeros(seen.trace.matrix.shape, bool)
    words = seen.graph.nodes.layer == 0
    inside[seen.graph.nodes.row[words], seen.graph.nodes.position[words]] = True
    for of_class in range(3):
        assert (matrix_gradient(seen, of_class)[~inside] == 0).all()


def test_words_that_pooling_drops_are_not_in_the_graph():
    seen = example("bad " + "the plot is not dull but acting was good and ending " * 4, k_top=1,
                   widths=(2,), maps=(1,), dim=2)  # fmt: skip
    kept = np.unique(seen.graph.nodes.position[seen.graph.nodes.layer == 0])
    lost = np.setdiff1d(np.arange(len(seen.words)), kept)
    gradient = matrix_gradient(seen, 0)
    assert len(lost)
    assert not gradient[:, lost].any()
    assert gradient[:, kept].any(axis=0).all()


def rows_of_the_matrix(graph):
    """For every node but the root: the rows of the sentence matrix that it comes from."""
    rows = defaultdict(set)
    for node in networkx.topological_sort(graph):
        if node == "root":
            continue
        if graph.nodes[node]["layer"] == 0:
            rows[node] = {graph.nodes[node]["row"]}
        for above in graph.successors(node):
            rows[above] |= rows[node]
    del rows["root"]
    return rows


@given(inspected(fold=False))
def test_without_folding_the_rows_meet_only_at_the_root(seen):
    graph = to_networkx(seen.graph)
    for node, rows in rows_of_the_matrix(graph).items():
        assert rows == {graph.nodes[node]["row"]}
    parts = networkx.number_weakly_connected_components(graph.subgraph(set(graph) - {"root"}))
    assert parts >= seen.artifact.config.model.dim


@given(inspected(fold=True))
def test_with_folding_two_rows_join_where_they_are_summed(seen):
    graph = to_networkx(seen.graph)
    dim = seen.artifact.config.model.dim
    for node, rows in rows_of_the_matrix(graph).items():
        at = graph.nodes[node]
        half = dim // 2 ** at["layer"]
        assert rows == {row for row in range(dim) if row % half == at["row"]}


def test_the_sst_2_network_has_the_paper_s_sizes():
    seen = example("the plot is not dull but acting was good and ending bad very , the plot is "
                   "not dull .", dim=48, widths=(7, 5), maps=(6, 14), k_top=4)  # fmt: skip
    counts = np.bincount(seen.graph.nodes.layer)
    assert len(seen.words) == 20
    assert counts[2] == 14 * 12 * 4
    assert counts[1] <= 6 * 24 * 10
    assert counts[0] <= 48 * 20
    first = len(seen.graph.nodes) - counts[2]
    into_top = np.count_nonzero(seen.graph.edges.target >= first)
    assert into_top <= counts[2] * 5 * 6 * 2  # width, maps below, rows summed


@given(inspected(), st.data())
def test_incoming_edges_are_those_of_the_convolution(seen, data):
    number = data.draw(st.integers(1, seen.trace.depth))
    layer, below = seen.trace.layers[number - 1], seen.trace.values(number - 1)
    rows = layer.values.shape[1]
    node = data.draw(st.integers(0, layer.values.size - 1))
    target, source, weight = incoming_edges(
        layer.positions, layer.filters, below.shape[-1], np.array([0, node])
    )
    assert (np.diff(target) >= 0).all()
    map_, row, place = np.unravel_index(node, layer.values.shape)
    end, width = layer.positions[map_, row, place], layer.filters.shape[-1]
    expected = {
        int(np.ravel_multi_index((n, r, column), below.shape)): layer.filters[
            map_, n, r, column - end + width - 1
        ]
        for n in range(below.shape[0])
        for r in range(row, below.shape[1], rows)
        for column in range(max(0, end - width + 1), min(end + 1, below.shape[-1]))
    }
    assert dict(zip(source[target == 1].tolist(), weight[target == 1], strict=True)) == expected


POOLED = {"id", "layer", "row", "map", "position", "value", "margin"}


@given(inspected())
@settings(max_examples=40)
def test_json_to_networkx_to_json_is_the_identity(seen):
    data = json.loads(to_json(seen.graph))
    graph = networkx.node_link_graph(data, edges="edges")
    again = json.loads(json.dumps(networkx.node_link_data(graph, edges="edges")))
    assert again["graph"] == data["graph"]
    assert (again["directed"], again["multigraph"]) == (True, False)
    assert again["nodes"] == data["nodes"]
    ends = ("source", "target")
    order = lambda edge: tuple(edge[end] for end in ends)  # noqa: E731
    assert sorted(again["edges"], key=order) == sorted(data["edges"], key=order)


@given(inspected())
@settings(max_examples=40)
def test_nodes_and_edges_have_their_fields(seen):
    data = json.loads(to_json(seen.graph))
    assert set(data["graph"]) == {"classes", "bias", "logits", "words"}
    assert data["graph"]["words"] == seen.words
    depth = seen.artifact.config.model.depth
    for node in data["nodes"]:
        if node["layer"] == 0:
            assert set(node) == POOLED | {"word"}
            assert node["word"] == seen.words[node["position"]]
            assert node["margin"] is None
        else:
            assert set(node) == POOLED
            dropped = (
                node["id"] != "root" and (seen.trace.layers[node["layer"] - 1].rivals >= 0).all()
            )
            assert (node["margin"] is not None) == dropped
    assert [node["id"] for node in data["nodes"] if node["layer"] == depth + 1] == ["root"]
    for edge in data["edges"]:
        extra = {"contribution"} if edge["target"] == "root" else set()
        assert set(edge) == {"source", "target", "weight"} | extra
        assert len(edge.get("contribution", "abc")) == len(data["graph"]["classes"])


def test_a_root_edges_weight_is_the_one_towards_the_predicted_class():
    graph = to_networkx(example().graph)
    logits = graph.graph["logits"]
    predicted = logits.index(max(logits))
    for node, _, edge in graph.in_edges("root", data=True):
        expected = edge["weight"] * graph.nodes[node]["value"]
        assert edge["contribution"][predicted] == pytest.approx(expected, abs=1e-6)


def test_a_missing_networkx_is_named_with_its_install_command(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "networkx", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dcnn\[explain\]'"):
        to_networkx(example().graph)
