"""What Ctrl-C does to a long training."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dcnn.commands.torchrun import is_first
from dcnn.errors import TrainingStoppedError

if TYPE_CHECKING:
    from dcnn.training.callbacks import Callback


@contextmanager
def stop_on_signal(callback: "Callback", *, patient: bool = False) -> Iterator[None]:
    """Let the first Ctrl-C end the run after a step, with all saved; the second one at once.

    Unless ``patient``: a launcher passes on what the terminal has sent to all already.
    """

    def stop(number: int, _: object) -> None:
        callback.stop = True
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


@contextmanager
def say_what_is_kept(checkpoint: Path, *, resumes: bool, before_training: str) -> Iterator[None]:
    """Answer a Ctrl-C that ends a command at once, while it reads or saves, with what is left.

    Args:
        checkpoint: where the run leaves its state.
        resumes: whether the run goes on with a state that is there already; else that is another's.
        before_training: what is on disk as long as the run has left no state.

    Raises:
        TrainingStoppedError: so it was stopped; of several processes, in the first.
    """
    at_the_start = _written_at(checkpoint)
    try:
        yield
    except KeyboardInterrupt:
        if not is_first():
            sys.exit(TrainingStoppedError.exit_code)  # the first process says it of all
        written = _written_at(checkpoint)
        if written is not None and (resumes or written != at_the_start):
            raise TrainingStoppedError(
                f"stopped; {checkpoint} holds the run as it was last saved, and the same command "
                "with --resume goes on from there"
            ) from None
        raise TrainingStoppedError(
            f"stopped before the training began; {before_training}"
        ) from None


def _written_at(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None
