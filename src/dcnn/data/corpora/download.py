"""Downloading the paper's corpora.

Bytes go to a temporary file whose name ends in ``.part``. If the connection is cut it stays, and
the next attempt requests the rest. Only a file of the known size and SHA-256 gets its final name.
"""

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dcnn import __version__
from dcnn.data.corpora.registry import UNFINISHED, Corpus, Download
from dcnn.errors import FetchError, StorageError
from dcnn.files import file_sha256, make_folder, open_bytes, write_atomically

TIMEOUT = 30.0  # seconds without a byte
BLOCK = 1 << 16

Progress = Callable[[str, int], None]  # takes the name of a file and the number of bytes received


def fetch_corpus(
    corpus: Corpus, data: Path, progress: Progress, timeout: float = TIMEOUT
) -> list[Path]:
    """Download what the first form of ``corpus`` lacks into the data folder.

    Returns the files, complete and checked. ``progress`` is called after every block.
    """
    folder = make_folder(data / corpus.folder)
    paths: list[Path] = []
    for download in corpus.downloads:
        if not all(file.is_at(folder / file.name) for file in download.result):
            transfer = _Transfer(download, folder, progress, timeout)
            path = folder / download.file.name
            if not download.file.is_at(path):
                transfer.install(path)
            if download.unpack:
                transfer.unpack(path)
                path.unlink()
        paths += (folder / file.name for file in download.result)
    return paths


class _CutError(Exception):
    """The connection ended before the file did."""


@dataclass(frozen=True)
class _Transfer:
    """One download into ``folder``."""

    download: Download
    folder: Path
    progress: Progress
    timeout: float

    @property
    def part(self) -> Path:
        return self.folder / f"{self.download.file.name}{UNFINISHED}"

    def install(self, path: Path) -> None:
        known = self.download.file
        while (have := self._received()) != known.size:
            try:
                self._receive()
            except _CutError as cut:
                if self._received() <= have:  # no progress: another attempt would not help
                    raise self._failed(
                        f"the connection was cut after {self._received():,} of {known.size:,} "
                        f"bytes ({cut})"
                    ) from cut
        sha256 = file_sha256(self.part)
        if sha256 != known.sha256:
            self.part.unlink()
            raise self._failed(f"its SHA-256 is {sha256} where {known.sha256} is expected")
        self.part.replace(path)

    def _received(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _receive(self) -> None:
        """Request the missing bytes and append them until the file is complete."""
        name, size = self.download.file.name, self.download.file.size
        start = self._received()
        if start > size:  # not of this file
            start = 0
        with closing(self._open(start)) as response:
            if response.status != http.HTTPStatus.PARTIAL_CONTENT:
                start = 0  # the server ignores ranges and sends the whole file
            offered = _offered_size(response)
            if offered not in (None, size):
                raise self._failed(f"it has {offered:,} bytes now where {size:,} are expected")
            try:
                with self.part.open("ab" if start else "wb") as stream:
                    while start < size:
                        block = _read_block(response, min(BLOCK, size - start))
                        stream.write(block)
                        start += len(block)
                        self.progress(name, start)
                    stream.flush()
                    os.fsync(stream.fileno())
            except OSError as error:
                raise StorageError(
                    f"{self.part} cannot be written ({error.strerror}); make room and try again"
                ) from error

    def _open(self, start: int) -> http.client.HTTPResponse:
        headers = {"User-Agent": f"dcnn/{__version__}"}
        if start:
            headers["Range"] = f"bytes={start}-"
        request = urllib.request.Request(self.download.url, headers=headers)  # noqa: S310
        try:
            response = urllib.request.urlopen(request, timeout=self.timeout)  # noqa: S310
        except urllib.error.HTTPError as error:
            error.close()
            if start and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return self._open(0)
            raise self._failed(f"the server answered {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise self._failed(f"the server cannot be reached ({reason})") from error
        return cast("http.client.HTTPResponse", response)

    def unpack(self, archive: Path) -> None:
        """Unpack the wanted members of an archive, each whole or not at all."""
        for member, known in self.download.unpack.items():
            digest = hashlib.sha256()
            with (
                open_bytes(archive, member) as source,
                write_atomically(self.folder / known.name) as target,
            ):
                while block := source.read(BLOCK):
                    digest.update(block)
                    target.write(block)
                if digest.hexdigest() != known.sha256:
                    raise self._failed(
                        f"the SHA-256 of {member} in it is {digest.hexdigest()} where "
                        f"{known.sha256} is expected"
                    )

    def _failed(self, reason: str) -> FetchError:
        names = ", ".join(known.name for known in self.download.result)
        return FetchError(
            f"{self.download.url} could not be downloaded: {reason}; "
            f"try again, or put {names} into {self.folder} by hand"
        )


def _offered_size(response: http.client.HTTPResponse) -> int | None:
    """The size of the whole file according to the server, or none if it does not say."""
    partial = response.status == http.HTTPStatus.PARTIAL_CONTENT
    stated = response.headers.get("Content-Range" if partial else "Content-Length", "")
    total = re.search(r"/(\d+)$" if partial else r"^(\d+)$", stated)
    return int(total[1]) if total else None


def _read_block(response: http.client.HTTPResponse, size: int) -> bytes:
    try:
        block = response.read(size)
    except (OSError, http.client.HTTPException) as error:
        raise _CutError(str(error) or type(error).__name__) from error
    if not block:
        raise _CutError("the server sent no more bytes")
    return block
