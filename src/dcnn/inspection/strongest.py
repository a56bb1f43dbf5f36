"""The strongest n-grams of many detectors at once, kept in bounded memory while a corpus goes by.

Each detector has a short list of distinct n-grams. A value below the least of a full list changes
nothing, so that after the first few thousand n-grams nearly all are passed over by one comparison.

An n-gram that is on a list at the end has been on it since it was first met: a list only gets
harder to enter, and the same n-gram has the same value wherever it stands. So the counts are exact
although nothing is remembered of what was dropped. Among equal values the one met first stays.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

MOST_WORDS = 1000  # of a sentence that is traced; `explain` takes no more either


@dataclass(frozen=True)
class Met:
    """An n-gram where it was first met.

    Attributes:
        words: the words of the n-gram.
        positions: theirs, ascending, as a detection tells them.
        sentence: the words of the whole sentence; empty if it is too long to be traced again.
        column: of the first layer: where the n-gram starts in the sentence; of a higher layer: the
            place of the value among the k that its row kept.
    """

    words: tuple[str, ...]
    positions: tuple[int, ...]
    sentence: tuple[str, ...]
    column: int


def whole(sentence: Sequence[str]) -> tuple[str, ...]:
    """The sentence for a ``Met``; nothing if it is too long to be traced again."""
    return tuple(sentence) if len(sentence) <= MOST_WORDS else ()


class Offered(Protocol):
    """M n-grams that are offered together; each is named by its place among them."""

    def key(self, detector: int, place: int) -> Hashable:
        """What makes two n-grams the same for a detector."""

    def met(self, detector: int, place: int) -> Met:
        """The n-gram itself; asked for only when it comes onto a list."""


@dataclass(frozen=True)
class Entry:
    """An n-gram on a list: its value, how often it was met, and when it was first met."""

    met: Met
    value: float
    count: int
    order: int


class StrongestLists:
    """A list for each of D detectors.

    Args:
        detectors: D.
        length: how many distinct n-grams a list holds.
    """

    def __init__(self, detectors: int, length: int) -> None:
        self.length = length
        self._least: Floats = np.full(detectors, -np.inf, np.float32)  # what a value must reach
        self._lists: list[dict[Hashable, Entry]] = [{} for _ in range(detectors)]
        self._offered = 0

    def offer(self, values: Floats, inside: Bools, offered: Offered) -> None:
        """Take what is strong enough.

        Args:
            values: (D, M) of M n-grams, in the order of the corpus.
            inside: (M,) which of the M are there at all.
            offered: what they are.
        """
        strong = values >= self._least[:, None]
        strong &= inside
        rows, places = np.nonzero(strong)
        found = values[rows, places]
        order = np.lexsort((places, -found, rows))
        rows, places, found = rows[order], places[order], found[order]
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        ends = np.append(starts[1:], len(rows))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            self._walk(int(rows[start]), places[start:end], found[start:end], offered)

    def _walk(self, number: int, places: NDArray[np.intp], found: Floats, offered: Offered) -> None:
        """Go down the values of one detector until they are too weak for its list."""
        entries, least = self._lists[number], self._least[number]
        for place, value in zip(places.tolist(), found.tolist(), strict=True):
            if value < least:
                break
            key = offered.key(number, place)
            known = entries.get(key)
            if known is not None and known.value >= value:
                if known.value == value:
                    entries[key] = replace(known, count=known.count + 1)
                continue
            if known is None and len(entries) == self.length:
                if value == least:  # as strong as the last, and later
                    continue
                del entries[self._last(entries)]
            self._offered += 1
            entries[key] = Entry(offered.met(number, place), value, 1, self._offered)
            if len(entries) == self.length:
                least = entries[self._last(entries)].value
        self._least[number] = least

    @staticmethod
    def _last(entries: dict[Hashable, Entry]) -> Hashable:
        return min(entries, key=lambda k: (entries[k].value, -entries[k].order))

    def entries(self, number: int) -> list[Entry]:
        """The list of a detector, the strongest first."""
        return sorted(self._lists[number].values(), key=lambda e: (-e.value, e.order))
