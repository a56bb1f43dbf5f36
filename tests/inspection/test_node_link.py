"""Node-link data: networkx reads it, writes the same again, and it has the documented fields."""

import json

import networkx
import pytest
from hypothesis import given, settings

from dcnn.errors import MissingExtraError
from dcnn.inspection.feature_graph import to_json, to_networkx
from small_networks import example, inspected

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
