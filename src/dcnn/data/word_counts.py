"""Counting the words of a corpus whose distinct words need not fit into memory.

Most distinct words of a large corpus occur once or twice: names, typing errors, addresses. Beyond a
bound the rarest of the words counted so far are forgotten; a forgotten word that comes again counts
from 0. Such a word is rare in all that was read before, so that the vocabulary's frequent words and
their order do not depend on the bound. Nothing is forgotten below it.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from dcnn.config import TextConfig
from dcnn.text.vocabulary import Vocabulary

LARGEST = 4_000_000  # words counted at a time: about half a gigabyte


class WordCounts:
    """How often each word occurs, in the order in which words were first seen."""

    def __init__(self, largest: int = LARGEST) -> None:
        self._largest = largest
        self._counts: dict[str, int] = {}

    def add(self, words: Sequence[str], counts: Iterable[int]) -> None:
        """Take in words of one block, each once; a count may be negative to take some back."""
        total = self._counts
        known = total.get
        for word, count in zip(words, counts, strict=True):
            total[word] = known(word, 0) + count
        if len(total) > self._largest:
            self._forget()

    def _forget(self) -> None:
        """Keep at most half of what there is room for: the most frequent words."""
        counts = np.fromiter(self._counts.values(), np.int64, len(self._counts))
        least = np.partition(counts, len(counts) - self._largest // 2)[-self._largest // 2]
        self._counts = {word: count for word, count in self._counts.items() if count > least}

    def vocabulary(self, config: TextConfig) -> Vocabulary:
        """The words that ``Encoder.learn`` would keep, in its order."""
        words = list(self._counts)
        counts = np.fromiter(self._counts.values(), np.int64, len(words))
        by_count = np.argsort(-counts, kind="stable")
        kept = by_count[counts[by_count] >= config.min_count]
        if config.max_size:
            kept = kept[: config.max_size]
        return Vocabulary([words[number] for number in kept])
