"""Encoding corpora into the store (``dcnn.data.store``): tokenize once, train many times.

- ``encode_files`` encodes the files of a corpus that is larger than memory, one file per process.
  A file that was encoded for one corpus serves another, an encoding that was stopped continues
  with the files that are missing, and a file that cannot be read does not affect the others.
- ``prepare_corpus`` gives encoded files one vocabulary and one dev set. It goes through the blocks
  up to three times and reads labels, weights and words only.
- ``load_or_encode`` does both for a corpus that fits into memory, as the experiments need it.
"""

import hashlib
import logging
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.config import TextConfig, TrainingConfig
from dcnn.data import store as stored
from dcnn.data.batching import Examples
from dcnn.data.columns import shown_names
from dcnn.data.labels import LabelFormat, check_label_counts
from dcnn.data.readers import ShardReader, TableOptions
from dcnn.data.records import NoRowsError
from dcnn.data.split import sample_rows
from dcnn.data.store import Block, Corpus, EncodedFile, Store, block_name, hash_key, save_tensors
from dcnn.errors import ConfigError, DataError, DcnnError, StorageError
from dcnn.files import file_sha256
from dcnn.text import encoder as encoding
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import LEARNED, AnyTokenizer, Tokenizer
from dcnn.text.vocabulary import (
    Ints,
    Sentences,
    TokenizedTexts,
    Vocabulary,
    tokenize_chunk,
    worker_pool,
)

BLOCK_ROWS = 1 << 16  # a block of so many tweets has fewer than 2**16 distinct words
MAX_COUNTED_WORDS = 4_000_000  # at a time: about half a gigabyte

_SEPARATOR = "\n"  # between the words of a block, which hold no white space

_log = logging.getLogger("dcnn")

Progress = Callable[[int], None]  # called with a number of examples


def save_block(
    folder: Path,
    key: str,
    index: int,
    texts: TokenizedTexts,
    labels: Iterable[str],
    weights: Sequence[float] | None = None,
) -> Block:
    """Write one block of an entry: texts with the label and, where given, the weight of each."""
    counts, texts = texts.counts, texts.without_empty()
    label_ids: dict[str, int] = {}
    targets = np.array([label_ids.setdefault(label, len(label_ids)) for label in labels], np.int64)
    tensors: dict[str, Any] = {
        "words": np.frombuffer(_SEPARATOR.join(texts.words).encode(), np.uint8),
        "counts": counts,
        "ids": texts.ids,
        "lengths": texts.lengths,
        "targets": targets,
    }
    if weights is not None:
        tensors["weights"] = np.array(weights, np.float32)
    save_tensors(folder / block_name(index), tensors)
    return Block(key, index, len(targets), list(label_ids), np.bincount(targets).tolist())


def _words(corpus: Corpus, place: int) -> list[str]:
    """The words of a block in the order of its ids."""
    text = corpus.tensors(place)["words"].tobytes().decode()
    return text.split(_SEPARATOR) if text else []


@dataclass(frozen=True)
class FileEncoder:
    """Encodes the files of one corpus; may be sent to another process."""

    store: Store
    reader: ShardReader  # that knows the columns, which are those of its first file
    tokenizer: Tokenizer
    block_rows: int = BLOCK_ROWS

    @classmethod
    def for_files(
        cls, paths: Sequence[Path], options: TableOptions, text: TextConfig, store: Store
    ) -> "FileEncoder":
        """Find the columns in the first of ``paths`` that has rows."""
        if text.tokenizer == "bpe" or text.tokenizer == "unigram":
            raise ConfigError(
                f"text.tokenizer={text.tokenizer} is learned from texts in memory; for a corpus on "
                "disk take words, tweet, whitespace or characters, or pass --no-stream"
            )
        reader = ShardReader(options, labels=True)
        first, columns = reader.find_columns(paths)
        if reader.label_format.multi_label or columns.indicators:
            raise DataError(
                f"{first} is multi-label, and a corpus on disk has one label per row; "
                "train in memory with --no-stream, or give a column with one label per row"
            )
        return cls(store, reader, Tokenizer(text.tokenizer, text.lowercase))

    def encode(self, path: Path, progress: Progress) -> EncodedFile:
        """Find a file in the store, or encode it.

        ``progress`` is called with the number of examples of each block, and with 0 before and
        while another process encodes the same file; it may raise.
        """
        progress(0)
        options, columns = self.reader.options, self.reader.columns
        key = hash_key(
            source=file_sha256(path),
            reading=[path.suffixes[-2:], options.encoding, options.header],
            columns=columns and asdict(columns),
            tokenizer=asdict(self.tokenizer),
            block_rows=self.block_rows,
        )

        def write(folder: Path) -> dict[str, Any]:
            label_format = LabelFormat(multi_label=False, source=str(self.reader.first))
            rows = replace(self.reader, label_format=label_format).rows(path)
            blocks: list[Block] = []
            with suppress(NoRowsError):
                while chunk := list(islice(rows, self.block_rows)):
                    for row in chunk:
                        if isinstance(row.label, dict):
                            raise DataError(
                                f"{row.place}: a corpus on disk has labels, not probabilities of "
                                "labels; train in memory with --no-stream"
                            )
                    texts = tokenize_chunk(self.tokenizer, (row.text for row in chunk))
                    labels = (str(row.label) for row in chunk)
                    weighted = chunk[0].weight is not None
                    weights = [row.weight or 0.0 for row in chunk] if weighted else None
                    blocks.append(save_block(folder, key, len(blocks), texts, labels, weights))
                    progress(len(chunk))
            label_types = [kind.__name__ for kind in label_format.kinds]
            return {"blocks": blocks, "label_types": label_types}

        metadata = self.store.load_or_write(key, write, lambda: progress(0))
        return EncodedFile.from_metadata(str(path), key, metadata)


