"""Processes that serve: uvicorn with limits on connections, and a supervisor of several workers.

On SIGTERM, SIGINT or SIGHUP nothing new is accepted, requests in flight are answered, and the
process exits with 0.

Workers are forked from a process that has loaded everything, so the models are in memory once.
(uvicorn's own supervisor spawns its workers: each would load the models again.) Each worker has its
own socket on the same port. One that dies is replaced, after a pause if it lived for a moment only;
the server gives up when several in a row die before any is ready.
"""

import asyncio
import logging
import mmap
import multiprocessing
import multiprocessing.connection
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

import uvicorn
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dcnn.errors import DcnnError, UserError
from dcnn.serve.middleware import SECURITY_HEADERS, ApiMiddleware

_log = logging.getLogger("dcnn.serve")

BACKLOG = 512  # connections that wait to be accepted
CONNECTIONS = 1000  # per worker
HEAD_SECONDS = 10.0  # for the head of a request (its first line and headers) to arrive
HEAD_BYTES = 65_536  # of a request's head
RESTART_SECONDS = 1.0  # a worker that lives less than this is replaced only after a pause
FAILURES = 5  # in a row, while no worker is ready, are the most; one more ends the server
# Not every system has SIGHUP, which a terminal sends when it is closed.
STOP_SIGNALS = [one for one in signal.Signals if one.name in ("SIGINT", "SIGTERM", "SIGHUP")]

_HEAD_ERROR = f'{{"error":"the headers are larger than {HEAD_BYTES:,} bytes; send less"}}'
_HEAD_RESPONSE = (
    "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    f"content-length: {len(_HEAD_ERROR)}\r\nconnection: close\r\n\r\n{_HEAD_ERROR}"
).encode()


class _Protocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on the number of connections and on requests' heads.

    uvicorn itself waits for a head as long as it takes, and keeps it however large it is.

    A small request to ``/v1/predict`` that has arrived as a whole is answered right away, in one
    write: uvicorn's task, event and two writes take longer than the prediction. Everything else,
    and all that ``ApiMiddleware.predict_now`` leaves, is uvicorn's.
    """

    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0  # received since the last request or part of a body
    _body: bytearray | None = None  # of a request that uvicorn does not know of yet
    _may_answer = False  # one request per read, so that a pipeline of them delays nobody else
    _answered = 0  # requests

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
            return
        self._timer = self.loop.call_later(HEAD_SECONDS, self._close_if_idle, (None, 0))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        self._may_answer = True
        super().data_received(data)
        if self._body is not None and not self.transport.is_closing():
            self._hand_over()
        if self._head_bytes > HEAD_BYTES:  # or the trailers of a body
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_HEAD_RESPONSE)
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        parser, cycle = self.parser, self.cycle
        if (
            self.url == b"/v1/predict"
            and self._may_answer
            and (cycle is None or cycle.response_complete)
            and not (self.flow.write_paused or self.expect_100_continue or parser.should_upgrade())
            and parser.should_keep_alive()
            and (parser.get_method(), parser.get_http_version()) == (b"POST", "1.1")
        ):
            self._body = bytearray()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        if self._body is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        if self._body is not None:
            app: Any = self.app
            response = app.predict_now(self.scope["headers"], bytes(self._body))
            if response is not None:
                self._body, self._may_answer = None, False
                self._answered += 1
                self.transport.write(_response_bytes(response, self.server_state.default_headers))
                return
            self._hand_over()
        super().on_message_complete()

    def _hand_over(self) -> None:
        """Let uvicorn have the request."""
        body, self._body = self._body, None
        super().on_headers_complete()
        if body:
            super().on_body(bytes(body))

    def _close_if_idle(self, last: Any) -> None:
        """Close the connection if no request arrived since ``last`` and none is in progress."""
        now = self.cycle, self._answered
        idle = self.cycle is None or self.cycle.response_complete
        if idle and now == last:
            self.transport.close()
            return
        self._timer = self.loop.call_later(HEAD_SECONDS, self._close_if_idle, idle and now)


def _response_bytes(response: Response, default_headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A response with status 200, as it is sent."""
    headers = (*default_headers, *response.raw_headers, *SECURITY_HEADERS)
    lines = [b"%b: %b\r\n" % header for header in headers]
    return b"".join([b"HTTP/1.1 200 OK\r\n", *lines, b"\r\n", bytes(response.body)])


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[Any]:  # type: ignore[override]
        # uvicorn's own version raises the signal again at the end.
        return _handle_signals(self.handle_exit)


