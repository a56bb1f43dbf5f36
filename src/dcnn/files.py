"""Reading compressed files, writing files atomically, checksums and sizes.

A written file appears whole or not at all: the bytes go to a temporary file beside it, which then
replaces it. A crash, a full disk or a SIGKILL leaves the old file as it was. If two processes write
the same path at the same time, the second is refused. Modules that ``dcnn predict MODEL TEXT`` does
not need are imported where they are used.
"""

import io
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from dcnn.errors import DataError, StorageError, UserError, needs_extra

# What would break a line or its fields, or control a terminal.
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst", ".zip")


def bare_suffix(path: Path) -> str:
    """The suffix that names the format: ``.csv`` for both ``a.csv`` and ``a.csv.gz``."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return name.suffix.lower()


def show_size(n_bytes: float) -> str:
    """A number of bytes for people."""
    return f"{n_bytes / 1e6:.2f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:.0f} KB"


def parse_size(text: str) -> int:
    """Bytes of ``2MB``, ``500 kB``, ``1.5MiB`` or a plain number."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Z]*)", text.strip().upper())
    if match is None or match[2] not in _UNITS or not (size := float(match[1]) * _UNITS[match[2]]):
        raise UserError(f"--max-size {text!r} must be a size above 0, such as 2MB or 500KB")
    return int(size)


@contextmanager
def open_bytes(path: Path, member: str = "") -> Iterator[BinaryIO]:
    """Open ``path`` for reading, decompressing by its suffix (gz, bz2, xz, zst, zip).

    ``member`` is the file to read in a zip archive; not needed if it holds a single file.
    """
    import lzma
    import zipfile

    check_readable(path)
    try:
        with _decompressed(path, member) as stream:
            yield stream
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, OSError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        raise DataError(  # an OSError without a system's reason is bz2's or gzip's own
            f"{path}: the compressed data is damaged or cut short ({error}); "
            "download or create it again"
        ) from error


def check_readable(path: Path) -> None:
    """Check that ``path`` is a file, or a link to one."""
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file")
    if not path.is_file():  # reading may never end, and cannot start again
        raise DataError(f"{path} is a pipe or a device; name a file, and write a pipe to one first")


# A file declares its dictionary, up to 4 GiB. That of `xz -9` takes 65 MiB.
_XZ_MEMORY = 256 << 20  # bytes


def _decompressed(path: Path, member: str) -> AbstractContextManager[BinaryIO]:
    suffix = path.suffix.lower()
    if module := {".gz": "gzip", ".bz2": "bz2"}.get(suffix):
        return cast("BinaryIO", import_module(module).open(path, "rb"))
    if suffix == ".xz":
        return _open_xz(path)
    if suffix == ".zst":
        return _open_zstandard(path)
    if suffix == ".zip":
        return _open_member(path, member)
    return path.open("rb")


@contextmanager
def _open_xz(path: Path) -> Iterator[BinaryIO]:
    import lzma

    new = partial(lzma.LZMADecompressor, memlimit=_XZ_MEMORY)
    with path.open("rb") as raw:
        try:
            yield io.BufferedReader(_Frames(raw, new, padding=b"\0"))
        except lzma.LZMAError as error:
            if "Memory usage limit" not in str(error):
                raise
            raise DataError(
                f"{path}: decompressing it takes more than {_XZ_MEMORY >> 20} MiB of memory; "
                "compress it again with xz -9 or less"
            ) from error


@contextmanager
def _open_zstandard(path: Path) -> Iterator[BinaryIO]:
    with needs_extra(f"Reading {path.name}", "data"):
        import zstandard
    try:
        with path.open("rb") as raw:
            yield io.BufferedReader(_Frames(raw, zstandard.ZstdDecompressor().decompressobj))
    except zstandard.ZstdError as error:
        raise EOFError(str(error)) from error


class _Frames(io.RawIOBase):
    """Decompressed bytes of all frames of a zst file, or streams of an xz file.

    zstandard's own reader accepts a file that is cut short, and that of lzma has no memory limit;
    this reader detects the former and allows the latter. ``padding`` may lie between frames.
    """

    # Of zst, four bytes can hold a block of 128 KiB, so a step expands to 16 MiB at most.
    STEP = 512

    def __init__(
        self, raw: BinaryIO, new_decompressor: Callable[[], Any], padding: bytes = b""
    ) -> None:
        self._raw, self._new_decompressor, self._padding = raw, new_decompressor, padding
        self._frame: Any = None
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            compressed = b""
            if self._frame is not None and self._frame.eof:
                compressed, self._frame = self._frame.unused_data, None
            compressed = compressed or self._raw.read(self.STEP)
            if not compressed:
                if self._frame is not None:
                    raise EOFError("the last frame has no end")
                return 0
            if self._frame is None:
                if not (compressed := compressed.lstrip(self._padding)):
                    continue
                self._frame = self._new_decompressor()
            self._ready = memoryview(self._frame.decompress(compressed))
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


