"""What the API answers."""

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dcnn import explain

TEXT = "the plot is not dull , but the ending was bad ."
OTHER = "the plot is very good ."


def test_a_text_gets_the_predictors_own_answer(client, registry):
    answer = client.post("/v1/predict", json={"text": TEXT})
    assert answer.status_code == 200
    (expected,) = registry.get("first").predictor.predict([TEXT])
    assert answer.json() == {
        "model": "first",
        "predictions": [
            {
                "label": expected.label,
                "probability": expected.probability,
                "probabilities": dict(expected.ranked),
            }
        ],
    }


def test_many_texts_are_answered_in_their_order(client, registry):
    texts = [TEXT, "", OTHER, "words that nobody knows"]
    found = client.post("/v1/predict", json={"texts": texts, "model": "stars"}).json()
    expected = registry.get("stars").predictor.predict(texts)
    assert [(one["label"], one["probability"]) for one in found["predictions"]] == [
        (one.label, one.probability) for one in expected
    ]
    assert set(found["predictions"][0]["probabilities"]) == {"1", "2", "3"}


def test_a_large_batch_is_answered_as_its_texts_alone(client):
    texts = [f"{TEXT} {number}" for number in range(300)]
    together = client.post("/v1/predict", json={"texts": texts}).json()["predictions"]
    alone = client.post("/v1/predict", json={"text": texts[299]}).json()["predictions"]
    assert together[299] == alone[0]


@pytest.mark.parametrize("label", ["neg", "pos"])
def test_an_explanation_adds_up_to_the_logit(client, label):
    (found,) = client.post("/v1/explain", json={"text": TEXT, "class": label}).json()[
        "explanations"
    ]
    assert found["class"] == label
    words = sum(word["attribution"] for word in found["words"])
    assert words + found["biases"] == pytest.approx(found["logit"], abs=1e-5)
    assert [word["word"] for word in found["words"]] == TEXT.split()


def test_the_graph_has_the_networks_own_numbers(client, registry):
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
    drawn = found["graph"]
    assert sum(edge["target"] == "root" for edge in drawn["edges"]) == 4
    for node in drawn["nodes"]:
        place = tuple(node[name] for name in ("layer", "map", "row", "position"))
        assert node["value"] == pytest.approx(values[place])
        assert len(node["word_contributions"]) == len(found["words"])
        assert sum(edge["target"] == node["id"] for edge in drawn["edges"]) <= 2


def test_a_comparison_tells_all_of_the_difference(client):
    found = client.post("/v1/compare", json={"texts": [TEXT, OTHER], "class": "neg"}).json()
    first, second = (one["logit"] for one in found["explanations"])
    told = sum(b - a for a, b in (change["contributions"] for change in found["changes"]))
    assert found["difference"] == pytest.approx(second - first)
    assert told + found["others"] == pytest.approx(found["difference"], abs=1e-5)
    assert found["aligned"][:3] == [[0, 0], [1, 1], [2, 2]]
    assert any(change["name"] for change in found["changes"])


def test_a_file_comes_back_a_line_a_row(client, registry):
    content = f'id,text,label\n1,"{TEXT}",x\n2,{OTHER},y\n'.encode()
    answer = client.post("/v1/predict-file?name=texts.csv", content=content)
    assert answer.headers["content-type"] == "application/x-ndjson"
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [(row["line"], row["text"]) for row in rows] == [(2, TEXT), (3, OTHER)]
    expected = registry.get("first").predictor.predict([TEXT, OTHER])
    assert [row["probability"] for row in rows] == [one.probability for one in expected]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", b"label\ttext\nx\tgood\n"),
        ("a.jsonl", b'{"text": "good", "label": 1}\n'),
        ("a.txt", b"good\n"),
        ("a.csv", b"\xef\xbb\xbftext\r\ngood\r\n"),
    ],
)
def test_every_format_is_read(client, name, content):
    (row,) = client.post(f"/v1/predict-file?name={name}", content=content).text.splitlines()
    assert json.loads(row)["text"] == "good"


