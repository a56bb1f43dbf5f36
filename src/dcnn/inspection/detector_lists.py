"""What is told of a detector: plain values.

The strongest n-grams of many detectors at once, kept in bounded memory while a corpus goes by.

Each detector has a short list of distinct n-grams. A value below the least of a full list changes
nothing, so that after the first few thousand n-grams nearly all are passed over by one comparison.

An n-gram that is on a list at the end has been on it since it was first met: a list only gets
harder to enter, and the same n-gram has the same value wherever it stands. So the counts are exact
although nothing is remembered of what was dropped. Among equal values the one met first stays.

"""

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dcnn.text.vocabulary import Ints


@dataclass(frozen=True, order=True)
class Detector:
    """One feature detector.

    Attributes:
        layer: from 1.
        map: feature map, from 0.
        row: row of the map, from 0: before folding in the first layer, after it above.
    """

    layer: int
    map: int
    row: int

    def __str__(self) -> str:
        return f"{self.layer}:{self.map}:{self.row}"


@dataclass(frozen=True)
class Detection:
    """An n-gram that a detector reacts to.

    Attributes:
        words: the words, as they were first met.
        positions: of the words, ascending: in the m-gram for the first layer, in the sentence
            above it, where words in between may be missing.
        value: the detector's: the dot product in the first layer, the node after tanh above it.
        count: how often this n-gram with this value occurs in the corpus.
        strongest: those of ``positions`` whose words, the fewest, bring at least half of what all
            words bring to make the value large; empty if none does.
    """

    words: tuple[str, ...]
    positions: tuple[int, ...]
    value: float
    count: int
    strongest: tuple[int, ...] = ()

    def __str__(self) -> str:
        return " ".join(part for part, _ in self.parts())

    def parts(self) -> Iterator[tuple[str, bool]]:
        """The words, with an ellipsis for every gap, and whether each is one of the strongest."""
        before = self.positions[0] - 1
        for word, position in zip(self.words, self.positions, strict=True):
            if position != before + 1:
                yield "\u2026", False
            yield word, position in self.strongest
            before = position


@dataclass(frozen=True)
class ClassContribution:
    """How strongly a detector speaks for a class; see ``DetectorIndex.push``."""

    detector: Detector
    amount: float


@dataclass(frozen=True)
class Activation:
    """A detector's answer to an example.

    Attributes:
        detector: the detector.
        strength: 0 is its mean over the corpus, 1 its strongest n-gram there.
        detection: what it reacts to in the example.
    """

    detector: Detector
    strength: float
    detection: Detection


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
    order: int = field(compare=False)


class StrongestLists:
    """A list for each of D detectors.

    Args:
        detectors: D.
        length: how many distinct n-grams a list holds.
    """

    def __init__(self, detectors: int, length: int) -> None:
        self.length = length
        self._least: Floats = np.full(detectors, -np.inf, np.float32)  # what a value must reach
        self._lists = [_ShortList() for _ in range(detectors)]
        self._offered = 0

    def offer(self, values: Floats, times: Ints, offered: Offered) -> None:
        """Take what is strong enough.

        Args:
            values: (D, M) of M n-grams, in the order of the corpus.
            times: (M,) how often each occurs there; 0 is not at all.
            offered: what they are.
        """
        # After a while few detectors find anything: look for the places of those alone.
        hopeful = np.flatnonzero(values.max(axis=1) >= self._least)
        strong = values[hopeful] >= self._least[hopeful, None]
        strong &= times > 0
        rows, places = np.nonzero(strong)
        if not len(rows):
            return
        rows = hopeful[rows]
        found = values[rows, places]
        order = np.lexsort((places, -found, rows))
        rows, places, found = rows[order], places[order], found[order]
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        ends = np.append(starts[1:], len(rows))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            part = places[start:end]
            self._walk(int(rows[start]), part, found[start:end], times[part], offered)

    def _walk(
        self, number: int, places: Ints, found: Floats, times: Ints, offered: Offered
    ) -> None:
        """Go down the values of one detector until they are too weak for its list."""
        short, least = self._lists[number], self._least[number]
        for place, value, count in zip(
            places.tolist(), found.tolist(), times.tolist(), strict=True
        ):
            if value < least:
                break
            key = offered.key(number, place)
            known = short.entries.get(key)
            if known is not None and known.value >= value:
                if known.value == value:
                    short.entries[key] = replace(known, count=known.count + count)
                continue
            if known is None and len(short.entries) == self.length:
                if value == least:  # as strong as the last, and later
                    continue
                short.drop_last()
            self._offered += 1
            short.add(key, Entry(offered.met(number, place), value, count, self._offered))
            if len(short.entries) == self.length:
                least = short.last_value()
        self._least[number] = least

    def entries(self, number: int) -> list[Entry]:
        """The list of a detector, the strongest first."""
        return sorted(self._lists[number].entries.values(), key=lambda e: (-e.value, e.order))


class _ShortList:
    """The entries of one detector, with the last of them at hand: the weakest, and met latest."""

    def __init__(self) -> None:
        self.entries: dict[Hashable, Entry] = {}
        # An entry that found a larger value is in the heap twice; its old place is passed over.
        self._heap: list[tuple[float, int, Hashable]] = []

    def add(self, key: Hashable, entry: Entry) -> None:
        self.entries[key] = entry
        heapq.heappush(self._heap, (entry.value, -entry.order, key))

    def last_value(self) -> float:
        return self._last()[0]

    def drop_last(self) -> None:
        del self.entries[self._last()[2]]

    def _last(self) -> tuple[float, int, Hashable]:
        while True:
            _, order, key = last = self._heap[0]
            known = self.entries.get(key)
            if known is not None and known.order == -order:
                return last
            heapq.heappop(self._heap)
