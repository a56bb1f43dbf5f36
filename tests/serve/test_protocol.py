"""Limits of a request, and bodies that cannot be used."""

import asyncio
import time

import pytest

PATHS = ("/v1/predict", "/v1/explain", "/v1/compare")


@pytest.mark.parametrize("path", PATHS)
def test_a_body_that_is_too_large_is_an_error(client_with, path):
    answer = client_with(body_bytes=100).post(path, content=b" " * 101)
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
    asyncio.run(client_with(body_bytes=100).app(scope, receive, send))
    assert sent[0]["status"] == 413
    assert len(parts) == 3


def test_number_and_length_of_texts_are_limited(client_with):
    client = client_with(texts=2, explain_texts=1, characters=5)
    for path, body, expected in [
        ("/v1/predict", {"texts": ["a"] * 3}, "3 texts are more than 2; send fewer at once"),
        ("/v1/explain", {"texts": ["a"] * 2}, "2 texts are more than 1; send fewer at once"),
        ("/v1/predict", {"text": "a" * 6}, "the text has 6 characters, more than 5; shorten it"),
        ("/v1/predict", {"texts": ["a", "b" * 6]}, "text 1 has 6 characters, more than 5; shorten it"),  # noqa: E501
        ("/v1/compare", {"texts": ["a", "b" * 6]}, "text 1 has 6 characters, more than 5; shorten it"),  # noqa: E501
    ]:  # fmt: skip
        answer = client.post(path, json=body)
        assert (answer.status_code, answer.json()) == (422, {"error": expected})


def test_as_many_and_as_long_texts_as_the_limits_say_are_answered(client_with):
    client = client_with(texts=2, explain_texts=1, characters=5)
    for path, count in [("/v1/predict", 2), ("/v1/explain", 1)]:
        assert client.post(path, json={"texts": ["a" * 5] * count}).status_code == 200


@pytest.mark.parametrize(
    ("body", "expected"),
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
def test_an_invalid_body_is_an_error_that_names_the_field(client, body, expected):
    answer = client.post("/v1/predict", content=body)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(expected)


def test_a_body_that_does_not_arrive_times_out(client_with):
    async def receive():
        await asyncio.sleep(10)

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/predict", "headers": []}
    app = client_with(body_seconds=0.05).app
    start = time.monotonic()
    asyncio.run(app(scope, receive, send))
    assert time.monotonic() - start < 5
    assert sent[0]["status"] == 408
    assert b"within 0.05 seconds" in sent[1]["body"]
