"""Which words the network knows, and their ids.

Id 0 is the unknown word; there is no padding word, since lengths alone say what exists. With the
15,447 types of the SST training trees this makes the paper's vocabulary of 15,448 (Sect. 5.2).
"""

from collections.abc import Iterable, Sequence

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
