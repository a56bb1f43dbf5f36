"""Holding out a dev set from a corpus that is larger than memory: seeded, stratified, bounded.

As ``dcnn.data.splitting`` for labelled texts. A dev set of fifty thousand tells accuracies apart to
a few tenths of a per cent, and fits into memory; a tenth of a billion would not.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from dcnn.text.sentences import Ints

LARGEST_DEV = 50_000


def ordinals_held_out(
    counts: Mapping[str, int], fraction: float, seed: int, largest: int = LARGEST_DEV
) -> dict[str, Ints]:
    """Of each label, which of its examples are held out: the first, the third, ...

    Every label gives its share, to the nearest whole example, and at least one; one example stays.
    """
    generator = np.random.default_rng(seed)
    share = min(fraction, largest / sum(counts.values()))
    return {
        label: np.sort(generator.choice(count, _number(count, share), replace=False))
        for label, count in sorted(counts.items())
    }


def _number(count: int, share: float) -> int:
    return min(max(1, round(share * count)), count - 1)


def rows_held_out(ordinals: Mapping[str, Ints], blocks: Iterable[tuple[list[str], Ints]]) -> Ints:
    """The rows of these examples, ascending, counted over all blocks from 0.

    Args:
        ordinals: of each label, as ``ordinals_held_out`` gives them.
        blocks: of each block in order, its labels and (rows,) places among these.
    """
    seen = dict.fromkeys(ordinals, 0)
    rows: list[Ints] = [np.empty(0, np.int64)]
    first_row = 0
    for labels, targets in blocks:
        for place, label in enumerate(labels):
            here = np.flatnonzero(targets == place)
            first, last = np.searchsorted(ordinals[label], (seen[label], seen[label] + len(here)))
            rows.append(first_row + here[ordinals[label][first:last] - seen[label]])
            seen[label] += len(here)
        first_row += len(targets)
    return np.sort(np.concatenate(rows))
