"""Connections that stay silent are closed; those that ask are not."""

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from dcnn.serve import connections
from dcnn.serve.app import make_app
from dcnn.serve.server import bind, serve

ASK = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture
def port(registry, monkeypatch) -> Iterator[int]:
    """A server in a thread, which waits half a second and holds three connections."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(connections, "CONNECTIONS", 3)
    monkeypatch.setattr("dcnn.serve.server.STOPPING", ())  # threads get no signals
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    (listener,) = bind("127.0.0.1", 0)
    watched, held = os.pipe()
    number = listener.getsockname()[1]
    thread = threading.Thread(target=serve, args=(make_app(registry), listener, watched))
    thread.start()
    yield number
    os.close(held)
    thread.join(20)
    os.close(watched)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def answered(connection: socket.socket) -> bool:
    try:
        connection.sendall(ASK)
        return b"200 OK" in connection.recv(4096)
    except OSError:  # reset, or a pipe that is broken
        return False


def test_silent_and_slow_connections_are_closed(port):
    with connect(port) as silent, connect(port) as slow, connect(port) as later:
        slow.sendall(ASK[:20])
        assert answered(later)
        later.sendall(ASK[:20])  # the second request of a connection
        start = time.monotonic()
        for connection in (silent, slow, later):
            assert connection.recv(4096) == b""
        assert time.monotonic() - start < 4


def test_a_connection_that_asks_stays(port):
    with connect(port) as connection:
        for _ in range(8):
            assert answered(connection)
            time.sleep(0.2)


def test_there_is_an_end_to_the_connections(port):
    with connect(port) as first, connect(port), connect(port):
        time.sleep(0.1)
        with connect(port) as one_more:
            assert not answered(one_more)
        assert answered(first)
