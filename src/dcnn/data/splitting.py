"""Holding out a dev set: seeded, and stratified by label."""

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from dcnn.config import TrainingConfig
from dcnn.data.tables import LabelledTexts
from dcnn.text.sentences import Ints


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


def hold_out(train: LabelledTexts, training: TrainingConfig) -> tuple[LabelledTexts, LabelledTexts]:
    """Part ``train`` into what is learned from and the dev set; the seed decides."""
    kept, held_out = stratified_split(train.labels, training.dev_fraction, training.seed)
    return train.select(kept.tolist()), train.select(held_out.tolist())
