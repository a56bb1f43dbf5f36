"""The OpenAPI document: complete, and true of every response."""

import inspect

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from pydantic import TypeAdapter
from schemathesis.specs.openapi.checks import positive_data_acceptance

from dcnn.predictor import Predictor
from dcnn.serve import Limits
from dcnn.serve.app import make_app
from dcnn.serve.models import ServedModel, index_detectors
from dcnn.serve.schemas import ExplainResponse
from untrained import make_artifact

# A fixture would be too late: the tests are made from the description when they are collected.
_PREDICTOR = Predictor(make_artifact())


_APP = make_app(
    [ServedModel("first", _PREDICTOR, index_detectors(_PREDICTOR, ["the plot is bad"]))],
    # Small ones, so that what is beyond them fits into a body.
    Limits(texts=5, explain_texts=3, characters=200, file_rows=5),
)


schema = schemathesis.openapi.from_asgi("/openapi.json", _APP)


@schema.parametrize()
@settings(
    max_examples=100,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_response_matches_the_openapi_document(case):
    # A label, word, file or empty text may be as described and yet none that there is.
    case.call_and_validate(excluded_checks=[positive_data_acceptance])


def test_the_openapi_document_lists_every_endpoint(client):
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {
        *("/v1/predict", "/v1/predict-file", "/v1/explain", "/v1/compare", "/v1/detectors"),
        *("/v1/model", "/v1/models", "/healthz", "/metrics"),
    }
    body = described["paths"]["/v1/predict"]["post"]["requestBody"]
    fields = body["content"]["application/json"]["schema"]["properties"]
    assert fields["texts"]["maxItems"] == 1000
    assert "default" not in fields["text"]


def test_the_openapi_document_describes_top_and_abstain_below(client):
    paths = client.get("/openapi.json").json()["paths"]
    body = paths["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]
    fields = body["schema"]["properties"]
    assert (fields["top"]["minimum"], fields["top"]["type"]) == (1, "integer")
    below = fields["abstain_below"]
    assert (below["minimum"], below["maximum"], below["type"]) == (0, 1, "number")
    assert "default" not in fields["top"] | below  # to leave it out is none of the values
    names = {one["name"] for one in paths["/v1/predict-file"]["post"]["parameters"]}
    assert {"top", "abstain_below"} <= names


def test_multi_label_explanations_match_their_schema(multi_label_client, multi_label):
    answer = multi_label_client.post("/v1/explain", json={"text": "good plot"}).json()
    TypeAdapter(ExplainResponse).validate_python(answer)
    (expected,) = multi_label.predict(["good plot"])
    assert answer["explanations"][0]["labels"] == list(expected.labels)


@pytest.mark.parametrize("name", ["Deletion", "DescribedWord", "Limits", "NGram"])
def test_the_openapi_document_explains_the_fields_of_an_answer(client, name):
    described = client.get("/openapi.json").json()["components"]["schemas"][name]
    for field in described["properties"]:
        assert f"    {field}: " in described["description"]


def test_descriptions_are_not_read_from_the_source(monkeypatch, registry):
    # That would be most of the time in which a server starts.
    def read(*_):
        raise AssertionError

    for name in ("getsource", "getsourcelines"):
        monkeypatch.setattr(inspect, name, read)
    described = make_app(list(registry.values())).app.openapi()["components"]["schemas"]
    assert described["LabelInfo"]["properties"]["count"]["description"].startswith("Training texts")
