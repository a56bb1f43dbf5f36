"""Words and ids: the vocabulary, sentences as ids, and tokenizing many texts.

Id 0 is the unknown word; there is no padding word, since lengths alone say what exists. With the
15,447 types of the SST training trees this makes the paper's vocabulary of 15,448 (Sect. 5.2).

Chunks of texts go to threads of the native library, each of which numbers the words of its own
chunk in the order of first occurrence; the chunks are merged in the order of the texts, so the
result depends neither on the number of threads nor on the size of a chunk.

Character n-grams (Bojanowski et al., 2017): the vector of a word may be its own plus 1/sqrt(n)
times the sum of the vectors of its n n-grams; a word without a vector of its own has the unknown
word's in that place. So rare words learn from others that are spelled alike, and a word that
training never saw has a vector too. The n-grams of "word" are those of "<word>": its start and its
end are told apart from its middle. They are hashed into buckets, by CRC-32 of the UTF-8 bytes
modulo the number of buckets. ``CharNgrams.buckets`` is the definition;
``dcnn.ops.native.char_ngrams`` computes the same faster.
"""

from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from dcnn.config import TextConfig
from dcnn.text import native
from dcnn.text.tokenizer import AnyTokenizer

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

UNKNOWN = 0
MAX_SPELLED = 64  # code points of a word that have n-grams; the rest of a longer one is not read
# New words that get ids, at most: further ones are the unknown word, so that memory is bounded.
MOST_NEW_WORDS = 1 << 20

Ints = NDArray[np.integer[Any]]


class Bags(NamedTuple):
    """The n-grams of words: those of word i are ``buckets[offsets[i]:offsets[i + 1]]``."""

    offsets: Ints  # (words + 1,) int64
    buckets: NDArray[np.int32]  # (n-grams,)


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
        if len(set(words)) != len(words):
            raise ValueError("a word occurs twice in the vocabulary")

    @cached_property
    def _ids(self) -> dict[str, int]:  # the native library has an index of its own
        return {word: index for index, word in enumerate(self.words, start=1)}

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
    empty. With character n-grams, words outside the vocabulary have ids of their own:
    ``new_words[i]`` has id ``len(vocabulary) + i``.
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
        # Of the sentences at ``indices`` only: ``self.lengths`` would go through all of them.
        starts = self.offsets[indices]
        lengths = self.offsets[1:][indices] - starts
        columns = np.arange(lengths.max())
        # Past a sentence's end this reads other ids, which are then replaced by the padding.
        ids = self.ids.take(starts[:, None] + columns, mode="clip").astype(np.int64)  # (B, s)
        ids[columns >= lengths[:, None]] = padding
        return ids, lengths

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


CHUNK_SIZE = 20_000  # texts that a thread tokenizes at a time
CHUNKS_AHEAD = 2  # per thread, so that none waits for the next and memory stays bounded


def tokenize_texts(
    tokenizer: AnyTokenizer, texts: Iterable[str], threads: int = 1, chunk_size: int = CHUNK_SIZE
) -> TokenizedTexts:
    """Tokenize a stream of texts, which are taken while the threads work."""
    remaining = iter(texts)
    chunks = iter(lambda: list(islice(remaining, chunk_size)), [])
    work = partial(tokenize_chunk, tokenizer)
    return _merge(map(work, chunks) if threads < 2 else _in_threads(work, chunks, threads))


def tokenize_chunk(tokenizer: AnyTokenizer, texts: Iterable[str]) -> TokenizedTexts:
    """Tokenize ``texts`` in this thread."""
    if native.available():
        return TokenizedTexts(*native.native_tokenizer(tokenizer).tokenize(list(texts)))
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__  # a new word gets the next number
    ids, lengths = array("i"), array("i")
    for text in texts:
        tokens = tokenizer(text)
        ids.extend(map(index.__getitem__, tokens))
        lengths.append(len(tokens))
    return TokenizedTexts(list(index), np.array(ids, np.int32), np.array(lengths, np.int32))


def _merge(chunks: Iterable[TokenizedTexts]) -> TokenizedTexts:
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__  # a new word gets the next number
    ids, lengths = [], []
    for chunk in chunks:
        merged = np.array([index[word] for word in chunk.words], np.int32)
        ids.append(merged[chunk.ids])
        lengths.append(chunk.lengths)
    none = np.empty(0, np.int32)
    return TokenizedTexts(
        list(index), np.concatenate([none, *ids]), np.concatenate([none, *lengths])
    )


def _in_threads(
    work: Callable[[list[str]], TokenizedTexts], chunks: Iterable[list[str]], threads: int
) -> Iterator[TokenizedTexts]:
    """The result of every chunk, in order."""
    from concurrent.futures import ThreadPoolExecutor  # not needed to predict

    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[TokenizedTexts]] = deque()
        for chunk in chunks:
            waiting.append(pool.submit(work, chunk))
            if len(waiting) > CHUNKS_AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def worker_pool(
    processes: int, start: Callable[..., Any], *arguments: Any
) -> Iterator["ProcessPoolExecutor"]:
    """Processes that call ``start`` first; work that is still waiting at the end is cancelled."""
    import multiprocessing  # not needed to predict
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    pool = ProcessPoolExecutor(processes, context, start, arguments)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
