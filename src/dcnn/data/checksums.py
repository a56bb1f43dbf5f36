"""Checksums of files, which tell whether a file is the one that it should be."""

import hashlib
from pathlib import Path

from dcnn.errors import DataError


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
