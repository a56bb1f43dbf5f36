"""``dcnn train`` on a corpus that is larger than memory: encoded on disk first, then learned from.

Which way is taken follows from the size of the files alone, so that a command does the same on
every machine; ``--stream`` and ``--no-stream`` choose.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from dcnn.commands.torchrun import first_reads_first, processes_here
from dcnn.config import Config
from dcnn.data.arrow import ARROW
from dcnn.data.corpora.registry import cache_folder
from dcnn.data.encode import (
    FileEncoder,
    count_labels,
    encode_files,
    prepare_corpus,
)
from dcnn.data.labels import LabelledTexts, check_form, sorted_labels
from dcnn.data.readers import TableOptions, find_shards, read_labelled
from dcnn.data.store import Corpus, EncodedFile, Store
from dcnn.files import COMPRESSIONS
from dcnn.terminal import EncodingBar

if TYPE_CHECKING:
    from dcnn.training.distributed import Workers

# Text beyond this is not held in memory: some six million tweets, which would take four gigabytes.
LARGEST_IN_MEMORY = 512 << 20

# What is on disk when a command is stopped before it trains; filled in with the cache.
KEPT_FILES = (
    "no model was written, but files that were encoded whole are kept in {}, and the same command "
    "goes on with the others"
)

# How many times larger the text of a file is than the file, about.
_COMPRESSED, _COLUMNAR = 3, 2


def is_large(data: Path) -> bool:
    """Whether the files that ``data`` stands for are too large for memory."""
    return sum(map(_text_bytes, find_shards(data, log=False))) > LARGEST_IN_MEMORY


def _text_bytes(path: Path) -> int:
    if not path.is_file():
        return 0  # whoever reads it says what is wrong
    suffix = path.suffix.lower()
    factor = _COMPRESSED if suffix in COMPRESSIONS else _COLUMNAR if suffix in ARROW else 1
    return path.stat().st_size * factor


def read_others(
    dev: Path | None, test: Path | None, columns: TableOptions
) -> tuple[LabelledTexts | None, LabelledTexts | None]:
    """Dev and test examples, which are in memory however large the training set is."""
    unweighted = replace(columns, weight_column=None)
    read = [None if path is None else read_labelled(path, unweighted) for path in (dev, test)]
    return read[0], read[1]


def read_corpus(
    console: Console,
    data: Path,
    others: Sequence[LabelledTexts | None],
    columns: TableOptions,
    config: Config,
    *,
    holds_out: bool,
    workers: "Workers | None" = None,
) -> Corpus:
    """Encode the files of ``data``, or find them encoded, and prepare what is to be learned.

    Of several processes, each encodes files of its own. Hosts may share a cache or not: what a host
    does not have then is encoded by the first process on it.
    """
    paths, store = find_shards(data), Store(cache_folder())
    with first_reads_first(workers):
        encoder = FileEncoder.for_files(paths, columns, config.text, store)
        for examples in filter(None, others):  # before the hours that the encoding may take
            check_form(examples, multi_label=False, of=str(data))
    if workers is None:
        return _prepare(console, data, paths, encoder, others, config, holds_out)
    own = paths[workers.rank :: workers.size]
    if own:
        _encode(console, own, encoder)
    workers.wait()
    prepared = None
    if workers.local_rank == 0:
        prepared = _prepare(console, data, paths, encoder, others, config, holds_out)
    key = workers.text_of_first("" if prepared is None else prepared.key)
    workers.wait()  # now the corpus is on every host
    return prepared or Corpus.load(store, key)


def _prepare(
    console: Console,
    data: Path,
    paths: Sequence[Path],
    encoder: FileEncoder,
    others: Sequence[LabelledTexts | None],
    config: Config,
    holds_out: bool,
) -> Corpus:
    files, cache = _encode(console, paths, encoder), encoder.store.cache
    sentences = sum(block.rows for file in files for block in file.blocks)
    of_files = "1 file" if len(files) == 1 else f"{len(files):,} files"
    console.print(f"{sentences:,} examples of {of_files} are encoded in {cache}", soft_wrap=True)
    counts = count_labels(files, str(data), splits=holds_out)
    classes = sorted_labels(counts)
    for examples in filter(None, others):
        examples.with_classes(classes)
    split = config.training if holds_out else None
    return prepare_corpus(files, encoder.tokenizer, config.text, split, classes, encoder.store)


def _encode(console: Console, paths: Sequence[Path], encoder: FileEncoder) -> list[EncodedFile]:
    processes = max(1, _cores() // processes_here())
    with EncodingBar(console, len(paths)) as bar:
        return encode_files(paths, encoder, processes, bar.on_encoded)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
