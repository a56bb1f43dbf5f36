"""Processes that serve: uvicorn with limits on connections, and a supervisor of several workers.

On SIGTERM, SIGINT or SIGHUP nothing new is accepted, requests in flight are answered, and the
process exits with 0.

Workers are forked from a process that has loaded everything, so the models are in memory once.
(uvicorn's own supervisor spawns its workers: each would load the models again.) Each worker has its
own socket on the same port. One that dies is replaced.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dcnn.errors import UserError
from dcnn.serve.middleware import ApiMiddleware

_log = logging.getLogger("dcnn.serve")

GRACE_SECONDS = 30  # for requests in flight when the server stops
SWITCH_INTERVAL = 0.0005  # seconds after which a thread that explains yields to one that predicts
BACKLOG = 512  # connections that wait to be accepted
CONNECTIONS = 1000  # per worker
HEAD_SECONDS = 10.0  # for the head of a request (its first line and headers) to arrive
HEAD_BYTES = 65_536  # of a request's head
RESTART_SECONDS = 1.0  # a worker that lives less than this is restarted only after a pause
# Not every system has SIGHUP, which a terminal sends when it is closed.
STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)

_HEAD_TOO_LARGE = (
    f'{{"error":"the headers are larger than {HEAD_BYTES:,} bytes; send less"}}'.encode()
)
_HEAD_RESPONSE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_HEAD_TOO_LARGE), _HEAD_TOO_LARGE)
)


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on the number of connections and on requests' heads.

    uvicorn itself waits for a head as long as it takes, and keeps it however large it is.
    """

    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0  # received since the last request or part of a body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection and start its timer."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
            return
        self._timer = self.loop.call_later(HEAD_SECONDS, self._close_if_idle, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Close the connection when a head (or the trailers of a body) has become too large."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > HEAD_BYTES:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_HEAD_RESPONSE)
            self.transport.close()

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._head_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._head_bytes = 0
        super().on_message_complete()

    def _close_if_idle(self, last: Any) -> None:
        """Close the connection if no request arrived since ``last`` and none is in progress."""
        cycle = self.cycle
        idle = cycle is None or cycle.response_complete
        if idle and cycle is last:
            self.transport.close()
            return
        last = cycle if idle else self  # no request is ever this
        self._timer = self.loop.call_later(HEAD_SECONDS, self._close_if_idle, last)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal; uvicorn's own version raises the signal again at the end."""
        with _handle_signals(self.handle_exit):
            yield


@contextmanager
def _handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[list[int]]:
    """Handle the stop signals that are not ignored, as nohup asks; restore them at the end."""
    before = {
        number: signal.signal(number, handler)
        for number in STOP_SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield list(before)
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def serve(app: ApiMiddleware, listener: socket.socket, alive: int | None = None) -> None:
    """Serve until stopped by a signal.

    Args:
        app: the application.
        listener: a bound socket.
        alive: the read end of a pipe; when its other end is closed, the parent process is gone and
            this one stops.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
    server = _Server(
        uvicorn.Config(
            app,
            http=LimitedProtocol,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            backlog=BACKLOG,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
    # uvicorn knows of a request as soon as it is read, before the application is called.
    app.pending = lambda: len(server.server_state.tasks)

    def stop(pipe: int) -> None:
        asyncio.get_running_loop().remove_reader(pipe)
        server.should_exit = True

    async def run() -> None:
        if alive is not None:
            asyncio.get_running_loop().add_reader(alive, stop, alive)
        await server.serve([listener])

    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(run())


def run_workers(
    work: Callable[[int, socket.socket, int], None], sockets: Sequence[socket.socket]
) -> None:
    """Run ``work(number, socket, alive)`` in one process per socket until stopped by a signal.

    Args:
        work: serves until SIGTERM, or until the pipe ``alive`` is closed.
        sockets: one per worker.

    Raises:
        UserError: the system cannot fork, or a worker failed as soon as it was started.
    """
    if not hasattr(os, "fork"):
        raise UserError("this system cannot fork, so there is one worker only: pass --workers 1")
    alive, held = os.pipe()  # the system closes it when this process ends, however it ends
    workers: dict[int, tuple[int, float]] = {}  # number and start time by process id
    stopping = False

    def stop(_: int, __: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        for listener in sockets:  # otherwise the system would accept connections for nobody
            listener.close()
        for process in list(workers):
            os.kill(process, signal.SIGTERM)

    def start(number: int, handled: Sequence[int]) -> None:
        if process := os.fork():
            workers[process] = (number, time.monotonic())
            if stopping:  # the signal arrived before the process id was known
                os.kill(process, signal.SIGTERM)
            return
        status = 1
        try:
            for name in handled:  # the parent's handler would stop the other workers
                signal.signal(name, signal.SIG_DFL)
            os.close(held)
            for other in sockets:
                if other is not sockets[number]:
                    other.close()
            work(number, sockets[number], alive)
            status = 0
        finally:
            os._exit(status)  # cleaning up is the parent's job

    try:
        with _handle_signals(stop) as handled:
            for number in range(len(sockets)):
                start(number, handled)
            replaced: set[int] = set()
            while workers:
                process, status = os.wait()
                number, started = workers.pop(process)
                if stopping:
                    continue
                if time.monotonic() - started < RESTART_SECONDS:
                    if os.WIFEXITED(status) and number not in replaced:
                        stop(signal.SIGTERM, None)
                        raise UserError(f"worker {number} failed as soon as it started; see above")
                    time.sleep(RESTART_SECONDS)
                if not stopping:
                    _log.warning("worker %d ended (%d); starting another", number, status)
                    replaced.add(number)
                    start(number, handled)
    finally:
        os.close(held)
        os.close(alive)


def bind(host: str, port: int, count: int = 1) -> list[socket.socket]:
    """Sockets on one address for ``count`` processes; the system spreads connections over them.

    Raises:
        UserError: the address is in use, is not one of this machine, or needs more privileges.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        first = _bound(family, address, shared=False)
        if count == 1:
            return [first]
        # Sockets that share a port would share it with another server as well; the first one, which
        # does not share, has shown that there is none.
        address = (address[0], first.getsockname()[1], *address[2:])
        first.close()
        return [_bound(family, address, shared=True) for _ in range(count)]
    except OSError as error:
        raise UserError(
            f"cannot listen on {host} port {port} ({error.strerror or error}); "
            "choose another with --port or --host"
        ) from error


def _bound(family: int, address: tuple[object, ...], *, shared: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


def address_of(listener: socket.socket) -> str:
    """The address for a browser."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
