"""Holding out a dev set: seeded, and stratified by label.

Holding out a dev set from a corpus that is larger than memory: seeded, stratified, bounded.

As ``dcnn.data.split`` for labelled texts. A dev set of fifty thousand tells accuracies apart to
a few tenths of a per cent, and fits into memory; a tenth of a billion would not.

"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dcnn.data.labels import LabelledTexts
from dcnn.errors import DataError
from dcnn.text.vocabulary import Ints


def stratified_split(labels: Sequence[Hashable], fraction: float, seed: int) -> tuple[Ints, Ints]:
    """Split the indices of ``labels`` into those kept and those held out.

    Every label keeps its share, to the nearest whole example, and at least one example on each
    side; a label with one example keeps it.

    Returns:
        kept and held-out indices, each in ascending order.
    """
    generator = np.random.default_rng(seed)
    places: dict[Hashable, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        places[label].append(index)
    held_out: list[int] = []
    for indices in places.values():
        count = min(max(1, round(fraction * len(indices))), len(indices) - 1)
        held_out += generator.permutation(indices)[:count].tolist()
    mask = np.zeros(len(labels), np.bool_)
    mask[held_out] = True
    return np.flatnonzero(~mask), np.flatnonzero(mask)


def split_label_sets(
    sets: Sequence[Sequence[str]], fraction: float, seed: int
) -> tuple[Ints, Ints]:
    """Split the indices of ``sets`` of labels into those kept and those held out.

    An example stands for the rarest of its labels, by which they are stratified. Every label
    keeps an example in training.

    Returns:
        kept and held-out indices, each in ascending order.
    """
    counts = Counter(label for labels in sets for label in labels)
    keys = [min(labels, key=lambda one: (counts[one], one), default=None) for labels in sets]
    kept, held_out = stratified_split(keys, fraction, seed)
    left = {label for index in kept for label in sets[index]}
    back = set()
    for index in held_out.tolist():
        if not left.issuperset(sets[index]):
            back.add(index)
            left.update(sets[index])
    returned = np.array([index in back for index in held_out.tolist()], np.bool_)
    return np.sort(np.concatenate([kept, held_out[returned]])), held_out[~returned]


def hold_out(
    examples: LabelledTexts, fraction: float, seed: int
) -> tuple[LabelledTexts, LabelledTexts]:
    """Split ``examples`` into a training set and a dev set, whose texts count the same.

    Raises:
        DataError: no example can be held out.
    """
    if examples.multi_label:
        sets = [tuple(map(str, labels)) for labels in examples.labels]
        kept, held_out = split_label_sets(sets, fraction, seed)
    else:
        kept, held_out = stratified_split(examples.labels, fraction, seed)
    if not len(held_out):
        raise DataError(
            f"{examples.source}: too few examples of every label to hold out a dev set; "
            "add examples, or give a dev set of your own"
        )
    return examples.select(kept), replace(examples.select(held_out), weights=None)


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
