"""Reading labelled files for ``train``, ``tune`` and ``compare``, checked before training starts.

``dcnn train`` encodes a corpus that is larger than memory on disk first. Whether it does follows
from the size of the files alone, so that a command does the same on every machine; ``--stream``
and ``--no-stream`` override it.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from dcnn.cli.console import count_progress
from dcnn.cli.torchrun import first_reads_first, processes_here
from dcnn.config import Config, TrainingConfig
from dcnn.data.arrow import ARROW
from dcnn.data.columns import shown_names
from dcnn.data.corpora.registry import cache_folder
from dcnn.data.encode import FileEncoder, count_labels, encode_files, prepare_corpus
from dcnn.data.labels import LabelledTexts, check_form, check_training_labels, sorted_labels
from dcnn.data.readers import TableOptions, find_shards, read_labelled
from dcnn.data.split import hold_out
from dcnn.data.store import Corpus, EncodedFile, Store
from dcnn.errors import DataError
from dcnn.files import COMPRESSIONS

if TYPE_CHECKING:
    from dcnn.training.distributed import Workers

_log = logging.getLogger("dcnn")

# More text than this is not held in memory: six million tweets, which would take four gigabytes.
LARGEST_IN_MEMORY = 512 << 20

# About how many times larger the text of a file is than the file.
_COMPRESSED, _COLUMNAR = 3, 2


def read_examples(
    data: Path,
    dev: Path | None,
    test: Path | None,
    columns: TableOptions,
    *,
    multi_label: bool = False,
) -> tuple[LabelledTexts, LabelledTexts | None, LabelledTexts | None]:
    """Training, dev and test examples, all checked; ``multi_label`` allows multi-label files."""
    train = read_labelled(data, columns)
    if train.multi_label and not multi_label:
        raise DataError(
            f"{train.source} is multi-label, which only `dcnn train` and `dcnn evaluate` support; "
            "give a column with one label per row"
        )
    check_training_labels(train, splits=dev is None)
    others = _read_dev_and_test(dev, test, columns)
    _warn_of_empty_columns(train)
    for examples in filter(None, others):
        check_form(examples, multi_label=train.multi_label, of=train.source)
    dev_set, test_set = (part and part.with_classes(train.classes) for part in others)
    return train, dev_set, test_set


def read_split(
    console: Console,
    data: Path,
    dev: Path | None,
    test: Path | None,
    columns: TableOptions,
    training: TrainingConfig,
    *,
    multi_label: bool = False,
) -> tuple[LabelledTexts, LabelledTexts, LabelledTexts | None]:
    """As ``read_examples``, with a dev set held out of ``data`` where none is given."""
    train, dev_set, test_set = read_examples(data, dev, test, columns, multi_label=multi_label)
    if dev_set is None:
        train, dev_set = hold_out(train, training.dev_fraction, training.seed)
    _print_sizes(console, train, len(dev_set), ", multi-label" if train.multi_label else "")
    return train, dev_set, test_set


def _read_dev_and_test(
    dev: Path | None, test: Path | None, columns: TableOptions
) -> tuple[LabelledTexts | None, LabelledTexts | None]:
    unweighted = replace(columns, weight_column=None)
    return (
        None if dev is None else read_labelled(dev, unweighted),
        None if test is None else read_labelled(test, unweighted),
    )


def _print_sizes(console: Console, train: LabelledTexts | Corpus, n_dev: int, kind: str) -> None:
    console.print(
        f"{len(train):,} training and {n_dev:,} dev examples, {len(train.classes)} labels{kind}"
    )


def _warn_of_empty_columns(train: LabelledTexts) -> None:
    """A label column without a 1 stays a class, as in an indicator matrix of scikit-learn."""
    occurs = train.targets.any(axis=0) if train.multi_label else np.ones(len(train.classes))
    empty = [str(train.classes[number]) for number in np.flatnonzero(occurs == 0).tolist()]
    if empty:
        _log.warning(
            "%s: no row has a 1 in %s of --label-columns; the model keeps such a label but learns "
            "never to predict it; check the data, or leave the column out",
            train.source,
            shown_names(empty),
        )


def is_large(data: Path) -> bool:
    """Whether the files of ``data`` are too large for memory."""
    return sum(map(_text_bytes, find_shards(data, log=False))) > LARGEST_IN_MEMORY


def _text_bytes(path: Path) -> int:
    if not path.is_file():
        return 0  # the reader reports it
    suffix = path.suffix.lower()
    factor = _COMPRESSED if suffix in COMPRESSIONS else _COLUMNAR if suffix in ARROW else 1
    return path.stat().st_size * factor


def read_corpus(
    console: Console,
    data: Path,
    dev: Path | None,
    test: Path | None,
    columns: TableOptions,
    config: Config,
    workers: "Workers | None" = None,
) -> tuple[Corpus, LabelledTexts | None, LabelledTexts | None]:
    """The training set encoded on disk, dev (``None`` if held out of it) and test.

    Of several processes each encodes its own files. Hosts may share a cache or not: what a host
    is missing afterwards is encoded by the first process on it.
    """
    with first_reads_first(workers):
        others = dev_set, test_set = _read_dev_and_test(dev, test, columns)
    paths, store = find_shards(data), Store(cache_folder())
    with first_reads_first(workers):
        encoder = FileEncoder.for_files(paths, columns, config.text, store)
        for examples in filter(None, others):  # before encoding, which may take hours
            check_form(examples, multi_label=False, of=str(data))

    def prepare() -> Corpus:
        files = _encode(console, paths, encoder)
        n_examples = sum(block.rows for file in files for block in file.blocks)
        n_files = "1 file" if len(files) == 1 else f"{len(files):,} files"
        console.print(
            f"{n_examples:,} examples of {n_files} are encoded in {store.cache}", soft_wrap=True
        )
        counts = count_labels(files, str(data), splits=dev is None)
        classes = sorted_labels(counts)
        for examples in filter(None, others):
            examples.with_classes(classes)
        split = config.training if dev is None else None
        return prepare_corpus(files, encoder.tokenizer, config.text, split, classes, store)

    if workers is None:
        corpus = prepare()
    else:
        if own := paths[workers.rank :: workers.size]:
            _encode(console, own, encoder)
        workers.wait()
        prepared = prepare() if workers.local_rank == 0 else None
        key = workers.text_of_first("" if prepared is None else prepared.key)
        workers.wait()  # now the corpus is on every host
        corpus = prepared or Corpus.load(store, key)
    _print_sizes(console, corpus, len(corpus.held_out if dev_set is None else dev_set), "")
    return corpus, dev_set and dev_set.with_classes(corpus.classes), test_set


def _encode(console: Console, paths: Sequence[Path], encoder: FileEncoder) -> list[EncodedFile]:
    processes = max(1, _cores() // processes_here())
    with count_progress(console, f"encoding {len(paths):,} files: {{count}} examples") as report:
        return encode_files(paths, encoder, processes, report)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
