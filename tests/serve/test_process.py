"""Real servers: started, stopped while they work, and with a worker lost."""

import http.client
import json
import os
import signal
import socket
import threading
import time
import urllib.request
from pathlib import Path

import pytest

BODY = json.dumps({"text": "the plot is not dull"}).encode()
HEAD = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(BODY)


def predict(server) -> dict:
    with urllib.request.urlopen(f"{server.address}/v1/predict", BODY) as answer:
        return json.load(answer)


@pytest.fixture
def hang_up_is_heard():
    """A suite under nohup ignores SIGHUP, and so would the server that it starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_up_is_heard")
@pytest.mark.parametrize(("workers", "told"), [(1, signal.SIGTERM), (2, signal.SIGHUP)])
def test_a_signal_finishes_what_is_in_flight(running, workers, told):
    server = running("first", "--workers", workers)
    expected = predict(server)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(HEAD + BODY[:10])
        time.sleep(0.3)  # the request has begun
        server.process.send_signal(told)
        time.sleep(0.5)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", server.port)).close()
        connection.sendall(BODY[10:])
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, json.load(answer)) == (200, expected)
    assert server.end()[0] == 0


def test_workers_answer_alike_and_count_together(running):
    server = running("first", "--workers", 2)
    answers = [predict(server) for _ in range(40)]
    assert all(answer == answers[0] for answer in answers)
    metrics = urllib.request.urlopen(f"{server.address}/metrics").read().decode()
    assert 'dcnn_requests_total{route="/v1/predict",status="200"} 40' in metrics
    assert "dcnn_workers 2" in metrics


def children(server) -> list[int]:
    task = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    return [int(number) for number in task.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are found in /proc")
def test_a_worker_that_dies_is_replaced(running):
    server = running("first", "--workers", 2)
    predict(server)
    before = children(server)
    time.sleep(1.1)  # one that dies sooner is not started again
    os.kill(before[0], signal.SIGKILL)
    until = time.monotonic() + 10
    while len(children(server)) < 2 or children(server) == before:
        assert time.monotonic() < until
        time.sleep(0.05)
    for _ in range(20):
        predict(server)
    assert "starting another" in server.end()[1]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are found in /proc")
def test_workers_end_when_the_one_that_watches_is_killed(running):
    server = running("first", "--workers", 2)
    predict(server)
    orphans = children(server)
    server.process.kill()
    until = time.monotonic() + 10
    while any(Path(f"/proc/{orphan}").exists() for orphan in orphans):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_flood_is_answered_or_refused_but_never_left_waiting(running):
    server = running("first", "--max-in-flight", 4)
    statuses: list[int] = []

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        for _ in range(20):
            connection.request("POST", "/v1/explain", json.dumps({"text": "good " * 40}))
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
            if answer.status == 503:
                assert answer.headers["retry-after"] == "1"
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == 240
    assert set(statuses) == {200, 503}


def test_requests_are_logged_only_if_asked_and_never_with_their_texts(running):
    for options, lines in (((), 0), (("--log-requests",), 1)):
        server = running("first", *options)
        predict(server)
        _, log = server.end()
        assert log.count("POST /v1/predict 200") == lines
        assert "dull" not in log


def test_a_name_that_was_made_to_point_here_is_refused(running):
    server = running("first", "--allow-host", "app.example")
    statuses = {}
    for host in ("localhost", "app.example", "evil.example"):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/healthz", headers={"host": f"{host}:{server.port}"})
        statuses[host] = connection.getresponse().status
        connection.close()
    assert statuses == {"localhost": 200, "app.example": 200, "evil.example": 421}
