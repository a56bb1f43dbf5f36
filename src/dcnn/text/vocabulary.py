"""Words and ids: the vocabulary, sentences as ids, and tokenizing many texts in processes.

Id 0 is the unknown word; there is no padding word, since lengths alone say what exists. With the
15,447 types of the SST training trees this makes the paper's vocabulary of 15,448 (Sect. 5.2).

Tokenizing is most of the work of encoding a corpus. Chunks of texts go to different processes, each
of which numbers the words of its own chunk in the order of first occurrence; the chunks are merged
in the order of the texts, so the result does not depend on the number of processes or the size of
a chunk. Predicting needs no processes, so their libraries are imported where they are used.

Character n-grams (Bojanowski et al., 2017): the vector of a word may be its own plus 1/sqrt(n)
times the sum of the vectors of its n n-grams; a word without a vector of its own has the unknown
word's in that place. So rare words learn from others that are spelled alike, and a word that
training never saw has a vector too. The n-grams of "word" are those of "<word>": its start and its
end are told apart from its middle. They are hashed into buckets, by CRC-32 of the UTF-8 bytes
modulo the number of buckets. ``CharNgrams.buckets`` is the definition;
``dcnn.ops.native.char_ngrams`` computes the same faster.
"""

import logging
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from dcnn.config import TextConfig

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

UNKNOWN = 0
MAX_SPELLED = 64  # code points of a word that have n-grams; the rest of a longer one is not read
# Of a training corpus: further ones are the unknown word, so that memory stays bounded.
MOST_NEW_WORDS = 1 << 20

Ints = NDArray[np.integer[Any]]


class Bags(NamedTuple):
    """The n-grams of words: those of word i are ``buckets[offsets[i]:offsets[i + 1]]``."""

    offsets: Ints  # (words + 1,) int64
    buckets: Ints  # (n-grams,) int32


class CharNgrams(NamedTuple):
    """Which n-grams a word has, and how many buckets there are."""

    shortest: int
    longest: int
    n_buckets: int

    def buckets(self, word: str) -> list[int]:
        """The bucket of every n-gram of ``word``, the shortest n-grams first."""
        text = marked(word)
        return [
            crc32(text[at : at + n].encode("utf-8", "surrogatepass")) % self.n_buckets
            for n in range(self.shortest, self.longest + 1)
            for at in range(len(text) - n + 1)
        ]

    def bags(self, words: Sequence[str]) -> Bags:
        """The buckets of every word."""
        found = [self.buckets(word) for word in words]
        offsets = np.zeros(len(words) + 1, np.int64)
        np.cumsum([len(one) for one in found], out=offsets[1:])
        return Bags(offsets, np.fromiter(chain.from_iterable(found), np.int32))


def marked(word: str) -> str:
    """``word`` with its start and end; the empty one stands for the unknown word."""
    return f"<{word[:MAX_SPELLED]}>" if word else ""


