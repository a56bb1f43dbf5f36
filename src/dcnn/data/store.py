"""The store: encoded corpora on disk, for text that is larger than memory or slow to tokenize.

An entry is a folder in the cache, named by a hash of everything that decides its content: the bytes
of the source, the settings, and the code. So an entry is never out of date, and the store can be
deleted at any time. There are two kinds of entry (``dcnn.data.encode`` writes both):

    an encoded file: its examples in blocks of some ten thousand
        entry.json           the key and the checksums of the other files
        metadata.json        the labels of each block and how often they occur
        00000.safetensors    one block: its distinct words and their counts; of every example the
                             word ids, the length, the target and, where given, the weight
    a corpus: what several encoded files have in common
        entry.json, metadata.json (files, classes), tokenizer.json (as in a model folder)
        00000.safetensors    for one block: the vocabulary id of each of its words
        held_out.safetensors the rows of the dev set

The word ids of a block are its own, in the order of first occurrence: files can be encoded in
parallel, and an id mostly takes two bytes. A corpus maps them to ids of its vocabulary.

Entries appear whole or not at all; a damaged one is written again. Processes and hosts may share a
store: one writes an entry while the others wait; where files cannot be locked, as on Windows and
some network drives, each writes it. Readers map a file into memory only while they copy from it,
since mapped pages count as resident memory.
"""

import hashlib
import json
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

import dcnn
from dcnn.data.batching import Examples
from dcnn.errors import DataError, StorageError
from dcnn.files import file_lock, file_sha256, write_folder_atomically
from dcnn.ops.native import library
from dcnn.text import native as native_text
from dcnn.text.encoder import Encoder
from dcnn.text.vocabulary import Ints, Sentences

FORMAT_VERSION = 2
FOLDER = "store"
ENTRY, METADATA, TOKENIZER = "entry.json", "metadata.json", "tokenizer.json"
HELD_OUT = "held_out.safetensors"
NEW_WORDS = "new_words.txt"  # of a corpus whose words have character n-grams, one in a line


def hash_key(**values: Any) -> str:
    """The key of an entry: a hash of ``values`` and of the code that decides its content."""
    decided_by = {"format": FORMAT_VERSION, "code": _code_hash(), **values}
    return hashlib.sha256(json.dumps(decided_by, sort_keys=True).encode()).hexdigest()


def hashed_code() -> list[Path]:
    """The Python files of the package that decide how text is read and encoded."""
    package = Path(dcnn.__file__).parent
    patterns = ("files.py", "data/**/*.py", "text/**/*.py", "ops/native.py")
    return [path for pattern in patterns for path in package.glob(pattern)]


@cache
def _code_hash() -> str:
    python = (*sys.version_info[:2], unicodedata.unidata_version)
    tokenizes = library().dcnn_text_code() if native_text.available() else "python"
    versions = map(str, (dcnn.__version__, *python, np.__version__, tokenizes))
    return "/".join([*versions, *sorted(map(file_sha256, hashed_code()))])


def save_tensors(path: Path, tensors: dict[str, NDArray[Any]]) -> None:
    """Write arrays to a file, integers with as few bytes as their values need."""
    compact = dict(tensors)
    for name, values in tensors.items():
        if values.dtype.kind == "i" and len(values):
            compact[name] = values.astype(np.min_scalar_type(values.max()))
    path.write_bytes(safetensors.numpy.save(compact))


@dataclass(frozen=True)
class TensorFile:
    """Arrays on disk, each read when it is asked for."""

    path: Path

    def __getitem__(self, name: str) -> NDArray[Any]:
        with self._open() as tensors:
            return np.asarray(tensors.get_tensor(name))

    def get(self, name: str) -> NDArray[Any] | None:
        """The array of that name, or none."""
        with self._open() as tensors:
            return tensors.get_tensor(name) if name in tensors.keys() else None  # noqa: SIM118

    def slice(self, name: str, first: int, last: int) -> NDArray[Any]:
        """The values from ``first`` on and before ``last``; nothing else is read."""
        with self._open() as tensors:
            return np.asarray(tensors.get_slice(name)[first:last])

    @contextmanager
    def _open(self) -> Iterator[Any]:
        try:
            with safetensors.safe_open(self.path, "np") as tensors:
                yield tensors
        except (OSError, safetensors.SafetensorError) as error:
            raise DataError(
                f"{self.path}: a part of the encoded corpus is missing or damaged ({error}); "
                f"delete {self.path.parent}, and the same command encodes it again"
            ) from error


