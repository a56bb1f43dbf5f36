"""Server processes: limits on connections, signals, and workers that die."""

import asyncio
import http.client
import json
import mmap
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import uvicorn
from uvicorn.server import ServerState

from dcnn.errors import DcnnError
from dcnn.serve import server as server_module
from dcnn.serve.app import make_app
from dcnn.serve.middleware import ApiMiddleware
from dcnn.serve.server import FAILURES, HEAD_BYTES, bind, run_workers, serve

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
BODY = json.dumps({"text": "the plot is not dull"}).encode()
HEAD = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(BODY)

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="processes are found in /proc"
)


@pytest.fixture
def port(client, monkeypatch) -> Iterator[int]:
    """A server in a thread that waits half a second for a head and allows three connections."""
    monkeypatch.setattr(server_module, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(server_module, "CONNECTIONS", 3)
    monkeypatch.setattr(server_module, "STOP_SIGNALS", ())  # threads get no signals
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    monkeypatch.setattr(client.app, "pending", client.app.pending)  # which the server sets
    (listener,) = bind("127.0.0.1", 0)
    alive, held = os.pipe()
    number = listener.getsockname()[1]
    thread = threading.Thread(target=serve, args=(client.app, listener, alive))
    thread.start()
    yield number
    os.close(held)
    thread.join(20)
    os.close(alive)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def is_answered(connection: socket.socket, kind: bytes = HEALTH) -> bool:
    try:
        connection.sendall(kind)
        return b"200 OK" in connection.recv(4096)
    except OSError:  # reset, or a broken pipe
        return False


def test_silent_and_slow_connections_are_closed(port):
    with connect(port) as silent, connect(port) as slow, connect(port) as later:
        slow.sendall(HEALTH[:20])
        assert is_answered(later)
        later.sendall(HEALTH[:20])  # the second request of a connection
        start = time.monotonic()
        for connection in (silent, slow, later):
            assert connection.recv(4096) == b""
        assert time.monotonic() - start < 4


@pytest.mark.parametrize("kind", [HEALTH, HEAD + BODY], ids=["health", "predict"])
def test_an_active_connection_stays_open_and_an_idle_one_is_closed(port, kind):
    with connect(port) as connection:
        for _ in range(4):
            assert is_answered(connection, kind)
            time.sleep(0.3)
        start = time.monotonic()
        assert connection.recv(4096) == b""
        assert time.monotonic() - start < 4


def test_the_number_of_connections_is_limited(port):
    with connect(port) as first, connect(port), connect(port):
        time.sleep(0.1)
        with connect(port) as one_more:
            assert not is_answered(one_more)
        assert is_answered(first)


CHUNKED = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("start", "part"),
    [
        (HEALTH[:-2], b"x-header: value\r\n"),
        (HEALTH[:-2] + b"x-header: ", b"v" * 1000),
        (b"GET /", b"a" * 1000),
        (CHUNKED + b"1\r\na\r\n0\r\n", b"x-trailer: value\r\n"),
        (CHUNKED + b"1;extension=", b"v" * 1000),
    ],
    ids=["many headers", "a long header", "a long path", "trailers", "a chunk extension"],
)
def test_the_size_of_a_head_is_limited(port, start, part):
    sent, most = 0, 100 * HEAD_BYTES
    with connect(port) as connection:
        connection.sendall(start)
        try:
            while sent < most:
                connection.sendall(part * 20)
                sent += 20 * len(part)
        except OSError:  # closed by the server
            pass
    assert sent < most
    with connect(port) as connection:
        assert is_answered(connection)


def test_a_head_that_is_too_large_is_answered_with_431(port):
    with connect(port) as connection:
        connection.sendall(HEALTH[:-2] + b"x-header: " + b"v" * HEAD_BYTES)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 431
        assert f"larger than {HEAD_BYTES:,} bytes" in json.load(answer)["error"]


