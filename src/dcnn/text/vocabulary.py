"""Which words the network knows, and their ids.

Id 0 is the unknown word; there is no padding word, since lengths alone say what exists. With the
15,447 types of the SST training trees this makes the paper's vocabulary of 15,448 (Sect. 5.2).


Numbering the words of many texts as they are first seen, in one process or in several.

Tokenizing is most of the work of encoding a corpus and knows nothing of its neighbours, so chunks
of texts can go to different processes, each of which numbers the words of its own chunk. The
chunks are merged in the order of the texts: a word's number, its place of first sight, does not
depend on the number of processes or on the size of a chunk.

"""

import logging
import multiprocessing
import signal
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from dcnn.text.sentences import Ints
from dcnn.text.tokenizer import Tokenizer

UNKNOWN = 0


class Vocabulary:
    """Words by id, starting from 1.

    Args:
        words: distinct words; word i has id i + 1.

    Raises:
        ValueError: a word occurs twice.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._ids = {word: index for index, word in enumerate(words, start=1)}
        if len(self._ids) != len(words):
            raise ValueError("a word occurs twice in the vocabulary")

    def __len__(self) -> int:
        """Number of ids, the unknown word's included: the height of the embedding matrix."""
        return len(self.words) + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    __hash__ = None  # type: ignore[assignment]

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """The id of each token; a word that is not known has id 0."""
        look_up = self._ids.get
        return [look_up(token, UNKNOWN) for token in tokens]


# Texts that a process tokenizes at a time: enough to pay for sending them, few enough to hold many.
CHUNK_SIZE = 20_000

# Chunks read ahead for each process, so that none waits for the next and memory stays bounded.
CHUNKS_AHEAD = 2

_log = logging.getLogger("dcnn")


class NumberedTexts(NamedTuple):
    """Texts as numbers of their words.

    Attributes:
        words: the distinct words as first seen; word i has number i.
        numbers: (words of all texts,) int32, end to end.
        lengths: (texts,) int32, words of each.
    """

    words: list[str]
    numbers: Ints
    lengths: Ints


_Work = Callable[[list[str]], NumberedTexts]


def number_words(
    tokenizer: Tokenizer, texts: Iterable[str], processes: int = 1, chunk_size: int = CHUNK_SIZE
) -> NumberedTexts:
    """Tokenize ``texts`` and number their words.

    The texts are taken while the processes work, so that reading a file overlaps with tokenizing
    it. Less than two chunks are not worth a second process; where processes cannot be started, or
    are killed, this one does the work.

    Args:
        tokenizer: splits a text.
        texts: may be a stream; it is read once.
        processes: how many to tokenize in. With two or more, the main module of the program must
            be importable without side effects, as ``multiprocessing`` asks.
        chunk_size: texts that a process takes at a time.
    """
    work = partial(number_chunk, tokenizer)
    chunks = _chunks(texts, chunk_size)
    opening = list(islice(chunks, 2))
    chunks = chain(opening, chunks)
    if processes < 2 or len(opening) < 2:
        return _merge(map(work, chunks))
    return _merge(_in_processes(work, chunks, processes))


def _chunks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    remaining = iter(texts)
    while chunk := list(islice(remaining, size)):
        yield chunk


class _Numbering(dict[str, int]):
    """Numbers words as they are first asked for."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


def number_chunk(tokenizer: Tokenizer, texts: Iterable[str]) -> NumberedTexts:
    """Tokenize ``texts`` and number their words, here and now."""
    numbering = _Numbering()
    numbers, lengths = array("i"), array("i")
    for text in texts:
        tokens = tokenizer(text)
        numbers.extend(map(numbering.__getitem__, tokens))
        lengths.append(len(tokens))
    return NumberedTexts(list(numbering), np.array(numbers, np.int32), np.array(lengths, np.int32))


def _merge(chunks: Iterable[NumberedTexts]) -> NumberedTexts:
    """Number the words of all chunks together; their order of first sight is kept."""
    numbering = _Numbering()
    numbers: list[Ints] = [np.empty(0, np.int32)]
    lengths: list[Ints] = [np.empty(0, np.int32)]
    for chunk in chunks:
        merged = np.array([numbering[word] for word in chunk.words], np.int32)
        numbers.append(merged[chunk.numbers])
        lengths.append(chunk.lengths)
    return NumberedTexts(list(numbering), np.concatenate(numbers), np.concatenate(lengths))


def _in_processes(
    work: _Work, chunks: Iterator[list[str]], processes: int
) -> Iterator[NumberedTexts]:
    """The result of every chunk, in order."""
    waiting: deque[tuple[list[str], Future[NumberedTexts] | None]] = deque()
    with closing(_Workers(work, processes)) as workers:
        for chunk in chunks:
            waiting.append((chunk, workers.submit(chunk)))
            if len(waiting) > CHUNKS_AHEAD * processes:
                yield workers.result(*waiting.popleft())
        while waiting:
            yield workers.result(*waiting.popleft())


class _Workers:
    """Processes that do the work; if they cannot be started or one dies, this process does it."""

    def __init__(self, work: _Work, processes: int) -> None:
        self._work = work
        self._alone = multiprocessing.current_process().daemon  # may have no children
        self._pool: ProcessPoolExecutor | None = None
        if not self._alone:
            try:
                self._pool = ProcessPoolExecutor(
                    processes,
                    # A fork of a process with threads, such as torch's, may hang.
                    multiprocessing.get_context("spawn"),
                    initializer=signal.signal,
                    initargs=(signal.SIGINT, signal.SIG_IGN),  # Ctrl-C is this process's to answer
                )
            except (ImportError, NotImplementedError, OSError) as error:
                self._go_on_alone(error)

    def submit(self, chunk: list[str]) -> Future[NumberedTexts] | None:
        if self._pool is not None and not self._alone:
            try:
                return self._pool.submit(self._work, chunk)
            except (BrokenExecutor, OSError) as error:
                self._go_on_alone(error)
        return None

    def result(self, chunk: list[str], future: Future[NumberedTexts] | None) -> NumberedTexts:
        if future is not None:
            try:
                return future.result()
            except BrokenExecutor as error:
                self._go_on_alone(error)
        return self._work(chunk)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _go_on_alone(self, error: Exception) -> None:
        if not self._alone:
            self._alone = True
            _log.info("Tokenizing goes on in one process, more slowly (%s)", error)