@contextmanager
def _handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[list[int]]:
    """Handle the stop signals, except ignored ones (as under nohup); restore them at the end."""
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


def serve(
    app: ApiMiddleware,
    listener: socket.socket,
    alive: int | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve on a bound socket until stopped by a signal, or until the pipe ``alive`` is closed."""
    sys.setswitchinterval(0.0005)  # so that a thread that explains yields to one that predicts
    server = _Server(
        uvicorn.Config(
            app,
            http=_Protocol,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            backlog=BACKLOG,
            timeout_graceful_shutdown=30,  # seconds for requests in flight
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
        ready()
        await server.serve([listener])

    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(run())


def run_workers(
    work: Callable[[int, socket.socket, int, Callable[[], None]], None],
    sockets: Sequence[socket.socket],
) -> None:
    """Run ``work(number, socket, alive, ready)`` in a process per socket until stopped by a signal.

    ``work`` calls ``ready`` and serves until SIGTERM, or until the pipe ``alive`` is closed: this
    process is gone then.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise UserError("this system cannot fork, so there is one worker only: pass --workers 1")
    fork = multiprocessing.get_context("fork")
    workers: dict[int, tuple[Any, float]] = {}  # process and start time by number
    is_ready = mmap.mmap(-1, len(sockets))  # shared with the workers
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        for listener in sockets:  # otherwise the system would accept connections for nobody
            listener.close()
        for process, _started in workers.values():
            process.terminate()

    def start(number: int) -> None:
        # A daemon is stopped with this process, even if that fails.
        process = fork.Process(target=run, args=(number,), daemon=True)
        process.start()
        workers[number] = process, time.monotonic()
        if stopping:  # the signal arrived before the process was known
            process.terminate()

    def run(number: int) -> None:
        for name in handled:  # the parent's handler would stop the other workers
            signal.signal(name, signal.SIG_DFL)
        for other in sockets:
            if other is not sockets[number]:
                other.close()
        parent: Any = multiprocessing.parent_process()
        work(number, sockets[number], parent.sentinel, lambda: is_ready.__setitem__(number, True))

    with _handle_signals(stop) as handled:
        for number in range(len(sockets)):
            start(number)
        replaced: set[int] = set()
        failures = 0
        due: dict[int, float] = {}  # when to start another worker, by number
        while workers or (due and not stopping):
            sentinels = {worker.sentinel: number for number, (worker, _) in workers.items()}
            # Without a worker to wait for, a signal does not end the wait.
            ended = multiprocessing.connection.wait(sentinels, 0.2 if due else None)
            for number in [sentinels[one] for one in ended]:
                process, started = workers.pop(number)
                process.join()
                if stopping:
                    continue
                failures = 0 if any(is_ready[:]) else failures + 1  # one that serves is enough
                is_broken = (
                    not is_ready[number] and number not in replaced and process.exitcode >= 0
                )
                is_ready[number] = False
                if is_broken or failures > FAILURES:
                    stop()
                    raise DcnnError(
                        f"worker {number} failed as soon as it started (exit code "
                        f"{process.exitcode}, {failures} in a row); see above, and pass fewer "
                        "--workers if there is not enough memory"
                    )
                lived = time.monotonic() - started
                pause = 0 if lived > RESTART_SECONDS else RESTART_SECONDS * 2 ** min(failures, 3)
                due[number] = time.monotonic() + pause
                _log.warning("worker %d ended (%d); starting another", number, process.exitcode)
            for number in [n for n, when in due.items() if when <= time.monotonic()]:
                del due[number]
                replaced.add(number)
                if not stopping:
                    start(number)


def bind(host: str, port: int, count: int = 1) -> list[socket.socket]:
    """Sockets on one address for ``count`` processes; the system spreads connections over them."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        options: Any = {"family": family, "backlog": BACKLOG, "dualstack_ipv6": dual}
        first = socket.create_server(address, **options)
        if count == 1:
            return [first]
        # Sockets that share a port would share it with another server as well; the first one, which
        # does not share, has shown that there is none.
        address = (address[0], first.getsockname()[1], *address[2:])
        first.close()
        return [socket.create_server(address, reuse_port=True, **options) for _ in range(count)]
    except OSError as error:
        reason, _, _ = (error.strerror or str(error)).partition(" (while attempting to bind")
        raise UserError(
            f"cannot listen on {host} port {port} ({reason}); choose another with --port or --host"
        ) from error


def address_of(listener: socket.socket) -> str:
    """The address for a browser."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
