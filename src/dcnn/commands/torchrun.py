"""Whether ``torchrun`` started this process as one of several; found out without torch."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dcnn.errors import DcnnError, MissingExtraError, UserError, WorkerLostError

if TYPE_CHECKING:
    from dcnn.training.distributed import Workers

# Seconds in which torchrun, once a process has ended, has long told the others to end.
FIRST_SAYS_IT = 3.0


def is_launched() -> bool:
    """Whether this process trains together with others."""
    # Other launchers set RANK too, and mean something else by it.
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_first() -> bool:
    """Whether this is the process that prints and writes; one alone is."""
    return not is_launched() or os.environ["RANK"] == "0"


def is_restarted() -> bool:
    """Whether it takes the place of one that was killed."""
    return is_launched() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def processes_here() -> int:
    """How many processes of this training are on this host."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if is_launched() else 1


def hush_all_but_first() -> None:
    """Let one process alone tell what happens; errors are told by each."""
    if not is_first():
        logging.getLogger("dcnn").setLevel(logging.WARNING)


@contextmanager
def first_says_what_is_wrong(
    *kinds: type[DcnnError],
) -> Iterator[None]:
    """Let one process of a host tell what is wrong with the input of all.

    The others hold their own error back for a moment. If the first has it too, it ends, and
    ``torchrun`` ends the others before they say it. One whose error is its own alone is still there
    then, and says it.

    Args:
        kinds: of errors that every process meets; any of the user's if none are named.
    """
    try:
        yield
    except DcnnError as error:
        is_of_all = isinstance(error, kinds or UserError)
        if is_of_all and is_launched() and os.environ["LOCAL_RANK"] != "0":
            time.sleep(FIRST_SAYS_IT)
        raise


@contextmanager
def first_reads_first(workers: "Workers | None") -> Iterator[None]:
    """The first process reads before the others, and they say nothing where it has failed."""
    if workers is None:
        yield
        return
    with first_says_what_is_wrong(WorkerLostError), workers.first_before_others():
        yield


def require_distributed() -> None:
    """Find a torch that cannot do it before anything of torch.distributed is imported.

    Raises:
        UserError: it was built without.
        MissingExtraError: there is no torch.
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
