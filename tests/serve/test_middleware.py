"""Overload, keys, host names, headers and metrics of every request."""

import asyncio
import builtins
import io
import os

import pytest
from fastapi.testclient import TestClient
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dcnn.serve import middleware
from dcnn.serve.app import make_app
from dcnn.serve.middleware import HEADERS, LOOPBACK, HostPolicy, Metrics

MARKUP = "<script>alert(1)</script> & </textarea>"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"x-api-key": "secre"}, 401),
        ({"x-api-key": "secrets"}, 401),
        ({"authorization": "Basic secret"}, 401),
        ([(b"x-api-key", "\u00e9".encode())], 401),
        ({"x-api-key": "secret"}, 200),
        ({"authorization": "Bearer secret"}, 200),
        ({"authorization": "bearer  secret"}, 200),
    ],
)
@pytest.mark.parametrize("path", ["/v1/predict", "/v1/models", "/metrics"])
def test_the_api_requires_the_key(client_with, path, headers, status):
    client = client_with(key="secret")
    ask = client.post if path == "/v1/predict" else client.get
    body = {"json": {"text": "good"}} if path == "/v1/predict" else {}
    answer = ask(path, headers=headers, **body)
    assert answer.status_code == status
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "key" in answer.json()["error"]


def test_keys_are_compared_in_constant_time(client_with, monkeypatch):
    compared = []
    real = middleware.hmac.compare_digest
    monkeypatch.setattr(
        middleware.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or real(a, b)
    )
    client_with(key="secret").get("/v1/models", headers={"x-api-key": "wrong"})
    assert (b"wrong", b"secret") in compared


def test_the_page_needs_no_key(client_with):
    client = client_with(key="secret")
    assert client.get("/").status_code == 200
    assert client.get("/page/main.js").status_code == 200


@pytest.mark.parametrize("path", ["/", "/docs", "/v1/models", "/nope", "/metrics", "/page/main.js"])
def test_every_response_has_the_security_headers(client, path):
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/predict", {"text": "a", "model": MARKUP}),
        ("POST", "/v1/explain", {"text": MARKUP}),
        ("POST", "/v1/explain", {"text": "good", "class": MARKUP}),
        ("GET", f"/v1/detectors?word={MARKUP}", None),
        ("GET", f"/v1/detectors?node={MARKUP}", None),
        ("POST", f"/v1/predict-file?name={MARKUP}.txt", None),
        ("GET", f"/{MARKUP}", None),
    ],
)
def test_user_input_never_comes_back_as_markup(client, method, path, body):
    answer = client.request(method, path, json=body)
    assert answer.headers["content-type"] in ("application/json", "application/x-ndjson")
    assert not set("<>&").intersection(answer.text)


@pytest.mark.parametrize(
    "path",
    ["/page/../app.py", "/page/%2e%2e/app.py", "/page//etc/passwd", "/page/..%2fapp.py"],
)
def test_no_address_leads_to_another_file(client, path):
    assert client.get(path).status_code == 404


def test_a_request_opens_no_file(client, monkeypatch):

    def opened(*arguments, **_):
        raise AssertionError(f"opened {arguments[0]}")

    for module, name in ((builtins, "open"), (io, "open"), (os, "open"), (os, "stat")):
        monkeypatch.setattr(module, name, opened)
    answers = [
        client.post("/v1/predict-file?name=/etc/passwd.txt", content=b"good\n"),
        client.post("/v1/predict", json={"text": "good", "model": "first"}),
        client.post("/v1/explain", json={"text": "good"}),
        client.get("/v1/detectors"),
        client.get("/metrics"),
        client.get("/"),
        client.get("/openapi.json"),
    ]
    monkeypatch.undo()
    assert [answer.status_code for answer in answers] == [200] * 7


def test_a_failure_is_logged_without_the_text(client, monkeypatch, caplog):
    def fail(model, texts, form):
        raise RuntimeError(f"could not read {texts}")

    monkeypatch.setattr("dcnn.serve.models.ServedModel.predict_texts", fail)
    answer = client.post("/v1/predict", json={"text": "a private text"})
    assert answer.status_code == 500
    assert answer.json() == {"error": middleware.FAILED}
    assert "RuntimeError in answer to /v1/predict" in caplog.text
    assert "private" not in caplog.text


