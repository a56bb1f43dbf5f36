"""Encoding the files of a corpus, each once, in several processes, into a cache on disk.

A file becomes a folder of blocks (``dcnn.data.blocks``), named by a hash of its bytes and of all
that decides how it is read and split. So a file that was encoded for one corpus serves another, an
encoding that is stopped goes on with the files that are missing, and a file that cannot be read
takes nothing from the others.

    entry.json      the hash, what is known of every block, and checksums
    00000.block, 00001.block, ...
"""

import hashlib
import json
import multiprocessing
import os
import signal
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from dcnn import __version__
from dcnn.data import (
    arrow_files,
    columns,
    fields,
    formats,
    label_sets,
    lines,
    records,
    shard_reader,
)
from dcnn.data import blocks as blocks_module
from dcnn.data.blocks import BlockFacts, write_block
from dcnn.data.checksums import file_sha256
from dcnn.data.columns import Columns
from dcnn.data.label_sets import LabelForm
from dcnn.data.records import NoRowsError
from dcnn.data.shard_reader import Row, ShardReader, TableOptions
from dcnn.data.turns import turn_at
from dcnn.errors import DataError, DcnnError, StorageError
from dcnn.files import write_folder_atomically
from dcnn.text import numbering
from dcnn.text import tokenizer as tokenizer_module
from dcnn.text.tokenizer import Tokenizer

FORMAT_VERSION = 1
FOLDER, ENTRY = "blocks", "entry.json"

# What decides how a file is read and split: another version of it makes another entry.
_CODE = (
    arrow_files,
    blocks_module,
    columns,
    fields,
    formats,
    label_sets,
    lines,
    records,
    shard_reader,
    numbering,
    tokenizer_module,
)

_SECONDS_BETWEEN_LOOKS = 0.3


@dataclass(frozen=True)
class Reading:
    """How the files of a corpus are read and split.

    Attributes:
        options: as the user gave them.
        first: the file whose columns serve for all.
        columns: those.
        tokenizer: splits a text.
        block_rows: examples of a block.
    """

    options: TableOptions
    first: Path
    columns: Columns
    tokenizer: Tokenizer
    block_rows: int = blocks_module.ROWS

    @classmethod
    def of(cls, paths: Sequence[Path], options: TableOptions, tokenizer: Tokenizer) -> "Reading":
        """Look for the columns in the first of ``paths`` that has rows.

        Raises:
            DataError: a column cannot be found.
        """
        reader = ShardReader(options, labels=True)
        reader.look_at(paths)
        assert reader.first is not None and reader.columns is not None  # noqa: S101, PT018
        if reader.form.many or reader.columns.flags:
            raise DataError(
                f"{reader.first} has several labels a row, and a corpus on disk one; "
                "train in memory with --no-stream, or give a column with one label a row"
            )
        return cls(options, reader.first, reader.columns, tokenizer)


@dataclass(frozen=True)
class EncodedFile:
    """A file of a corpus in the cache.

    Attributes:
        source: the file, for messages.
        key: names the folder of its blocks.
        blocks: what is known of each; none if the file has no rows.
        kinds: the types of its labels, where its format has any.
    """

    source: str
    key: str
    blocks: list[BlockFacts]
    kinds: list[str]

    def path(self, cache: Path, number: int) -> Path:
        """Where a block is."""
        return cache / FOLDER / self.key / _block_name(number)


def encode_files(
    paths: Sequence[Path],
    reading: Reading,
    cache: Path,
    processes: int = 1,
    tell: Callable[[int], None] = lambda _: None,
) -> list[EncodedFile]:
    """Every file in the cache: found there, or else encoded and left there.

    Args:
        paths: the files of a corpus.
        reading: how to read them.
        cache: the folder of the cache.
        processes: how many to work in, each on a file of its own. With two or more, the main
            module of the program must be importable without side effects.
        tell: told the number of examples encoded so far, now and then.

    Raises:
        DataError: some files cannot be used. All others have been encoded, and are kept.
        StorageError: the disk refused; what was complete before is kept.
    """
    work = _Work(reading, cache)
    if processes < 2 or len(paths) < 2 or multiprocessing.current_process().daemon:
        outcomes = _here(work, paths, tell)
    else:
        outcomes = _in_processes(work, paths, min(processes, len(paths)), tell)
    faults = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if faults:
        done = sum(1 for outcome in outcomes if isinstance(outcome, EncodedFile))
        others = f" (and {len(faults) - 1} more files: " if len(faults) > 1 else ""
        others += "; ".join(faults[1:]) + ")" if others else ""
        raise DataError(
            f"{faults[0]}{others}; {done} of {len(paths)} files are encoded and kept, so the same "
            "command goes on from there once it is mended or taken out"
        )
    return [outcome for outcome in outcomes if isinstance(outcome, EncodedFile)]


_Outcome = EncodedFile | str  # a string says what is wrong with the file