def encode_files(
    paths: Sequence[Path],
    encoder: FileEncoder,
    processes: int = 1,
    progress: Progress = lambda _: None,
) -> list[EncodedFile]:
    """Every file in the store: found there, or else encoded, one at a time per process.

    ``progress`` is called with the number of examples encoded so far, now and then. Where some
    files cannot be used, all others are encoded and kept.
    """
    if processes < 2 or len(paths) < 2 or multiprocessing.current_process().daemon:
        total = 0

        def add(count: int) -> None:
            nonlocal total
            total += count
            progress(total)

        outcomes = [_outcome(encoder, path, add) for path in paths]
    else:
        outcomes = _encode_in_processes(encoder, paths, min(processes, len(paths)), progress)
    files = [outcome for outcome in outcomes if isinstance(outcome, EncodedFile)]
    faults = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if faults:
        more = f" (and {len(faults) - 1} more files: {'; '.join(faults[1:])})" if faults[1:] else ""
        raise DataError(
            f"{faults[0]}{more}; {len(files)} of {len(paths)} files are encoded and kept: fix "
            "the others or remove them, and the same command continues from there"
        )
    return files


def _outcome(encoder: FileEncoder, path: Path, progress: Progress) -> EncodedFile | str:
    """The encoded file, or what is wrong with it."""
    try:
        return encoder.encode(path, progress)
    except StorageError:
        raise
    except DcnnError as error:
        return str(error)


# Set when a worker process starts: an array shared with its parent (the number of examples encoded
# so far, and whether to stop), and the process id of the parent.
_shared: Any = None
_parent = 0


def _start_worker(shared: Any) -> None:
    global _shared, _parent
    _shared, _parent = shared, os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C


class _StoppedError(Exception):
    """The parent was stopped or killed."""


def _add(count: int) -> None:
    with _shared.get_lock():
        _shared[0] += count
    if _shared[1] or os.getppid() != _parent:  # an orphan has another parent
        raise _StoppedError


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes started here do not get Ctrl-C even while they start; the parent does."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _encode_in_processes(
    encoder: FileEncoder, paths: Sequence[Path], processes: int, progress: Progress
) -> list[EncodedFile | str]:
    shared = multiprocessing.get_context("spawn").Array("q", 2)
    try:
        with worker_pool(processes, _start_worker, shared) as pool:
            try:
                with _interrupts_blocked():
                    results = [pool.submit(_outcome, encoder, path, _add) for path in paths]
                running = set(results)
                while running:
                    _, running = wait(running, 0.3, FIRST_COMPLETED)
                    progress(shared[0])
                return [result.result() for result in results]
            finally:
                shared[1] = 1
    except BrokenExecutor as error:
        raise StorageError(
            f"a process that encoded the corpus was killed ({error}); the files that were complete "
            "are kept: make room in memory, and the same command continues from there"
        ) from error


