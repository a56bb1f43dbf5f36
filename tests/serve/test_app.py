"""The endpoints: what they return, and what happens under load."""

import asyncio
import threading
import time

import pytest
from starlette.exceptions import HTTPException

from dcnn.serve.app import BoundedThreads

TEXT = "the plot is not dull , but the ending was bad ."
OTHER = "the plot is very good ."


def test_predict_returns_what_the_predictor_computes(client, registry):
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


def test_several_texts_are_answered_in_order(client, registry):
    texts = [TEXT, "", OTHER, "words that nobody knows"]
    found = client.post("/v1/predict", json={"texts": texts, "model": "stars"}).json()
    expected = registry.get("stars").predictor.predict(texts)
    assert [(one["label"], one["probability"]) for one in found["predictions"]] == [
        (one.label, one.probability) for one in expected
    ]
    assert set(found["predictions"][0]["probabilities"]) == {"1", "2", "3"}


def test_a_large_batch_gives_the_predictions_of_single_texts(client):
    texts = [f"{TEXT} {number}" for number in range(300)]
    together = client.post("/v1/predict", json={"texts": texts}).json()["predictions"]
    alone = client.post("/v1/predict", json={"text": texts[299]}).json()["predictions"]
    assert together[299] == alone[0]


def test_models_are_listed_with_what_they_support(client):
    models = client.get("/v1/models").json()["models"]
    assert [(one["name"], one["explainable"], one["detectors"]) for one in models] == [
        ("first", True, True),
        ("stars", True, False),
        ("bag", False, False),
    ]
    assert models[1]["classes"] == [1, 2, 3]


def test_health_needs_no_key(client_with):
    answer = client_with(key="secret").get("/healthz")
    assert answer.json() == {"status": "ok", "models": 3, "key": True}


def test_files_of_the_page_have_an_etag(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    again = client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.head("/page/main.js").status_code == 200


def test_health_answers_a_head_request(client):
    answer = client.head("/healthz")
    assert (answer.status_code, answer.content) == (200, b"")


def test_unknown_models_and_classes_are_errors(client):
    assert client.post("/v1/predict", json={"text": "a", "model": "x"}).status_code == 404
    answer = client.post("/v1/explain", json={"text": "good", "class": "x"})
    assert answer.json() == {"error": "the model has no class 'x'; its classes are neg, pos"}
    assert client.post("/v1/explain", json={"text": "good", "nodes": 0}).status_code == 422
    answer = client.post("/v1/explain", json={"text": "a " * 1001})
    assert answer.status_code == 422
    assert "1,001 words are too many" in answer.json()["error"]
    assert "no words" in client.post("/v1/explain", json={"text": " "}).json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nope", 404), ("GET", "/v1/predict", 405), ("POST", "/v1/models", 405)],
)
def test_unknown_addresses_and_methods_are_errors_in_json(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert "/docs" in answer.json()["error"]


def test_nothing_is_explained_for_a_client_that_disconnected(client, monkeypatch):
    explained = []
    monkeypatch.setattr(
        "dcnn.serve.models.ServedModel.explain_text", lambda _, text, __: explained.append(text)
    )
    messages = [{"type": "http.request", "body": b'{"texts": ["a", "b"]}', "more_body": False}]

    async def receive():
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message):
        pass

    scope = {"type": "http", "method": "POST", "path": "/v1/explain", "headers": []}
    asyncio.run(client.app({**scope, "query_string": b""}, receive, send))
    assert not explained
    assert 'route="/v1/explain",status="499"} 1' in client.get("/metrics").text


