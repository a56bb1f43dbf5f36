"""Taking turns at a part of the cache, which processes and hosts share.

Two trainings on one corpus, say with two seeds, or the processes of one, may come to the same part
at once. One of them makes it, and the others wait and find it made. The system takes the turn from
a process that dies; on a disk that knows no locks nobody waits.


Some ten thousand encoded examples in one file: what a corpus larger than memory is made of.

A block numbers its own words as they are first seen, so that it needs to know nothing of other
blocks: they are made in parallel, and a number mostly takes two bytes. Which id a word has in a
corpus is said by a table beside it (``dcnn.data.store``).

The file is in safetensors, which nothing can hide code in. Readers map it into memory for as long
as it takes to copy what they want: pages that stay mapped count as resident memory.


Encoding the files of a corpus, each once, in several processes, into a cache on disk.

A file becomes a folder of blocks (``dcnn.data.encode``), named by a hash of its bytes and of all
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
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from dcnn import __version__
from dcnn.data import (
    arrow as arrow_files,
)
from dcnn.data import (
    columns,
    records,
)
from dcnn.data import (
    labels as label_sets,
)
from dcnn.data import (
    readers as formats,
)
from dcnn.data import (
    readers as shard_reader,
)
from dcnn.data import (
    records as fields,
)
from dcnn.data import (
    records as lines,
)
from dcnn.data.columns import Columns
from dcnn.data.labels import LabelForm
from dcnn.data.readers import Row, ShardReader, TableOptions
from dcnn.data.records import NoRowsError
from dcnn.errors import DataError, DcnnError, StorageError
from dcnn.files import file_sha256, write_atomically, write_folder_atomically
from dcnn.text import tokenizer as tokenizer_module
from dcnn.text import vocabulary as numbering
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import Ints, tokenize_chunk

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


ROWS = 1 << 16  # examples of a block: tweets of that number have fewer than 2**16 words

_SEPARATOR = "\n"  # between words, none of which holds white space


@dataclass(frozen=True)
class BlockFacts:
    """What is known of a block without opening it.

    Attributes:
        rows: its examples.
        words: its distinct words.
        labels: its labels as first seen; ``StoredBlock.targets`` are places in this list.
        counts: examples of each label.
    """

    rows: int
    words: int
    labels: list[str]
    counts: list[int]


def write_block(path: Path, rows: Sequence[Row], tokenizer: Tokenizer) -> BlockFacts:
    """Tokenize ``rows``, at least one, and write them as a block.

    Raises:
        StorageError: the disk refused.
    """
    words, numbers, lengths = tokenize_chunk(tokenizer, (row.text for row in rows))
    counts = np.bincount(numbers, minlength=len(words))
    numbers, lengths = _with_empty_texts(len(words), numbers, lengths)
    places: dict[str, int] = {}
    targets = np.array([places.setdefault(str(row.label), len(places)) for row in rows])
    tensors: dict[str, NDArray[Any]] = {
        "words": np.frombuffer(_SEPARATOR.join(words).encode(), np.uint8),
        "counts": counts.astype(np.uint32),
        "numbers": _smallest(numbers, len(words)),
        "lengths": _smallest(lengths, int(lengths.max())),
        "targets": _smallest(targets, len(places)),
    }
    if rows[0].weight is not None:
        tensors["weights"] = np.array([row.weight for row in rows], np.float32)
    with write_atomically(path) as stream:
        stream.write(safetensors.numpy.save(tensors))
    return BlockFacts(len(rows), len(words), list(places), np.bincount(targets).tolist())


def _with_empty_texts(words: int, numbers: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """A text without words gets one, with the number after all others."""
    empty = np.flatnonzero(lengths == 0)
    if len(empty):
        starts = np.cumsum(lengths) - lengths
        numbers = np.insert(numbers, starts[empty], words)
        lengths = np.maximum(lengths, 1)
    return numbers, lengths


def _smallest(values: Ints, largest: int) -> Ints:
    """``values`` in the type with the fewest bytes that holds ``largest``."""
    return values.astype(np.min_scalar_type(largest))


class StoredBlock:
    """A block on disk; every method reads what it returns.

    Raises:
        DataError: the file is gone or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def words(self) -> list[str]:
        """The words in the order of their numbers."""
        text = self._read("words").tobytes().decode()
        return text.split(_SEPARATOR) if text else []

    def counts(self) -> Ints:
        """(words,) how often each occurs."""
        return self._read("counts")

    def lengths(self) -> Ints:
        """(rows,) int64."""
        return self._read("lengths").astype(np.int64)

    def numbers(self, first: int, last: int) -> Ints:
        """The words from ``first`` on and before ``last``, counted over all rows."""
        with self._opened() as block:
            return np.asarray(block.get_slice("numbers")[first:last])

    def targets(self) -> Ints:
        """(rows,) places of the labels among the block's own."""
        return self._read("targets")

    def weights(self) -> NDArray[np.float32] | None:
        """(rows,) or none."""
        with self._opened() as block:
            return block.get_tensor("weights") if "weights" in block.keys() else None  # noqa: SIM118

    def _read(self, name: str) -> NDArray[Any]:
        with self._opened() as block:
            return np.asarray(block.get_tensor(name))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            with safetensors.safe_open(self.path, "np") as block:
                yield block
        except (OSError, safetensors.SafetensorError) as error:
            raise DataError(
                f"{self.path}: a part of the encoded corpus is gone or damaged ({error}); "
                f"delete {self.path.parent}, and the same command encodes it again"
            ) from error


FORMAT_VERSION = 1
FOLDER_ENCODING, ENTRY = "blocks", "entry.json"

# What decides how a file is read and split: another version of it makes another entry.
_CODE = (
    arrow_files,
    sys.modules[__name__],
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
    block_rows: int = ROWS

    @classmethod
    def of(cls, paths: Sequence[Path], options: TableOptions, tokenizer: Tokenizer) -> "Reading":
        """Look for the columns in the first of ``paths`` that has rows.

        Raises:
            DataError: a column cannot be found.
        """
        reader = ShardReader(options, labels=True)
        reader.look_at(paths)
        assert reader.first is not None and reader.columns is not None  # noqa: S101, PT018
        if reader.form.multi_label or reader.columns.flags:
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
        return cache / FOLDER_ENCODING / self.key / _block_name(number)


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
            folder = self.cache / FOLDER_ENCODING / key
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
        form = LabelForm(multi_label=False, source=str(reading.first))
        reader = ShardReader(reading.options, True, reading.first, reading.columns, form=form)
        metadata: list[BlockFacts] = []
        with write_folder_atomically(folder) as temporary:
            for number, rows in enumerate(_in_blocks(reader, path, reading.block_rows)):
                block = temporary / _block_name(number)
                metadata.append(write_block(block, rows, reading.tokenizer))
                tell(len(rows))
            kinds = [kind.__name__ for kind in reader.kinds]
            checksums = [file_sha256(block) for block in sorted(temporary.iterdir())]
            described = [asdict(block) for block in metadata]
            entry = {"key": key, "kinds": kinds, "sha256": checksums, "blocks": described}
            (temporary / ENTRY).write_text(json.dumps(entry), encoding="utf-8")
        return EncodedFile(str(path), key, metadata, kinds)


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
        metadata = [BlockFacts(**block) for block in entry["blocks"]]
        found = [file_sha256(folder / _block_name(number)) for number in range(len(metadata))]
        if entry["key"] != key or entry["sha256"] != found:
            return None
        return EncodedFile(str(source), key, metadata, entry["kinds"])
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
