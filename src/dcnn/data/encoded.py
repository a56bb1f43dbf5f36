"""A cache of encoded corpora: 1.6 million tweets are tokenized once, and loaded in a moment after.

An entry is a folder, named by a hash of all that it was made from: the bytes of the source files,
how they were read, the settings of the text and the code that splits it. So an entry is never out
of date; what changes is another entry, and the folder of the cache can be deleted at any time.

    entry.json      the hash, and the checksums of the other files
    tokenizer.json  the encoder, as in a model folder
    ids.npy, offsets.npy, targets.npy

Entries appear whole or not at all. One that is damaged or not ours is made again. Nothing is
pickled, and the arrays are mapped into memory instead of read.
"""

import hashlib
import json
import logging
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn import __version__
from dcnn.config import TextConfig, to_plain
from dcnn.data.corpora import sentiment140
from dcnn.data.corpora.registry import cache_folder
from dcnn.errors import DataError, StorageError
from dcnn.files import file_sha256, write_folder_atomically
from dcnn.text import encoder as encoder_module
from dcnn.text import subwords, tokenizer, vocabulary
from dcnn.text.encoder import Encoder
from dcnn.text.vocabulary import Sentences

FORMAT_VERSION = 1
ENTRY, TOKENIZER = "entry.json", "tokenizer.json"
ARRAYS = ("ids", "offsets", "targets")

# What decides which ids a text gets: another version of it makes another entry.
_CODE = (sentiment140, tokenizer, subwords, vocabulary, encoder_module)

_log = logging.getLogger("dcnn")

TextsAndTargets = Iterable[tuple[str, int]]  # a target is a class number


@dataclass(frozen=True)
class EncodedCorpus:
    """A labelled corpus as numbers.

    Attributes:
        encoder: with the vocabulary of the corpus.
        sentences: its texts as ids.
        targets: (sentences,) int32 class numbers.
    """

    encoder: Encoder
    sentences: Sentences
    targets: NDArray[np.int32]


def load_or_encode(
    sources: Sequence[Path],
    reading: str,
    read: Callable[[], TextsAndTargets],
    config: TextConfig,
    *,
    cache: Path | None = None,
    processes: int = 1,
) -> EncodedCorpus:
    """The corpus from the cache, or else read, encoded and left there.

    Args:
        sources: every file that ``read`` reads.
        reading: names what is read from them and how; another way of reading has another name.
        read: starts reading; its texts are taken one by one.
        config: how a text becomes ids.
        cache: the folder of the cache; ``None`` is the user's.
        processes: how many to tokenize in; see ``dcnn.text.vocabulary``.

    Raises:
        DataError: a source cannot be read.
    """
    key = _key(sources, reading, config)
    folder = cache_folder(cache) / "encoded" / key
    corpus = _load(folder, key)
    if corpus is None:
        corpus = _encode(read(), config, processes)
        try:
            _save(folder, key, corpus)
        except (StorageError, DataError) as error:  # another process may be at it too
            _log.info("The encoded corpus is not kept for the next time: %s", error)
    return corpus


def _key(sources: Sequence[Path], reading: str, config: TextConfig) -> str:
    """A hash of all that an encoded corpus depends on."""
    # What is said of vectors starts the embeddings, and leaves the ids as they are.
    settings = {
        name: value for name, value in to_plain(config).items() if not name.startswith("vectors")
    }
    made_from = {
        "format": FORMAT_VERSION,
        "dcnn": __version__,
        "code": [file_sha256(Path(str(module.__file__))) for module in _CODE],
        "unicode": unicodedata.unidata_version,
        "text": settings,
        "reading": reading,
        "sources": [file_sha256(source) for source in sources],
    }
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


def _encode(examples: TextsAndTargets, config: TextConfig, processes: int) -> EncodedCorpus:
    targets = array("i")

    def texts() -> Iterator[str]:
        for text, target in examples:
            targets.append(target)
            yield text

    encoder, sentences = Encoder.learn(texts(), config, processes)
    return EncodedCorpus(encoder, sentences, np.array(targets, np.int32))


def _save(folder: Path, key: str, corpus: EncodedCorpus) -> None:
    sentences = corpus.sentences
    arrays = zip(ARRAYS, (sentences.ids, sentences.offsets, corpus.targets), strict=True)
    with write_folder_atomically(folder) as temporary:
        for name, values in arrays:
            np.save(temporary / f"{name}.npy", values, allow_pickle=False)
        (temporary / TOKENIZER).write_text(corpus.encoder.to_json(), encoding="utf-8")
        checksums = {path.name: file_sha256(path) for path in temporary.iterdir()}
        entry = json.dumps({"key": key, "sha256": checksums}, indent=2)
        (temporary / ENTRY).write_text(entry, encoding="utf-8")


def _load(folder: Path, key: str) -> EncodedCorpus | None:
    """The corpus in ``folder``, or none if there is no complete and undamaged one."""
    try:
        entry = json.loads((folder / ENTRY).read_bytes())
        checksums = entry["sha256"]
        if entry["key"] != key:
            return None
        if any(file_sha256(folder / name) != checksums[name] for name in _files()):
            return None
        encoder = Encoder.from_json((folder / TOKENIZER).read_text(encoding="utf-8"))
        ids, offsets, targets = (_mapped(folder / f"{name}.npy") for name in ARRAYS)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return EncodedCorpus(encoder, Sentences(ids, offsets), targets)


def _files() -> list[str]:
    return [TOKENIZER, *(f"{name}.npy" for name in ARRAYS)]


def _mapped(path: Path) -> NDArray[Any]:
    # Copy-on-write: an array that may be written to, and a file that never is.
    return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