@dataclass(frozen=True)
class Store:
    """The entries in a cache folder, which the user names."""

    cache: Path

    def folder(self, key: str) -> Path:
        """The folder of an entry."""
        return self.cache / FOLDER / key

    def tensors(self, key: str, index: int) -> TensorFile:
        """The arrays that an entry has for a block."""
        return TensorFile(self.folder(key) / block_name(index))

    def load(self, key: str) -> dict[str, Any] | None:
        """The metadata of an entry, or none if there is no complete and undamaged one."""
        folder = self.folder(key)
        try:
            entry = json.loads((folder / ENTRY).read_bytes())
            undamaged = entry["key"] == key and all(
                file_sha256(folder / name) == expected for name, expected in entry["sha256"].items()
            )
            return json.loads((folder / METADATA).read_bytes()) if undamaged else None
        except (OSError, DataError, ValueError, LookupError, TypeError, RecursionError):
            return None

    def load_or_write(
        self,
        key: str,
        write: Callable[[Path], dict[str, Any]],
        waiting: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """The metadata of an entry, which is written first if it is not there.

        ``write`` writes the files of the entry into an empty folder and returns its metadata.
        ``waiting`` is called now and then while another process writes the entry; it may raise.
        """
        found = self.load(key)
        if found is not None:
            return found
        with self.lock(key, waiting):
            found = self.load(key)  # another process may have written it
            if found is None:
                with write_folder_atomically(self.folder(key)) as folder:
                    metadata = json.dumps(write(folder), default=asdict)
                    (folder / METADATA).write_text(metadata, encoding="utf-8")
                    checksums = {path.name: file_sha256(path) for path in sorted(folder.iterdir())}
                    entry = json.dumps({"key": key, "sha256": checksums})
                    (folder / ENTRY).write_text(entry, encoding="utf-8")
                found = json.loads(metadata)
        return found

    @contextmanager
    def lock(self, key: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock of an entry; see ``file_lock``."""
        path = self.cache / FOLDER / f"{key}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        except OSError as error:
            raise StorageError(
                f"{path} could not be written ({error.strerror}); make room, or set DCNN_CACHE to "
                "a folder for encoded corpora that can be written"
            ) from error
        with file_lock(path, waiting):
            yield


def block_name(index: int) -> str:
    """The name of the file of a block in its entry."""
    return f"{index:05}.safetensors"


@dataclass(frozen=True)
class Block:
    """What is known about a block without opening it."""

    key: str  # of the entry that holds it
    index: int  # in that entry
    rows: int
    labels: list[str]  # in the order of first occurrence; stored targets index this list
    counts: list[int]  # examples per label


@dataclass(frozen=True)
class EncodedFile:
    """A file of a corpus in the store."""

    source: str  # the file, for messages
    key: str  # of its entry
    blocks: list[Block]  # none if the file has no rows
    label_types: list[str]  # of its labels, where the file format has types

    @classmethod
    def from_metadata(cls, source: str, key: str, metadata: dict[str, Any]) -> "EncodedFile":
        """An entry that was found undamaged."""
        blocks = [Block(**block) for block in metadata["blocks"]]
        return cls(source, key, blocks, metadata["label_types"])


@dataclass(frozen=True)
class Window:
    """The training examples of some blocks, of which this process may read a part."""

    lengths: Ints  # (sentences,) tokens of every sentence of the window
    first: int  # index of the first sentence that was read
    last: int  # index after the last sentence of this process; may be ``first``
    examples: Examples  # from ``first`` on; at least one, to have something to compute with


@dataclass(frozen=True)
class Corpus:
    """Encoded files with one vocabulary and one dev set."""

    store: Store
    key: str
    classes: tuple[str, ...]
    encoder: Encoder  # with the vocabulary of the training part
    held_out: Ints  # rows of the dev set, ascending, counted over all blocks
    weight_per_class: tuple[float, ...]  # of the training examples
    blocks: list[Block]

    @classmethod
    def load(cls, store: Store, key: str, metadata: dict[str, Any] | None = None) -> "Corpus":
        """Load a prepared corpus; ``metadata`` is given if its entry was already checked."""
        folder, metadata = store.folder(key), metadata or store.load(key)
        if metadata is None:
            raise DataError(
                f"{folder}: no complete corpus is there; run the same command again, which "
                "prepares it"
            )
        classes, weights = tuple(metadata["classes"]), tuple(metadata["weight_per_class"])
        encoder = Encoder.from_json((folder / TOKENIZER).read_text(encoding="utf-8"))
        held_out = TensorFile(folder / HELD_OUT)["rows"].astype(np.int64)
        blocks = [Block(**block) for block in metadata["blocks"]]
        return cls(store, key, classes, encoder, held_out, weights, blocks)

    def __len__(self) -> int:
        """Number of training examples."""
        return int(self.first_rows[-1]) - len(self.held_out)

    @cached_property
    def new_words(self) -> Sequence[str]:
        """The words that are not in the vocabulary, where these have ids too."""
        if self.encoder.char_ngrams is None:
            return ()
        text = (self.store.folder(self.key) / NEW_WORDS).read_text(encoding="utf-8")
        return text.split("\n") if text else ()

    @cached_property
    def first_rows(self) -> Ints:
        """(blocks + 1,) the row that each block starts with, and the number of all rows."""
        return np.cumsum([0, *(block.rows for block in self.blocks)])

    def tensors(self, place: int) -> TensorFile:
        """The arrays of the block at ``place``."""
        return self.store.tensors(self.blocks[place].key, self.blocks[place].index)

    def held_out_in(self, place: int) -> Ints:
        """Rows of the dev set in a block, counted from its start."""
        bounds = self.first_rows[place : place + 2]
        first, last = np.searchsorted(self.held_out, bounds)
        return np.asarray(self.held_out[first:last] - bounds[0])

    def targets(self, place: int) -> Ints:
        """(rows,) class numbers of all examples of a block."""
        labels = self.blocks[place].labels
        to_class = np.array([self.classes.index(label) for label in labels], np.int64)
        return np.take(to_class, self.tensors(place)["targets"])

    def dev(self) -> Examples:
        """The examples that are held out."""
        rows = enumerate(map(self.held_out_in, range(len(self.blocks))))
        return _concatenated(
            [self._examples(place, own, self._lengths(place)) for place, own in rows if len(own)]
        )

    def window(self, places: Sequence[int], part: tuple[int, int] = (0, 1)) -> Window:
        """The training examples of the blocks at ``places``.

        ``part`` is the rank of this process and the number of processes; each reads its share.
        """
        lengths, kept = [], []  # per block: lengths of all sentences, rows of training examples
        for place in places:
            lengths.append(self._lengths(place))
            kept.append(np.delete(np.arange(len(lengths[-1])), self.held_out_in(place)))
        first, last = (sum(map(len, kept)) * rank // part[1] for rank in (part[0], part[0] + 1))
        end, before, parts, kept_lengths = max(last, first + 1), 0, [], []
        for place, rows, length in zip(places, kept, lengths, strict=True):
            own = rows[max(first - before, 0) : max(end - before, 0)]
            before += len(rows)
            kept_lengths.append(length[rows])
            if len(own):
                parts.append(self._examples(place, own, length))
        return Window(np.concatenate(kept_lengths), first, last, _concatenated(parts))

    def _lengths(self, place: int) -> Ints:
        return self.tensors(place)["lengths"].astype(np.int64)

    def _examples(self, place: int, rows: Ints, lengths: Ints) -> Examples:
        """The examples at ``rows``, ascending, of a block; ids outside of these are not read."""
        block = self.tensors(place)
        offsets = np.cumsum(np.concatenate([[0], lengths]))
        first, last = int(rows[0]), int(rows[-1]) + 1
        ids = block.slice("ids", int(offsets[first]), int(offsets[last]))
        to_vocabulary = self.store.tensors(self.key, place)["ids"].astype(np.int32)
        bounds = offsets[first : last + 1] - offsets[first]
        sentences = Sentences(to_vocabulary[ids], bounds, self.new_words)
        if len(rows) < last - first:
            sentences = sentences.select(rows - first)
        weights = block.get("weights")
        weights = None if weights is None else weights[rows]
        return Examples(sentences, self.targets(place)[rows], weights)


def _concatenated(parts: Sequence[Examples]) -> Examples:
    if not parts:
        return Examples(Sentences.from_lists([]), np.empty(0, np.int64))
    if len(parts) == 1:
        return parts[0]
    weights = [part.weights for part in parts if part.weights is not None]
    return Examples(
        Sentences.from_flat(
            np.concatenate([part.sentences.ids for part in parts]),
            np.concatenate([part.sentences.lengths for part in parts]),
            parts[0].sentences.new_words,
        ),
        np.concatenate([part.targets for part in parts]),
        np.concatenate(weights) if weights else None,
    )