@dataclass(frozen=True)
class _Work:
    """Encodes one file; may go to another process."""

    reading: Reading
    cache: Path

    def key(self, path: Path) -> str:
        """Names the folder of a file; empty if the file cannot be read."""
        try:
            return _key(path, self.reading)
        except DataError:
            return ""  # what is wrong is said when the file is to be encoded

    def encode(self, path: Path, tell: Callable[[int], None]) -> _Outcome:
        """Find the file in the cache, or encode it."""
        try:
            key = _key(path, self.reading)
            folder = self.cache / FOLDER / key
            found = _load(folder, key, path)
            if found is not None:
                return found
            with turn_at(self.cache, key, lambda: tell(0)):
                # Another process may have made it meanwhile.
                return _load(folder, key, path) or self._encode(path, key, folder, tell)
        except StorageError:
            raise
        except DcnnError as error:
            return str(error)

    def _encode(
        self, path: Path, key: str, folder: Path, tell: Callable[[int], None]
    ) -> EncodedFile:
        reading = self.reading
        form = LabelForm(many=False, source=str(reading.first))
        reader = ShardReader(reading.options, True, reading.first, reading.columns, form=form)
        facts: list[BlockFacts] = []
        with write_folder_atomically(folder) as temporary:
            for number, rows in enumerate(_in_blocks(reader, path, reading.block_rows)):
                block = temporary / _block_name(number)
                facts.append(write_block(block, rows, reading.tokenizer))
                tell(len(rows))
            kinds = [kind.__name__ for kind in reader.kinds]
            checksums = [file_sha256(block) for block in sorted(temporary.iterdir())]
            described = [asdict(block) for block in facts]
            entry = {"key": key, "kinds": kinds, "sha256": checksums, "blocks": described}
            (temporary / ENTRY).write_text(json.dumps(entry), encoding="utf-8")
        return EncodedFile(str(path), key, facts, kinds)


def _block_name(number: int) -> str:
    return f"{number:05}.block"


def _in_blocks(reader: ShardReader, path: Path, size: int) -> Iterator[list[Row]]:
    rows = reader.rows(path)
    try:
        while block := list(islice(rows, size)):
            yield block
    except NoRowsError:
        return


def _key(path: Path, reading: Reading) -> str:
    """A hash of all that the blocks of a file depend on."""
    made_from = {
        "format": FORMAT_VERSION,
        "dcnn": __version__,
        "code": [file_sha256(Path(str(module.__file__))) for module in _CODE],
        "unicode": unicodedata.unidata_version,
        "format of the file": path.suffixes[-2:],
        "encoding": reading.options.encoding,
        "header": reading.options.header,
        "columns": asdict(reading.columns),
        "tokenizer": asdict(reading.tokenizer),
        "rows of a block": reading.block_rows,
        "source": file_sha256(path),
    }
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


def _load(folder: Path, key: str, source: Path) -> EncodedFile | None:
    """What is in ``folder``, or none if it is not complete and undamaged."""
    try:
        entry: Any = json.loads((folder / ENTRY).read_bytes())
        facts = [BlockFacts(**block) for block in entry["blocks"]]
        found = [file_sha256(folder / _block_name(number)) for number in range(len(facts))]
        if entry["key"] != key or entry["sha256"] != found:
            return None
        return EncodedFile(str(source), key, facts, entry["kinds"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _here(work: _Work, paths: Sequence[Path], tell: Callable[[int], None]) -> list[_Outcome]:
    total = 0

    def add(count: int) -> None:
        nonlocal total
        total += count
        tell(total)

    return [work.encode(path, add) for path in paths]


# What the processes share with the one that started them: examples encoded so far, and whether
# to stop; and who that is. Set in each as it starts.
_shared: Any = None
_parent = 0


def _join_in(shared: Any) -> None:
    global _shared, _parent
    _shared, _parent = shared, os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer


class _ToldToStop(Exception):  # noqa: N818
    """The parent has been stopped or killed."""


def _add(count: int) -> None:
    with _shared.get_lock():
        _shared[0] += count
    if _shared[1] or os.getppid() != _parent:  # it was killed, and somebody else looks after us
        raise _ToldToStop


def _encode_there(work: _Work, path: Path) -> _Outcome:
    _add(0)
    return work.encode(path, _add)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach even while they start; it is the parent's."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_processes(
    work: _Work, paths: Sequence[Path], processes: int, tell: Callable[[int], None]
) -> list[_Outcome]:
    # A fork of a process with threads, such as torch's, may hang.
    context = multiprocessing.get_context("spawn")
    shared = context.Array("q", 2)
    pool = ProcessPoolExecutor(processes, context, _join_in, (shared,))
    try:
        # One file of each content: two processes would write the same folder.
        with _interrupts_held_back():
            found = pool.map(work.key, paths)
        keys = [key or str(path) for path, key in zip(paths, found, strict=True)]
        results = {
            key: pool.submit(_encode_there, work, path)
            for key, path in dict(zip(keys, paths, strict=True)).items()
        }
        waiting: set[Future[_Outcome]] = set(results.values())
        while waiting:
            _, waiting = wait(waiting, _SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
            tell(shared[0])
        outcomes = [results[key].result() for key in keys]
    except BrokenExecutor as error:
        raise StorageError(
            f"a process that encoded the corpus was killed ({error}); the files that were complete "
            "are kept: make room in memory, and the same command goes on from there"
        ) from error
    finally:
        shared[1] = 1
        pool.shutdown(cancel_futures=True)
    return [
        replace(outcome, source=str(path)) if isinstance(outcome, EncodedFile) else outcome
        for path, outcome in zip(paths, outcomes, strict=True)
    ]
