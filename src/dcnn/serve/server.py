"""One process that serves: uvicorn, stopped in good order.

On SIGTERM, SIGINT or SIGHUP nothing new is accepted, what is in flight is answered, and the
process ends with 0: it did what it was told.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from dcnn.errors import UserError
from dcnn.serve.connections import PromptProtocol
from dcnn.serve.front import Front

GRACE = 30  # seconds for what is in flight
SWITCH = 0.0005  # seconds until a thread that explains lets one that predicts go on
# What asks to stop; not every system has the last, which a terminal sends when it is closed.
STOPPING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
BACKLOG = 512  # connections that wait to be accepted


class StoppableServer(uvicorn.Server):
    """A server that leaves its signals to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ask to stop; uvicorn itself raises the signal again in the end, and fails with it."""
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in STOPPING
            if signal.getsignal(number) is not signal.SIG_IGN  # as nohup asks
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(app: Front, listener: socket.socket, alive: int | None = None) -> None:
    """Answer until told to stop.

    Args:
        app: what answers.
        listener: a socket that is bound.
        alive: a pipe's end; when the other end is closed the process that started this one is
            gone, and so goes this one.
    """
    sys.setswitchinterval(SWITCH)
    server = StoppableServer(
        uvicorn.Config(
            app,
            http=PromptProtocol,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            backlog=BACKLOG,
            timeout_graceful_shutdown=GRACE,
        )
    )
    # uvicorn knows of a request as soon as it is read, before its turn has come.
    app.pending = lambda: len(server.server_state.tasks)

    async def run() -> None:
        if alive is not None:
            asyncio.get_running_loop().add_reader(alive, _stop, server, alive)
        await server.serve([listener])

    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(run())


def _stop(server: uvicorn.Server, alive: int) -> None:
    asyncio.get_running_loop().remove_reader(alive)
    server.should_exit = True


def bind(host: str, port: int, count: int = 1) -> list[socket.socket]:
    """Sockets on one address, for ``count`` processes; the system spreads connections over them.

    Raises:
        UserError: the address is taken, is not of this machine, or needs rights that are not there.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        first = _bound(family, address, shared=False)
        if count == 1:
            return [first]
        # Sockets that share a port would share it with another server too: the first one, which
        # did not ask for that, has shown that there is none.
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
    """Where a browser finds it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