def test_bounded_threads_refuse_work_beyond_their_slots():
    async def scenario() -> tuple[list[object], int]:
        slow, gate = BoundedThreads(threads=1, slots=3), threading.Event()
        tasks = [asyncio.create_task(slow.run(gate.wait, 5)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(HTTPException) as refused:
            await slow.run(gate.wait, 5)
        gate.set()
        done = await asyncio.gather(*tasks)
        assert await slow.run(gate.wait, 5)  # the places are free again
        return done, refused.value.status_code

    assert asyncio.run(scenario()) == ([True, True, True], 503)


def test_a_slot_is_released_when_the_work_fails():
    async def scenario() -> None:
        slow = BoundedThreads(threads=1, slots=1)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await slow.run(divmod, 1, 0)

    asyncio.run(scenario())


def test_predictions_do_not_wait_for_explanations(client_with, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(
        "dcnn.serve.models.ServedModel.explain_text",
        lambda *_: gate.wait(10) and b'{"slow": true}',
    )
    client = client_with(threads=1, queue=1)
    with client:  # one event loop for all requests
        answers: list[int] = []

        def explain() -> None:
            answers.append(client.post("/v1/explain", json={"text": "good"}).status_code)

        threads = [threading.Thread(target=explain) for _ in range(4)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 10
        while answers.count(503) < 2 and time.monotonic() < until:
            assert client.post("/v1/predict", json={"text": "good"}).status_code == 200
        gate.set()
        for thread in threads:
            thread.join()
    assert sorted(answers) == [200, 200, 503, 503]


def test_requests_to_explain_take_turns(client_with, monkeypatch):
    explained, begun, gate = [], threading.Event(), threading.Event()

    def explanation(_, text, __):
        explained.append(text)
        begun.set()
        gate.wait(10)
        return b"{}"

    monkeypatch.setattr("dcnn.serve.models.ServedModel.explain_text", explanation)
    client = client_with(threads=1)
    with client:
        threads = [
            threading.Thread(target=client.post, args=("/v1/explain",), kwargs={"json": question})
            for question in ({"texts": ["a", "b", "c"]}, {"text": "other"})
        ]
        threads[0].start()
        begun.wait(10)
        threads[1].start()
        time.sleep(0.2)  # the second waits for the thread
        gate.set()
        for thread in threads:
            thread.join()
    assert explained.index("other") < explained.index("c")


def upload(app, gate: asyncio.Event, held: asyncio.Event, content: bytes = b"good\n"):
    """Ask for a file's predictions; ``gate`` opens its body, ``held`` is set when one is read."""
    sent, messages = [], [{"type": "http.request", "body": content, "more_body": False}]

    async def receive():
        held.set()
        await gate.wait()
        if not messages:
            await asyncio.sleep(10)
        return messages.pop()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/predict-file", "headers": []}

    async def ask() -> int:
        await app({**scope, "query_string": b"name=a.txt"}, receive, send)
        return sent[0]["status"]

    return asyncio.create_task(ask())


def test_a_file_without_a_slot_is_refused_before_it_is_read(client_with):
    async def scenario() -> None:
        app, gate, held = client_with(uploads=2).app, asyncio.Event(), asyncio.Event()
        first = [upload(app, gate, held) for _ in range(2)]
        await held.wait()
        await asyncio.sleep(0.05)
        unread = asyncio.Event()
        assert await asyncio.wait_for(upload(app, gate, unread), 2) == 503
        assert not unread.is_set()
        gate.set()
        assert await asyncio.gather(*first) == [200, 200]
        assert await upload(app, gate, held) == 200  # the places are free again

    asyncio.run(scenario())


def test_a_file_keeps_its_slot_until_its_last_line(client_with, monkeypatch):
    begun, finish = threading.Event(), threading.Event()

    def predicted(*_):
        begun.set()
        finish.wait(10)
        return b"{}\n"

    monkeypatch.setattr("dcnn.serve.models.ServedModel.predict_rows", predicted)
    ask, statuses = "/v1/predict-file?name=a.txt", []
    with client_with(uploads=1) as client:
        thread = threading.Thread(
            target=lambda: statuses.append(client.post(ask, content=b"good\n").status_code)
        )
        thread.start()
        assert begun.wait(10)
        assert client.post(ask, content=b"good\n").status_code == 503
        assert client.post("/v1/explain", json={"text": "good"}).status_code == 200
        finish.set()
        thread.join()
        assert client.post(ask, content=b"good\n").status_code == 200
    assert statuses == [200]


def test_a_file_releases_its_slot_when_the_client_disconnects(client_with):
    async def scenario() -> None:
        app, gate, held = client_with(uploads=1).app, asyncio.Event(), asyncio.Event()
        for _ in range(2):
            task = upload(app, gate, held)
            await held.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            held.clear()
        gate.set()
        assert await upload(app, gate, held, b"") == 422
        assert await upload(app, gate, held) == 200

    asyncio.run(scenario())
