"""Explanations, comparisons and detectors as the API returns them."""

from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from dcnn import explain
from dcnn.inspection.similar import TextIndex
from dcnn.predictor import Predictor
from dcnn.serve.app import make_app
from dcnn.serve.models import ServedModel
from untrained import make_artifact

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


def asked(client, **question):
    answer = client.post("/v1/explain", json={"text": TEXT, **question})
    assert answer.status_code == 200, answer.text
    return answer.json()["explanations"][0]


@pytest.mark.parametrize("coverage", [0.3, 0.8, 1.0])
def test_the_boxes_of_the_graph_add_up_to_the_logit(client, coverage):
    found = asked(client, coverage=coverage)
    boxes = {box["ngram"]["id"]: box["ngram"] for box in found["graph"]["layout"]["ngrams"]}
    total = sum(box["contribution"] for box in boxes.values())
    assert total == pytest.approx(found["logit"], abs=1e-5)
    assert found["graph"]["coverage"] >= coverage - 1e-9
    shares = found["graph"]["word_contributions"]
    assert set(shares) == set(boxes) - {"biases"}
    for name, row in shares.items():
        assert sum(row) == pytest.approx(boxes[name]["contribution"], abs=1e-4)
    columns = [sum(column) for column in zip(*shares.values(), strict=True)]
    words = [word["attribution"] for word in found["words"]]
    assert columns == pytest.approx(words, abs=1e-4)
    ngrams = sum(ngram["attribution"] for ngram in found["ngrams"])
    assert ngrams == pytest.approx(sum(words), abs=1e-5)


def test_an_ngram_is_expanded_to_its_nodes(client):
    ngram = asked(client)["ngrams"][0]
    layout = asked(client, ngram=ngram["positions"], nodes=60)["graph"]["layout"]
    top = [edge["edge"] for edge in layout["edges"] if edge["edge"]["target"] == "root"]
    assert len(top) == ngram["nodes"]
    answer = client.post("/v1/explain", json={"text": TEXT, "ngram": [99]})
    assert answer.status_code == 422
    assert "ngram=[99] is no n-gram of this text" in answer.json()["error"]


@pytest.mark.parametrize("width", [240, 600, 4000])
def test_the_drawing_fits_the_width_that_is_asked_for(client, width):
    layout = asked(client, width=width)["graph"]["layout"]
    assert layout["width"] <= max(width, 300) + 1e-6
    assert layout["vertical"] == (width < 4000)


@pytest.mark.parametrize(
    ("field", "value"),
    [("coverage", 0), ("coverage", 1.1), ("width", 10), ("similar", 21), ("nodes", 0)],
)
def test_what_is_drawn_is_bounded(client, field, value):
    answer = client.post("/v1/explain", json={"text": TEXT, field: value})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(f"{field}: ")


def test_similar_texts_are_those_of_the_index(registry):
    predictor = registry["first"].predictor
    index = TextIndex.build(predictor, [OTHER, "good", TEXT], ["pos", "pos", "neg"])
    served = [ServedModel("indexed", predictor, index=index), registry["stars"]]
    client = TestClient(make_app(served))
    assert [model["index"] for model in client.get("/v1/models").json()["models"]] == [3, 0]
    found = asked(client, similar=2)["similar"]
    assert found == [vars(one) for one in index.search(predictor, TEXT, 2)]
    assert found[0]["text"] == TEXT
    assert asked(client)["similar"] == []
    assert asked(client, similar=2, model="stars")["similar"] == []


def test_the_card_of_a_model_has_its_labels_settings_and_texts(multi_label, registry):
    kept = replace(
        make_artifact(),
        examples=(("<b>good</b>", "pos"),),
        metadata={"label_counts": {"neg": 3, "pos": 4}, "test_accuracy": 0.5},
    )
    served = [ServedModel("kept", Predictor(kept)), ServedModel("multi", multi_label)]
    client = TestClient(make_app(served))
    answer = client.get("/v1/model")
    assert b"<b>" not in answer.content
    found = answer.json()
    assert found["examples"] == [{"text": "<b>good</b>", "label": "pos"}]
    assert [(one["label"], one["count"]) for one in found["labels"]] == [("neg", 3), ("pos", 4)]
    assert found["metadata"] == {"test_accuracy": 0.5}
    assert found["settings"]["model.dim"] == 8
    assert found["card"].startswith("---\nlibrary_name: dcnn")
    other = client.get("/v1/model", params={"model": "multi"}).json()
    assert [one["threshold"] for one in other["labels"]] == [0.3, 0.5, 0.7]
    assert {one["count"] for one in other["labels"]} == {None}
    assert client.get("/v1/model", params={"model": "gone"}).status_code == 404