def test_a_fault_in_a_file_is_told_with_its_line_and_parameter(client):
    answer = client.post("/v1/predict-file?name=../../x.csv", content=b"a,b,c\n1,2,3\n")
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("x.csv: cannot guess which column")
    assert answer.json()["error"].endswith("choose with text_column")


def test_a_node_of_the_first_layer_joins_two_detectors(client):
    found = client.get("/v1/detectors", params={"node": "1:1:2"}).json()
    assert [(one["layer"], one["map"], one["row"]) for one in found["detectors"]] == [
        (1, 1, 2),
        (1, 1, 6),
    ]
    assert found["detectors"][0]["top"][0]["words"]
    above = client.get("/v1/detectors", params={"node": "2:1:1"}).json()["detectors"]
    assert len(above) == 1


def test_detectors_are_filtered_and_cut(client, registry):
    found = client.get("/v1/detectors", params={"layer": 1, "map": 0, "limit": 3}).json()
    assert len(found["detectors"]) == 3
    assert found["total"] == 8
    answering = client.get("/v1/detectors", params={"word": "dull"}).json()["detectors"]
    places = [(one["layer"], one["map"], one["row"]) for one in answering]
    expected = registry.get("first").detectors.find("dull")
    assert places == [(one.layer, one.map, one.row) for one in expected]
    assert places


@pytest.mark.parametrize(("model", "part"), [("stars", "--corpus"), ("bag", "nbow")])
def test_a_server_without_detectors_says_how_to_get_them(client, model, part):
    answer = client.get("/v1/detectors", params={"model": model})
    assert answer.status_code == 404
    assert part in answer.json()["error"]


def test_the_models_tell_what_they_can(client):
    models = client.get("/v1/models").json()["models"]
    assert [(one["name"], one["explains"], one["detectors"]) for one in models] == [
        ("first", True, True),
        ("stars", True, False),
        ("bag", False, False),
    ]
    assert models[1]["classes"] == [1, 2, 3]


def test_a_model_without_a_graph_says_so(client):
    answer = client.post("/v1/explain", json={"text": TEXT, "model": "bag"})
    assert answer.status_code == 422
    assert "no feature graph" in answer.json()["error"]


def test_the_metrics_are_what_prometheus_reads(client):
    client.post("/v1/predict", json={"texts": [TEXT, OTHER]})
    client.post("/v1/predict", content=b"not json")
    families = {
        family.name: family
        for family in text_string_to_metric_families(client.get("/metrics").text)
    }
    answers = {
        (sample.labels["route"], sample.labels["status"]): sample.value
        for sample in families["dcnn_requests"].samples
    }
    assert answers["/v1/predict", "200"] == 1
    assert answers["/v1/predict", "422"] == 1
    texts = {one.labels["model"]: one.value for one in families["dcnn_texts"].samples}
    assert texts == {"first": 2, "stars": 0, "bag": 0}
    times = [one for one in families["dcnn_request_seconds"].samples if one.name.endswith("bucket")]
    assert times[-1].labels["le"] == "+Inf"
    assert families["dcnn_in_flight"].samples[0].value == 1  # the one that asks


def test_health_needs_nothing(client_with):
    answer = client_with(key="secret").get("/healthz")
    assert answer.json() == {"status": "ok", "models": 3, "key": True}


def test_the_page_and_its_files_are_sent_with_a_tag(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    again = client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.head("/page/main.js").status_code == 200


def test_the_description_is_complete(client):
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {
        *("/v1/predict", "/v1/predict-file", "/v1/explain", "/v1/compare", "/v1/detectors"),
        *("/v1/models", "/healthz", "/metrics"),
    }
    body = described["paths"]["/v1/predict"]["post"]["requestBody"]
    fields = body["content"]["application/json"]["schema"]["properties"]
    assert fields["texts"]["maxItems"] == 1000
    assert "default" not in fields["text"]


def test_health_can_be_asked_for_without_its_body(client):
    answer = client.head("/healthz")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("node", ["9:9:9", "1:0:99", "2:3:0"])
def test_a_node_that_is_not_there_is_refused(client, node):
    answer = client.get("/v1/detectors", params={"node": node})
    assert answer.status_code == 422
    assert f"there is no node {node}" in answer.json()["error"]
