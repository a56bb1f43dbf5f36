"""What is told of a detector: plain values."""

from collections.abc import Sequence
from dataclasses import dataclass


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
        return with_gaps(self.words, self.positions)


@dataclass(frozen=True)
class Push:
    """How strongly a detector speaks for a class; see ``DetectorIndex.push``."""

    detector: Detector
    amount: float


@dataclass(frozen=True)
class Reaction:
    """A detector's answer to an example.

    Attributes:
        detector: the detector.
        strength: 0 is its mean over the corpus, 1 its strongest n-gram there.
        detection: what it reacts to in the example.
    """

    detector: Detector
    strength: float
    detection: Detection


def with_gaps(words: Sequence[str], positions: Sequence[int]) -> str:
    """The words, with an ellipsis where some in between are missing."""
    parts = list(words[:1])
    for before, here, word in zip(positions, positions[1:], words[1:], strict=False):
        parts += [word] if here == before + 1 else ["\u2026", word]
    return " ".join(parts)
