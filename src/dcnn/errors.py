"""The few errors that users meet.

Every message gives the name, the rule, the value received and the remedy, in one sentence that
the command line can print as it is. The command line turns an error into its exit code.
"""


class DcnnError(Exception):
    """The work failed for a reason that the message explains (exit code 1)."""

    exit_code = 1


class TrainingError(DcnnError):
    """Training cannot go on: the loss or a gradient is no longer finite."""


class WorkerLostError(DcnnError):
    """Another process of a training in several cannot be reached any more."""


class StorageError(DcnnError):
    """The disk refused a write: it is full, read-only or out of reach."""


class FetchError(DcnnError):
    """A download failed: no network, an error of the server, or not the file that it should be."""


class TrainingStoppedError(DcnnError):
    """The user stopped the training; its checkpoint is on disk."""

    exit_code = 130


class UserError(DcnnError, ValueError):
    """The user's input is wrong and the message says how to mend it (exit code 2)."""

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
