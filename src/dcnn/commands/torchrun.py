"""Whether ``torchrun`` started this process as one of several; found out without torch."""

import logging
import os


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
