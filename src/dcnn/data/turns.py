"""Taking turns at a part of the cache, which processes and hosts share.

Two trainings on one corpus, say with two seeds, or the processes of one, may come to the same part
at once. One of them makes it, and the others wait and find it made. The system takes the turn from
a process that dies; on a disk that knows no locks nobody waits.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dcnn.errors import StorageError

FOLDER = "locks"

_SECONDS_BETWEEN_TRIES = 0.1


@contextmanager
def turn_at(cache: Path, key: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Wait until no other process is at the part ``key`` of the cache, and keep others from it.

    Args:
        cache: the folder of the cache.
        key: names the part.
        waiting: called now and then meanwhile; may raise, to give up.

    Raises:
        StorageError: the disk refused.
    """
    lock = cache / FOLDER / key
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        stream = lock.open("ab")
    except OSError as error:
        raise StorageError(f"{lock} could not be written ({error.strerror})") from error
    with stream:
        while not _is_ours(stream):
            waiting()
            time.sleep(_SECONDS_BETWEEN_TRIES)
        yield


def _is_ours(stream: BinaryIO) -> bool:
    try:
        import fcntl  # which Windows does not have

        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True
