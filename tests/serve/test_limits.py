"""What a request may not ask for, and what it is told."""

import asyncio
import time

import pytest

PATHS = ("/v1/predict", "/v1/explain", "/v1/compare")


@pytest.mark.parametrize("path", PATHS)
def test_a_body_that_is_too_large_is_refused(client_with, path):
    answer = client_with(body=100).post(path, content=b" " * 101)
    assert answer.status_code == 413
    assert answer.json() == {"error": "the body is larger than 100 bytes; send less at once"}
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("path", PATHS)
def test_a_body_of_unknown_length_is_read_up_to_the_limit(client_with, path):
    parts, sent = [], []

    async def receive():
        parts.append(b"x" * 40)
        return {"type": "http.request", "body": parts[-1], "more_body": len(parts) < 100}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    asyncio.run(client_with(body=100).app(scope, receive, send))
    assert sent[0]["status"] == 413
    assert len(parts) == 3


def test_a_file_has_limits_of_its_own(client_with):
    client = client_with(body=10, file=100, rows=2, characters=20)
    ask = "/v1/predict-file?name=a.txt"
    assert client.post(ask, content=b"good\nbad\n").status_code == 200
    assert client.post(ask, content=b"x" * 101).status_code == 413
    for content, told in [
        (b"a\nb\nc\n", "a.txt has more than 2 texts; send it in parts"),
        (b"a\n" + b"x" * 21, "a.txt, line 2: the text has 21 characters, more than 20; shorten it"),
        (b"", "a.txt is empty; give a file with at least one row"),
        (b"\xff\n", "a.txt, line 1, character 1: the byte 0xff is not valid utf-8; name the "
         "encoding that the file was written in, for instance encoding=latin-1"),
    ]:  # fmt: skip
        answer = client.post(ask, content=content)
        assert (answer.status_code, answer.json()["error"]) == (422, told)


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("name=a.csv.gz", "compressed files are not read here"),
        ("name=a.pdf", "'.pdf' names no format"),
        ("name=a.txt&encoding=rot13", "encoding must be one of utf-8"),
        ("", "name: field required"),
        ("name=a.txt&model=nope", "there is no model 'nope'"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(client, query, part):
    answer = client.post(f"/v1/predict-file?{query}", content=b"good\n")
    assert answer.status_code in (404, 422)
    assert part in answer.json()["error"]


def test_texts_have_limits(client_with):
    client = client_with(texts=2, explained=1, characters=5)
    for path, body, told in [
        ("/v1/predict", {"texts": ["a"] * 3}, "3 texts are more than 2; send fewer at once"),
        ("/v1/explain", {"texts": ["a"] * 2}, "2 texts are more than 1; send fewer at once"),
        ("/v1/predict", {"text": "a" * 6}, "the text has 6 characters, more than 5; shorten it"),
        ("/v1/predict", {"texts": ["a", "b" * 6]}, "text 1 has 6 characters, more than 5; shorten it"),  # noqa: E501
        ("/v1/compare", {"texts": ["a", "b" * 6]}, "text 1 has 6 characters, more than 5; shorten it"),  # noqa: E501
    ]:  # fmt: skip
        answer = client.post(path, json=body)
        assert (answer.status_code, answer.json()) == (422, {"error": told})


@pytest.mark.parametrize("path", ["/v1/explain", "/v1/compare"])
def test_the_words_of_all_texts_to_explain_are_counted_together(client_with, path):
    client = client_with(explained_words=5)
    assert client.post(path, json={"texts": ["a b", "a b c"]}).status_code == 200
    answer = client.post(path, json={"texts": ["a b c", "a b c"]})
    told = "there are 6 words, too many to be explained; send at most 5 at once"
    assert (answer.status_code, answer.json()) == (422, {"error": told})


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "invalid JSON: EOF while parsing"),
        (b"{", "invalid JSON: EOF while parsing"),
        (b"[]", "input should be an object"),
        (b"{}", "give either text, a string, or texts, a list of strings"),
        (b'{"text": "a", "texts": ["b"]}', "give either text"),
        (b'{"text": 1}', "text: input should be a valid string"),
        (b'{"text": null}', "text: input should be a valid string"),
        (b'{"texts": ["a", 2]}', "texts[1]: input should be a valid string"),
        (b'{"text": "a", "extra": 1}', "extra: extra inputs are not permitted"),
        (b'{"text": "\xff"}', "invalid JSON: "),
        (rb'{"text": "\ud800"}', "invalid JSON: "),
        (b"[" * 100_000, "invalid JSON: recursion limit exceeded"),
    ],
)
def test_a_body_that_is_no_question_is_told_why(client, body, told):
    answer = client.post("/v1/predict", content=body)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(told)


def test_a_question_names_what_there_is(client):
    assert client.post("/v1/predict", json={"text": "a", "model": "x"}).status_code == 404
    answer = client.post("/v1/explain", json={"text": "good", "class": "x"})
    assert answer.json() == {"error": "the model has no class 'x'; its classes are neg, pos"}
    assert client.post("/v1/explain", json={"text": "good", "nodes": 0}).status_code == 422
    answer = client.post("/v1/explain", json={"text": "a " * 1001})
    assert answer.status_code == 422
    assert "1,001 words, too many" in answer.json()["error"]
    assert "no words" in client.post("/v1/explain", json={"text": " "}).json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nope", 404), ("GET", "/v1/predict", 405), ("POST", "/v1/models", 405)],
)
def test_wrong_addresses_and_methods_are_answered_in_json(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert "/docs" in answer.json()["error"]


def test_a_body_that_does_not_come_is_not_waited_for(client_with):
    async def receive():
        await asyncio.sleep(10)

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/predict", "headers": []}
    start = time.monotonic()
    asyncio.run(client_with(body_seconds=0.05).app(scope, receive, send))
    assert time.monotonic() - start < 1
    assert sent[0]["status"] == 408
    assert b"within 0.05 seconds" in sent[1]["body"]


def test_one_who_has_gone_is_not_answered(client):
    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        raise AssertionError(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/predict", "headers": []}
    asyncio.run(client.app(scope, receive, send))
    assert 'route="/v1/predict",status="499"} 1' in client.get("/metrics").text


def test_nothing_more_is_explained_for_one_who_has_gone(client, monkeypatch):
    explained = []
    monkeypatch.setattr("dcnn.serve.routes.explanation", lambda _, text, __: explained.append(text))
    messages = [{"type": "http.request", "body": b'{"texts": ["a", "b"]}', "more_body": False}]

    async def receive():
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message):
        pass

    scope = {"type": "http", "method": "POST", "path": "/v1/explain", "headers": []}
    asyncio.run(client.app({**scope, "query_string": b""}, receive, send))
    assert not explained
    assert 'route="/v1/explain",status="499"} 1' in client.get("/metrics").text
