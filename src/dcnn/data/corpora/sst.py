"""The Stanford Sentiment Treebank (Socher et al. 2013; Sect. 5.2) as labelled trees.

A line is a tree, ``(3 (2 It) (4 (2 's) (4 good)))``. Every node carries a label from 0 (very
negative) to 4 (very positive) and is the phrase of the words below it; the paper treats the
phrases of the training trees as training instances of their own.

``swap_subtrees`` augments the data: a phrase is replaced by another one with the same label. The
label of a sentence follows from its parts and how they are joined, so a sentence in which "a dull
plot" becomes another phrase as negative mostly keeps its label.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dcnn.errors import DataError
from dcnn.files import open_bytes

NEUTRAL = 2
_BRACKETS = {"-LRB-": "(", "-RRB-": ")"}
# A no-break space is part of its word, as in the three words like "8 1/2" of the training trees.
_PART = re.compile(r"\(|\)|[^\s()]+", re.ASCII)


@dataclass(frozen=True)
class Phrase:
    """A node of a tree: its words, its label (0 to 4), and where in the sentence it starts."""

    words: tuple[str, ...]
    label: int
    start: int = field(default=0, compare=False)

    @property
    def size(self) -> int:
        """Lengths 1, 2 to 3, 4 to 7, ... count as similar."""
        return len(self.words).bit_length()


def read_trees(path: Path) -> list[list[Phrase]]:
    """Read a file of trees, each as its phrases; a tree's first phrase is the whole sentence.

    Raises:
        DataError: a line is not a labelled tree.
    """
    trees = []
    with open_bytes(path) as stream:
        for number, raw in enumerate(stream, start=1):
            try:
                trees.append(_phrases(raw.decode("utf-8")))
            except ValueError as error:
                raise DataError(
                    f"{path}, line {number}: not a labelled tree ({error}); download the file again"
                ) from error
    return trees


def authors_tokens(words: Iterable[str]) -> list[str]:
    """The words of a phrase as the authors' own code split them.

    They are lower-cased and split at hyphens, with an empty token where a hyphen is at an end or
    beside another. The training sentences have 15,447 such types: with the unknown word, the
    paper's vocabulary of 15,448.
    """
    return [token for word in words for token in word.lower().split("-")]


def _phrases(line: str) -> list[Phrase]:
    """The nodes of one tree, root first."""
    words: list[str] = []
    open_nodes: list[tuple[int, int, int]] = []  # label, first word, place in the order of opening
    closed: dict[int, Phrase] = {}
    parts = iter(_PART.findall(line))
    opened = 0
    for part in parts:
        if part == "(":
            label = next(parts, "")
            if label not in ("0", "1", "2", "3", "4"):
                raise ValueError(f"label {label!r} is not 0 to 4")
            open_nodes.append((int(label), len(words), opened))
            opened += 1
        elif part == ")":
            if not open_nodes:
                raise ValueError("a bracket is closed that was never opened")
            node_label, first, place = open_nodes.pop()
            closed[place] = Phrase(tuple(words[first:]), node_label, first)
        else:
            words.append(_BRACKETS.get(part, part))
    if open_nodes or not closed:
        raise ValueError("a bracket is missing")
    return [closed[place] for place in range(opened)]


def swap_subtrees(
    trees: Sequence[Sequence[Phrase]], copies: int, generator: np.random.Generator
) -> list[Phrase]:
    """``copies`` new sentences per tree that has a phrase to swap, with the label of its root.

    One phrase of each copy, at most half of its sentence, is replaced by a random phrase of the
    same label and of similar length (at most twice as long, at least half).
    """
    bank: dict[tuple[int, int], list[Phrase]] = {}
    for tree in trees:
        for phrase in tree[1:]:
            bank.setdefault((phrase.label, phrase.size), []).append(phrase)
    swapped = []
    for root, *phrases in trees:
        swappable = [phrase for phrase in phrases if 2 * len(phrase.words) <= len(root.words)]
        for _ in range(copies if swappable else 0):
            old = swappable[generator.integers(len(swappable))]
            choice = bank[old.label, old.size]
            new = choice[generator.integers(len(choice))]
            end = old.start + len(old.words)
            words = (*root.words[: old.start], *new.words, *root.words[end:])
            swapped.append(Phrase(words, root.label))
    return swapped