def prepare_corpus(
    files: Sequence[EncodedFile],
    tokenizer: AnyTokenizer,
    text: TextConfig,
    split: TrainingConfig | Ints | None,
    classes: Sequence[str],
    store: Store,
) -> Corpus:
    """The corpus of ``files`` from their store; prepared first if it is not there.

    ``split`` has the share and the seed of a dev set to hold out, or its rows, ascending; none
    holds out nothing. The vocabulary is that of the training part.
    """
    by_vectors = bool(text.vectors) and (text.min_count > 1 or text.vectors_words > 0)
    way: Any = [split.dev_fraction, split.seed] if isinstance(split, TrainingConfig) else None
    if isinstance(split, np.ndarray):
        way = hashlib.sha256(split.astype(np.int64).tobytes()).hexdigest()
    key = hash_key(
        files=[file.key for file in files],
        words=[text.min_count, text.max_size],
        vectors=[file_sha256(Path(text.vectors)), text.vectors_words] if by_vectors else [],
        char_ngrams=[*text.char_ngrams, text.n_buckets] if text.char_ngrams else [],
        split=way,
        classes=list(classes),
    )

    def write(folder: Path) -> dict[str, Any]:
        blocks = [block for file in files for block in file.blocks]
        no_words, no_rows = Encoder(tokenizer, Vocabulary([])), np.empty(0, np.int64)
        corpus = Corpus(store, key, tuple(classes), no_words, no_rows, (), blocks)
        if isinstance(split, np.ndarray):
            corpus = replace(corpus, held_out=split)
        elif split is not None:
            labels = (block.labels for block in blocks)
            targets = (corpus.tensors(place)["targets"] for place in range(len(blocks)))
            rows = zip(labels, targets, strict=True)
            held_out = sample_rows(label_counts(blocks), split.dev_fraction, split.seed, rows)
            corpus = replace(corpus, held_out=held_out)
        vocabulary, weights = _learn_from_blocks(corpus, text)
        encoder = Encoder(tokenizer, vocabulary, encoding.char_ngrams_of(text))
        new_words = encoder.new_words()
        for place in range(len(blocks)):
            ids = vocabulary.ids_of_tokenized(_words(corpus, place), new_words)
            save_tensors(folder / block_name(place), {"ids": ids})
        save_tensors(folder / stored.HELD_OUT, {"rows": corpus.held_out})
        if new_words is not None:
            (folder / stored.NEW_WORDS).write_text(_SEPARATOR.join(new_words), encoding="utf-8")
        (folder / stored.TOKENIZER).write_text(encoder.to_json(), encoding="utf-8")
        return {"classes": classes, "weight_per_class": weights, "blocks": blocks}

    return Corpus.load(store, key, store.load_or_write(key, write))