def test_large_bodies_do_not_count_as_heads(port):
    body = json.dumps({"text": 1, "model": "x" * (3 * HEAD_BYTES)}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    for _ in range(2):
        connection.request("POST", "/v1/predict", body)
        answer = connection.getresponse()
        assert (answer.status, json.load(answer)["error"][:5]) == (422, "text:")
    connection.close()


def request(body: bytes, *headers: bytes, version: bytes = b"1.1") -> bytes:
    lines = [b"content-length: %d" % len(body), *headers]
    if not any(header.lower().startswith(b"host:") for header in headers):
        lines.append(b"host: localhost")
    start = b"POST /v1/predict HTTP/" + version
    return b"\r\n".join([start, *lines, b"", body])


def answer_to(port: int, *parts: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
    """Status, headers without the date, and body of the answer to a request sent in parts."""
    with connect(port) as connection:
        for part in parts:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(part)
            time.sleep(0.02 if len(parts) > 1 else 0)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        headers = [header for header in answer.getheaders() if header[0] != "date"]
        return answer.status, headers, answer.read()


REQUESTS = {
    "one text": request(BODY),
    "two texts": request(b'{"texts": ["good", "<bad>"], "top": 2, "model": "stars"}'),
    "chunks": CHUNKED + b'9\r\n{"text": \r\n7\r\n"good"}\r\n0\r\n\r\n',
    "large": request(json.dumps({"texts": ["the plot is good"] * 300}).encode()),
    "no body": request(b""),
    "no JSON": request(b"text=good"),
    "no such model": request(b'{"text": "good", "model": "third"}'),
    "another site": request(BODY, b"origin: https://evil.example"),
    "many headers": request(BODY, *[b"x-header: 1"] * 101),
    "to be closed": request(BODY, b"connection: close"),
    "HTTP/1.0": request(BODY, version=b"1.0"),
    "another method": request(BODY).replace(b"POST", b"PUT", 1),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_answer_does_not_depend_on_how_the_request_is_cut_into_packets(port, name):
    whole = REQUESTS[name]
    head = whole.index(b"\r\n\r\n") + 4
    expected = answer_to(port, whole)
    assert expected[0] in (200, 403, 404, 405, 422, 431)
    assert dict(expected[1])["x-content-type-options"] == "nosniff"
    for cut in sorted({head // 2, head, (head + len(whole)) // 2} - {len(whole)}):
        assert answer_to(port, whole[:cut], whole[cut:]) == expected


def test_a_prediction_whose_request_arrives_whole_needs_no_task(port, monkeypatch):
    answers = [answer_to(port, part) for part in (request(BODY), HEALTH)]

    async def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(ApiMiddleware, "__call__", fail)
    assert answer_to(port, request(BODY)) == answers[0]
    assert answer_to(port, HEALTH)[0] == 500


def test_pipelined_requests_are_answered_in_their_order(port):
    requests = [request(json.dumps({"text": text}).encode()) for text in ("good", "bad", "dull")]
    requests.insert(1, HEALTH)
    requests.append(request(BODY, b"connection: close"))
    expected = [answer_to(port, one)[2] for one in requests]
    assert len(set(expected)) == len(requests)
    with connect(port) as connection:
        connection.sendall(b"".join(requests))
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    answers = received.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert [answer.partition(b"\r\n\r\n")[2] for answer in answers] == expected


def test_nothing_is_written_to_a_client_that_does_not_read(registry):
    written: list[bytes] = []
    too_early: list[bytes] = []

    class Transport(asyncio.Transport):
        def write(self, data: bytes) -> None:
            written.append(data)

        def is_closing(self) -> bool:
            return False

        def resume_reading(self) -> None:
            pass

        close = resume_reading

    async def run() -> None:
        app = make_app([*registry.values()])
        config = uvicorn.Config(app, log_config=None, lifespan="off", proxy_headers=False)
        protocol = server_module._Protocol(config, ServerState(), {})
        protocol.connection_made(Transport())
        protocol.pause_writing()
        protocol.data_received(request(BODY))
        await asyncio.sleep(0.05)
        too_early.extend(written)
        protocol.resume_writing()
        await asyncio.sleep(0.05)
        protocol.connection_lost(None)

    asyncio.run(run())
    assert not too_early
    assert b"".join(written).startswith(b"HTTP/1.1 200 OK")


def predict(server) -> dict:
    with urllib.request.urlopen(f"{server.address}/v1/predict", BODY) as answer:
        return json.load(answer)


def children(server) -> list[int]:
    task = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    return [int(number) for number in task.read_text().split()]


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture
def default_sighup():
    """Restore SIGHUP: a suite under nohup ignores it, and so would the server that it starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("default_sighup")
@pytest.mark.parametrize(("workers", "number"), [(1, signal.SIGTERM), (2, signal.SIGHUP)])
def test_requests_in_flight_are_answered_after_a_signal(running, workers, number):
    server = running("first", "--workers", workers)
    expected = predict(server)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(HEAD + BODY[:10])
        time.sleep(0.3)  # the request has begun
        server.process.send_signal(number)
        time.sleep(0.5)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", server.port)).close()
        connection.sendall(BODY[10:])
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, json.load(answer)) == (200, expected)
    _, log = server.process.communicate(timeout=20)
    assert server.process.returncode == 0
    assert "/v1/predict" not in log  # requests are logged only on demand


@needs_proc
def test_workers_are_counted_together_and_replaced_when_killed(running):
    server = running("first", "--workers", 2)
    answers = [predict(server) for _ in range(40)]
    assert all(answer == answers[0] for answer in answers)
    metrics = urllib.request.urlopen(f"{server.address}/metrics").read().decode()
    assert 'dcnn_requests_total{route="/v1/predict",status="200"} 40' in metrics
    assert "dcnn_workers 2" in metrics
    seen = set(children(server))
    for _ in range(2):  # the second time a replacement, as soon as it is there
        os.kill(children(server)[-1], signal.SIGKILL)
        wait_until(lambda: len(children(server)) == 2 and not set(children(server)) <= seen)
        seen.update(children(server))
    for _ in range(20):
        assert predict(server) == answers[0]
    code, log = server.end()
    assert (code, log.count("starting another")) == (0, 2)


@needs_proc
def test_workers_end_when_their_supervisor_is_killed(running):
    server = running("first", "--workers", 2)
    predict(server)
    orphans = children(server)
    server.process.kill()
    wait_until(lambda: not any(Path(f"/proc/{orphan}").exists() for orphan in orphans))


@pytest.mark.parametrize("is_ready", [True, False])
def test_the_server_ends_only_if_workers_die_while_none_is_ready(monkeypatch, is_ready):
    monkeypatch.setattr(server_module, "RESTART_SECONDS", 0.01)
    lives = mmap.mmap(-1, 1)

    def work(number, listener, alive, ready):
        if number == 1:
            lives[0] += 1
            if lives[0] > FAILURES + 2:
                os.kill(os.getppid(), signal.SIGTERM)
                time.sleep(30)
            os.kill(os.getpid(), signal.SIGKILL)
        if is_ready:
            ready()
        time.sleep(30)

    with (
        nullcontext() if is_ready else pytest.raises(DcnnError, match=r"code -9, 6 in a row\); see")
    ):
        run_workers(work, bind("127.0.0.1", 0, 2))
    assert lives[0] == (FAILURES + 3 if is_ready else FAILURES + 1)


def test_a_worker_that_fails_at_once_stops_the_others(capfd):
    def work(number, listener, alive, ready):
        if number == 1:
            raise RuntimeError("no such luck")
        time.sleep(30)

    with pytest.raises(
        DcnnError, match=r"worker 1 failed as soon as it started \(exit code 1, 1 in"
    ):
        run_workers(work, bind("127.0.0.1", 0, 2))
    for child in multiprocessing.active_children():
        child.join(10)
    assert not multiprocessing.active_children()
    assert "no such luck" in capfd.readouterr().err


def test_overload_host_names_and_the_request_log_of_a_process(running):
    options = ("--max-in-flight", 4, "--allow-host", "app.example", "--log-requests")
    server = running("first", *options)
    statuses: list[int] = []

    def explain() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        for _ in range(10):
            connection.request("POST", "/v1/explain", json.dumps({"text": "good " * 40}))
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
            if answer.status == 503:
                assert answer.headers["retry-after"] == "1"
        connection.close()

    threads = [threading.Thread(target=explain) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == 120  # answered or refused, and none left waiting
    assert set(statuses) == {200, 503}

    for host, status in {"localhost": 200, "app.example": 200, "evil.example": 421}.items():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/healthz", headers={"host": f"{host}:{server.port}"})
        assert connection.getresponse().status == status
        connection.close()

    predict(server)
    _, log = server.end()
    assert log.count("POST /v1/predict 200") == 1
    assert "dull" not in log
