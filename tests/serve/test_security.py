"""Keys, headers, and what a stranger's text can do: nothing."""

import pytest
from fastapi.testclient import TestClient

from dcnn.serve import front
from dcnn.serve.app import make_app
from dcnn.serve.hosts import LOOPBACK, Hosts
from dcnn.serve.metrics import Metrics

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
def test_the_api_asks_for_the_key(client_with, path, headers, status):
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
    real = front.hmac.compare_digest
    monkeypatch.setattr(
        front.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or real(a, b)
    )
    client_with(key="secret").get("/v1/models", headers={"x-api-key": "wrong"})
    assert (b"wrong", b"secret") in compared


def test_the_page_is_there_without_the_key(client_with):
    client = client_with(key="secret")
    assert client.get("/").status_code == 200
    assert client.get("/page/main.js").status_code == 200


@pytest.mark.parametrize("path", ["/", "/docs", "/v1/models", "/nope", "/metrics", "/page/main.js"])
def test_every_answer_has_the_security_headers(client, path):
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
def test_nothing_a_user_typed_comes_back_as_markup(client, method, path, body):
    answer = client.request(method, path, json=body)
    assert answer.headers["content-type"] in ("application/json", "application/x-ndjson")
    assert not set("<>&").intersection(answer.text)


@pytest.mark.parametrize(
    "path",
    ["/page/../front.py", "/page/%2e%2e/front.py", "/page//etc/passwd", "/page/..%2ffront.py"],
)
def test_no_address_leads_to_another_file(client, path):
    assert client.get(path).status_code == 404


def test_a_request_opens_no_file(client, monkeypatch):
    import builtins
    import io
    import os

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


def test_a_failure_is_a_sentence_and_its_log_has_no_text(client, monkeypatch, caplog):
    def fail(model, texts, form):
        raise RuntimeError(f"could not read {texts}")

    monkeypatch.setattr("dcnn.serve.prediction.predictions", fail)
    answer = client.post("/v1/predict", json={"text": "a private text"})
    assert answer.status_code == 500
    assert answer.json() == {"error": front.FAILED}
    assert "RuntimeError in answer to /v1/predict" in caplog.text
    assert "private" not in caplog.text


def test_a_failure_behind_the_framework_is_answered_and_counted_too(client, monkeypatch, caplog):
    def fail(model, text, question):
        raise RuntimeError(f"could not read {text}")

    monkeypatch.setattr("dcnn.serve.routes.explanation", fail)
    answer = client.post("/v1/explain", json={"text": "a private text"})
    assert (answer.status_code, answer.json()) == (500, {"error": front.FAILED})
    assert "private" not in caplog.text
    assert 'route="/v1/explain",status="500"} 1' in client.get("/metrics").text


@pytest.fixture
def local(registry) -> TestClient:
    """A server on 127.0.0.1 that a proxy offers as app.example."""
    return TestClient(make_app(registry, hosts=Hosts(["App.example"], (*LOOPBACK, "::2"))))


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
def test_a_local_server_answers_to_its_own_names_alone(local, path, host, status):
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
def test_pages_of_other_sites_may_not_ask(local, headers, status):
    headers = {"host": "localhost:8000", **headers}
    answer = local.post("/v1/predict", json={"text": "good"}, headers=headers)
    assert answer.status_code == status
    if status == 403:
        assert "another site" in answer.json()["error"]


def test_a_link_on_another_site_opens_the_page(local):
    headers = {"host": "localhost", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert local.get("/", headers=headers).status_code == 200
    assert local.get("/v1/models", headers=headers).status_code == 403


def test_a_server_for_others_answers_to_any_name_but_not_to_any_page(client):
    assert client.get("/v1/models", headers={"host": "any.example"}).status_code == 200
    headers = {"host": "any.example", "origin": "https://evil.example"}
    assert client.post("/v1/predict", json={"text": "a"}, headers=headers).status_code == 403


def test_no_address_redirects_to_a_name_that_the_request_gave(client):
    answer = client.get("/docs/", headers={"host": "evil.example"}, follow_redirects=False)
    assert answer.status_code == 404
    assert "location" not in answer.headers


def test_a_status_without_a_series_is_no_failure(registry):
    metrics = Metrics(registry.models)
    metrics.end("page", 418, 0.1)
    assert 'dcnn_requests_total{route="page",status="other"} 1' in metrics.text()
    assert 'status="500"' not in metrics.text()
