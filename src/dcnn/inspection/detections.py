"""What is told of a detector: plain values."""

from collections.abc import Iterator
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