@contextmanager
def _open_member(path: Path, member: str) -> Iterator[BinaryIO]:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if member and member not in names:
            raise DataError(f"{path} holds no file '{member}'; download or create it again")
        if not member and len(names) != 1:
            raise DataError(
                f"{path} holds {len(names)} files where one is expected; unpack it and name one"
            )
        name = member or names[0]
        if archive.getinfo(name).compress_type == zipfile.ZIP_LZMA:  # zipfile takes all it declares
            raise DataError(f"{path} is compressed with LZMA, not deflate; unpack it yourself")
        try:
            opened = archive.open(name)
        except (RuntimeError, NotImplementedError) as error:  # encrypted, or an unknown method
            raise DataError(f"{path} cannot be unpacked ({error}); unpack it yourself") from error
        with opened as stream:
            yield cast("BinaryIO", stream)


def check_place(option: str, path: Path) -> None:
    """Check before any work is done that an output file can be written; errors name ``option``."""
    if path.is_dir():
        raise UserError(f"{option} {path} is a folder; name a file")
    if not path.parent.is_dir():
        raise UserError(
            f"{option} {path}: there is no folder {path.parent}; create it or name another"
        )


def make_folder(path: Path) -> Path:
    """``path`` itself, created with its parents if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path} cannot be created ({error.strerror})") from error
    return path


@contextmanager
def write_atomically(path: Path, shared: bool = False) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` only when it is complete.

    ``shared`` says that another process may write the same content at the same time.
    """
    named, path = path, path.resolve()  # a link keeps pointing where it points
    if path.exists() and not path.is_file():
        with _named_failure(named), path.open("wb") as stream:  # a pipe or device; a folder fails
            yield stream
        return
    with nullcontext(False) if shared else only_writer(path, str(named)) as alone:
        temporary = _temporary(path, alone)
        try:
            with _named_failure(named):
                with temporary.open("wb") as stream:
                    yield stream
                    stream.flush()
                    os.fsync(stream.fileno())
                temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _temporary(path: Path, alone: bool) -> Path:
    # A single writer uses a fixed name, so that the next one replaces what a killed process left.
    return path.with_name(f".{path.name}{'' if alone else f'.{os.urandom(6).hex()}'}.tmp")


@contextmanager
def write_folder_atomically(path: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces ``path`` only when the block succeeds."""
    import shutil

    named, path = path, path.resolve()
    replaced = path.with_name(f".{path.name}.old")
    with _named_failure(named):
        path.parent.mkdir(parents=True, exist_ok=True)
    with only_writer(path, str(named)) as alone:
        temporary = _temporary(path, alone)
        try:
            with _named_failure(named):
                if replaced.exists() and not path.exists():  # killed between the two renames
                    replaced.replace(path)
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir()
                yield temporary
                for file in temporary.iterdir():  # on the disk before the rename
                    with file.open("rb") as stream:
                        os.fsync(stream.fileno())
                if path.exists():
                    path.replace(replaced)
                temporary.replace(path)
        finally:
            with suppress(OSError):
                if replaced.exists() and not path.exists():  # stopped between the two renames
                    replaced.replace(path)
            shutil.rmtree(temporary, ignore_errors=True)
            if path.exists():
                shutil.rmtree(replaced, ignore_errors=True)


# Long enough for another process to finish a file that it only has to write down.
_PATIENCE = 2.0  # seconds
_LOOK_AGAIN = 0.02  # seconds between two tries to get a lock


@contextmanager
def only_writer(path: Path, what: str) -> Iterator[bool]:
    """Refuse to go on while another process writes ``path``, which messages call ``what``.

    Yields whether the lock is held: not where there are no locks. The lock is a file beside
    ``path``, ``.NAME.lock``, which is removed at the end.
    """
    lock = path.with_name(f".{path.name}.lock")
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            with _named_failure(Path(what)):
                stream = lock.open("ab")
            held = _try_lock(stream)
        except BlockingIOError:
            stream.close()
            if time.monotonic() > deadline:
                raise StorageError(
                    f"another process is writing {what}; wait until it ends, or choose another "
                    "place"
                ) from None
            time.sleep(_LOOK_AGAIN)
            continue
        with suppress(FileNotFoundError):  # whoever had it may have removed it since it was opened
            if not held or os.path.samestat(os.fstat(stream.fileno()), lock.stat()):
                break
        stream.close()
    with stream:
        try:
            yield held
        finally:
            with suppress(OSError):  # Windows removes no open file
                lock.unlink(missing_ok=True)


@contextmanager
def file_lock(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold ``path`` against other processes.

    While one of them has it, ``waiting`` is called fifty times a second; it may raise. The system
    releases the lock when a process ends, even one that is killed. Where there are no such locks,
    as on Windows and some network drives, nothing is held.
    """
    with _named_failure(path):
        stream = path.open("ab")
    with stream:
        while True:
            try:
                _try_lock(stream)
                break
            except BlockingIOError:
                waiting()
                time.sleep(_LOOK_AGAIN)
        yield


def _try_lock(stream: BinaryIO) -> bool:
    """Whether ``stream`` is locked now; raises BlockingIOError if another process has it."""
    try:
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except (ImportError, OSError):
        return False
    return True


@contextmanager
def _named_failure(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} could not be written ({error.strerror or error}); "
            "nothing was changed there: make room or choose another place, and try again"
        ) from error


def standard_output(remedy: str) -> TextIO:
    """Standard output in UTF-8; what cannot be encoded, such as a lone surrogate, is replaced.

    If it is closed, the error ends with ``remedy``.
    """
    if sys.stdout is None:
        raise UserError(f"standard output is closed; {remedy}")
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    return sys.stdout


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    import hashlib

    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
