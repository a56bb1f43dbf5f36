"""The errors that users see.

Every message gives the name, the rule, the received value and the remedy, in one sentence that the
command line prints as it is. The command line ends with the error's exit code.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class DcnnError(Exception):
    """The work failed for a reason that the message explains (exit code 1)."""

    exit_code = 1


class TrainingError(DcnnError):
    """Training cannot continue: the loss or a gradient is no longer finite."""


class WorkerLostError(DcnnError):
    """Another process of a distributed run can no longer be reached."""


class StorageError(DcnnError):
    """A write failed: the disk is full, read-only or unreachable."""


class FetchError(DcnnError):
    """A download failed: no network, a server error, or a file with the wrong checksum."""


class TrainingStoppedError(DcnnError):
    """The user stopped the training; its checkpoint is on disk."""

    exit_code = 130


class UserError(DcnnError, ValueError):
    """The user's input is wrong, and the message says how to fix it (exit code 2)."""

    exit_code = 2


class ConfigError(UserError):
    """A setting, or a combination of settings, that no network can have."""


class DataError(UserError):
    """A data file, column, row or label that cannot be used."""


class ModelFolderError(UserError):
    """A folder that is not a complete, readable model folder."""


class MissingExtraError(UserError):
    """A feature whose optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the extra '{extra}': pip install 'dcnn[{extra}]', "
            f"or from a clone pip install '.[{extra}]'"
        )


@contextmanager
def needs_extra(feature: str, extra: str) -> Iterator[None]:
    """Around imports that only ``extra`` provides: a failed one raises MissingExtraError."""
    try:
        yield
    except ImportError:
        raise MissingExtraError(feature, extra) from None
