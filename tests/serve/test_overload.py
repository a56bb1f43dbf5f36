"""More to do than can be done: some are refused at once, nobody waits without end."""

import asyncio
import threading
import time

import pytest

from dcnn.serve.refusals import Refusal
from dcnn.serve.slow_work import SlowWork


def test_requests_beyond_the_limit_are_told_when_to_come_again(client_with):
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


def test_slow_work_has_as_many_places_as_threads_and_waiting():
    async def scenario() -> tuple[list[object], int]:
        slow, gate = SlowWork(threads=1, places=3), threading.Event()
        tasks = [asyncio.create_task(slow.run(gate.wait, 5)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as refused:
            await slow.run(gate.wait, 5)
        gate.set()
        done = await asyncio.gather(*tasks)
        assert await slow.run(gate.wait, 5)  # the places are free again
        return done, refused.value.status

    assert asyncio.run(scenario()) == ([True, True, True], 503)


def test_a_place_is_given_back_when_the_work_fails():
    async def scenario() -> None:
        slow = SlowWork(threads=1, places=1)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await slow.run(divmod, 1, 0)

    asyncio.run(scenario())


def test_predictions_go_on_while_explanations_wait(client_with, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(
        "dcnn.serve.routes.explanation", lambda *_: gate.wait(10) and b'{"slow": true}'
    )
    client = client_with(threads=1, waiting=1)
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


def test_the_texts_of_several_requests_are_explained_in_turn(client_with, monkeypatch):
    explained, begun, gate = [], threading.Event(), threading.Event()

    def explanation(_, text, __):
        explained.append(text)
        begun.set()
        gate.wait(10)
        return b"{}"

    monkeypatch.setattr("dcnn.serve.routes.explanation", explanation)
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


def test_a_file_without_a_place_is_refused_before_it_is_read(client_with):
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


def test_a_file_keeps_its_place_until_its_last_line_and_explanations_do_not_wait(
    client_with, monkeypatch
):
    begun, finish = threading.Event(), threading.Event()

    def predicted(*_):
        begun.set()
        finish.wait(10)
        return b"{}\n"

    monkeypatch.setattr("dcnn.serve.routes.predicted_lines", predicted)
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


def test_a_file_whose_reader_has_gone_gives_its_place_back(client_with):
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
