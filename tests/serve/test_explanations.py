"""Explanations, comparisons and detectors as the API returns them."""

import pytest

from dcnn import explain

TEXT = "the plot is not dull , but the ending was bad ."
OTHER = "the plot is very good ."


@pytest.mark.parametrize("label", ["neg", "pos"])
def test_word_attributions_and_biases_add_up_to_the_logit(client, label):
    (found,) = client.post("/v1/explain", json={"text": TEXT, "class": label}).json()[
        "explanations"
    ]
    assert found["class"] == label
    words = sum(word["attribution"] for word in found["words"])
    assert words + found["biases"] == pytest.approx(found["logit"], abs=1e-5)
    assert [word["word"] for word in found["words"]] == TEXT.split()


def test_the_drawn_graph_has_the_values_of_the_feature_graph(client, registry):
    (found,) = client.post("/v1/explain", json={"text": TEXT, "nodes": 4, "edges": 2}).json()[
        "explanations"
    ]
    graph = explain(registry.get("first").predictor, TEXT).graph
    values = {
        (layer, number, row, position): value
        for layer, number, row, position, value in zip(
            *(
                getattr(graph.nodes, name).tolist()
                for name in ("layer", "map", "row", "position", "value")
            ),
            strict=True,
        )
    }
    layout = found["graph"]["layout"]
    edges = [placed["edge"] for placed in layout["edges"]]
    assert sum(edge["target"] == "root" for edge in edges) == 4
    for node in (placed["node"] for placed in layout["nodes"]):
        place = tuple(node[name] for name in ("layer", "map", "row", "position"))
        assert node["value"] == pytest.approx(values[place])
        assert len(found["graph"]["word_contributions"][node["id"]]) == len(found["words"])
        assert sum(edge["target"] == node["id"] for edge in edges) <= 2


def test_the_changes_of_a_comparison_add_up_to_the_difference(client):
    found = client.post("/v1/compare", json={"texts": [TEXT, OTHER], "class": "neg"}).json()
    first, second = (one["logit"] for one in found["explanations"])
    found = found["comparison"]
    expected = sum(b - a for a, b in (change["contributions"] for change in found["changes"]))
    assert found["difference"] == pytest.approx(second - first)
    assert expected + found["others"] == pytest.approx(found["difference"], abs=1e-5)
    assert found["aligned"][:3] == [[0, 0], [1, 1], [2, 2]]
    assert any(change["name"] for change in found["changes"])


def test_explaining_a_model_without_a_graph_is_an_error(client):
    answer = client.post("/v1/explain", json={"text": TEXT, "model": "bag"})
    assert answer.status_code == 422
    assert "no feature graph" in answer.json()["error"]


@pytest.mark.parametrize("path", ["/v1/explain", "/v1/compare"])
def test_words_to_explain_are_limited_over_all_texts(client_with, path):
    client = client_with(explain_words=5)
    assert client.post(path, json={"texts": ["a b", "a b c"]}).status_code == 200
    answer = client.post(path, json={"texts": ["a b c", "a b c"]})
    expected = "6 words are too many to explain; send at most 5 at once"
    assert (answer.status_code, answer.json()) == (422, {"error": expected})


def test_a_node_of_the_first_layer_has_two_detectors(client):
    found = client.get("/v1/detectors", params={"node": "1:1:2"}).json()
    assert [(one["layer"], one["map"], one["row"]) for one in found["detectors"]] == [
        (1, 1, 2),
        (1, 1, 6),
    ]
    assert found["detectors"][0]["top"][0]["words"]
    above = client.get("/v1/detectors", params={"node": "2:1:1"}).json()["detectors"]
    assert len(above) == 1


def test_detectors_are_filtered_and_limited(client, registry):
    found = client.get("/v1/detectors", params={"layer": 1, "map": 0, "limit": 3}).json()
    assert len(found["detectors"]) == 3
    assert found["total"] == 8
    answering = client.get("/v1/detectors", params={"word": "dull"}).json()["detectors"]
    places = [(one["layer"], one["map"], one["row"]) for one in answering]
    expected = registry.get("first").detectors.find("dull")
    assert places == [(one.layer, one.map, one.row) for one in expected]
    assert places


@pytest.mark.parametrize(("model", "part"), [("stars", "--corpus"), ("bag", "nbow")])
def test_a_server_without_a_corpus_says_how_to_get_detectors(client, model, part):
    answer = client.get("/v1/detectors", params={"model": model})
    assert answer.status_code == 404
    assert part in answer.json()["error"]


@pytest.mark.parametrize("node", ["9:9:9", "1:0:99", "2:3:0"])
def test_an_unknown_node_is_an_error(client, node):
    answer = client.get("/v1/detectors", params={"node": node})
    assert answer.status_code == 422
    assert f"there is no node {node}" in answer.json()["error"]
