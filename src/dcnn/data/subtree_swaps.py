"""New sentences from old: a phrase gives its place to another one of the same label.

The label of a sentence follows from its parts and how they are joined, so a sentence in which "a
dull plot" becomes another phrase as negative keeps its label, mostly. The treebank labels every
phrase, which makes this exact as far as labels go; whether it helps is for dev to say.
"""

from collections.abc import Sequence

import numpy as np

from dcnn.data.sst import Phrase


def swap_subtrees(
    trees: Sequence[Sequence[Phrase]], copies: int, generator: np.random.Generator
) -> list[Phrase]:
    """``copies`` new sentences for every tree that has a phrase to swap, with its root's label.

    One phrase of each copy, at most half of its sentence, is replaced by a random phrase of the
    same label and of like length (up to twice as long, or as short as half).
    """
    bank: dict[tuple[int, int], list[Phrase]] = {}
    for tree in trees:
        for phrase in tree[1:]:
            bank.setdefault((phrase.label, _size(phrase)), []).append(phrase)
    swapped = []
    for root, *phrases in trees:
        swappable = [phrase for phrase in phrases if 2 * len(phrase.words) <= len(root.words)]
        for _ in range(copies if swappable else 0):
            old = swappable[generator.integers(len(swappable))]
            choice = bank[old.label, _size(old)]
            new = choice[generator.integers(len(choice))]
            end = old.start + len(old.words)
            words = (*root.words[: old.start], *new.words, *root.words[end:])
            swapped.append(Phrase(words, root.label))
    return swapped


def _size(phrase: Phrase) -> int:
    """Lengths 1, 2 to 3, 4 to 7, ... are alike."""
    return len(phrase.words).bit_length()