def test_a_failure_inside_fastapi_is_answered_and_counted(client, monkeypatch, caplog):
    def fail(model, text, question):
        raise RuntimeError(f"could not read {text}")

    monkeypatch.setattr("dcnn.serve.models.ServedModel.explain_text", fail)
    answer = client.post("/v1/explain", json={"text": "a private text"})
    assert (answer.status_code, answer.json()) == (500, {"error": middleware.FAILED})
    assert "private" not in caplog.text
    assert 'route="/v1/explain",status="500"} 1' in client.get("/metrics").text


@pytest.fixture(scope="module")
def local(registry) -> TestClient:
    """A server on 127.0.0.1 that a proxy offers as app.example."""
    return TestClient(
        make_app([*registry.values()], hosts=HostPolicy(["App.example"], (*LOOPBACK, "::2")))
    )


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]", 200),
        ("[::1]:8000", 200),
        ("[::2]:8000", 200),
        ("app.example", 200),
        ("evil.example", 421),
        ("evil.example:8000", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("", 421),
        ("evil.example:localhost", 421),
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/"])
def test_a_local_server_answers_only_to_its_own_names(local, path, host, status):
    answer = local.get(path, headers={"host": host})
    assert answer.status_code == status
    if status == 421:
        assert "--allow-host NAME" in answer.json()["error"]
        assert "example" not in answer.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:8000", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "https://app.example:8443"}, 200),
        ({"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_pages_of_other_sites_are_refused(local, headers, status):
    headers = {"host": "localhost:8000", **headers}
    answer = local.post("/v1/predict", json={"text": "good"}, headers=headers)
    assert answer.status_code == status
    if status == 403:
        assert "another site" in answer.json()["error"]


def test_a_link_on_another_site_opens_the_page(local):
    headers = {"host": "localhost", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert local.get("/", headers=headers).status_code == 200
    assert local.get("/v1/models", headers=headers).status_code == 403


def test_a_public_server_answers_to_any_name_but_not_to_other_sites(client):
    assert client.get("/v1/models", headers={"host": "any.example"}).status_code == 200
    headers = {"host": "any.example", "origin": "https://evil.example"}
    assert client.post("/v1/predict", json={"text": "a"}, headers=headers).status_code == 403


def test_no_redirect_repeats_the_host_of_the_request(client):
    answer = client.get("/docs/", headers={"host": "evil.example"}, follow_redirects=False)
    assert answer.status_code == 404
    assert "location" not in answer.headers


def test_requests_beyond_the_limit_get_retry_after(client_with):
    client = client_with(in_flight=5)
    client.app.pending = lambda: 6
    answer = client.post("/v1/predict", json={"text": "good"})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "busy" in answer.json()["error"]
    # Whoever looks after the server still hears from it.
    assert client.get("/healthz").status_code == 200
    assert 'status="503"} 1' in client.get("/metrics").text
    client.app.pending = lambda: 5
    assert client.post("/v1/predict", json={"text": "good"}).status_code == 200


def test_too_many_headers_are_refused(client):
    headers = [(f"x-{number}", "a") for number in range(HEADERS + 1)]
    answer = client.get("/v1/models", headers=headers)
    assert answer.status_code == 431
    assert answer.json() == {"error": f"the request has more than {HEADERS} headers; send fewer"}
    assert client.get("/v1/models", headers=headers[:50]).status_code == 200


@pytest.fixture
def new(registry) -> TestClient:
    """A client of a server that has answered nothing yet."""
    return TestClient(make_app([*registry.values()]))


def test_a_client_that_disconnected_gets_no_response(new):

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        raise AssertionError(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/predict", "headers": []}
    asyncio.run(new.app(scope, receive, send))
    assert 'route="/v1/predict",status="499"} 1' in new.get("/metrics").text


def test_metrics_are_in_the_format_of_prometheus(new):
    new.post("/v1/predict", json={"texts": ["good", "bad"]})
    new.post("/v1/predict", content=b"not json")
    families = {
        family.name: family for family in text_string_to_metric_families(new.get("/metrics").text)
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


def test_an_unexpected_status_is_counted_as_other(registry):
    metrics = Metrics([*registry.values()])
    metrics.end("page", 418, 0.1)
    assert 'dcnn_requests_total{route="page",status="other"} 1' in generate_latest(metrics).decode()
    assert b'status="500"' not in generate_latest(metrics)
