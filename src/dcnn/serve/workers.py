"""Several processes that serve, and one that watches over them.

They are forked from a process that has loaded everything, so the models are in memory once. Each
has a socket of its own on the same port. One that dies is replaced; when the watching process is
told to stop, all are.
"""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from types import FrameType

from dcnn.errors import UserError
from dcnn.serve.server import STOPPING

_log = logging.getLogger("dcnn.serve")

SHORTEST_LIFE = 1.0  # seconds; one that dies sooner would only die again

Work = Callable[[int, socket.socket, int], None]


def run_workers(work: Work, sockets: Sequence[socket.socket]) -> None:
    """Run ``work(number, socket, alive)`` in a process for each socket, until told to stop.

    Args:
        work: serves until SIGTERM comes, or until the pipe ``alive`` is closed.
        sockets: one for each worker.

    Raises:
        UserError: the system cannot fork, or a worker died as soon as it was started.
    """
    if not hasattr(os, "fork"):
        raise UserError("this system cannot fork, so there is one worker only: pass --workers 1")
    watched, held = os.pipe()  # closed by the system when this process ends, however it ends
    workers: dict[int, tuple[int, float]] = {}
    stopping = False

    def stop(_: int, __: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        for listener in sockets:  # else the system would go on to accept for nobody
            listener.close()
        for worker in list(workers):
            os.kill(worker, signal.SIGTERM)

    def start(number: int) -> None:
        if process := os.fork():
            workers[process] = (number, time.monotonic())
            if stopping:  # the signal came while there was no number to send it to
                os.kill(process, signal.SIGTERM)
            return
        status = 1
        try:
            for handled in before:  # the parent's would stop the others
                signal.signal(handled, signal.SIG_DFL)
            os.close(held)
            for other in sockets:
                if other is not sockets[number]:
                    other.close()
            work(number, sockets[number], watched)
            status = 0
        finally:
            os._exit(status)  # what the parent has to clean up is the parent's

    before = {
        number: signal.signal(number, stop)
        for number in STOPPING
        if signal.getsignal(number) is not signal.SIG_IGN  # as nohup asks
    }
    try:
        for number in range(len(sockets)):
            start(number)
        while workers:
            process, status = os.wait()
            number, born = workers.pop(process)
            if stopping:
                continue
            if time.monotonic() - born < SHORTEST_LIFE:
                stop(signal.SIGTERM, None)
                raise UserError(f"worker {number} ended as soon as it was started; see above")
            _log.warning("worker %d ended with status %d; starting another", number, status)
            start(number)
    finally:
        os.close(held)
        os.close(watched)
        for number, handler in before.items():
            signal.signal(number, handler)