class Vocabulary:
    """Words by id: word i of the distinct ``words`` has id i + 1."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._ids = {word: index for index, word in enumerate(words, start=1)}
        if len(self._ids) != len(words):
            raise ValueError("a word occurs twice in the vocabulary")

    @classmethod
    def most_frequent(cls, words: Sequence[str], counts: Ints, config: TextConfig) -> Self:
        """The words seen ``config.min_count`` times, at most ``config.max_size``.

        The most frequent come first, equals in their order; a ``max_size`` of 0 is no limit. Rarer
        words are kept if they have a pretrained vector. After all of them come the first
        ``config.vectors_words`` words of the vectors.
        """
        by_count = np.argsort(-counts, kind="stable")
        often, seen = (int((counts >= least).sum()) for least in (config.min_count, 1))
        kept = [words[index] for index in by_count[:often]]
        if not config.vectors:
            return cls(kept[: config.max_size or None])
        from dcnn.text.vectors import words_of  # not needed to predict

        rare = {words[index].encode("utf-8", "replace"): None for index in by_count[often:seen]}
        found = set(words_of(config.vectors, rare)) if rare else set()
        kept += [word for index in by_count[often:seen] if (word := words[index]) in found]
        first = islice(words_of(config.vectors), config.vectors_words)
        return cls(list(dict.fromkeys([*kept[: config.max_size or None], *first])))

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

    def ids_of_tokenized(self, words: Iterable[str], new_words: "NewWords | None" = None) -> Ints:
        """(words + 1,) ids of the words of ``TokenizedTexts``, and of the token of empty texts."""
        ids = self.ids(words) if new_words is None else new_words.ids(words)
        return np.array([*ids, UNKNOWN], np.int32)


class NewWords(dict[str, int]):
    """Gives each word that is not in a vocabulary the next id when it is first looked up."""

    def __init__(self, vocabulary: Vocabulary, words: Iterable[str] = ()) -> None:
        self._known, self._next = vocabulary._ids, len(vocabulary)
        for word in words:
            self[word]

    def __missing__(self, word: str) -> int:
        if len(self) >= MOST_NEW_WORDS:
            return UNKNOWN
        index = self[word] = self._next + len(self)
        return index

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """The id of each token."""
        look_up = self._known.get
        return [look_up(token) or self[token] for token in tokens]


@dataclass(frozen=True)
class Sentences:
    """Sentences as ids in one flat array: sentence i is ``ids[offsets[i]:offsets[i + 1]]``.

    A list of lists for 1.6 million tweets takes gigabytes, a flat array megabytes. No sentence is
    empty. Where words have character n-grams, one that is not in the vocabulary has an id of its
    own: the first of ``new_words`` the size of the vocabulary, the others the next ones.
    """

    ids: Ints  # (tokens,) int32
    offsets: Ints  # (sentences + 1,) int64, from 0 to the number of tokens
    new_words: Sequence[str] = ()

    @classmethod
    def from_lists(cls, sentences: Sequence[Sequence[int]], new_words: Sequence[str] = ()) -> Self:
        """Concatenate lists of ids."""
        return cls.from_flat(
            np.fromiter(chain.from_iterable(sentences), np.int32),
            np.fromiter(map(len, sentences), np.int64, len(sentences)),
            new_words,
        )

    @classmethod
    def from_flat(cls, ids: Ints, lengths: Ints, new_words: Sequence[str] = ()) -> Self:
        """Take ids that are concatenated already, and the length of each sentence."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(ids, offsets, new_words)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        """(sentences,) tokens per sentence."""
        return np.diff(self.offsets)

    def padded(self, indices: Ints, padding: int = 0) -> tuple[Ints, Ints]:
        """Ids (B, s) of the sentences at ``indices`` with their lengths (B,); s is the longest."""
        # Of these only: a batch need not go through all sentences.
        lengths = self.offsets[1:][indices] - self.offsets[indices]
        columns = np.arange(lengths.max())
        inside = columns < lengths[:, None]  # (B, s)
        places = np.where(inside, self.offsets[indices, None] + columns, 0)
        return np.where(inside, self.ids[places], padding).astype(np.int64), lengths

    def select(self, indices: Ints) -> Self:
        """The sentences at ``indices``, in that order."""
        lengths = self.offsets[1:][indices] - self.offsets[indices]
        starts = np.cumsum(lengths) - lengths
        places = np.repeat(self.offsets[indices] - starts, lengths) + np.arange(lengths.sum())
        return self.from_flat(self.ids[places], lengths, self.new_words)


class TokenizedTexts(NamedTuple):
    """Texts as indices of their distinct words, before a vocabulary is chosen."""

    words: list[str]  # in the order of first occurrence
    ids: Ints  # (tokens,) int32, the place of every token in ``words``, text after text
    lengths: Ints  # (texts,) int32, tokens per text; may be 0

    @property
    def counts(self) -> Ints:
        """(words,) how often each occurs."""
        return np.bincount(self.ids, minlength=len(self.words))

    def without_empty(self) -> "TokenizedTexts":
        """The same with one token in every empty text; its id is ``len(words)``."""
        empty = np.flatnonzero(self.lengths == 0)
        if not len(empty):
            return self
        starts = np.cumsum(self.lengths) - self.lengths
        ids = np.insert(self.ids, starts[empty], len(self.words))
        return TokenizedTexts(self.words, ids, np.maximum(self.lengths, 1))


# Texts that a process tokenizes at a time: enough to pay for sending them, few enough to hold many.
CHUNK_SIZE = 20_000
CHUNKS_AHEAD = 2  # per process, so that none waits for the next and memory stays bounded

_log = logging.getLogger("dcnn")
_T = TypeVar("_T")


def tokenize_texts(
    tokenizer: Callable[[str], list[str]],
    texts: Iterable[str],
    processes: int = 1,
    chunk_size: int = CHUNK_SIZE,
) -> TokenizedTexts:
    """Tokenize a stream of texts in one process or several.

    The texts are taken while the processes work, so reading a file overlaps with tokenizing it.
    Fewer than two chunks are not worth a second process; where processes cannot be started, or
    are killed, this one does the work. With two or more, the main module of the program must be
    importable without side effects, as ``multiprocessing`` requires.
    """
    remaining = iter(texts)
    chunks = iter(lambda: list(islice(remaining, chunk_size)), [])
    opening = list(islice(chunks, 2))
    if processes < 2 or len(opening) < 2:
        return tokenize_chunk(tokenizer, chain(*opening, remaining))
    work = partial(tokenize_chunk, tokenizer)
    return _merge(_in_processes(work, chain(opening, chunks), processes))


class _Index(dict[str, int]):
    """Gives each word the next id when it is first looked up."""

    def __missing__(self, word: str) -> int:
        index = self[word] = len(self)
        return index


def tokenize_chunk(tokenizer: Callable[[str], list[str]], texts: Iterable[str]) -> TokenizedTexts:
    """Tokenize ``texts`` in this process."""
    index = _Index()
    ids, lengths = array("i"), array("i")
    for text in texts:
        tokens = tokenizer(text)
        ids.extend(map(index.__getitem__, tokens))
        lengths.append(len(tokens))
    return TokenizedTexts(list(index), np.array(ids, np.int32), np.array(lengths, np.int32))


def _merge(chunks: Iterable[TokenizedTexts]) -> TokenizedTexts:
    index = _Index()
    ids, lengths = [], []
    for chunk in chunks:
        merged = np.array([index[word] for word in chunk.words], np.int32)
        ids.append(merged[chunk.ids])
        lengths.append(chunk.lengths)
    none = np.empty(0, np.int32)
    return TokenizedTexts(
        list(index), np.concatenate([none, *ids]), np.concatenate([none, *lengths])
    )


def _in_processes(
    work: Callable[[list[str]], TokenizedTexts], chunks: Iterable[list[str]], processes: int
) -> Iterator[TokenizedTexts]:
    """The result of every chunk, in order; this process does what the others cannot."""
    import multiprocessing
    import signal
    from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor

    waiting: deque[tuple[list[str], Future[TokenizedTexts] | None]] = deque()
    pool: ProcessPoolExecutor | None = None

    def attempt(call: Callable[[], _T]) -> _T | None:
        """The result of a call; none, and no more workers, if it fails."""
        nonlocal pool
        try:
            return call()
        except (BrokenExecutor, ImportError, NotImplementedError, OSError) as error:
            workers.close()
            pool = None
            _log.info("Tokenizing continues in one process, more slowly (%s)", error)
            return None

    def next_result() -> TokenizedTexts:
        chunk, future = waiting.popleft()
        done = None if future is None or pool is None else attempt(future.result)
        return work(chunk) if done is None else done

    with ExitStack() as workers:
        if not multiprocessing.current_process().daemon:  # which may have no children
            # This process handles Ctrl-C.
            started = worker_pool(processes, signal.signal, signal.SIGINT, signal.SIG_IGN)
            pool = attempt(lambda: workers.enter_context(started))
        for chunk in chunks:
            submitted = None if pool is None else attempt(partial(pool.submit, work, chunk))
            waiting.append((chunk, submitted))
            if len(waiting) > CHUNKS_AHEAD * processes:
                yield next_result()
        while waiting:
            yield next_result()


@contextmanager
def worker_pool(
    processes: int, start: Callable[..., Any], *arguments: Any
) -> Iterator["ProcessPoolExecutor"]:
    """Processes that call ``start`` first; work that is still waiting at the end is cancelled."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    pool = ProcessPoolExecutor(processes, context, start, arguments)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
