"""What changes between two sentences: which topmost detectors speak otherwise, and by how much.

A logit is the root's bias and what the topmost nodes contribute. The bias is the same for every
sentence, so the difference of two logits is the sum, over the rows of the topmost maps (the
detectors), of what each contributes to one sentence less what it contributes to the other.
"""

from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

import numpy as np

from dcnn.errors import UserError
from dcnn.inspection.attribution import Doubles, word_contributions
from dcnn.inspection.explanation import Explanation
from dcnn.text.vocabulary import Ints

CHANGES = 12  # told; the rest is one number


@dataclass(frozen=True)
class DetectorChange:
    """A row of a topmost map, in either sentence.

    Attributes:
        layer: the topmost.
        map: feature map.
        row: row of the map.
        contributions: what its values add to the logit of the class, in either sentence.
        word_contributions: of every word of either sentence to that; the rest is biases.
    """

    layer: int
    map: int
    row: int
    contributions: tuple[float, float]
    word_contributions: tuple[tuple[float, ...], tuple[float, ...]]

    @property
    def difference(self) -> float:
        """The second contribution less the first."""
        return self.contributions[1] - self.contributions[0]


@dataclass(frozen=True)
class Comparison:
    """Two explanations of one class.

    Attributes:
        difference: the second logit less the first.
        changes: the largest, for or against.
        others: what all other changes add up to.
        aligned: positions of words that stand for each other; None where there is none.
    """

    difference: float
    changes: tuple[DetectorChange, ...]
    others: float
    aligned: tuple[tuple[int | None, int | None], ...]


def compare(first: Explanation, second: Explanation, count: int = CHANGES) -> Comparison:
    """Find what changes from one sentence to another.

    Args:
        first: by any DCNN.
        second: by the same network, for the same class.
        count: how many changes to tell.

    Raises:
        UserError: the classes differ.
    """
    if first.label != second.label:
        raise UserError(
            f"the first explanation is of {first.label!r} and the second of {second.label!r}; "
            "explain the same class of both"
        )
    sums = [_by_detector(explanation) for explanation in (first, second)]
    change = (sums[1] - sums[0]).ravel()
    largest = np.argsort(-np.abs(change), kind="stable")[:count]
    told = [
        _change(first, second, sums, tuple(map(int, np.unravel_index(place, sums[0].shape))))
        for place in largest.tolist()
    ]
    return Comparison(
        difference=second.logit - first.logit,
        changes=tuple(told),
        others=float(change.sum() - change[largest].sum()),
        aligned=tuple(align(first.words, second.words)),
    )


def align(first: tuple[str, ...], second: tuple[str, ...]) -> list[tuple[int | None, int | None]]:
    """Positions of words side by side: equal ones first of all, and replaced ones in order."""
    pairs: list[tuple[int | None, int | None]] = []
    # Without its heuristic, which leaves frequent words of a long text out.
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    for _, start, end, other_start, other_end in matcher.get_opcodes():
        pairs += zip_longest(range(start, end), range(other_start, other_end))
    return pairs


def _by_detector(explanation: Explanation) -> Doubles:
    """(maps, rows) what each row of the topmost maps contributes."""
    contribution = explanation.graph.contribution[:, explanation.of_class].astype(np.float64)
    sums: Doubles = contribution.reshape(explanation.trace.layers[-1].values.shape).sum(axis=-1)
    return sums


def _change(
    first: Explanation, second: Explanation, sums: list[Doubles], at: tuple[int, ...]
) -> DetectorChange:
    number, row = at
    return DetectorChange(
        layer=first.graph.depth,
        map=number,
        row=row,
        contributions=(float(sums[0][at]), float(sums[1][at])),
        word_contributions=(_seen(first, number, row), _seen(second, number, row)),
    )


def _seen(explanation: Explanation, number: int, row: int) -> tuple[float, ...]:
    graph = explanation.graph
    places: Ints = np.flatnonzero(
        (graph.nodes.map[graph.top] == number) & (graph.nodes.row[graph.top] == row)
    )
    weights = graph.root_weight[places, explanation.of_class].astype(np.float64)
    return tuple((weights @ word_contributions(graph, graph.top[places])).tolist())
