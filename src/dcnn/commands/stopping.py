"""What Ctrl-C does to a long training."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dcnn.training.progress import Listener


@contextmanager
def stop_on_signal(listener: "Listener", *, patient: bool = False) -> Iterator[None]:
    """Let the first Ctrl-C end the run after a step, with all saved; the second one at once.

    Unless ``patient``: a launcher passes on what the terminal has sent to all already.
    """

    def stop(number: int, _: object) -> None:
        listener.stop = True
        if not patient:
            signal.signal(number, signal.default_int_handler)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
