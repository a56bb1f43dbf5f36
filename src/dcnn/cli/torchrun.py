"""Whether ``torchrun`` started this process as one of several; found out without torch."""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from dcnn.errors import (
    ConfigError,
    DataError,
    DcnnError,
    MissingExtraError,
    TrainingError,
    TrainingStoppedError,
    UserError,
    WorkerLostError,
)

if TYPE_CHECKING:
    from dcnn.training.distributed import Workers

# Seconds: once a process has ended, torchrun ends the others well within this time.
WAIT_FOR_FIRST = 3.0


def is_launched() -> bool:
    """Whether this process trains together with others."""
    # Other launchers set RANK too, with another meaning.
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_first() -> bool:
    """Whether this is the process that prints and writes; a process alone is."""
    return not is_launched() or os.environ["RANK"] == "0"


def is_restarted() -> bool:
    """Whether this process replaces one that was killed."""
    return is_launched() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def processes_here() -> int:
    """How many processes of this run are on this host."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if is_launched() else 1


def log_from_first_only() -> None:
    """Log progress in the first process only; every process logs its warnings."""
    if not is_first():
        logging.getLogger("dcnn").setLevel(logging.WARNING)


@contextmanager
def first_reports(*kinds: type[DcnnError]) -> Iterator[None]:
    """Let one process per host report an error that all of them have.

    The others wait a moment before they raise theirs: if the first process has the same error, it
    ends, and ``torchrun`` ends them before they print it. A process whose error is its own is
    still there then, and reports it.

    Args:
        kinds: errors that every process has; by default any ``UserError``.
    """
    try:
        yield
    except DcnnError as error:
        is_shared = isinstance(error, kinds or UserError)
        if is_shared and is_launched() and os.environ["LOCAL_RANK"] != "0":
            time.sleep(WAIT_FOR_FIRST)
        raise


@contextmanager
def first_reads_first(workers: "Workers | None") -> Iterator[None]:
    """The first process reads before the others, which print nothing if it fails."""
    if workers is None:
        yield
        return
    with first_reports(WorkerLostError), workers.first_before_others():
        yield


@contextmanager
def joined_workers(device: str) -> Iterator["Workers | None"]:
    """The processes of this run; ``None`` where this process trains alone."""
    if not is_launched():
        yield None
        return
    with ExitStack() as stack:
        with first_reports():
            require_distributed()
            from dcnn.training.distributed import joined

            workers = stack.enter_context(joined(device))
        try:
            with first_reports(ConfigError, DataError):
                yield workers
        except (TrainingError, TrainingStoppedError) as error:
            if workers.is_first:
                raise
            sys.exit(error.exit_code)  # the first process reports it


def require_distributed() -> None:
    """Check for ``torch.distributed`` before anything that needs it is imported.

    Raises:
        UserError: this torch was built without it.
        MissingExtraError: torch is not installed.
    """
    try:
        from torch import distributed
    except ImportError:
        raise MissingExtraError("Training", "train") from None
    if not distributed.is_available():
        raise UserError(
            "torchrun needs a torch that was built with torch.distributed, and this one was not; "
            "install one that was (pip install torch), or train in one process, without torchrun"
        )