def _learn_from_blocks(corpus: Corpus, config: TextConfig) -> tuple[Vocabulary, list[float]]:
    """The vocabulary that ``Encoder.learn`` would learn from the training part.

    Also the total weight of the training examples per class.
    """
    words: Counter[str] = Counter()
    per_class = np.zeros(len(corpus.classes))
    for place, block in enumerate(corpus.blocks):
        tensors, held_out = corpus.tensors(place), corpus.held_out_in(place)
        weights = tensors.get("weights")
        weights = np.ones(block.rows) if weights is None else weights.astype(np.float64)
        weights[held_out] = 0
        per_class += np.bincount(corpus.targets(place), weights, len(per_class))
        counts = tensors["counts"].astype(np.int64)
        if len(held_out):
            sentences = Sentences.from_flat(tensors["ids"], tensors["lengths"].astype(np.int64))
            dev = np.bincount(sentences.select(held_out).ids, minlength=len(counts) + 1)
            counts -= dev[: len(counts)]
        words.update(dict(zip(_words(corpus, place), counts.tolist(), strict=True)))
        if len(words) > MAX_COUNTED_WORDS:
            words = drop_rarest(words, MAX_COUNTED_WORDS // 2)
    if len(corpus) and not per_class.any():
        raise DataError("every training example has weight 0; give at least one a weight above 0")
    counts = np.fromiter(words.values(), np.int64, len(words))
    return Vocabulary.most_frequent(list(words), counts, config), per_class.tolist()


def drop_rarest(counts: Counter[str], limit: int) -> Counter[str]:
    """At most ``limit`` words, the most frequent, in the same order.

    Most distinct words of a large corpus occur once or twice. A dropped word that occurs again
    counts from 0; the frequent words and their order stay as they would be without a limit.
    """
    values = np.fromiter(counts.values(), np.int64, len(counts))
    least = np.partition(values, len(values) - limit)[-limit]
    return Counter({word: count for word, count in counts.items() if count > least})


def load_or_encode(
    sources: Sequence[Path],
    reading: str,
    read: Callable[[], Iterable[tuple[str, int]]],
    config: TextConfig,
    classes: Sequence[str],
    store: Store,
    processes: int = 1,
    split: Callable[[int], Ints] = lambda _: np.empty(0, np.int64),
) -> tuple[Encoder, Examples, Examples]:
    """A corpus in memory: its encoder, training and dev examples; from the store, or else encoded.

    ``read`` reads texts and class numbers from the files ``sources``; ``reading`` names what is
    read and how. ``split`` gets the number of rows and returns those of dev, ascending; their words
    do not count for the vocabulary. If the store cannot be written, nothing is kept.
    """
    is_learned = config.tokenizer in LEARNED
    key = hash_key(
        sources=[file_sha256(source) for source in sources],
        reading=reading,
        tokenizer=[config.tokenizer, config.lowercase],
        subwords=[config.n_subwords, encoding.library_version()] if is_learned else [],
    )
    targets: list[int] = []

    def texts() -> Iterator[str]:
        targets.clear()
        for text, target in read():
            targets.append(target)
            yield text

    def write(folder: Path) -> dict[str, Any]:
        tokenizer, tokenized = encoding.learn_tokenizer(config, texts(), processes)
        block = save_block(folder, key, 0, tokenized, (classes[target] for target in targets))
        encoder = Encoder(tokenizer, Vocabulary([]))
        (folder / stored.TOKENIZER).write_text(encoder.to_json(), encoding="utf-8")
        return {"blocks": [block], "label_types": []}

    try:
        file = EncodedFile.from_metadata(reading, key, store.load_or_write(key, write))
        description = (store.folder(key) / stored.TOKENIZER).read_text(encoding="utf-8")
        tokenizer = Encoder.from_json(description).tokenizer
        held_out = split(sum(block.rows for block in file.blocks))
        corpus = prepare_corpus([file], tokenizer, config, held_out, classes, store)
        return corpus.encoder, corpus.window([0]).examples, corpus.dev()
    except StorageError as error:
        _log.info("The encoded corpus is not kept for the next time: %s", error)
    every = list(texts())
    held_out = split(len(every))
    kept, y = np.delete(np.arange(len(every)), held_out), np.array(targets, np.int64)
    encoder, train = Encoder.learn([every[row] for row in kept], config, processes)
    dev = encoder.encode_all([every[row] for row in held_out], train.new_words)
    return encoder, Examples(train, y[kept]), Examples(dev, y[held_out])


def label_counts(blocks: Iterable[Block]) -> Counter[str]:
    """Examples per label."""
    counts: Counter[str] = Counter()
    for block in blocks:
        counts.update(dict(zip(block.labels, block.counts, strict=True)))
    return counts


def count_labels(files: Sequence[EncodedFile], source: str, *, splits: bool) -> Counter[str]:
    """Examples per label of the files of ``source``, checked over all of them.

    If a dev set is split from them, every label is needed twice.
    """
    labels = [(file.source, label_counts(file.blocks)) for file in files]
    _check_label_types(files)
    _check_shared_labels(labels)
    counts = sum((some for _, some in labels), Counter[str]())
    if not counts:
        raise DataError(f"{source}: no rows can be read from any of its {len(files)} files")

    def where(label: str) -> str:
        return next(file for file, some in labels if label in some)

    check_label_counts(counts, source, where, splits)
    return counts


_LABEL_TYPES = {"str": "strings", "bool": "booleans", "int": "integers", "float": "numbers"}


def _check_label_types(files: Sequence[EncodedFile]) -> None:
    """Integers in one file and strings in another are likely two codings."""
    known: dict[str, str] = {}  # types, and the first file of each
    for file in files:
        for kind in file.label_types:
            for other, source in known.items() if kind not in known else ():
                if source != file.source:
                    raise DataError(
                        f"{file.source}: its labels are {_LABEL_TYPES[kind]}, where those of "
                        f"{source} are {_LABEL_TYPES[other]}; write the labels of all files alike"
                    )
            known.setdefault(kind, file.source)


def _check_shared_labels(labels: Sequence[tuple[str, Counter[str]]]) -> None:
    """Two files with several labels each that have none in common are likely two codings."""
    # A file with one label says nothing: a corpus may be sorted by label.
    several = [(source, some) for source, some in labels if len(some) > 1]
    known: set[str] = set()
    for source, some in several:
        if known and known.isdisjoint(some):
            first, others = several[0]
            raise DataError(
                f"{source}: its labels are {shown_names(some)}, and {first} has "
                f"{shown_names(others)} and none of these; write the labels of all files alike, or "
                "leave out the files that are not of this corpus"
            )
        known |= some.keys()
