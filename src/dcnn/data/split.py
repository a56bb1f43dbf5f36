"""Holding out a dev set, and the folds of a cross-validation: seeded, and stratified by label.

Every label keeps its share, to the nearest whole example, with at least one example on each side; a
label with one example stays in training. With thousands of rare labels, not all are in the dev set:
one example of each would be a large part of the data. ``hold_out`` splits examples in memory,
``sample_rows`` a corpus on disk, in bounded memory.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.config import TrainingConfig
from dcnn.data.labels import LabelledTexts
from dcnn.errors import DataError
from dcnn.text.vocabulary import Ints

ENOUGH_DEV = 5000  # examples; a larger dev set need not have an example of every label
MAX_DEV = 50_000  # of a corpus on disk: measures accuracies to a few tenths of a per cent


def hold_out(
    examples: LabelledTexts, fraction: float, seed: int
) -> tuple[LabelledTexts, LabelledTexts]:
    """Split ``examples`` into a training set and a dev set, of hard labels without weights."""
    if fraction == 0:
        raise DataError(
            "training.dev_fraction=0 holds out nothing, and a dev set is needed here; give one, "
            "or set training.dev_fraction to 0.1"
        )
    split = split_label_sets if examples.multi_label else stratified_split
    kept, held_out = split(examples.labels, fraction, seed)
    if not len(held_out):
        raise DataError(
            f"{examples.source}: too few examples of every label to hold out a dev set; "
            "add examples, or give a dev set of your own"
        )
    dev = replace(examples.select(held_out), weights=None)
    return examples.select(kept), dev.with_hard_labels()


def split_dev(
    examples: LabelledTexts, training: TrainingConfig
) -> tuple[LabelledTexts, LabelledTexts | None]:
    """Training examples and the dev set that the settings hold out of them, if they do."""
    fraction = training.for_examples(len(examples)).dev_fraction
    return hold_out(examples, fraction, training.seed) if fraction else (examples, None)


def stratified_split(labels: Sequence[Hashable], fraction: float, seed: int) -> tuple[Ints, Ints]:
    """Indices of ``labels`` that are kept and held out, each ascending."""
    generator = np.random.default_rng(seed)
    places: dict[Hashable, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        places[label].append(index)
    mask = np.zeros(len(labels), np.bool_)
    for indices in places.values():
        mask[generator.permutation(indices)[: _share(len(indices), fraction)]] = True
    shares = sum(round(fraction * len(indices)) for indices in places.values())
    most = max(shares, ENOUGH_DEV)
    if (surplus := np.count_nonzero(mask) - most) > 0:
        mask[generator.permutation(np.flatnonzero(mask))[:surplus]] = False
    return np.flatnonzero(~mask), np.flatnonzero(mask)


def split_label_sets(
    sets: Sequence[Sequence[Hashable]], fraction: float, seed: int
) -> tuple[Ints, Ints]:
    """``stratified_split`` by the rarest label of each set; all labels keep a training example."""
    kept, held_out = stratified_split(_rarest(sets), fraction, seed)
    trained = {label for index in kept for label in sets[index]}
    returned = np.zeros(len(held_out), np.bool_)
    for place, index in enumerate(held_out.tolist()):
        if not trained.issuperset(sets[index]):
            returned[place] = True
            trained.update(sets[index])
    return np.sort(np.concatenate([kept, held_out[returned]])), held_out[~returned]


def _rarest(sets: Sequence[Sequence[Hashable]]) -> list[Hashable]:
    counts = Counter(label for labels in sets for label in labels)
    return [min(labels, key=lambda one: (counts[one], str(one)), default=None) for labels in sets]


def fold_numbers(examples: LabelledTexts, folds: int, seed: int) -> Ints:
    """(N,) the fold that each example is held out in; -1 if it is the only one of its label.

    The examples of a label go around the folds, and the next label continues where it ended.
    """
    labels = _rarest(examples.labels) if examples.multi_label else examples.labels
    generator = np.random.default_rng(seed)
    places: dict[Hashable, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        places[label].append(index)
    numbers, following = np.full(len(labels), -1), 0
    for indices in places.values():
        if len(indices) > 1:
            numbers[generator.permutation(indices)] = (following + np.arange(len(indices))) % folds
            following += len(indices)
    return numbers


def cross_validate(
    examples: LabelledTexts,
    numbers: Ints,
    outputs_of: Callable[[LabelledTexts, LabelledTexts], NDArray[Any]],
) -> NDArray[Any]:
    """Outputs (N, ...) for every example, of a model that was not trained on it.

    ``numbers`` come from ``fold_numbers``; an example in no fold is always trained on, and its
    output is 0. ``outputs_of`` gets the training examples and the held-out ones, and returns
    outputs (held out, ...) for the latter.
    """
    outputs: NDArray[Any] = np.zeros((len(examples), 0))
    for number in np.unique(numbers[numbers >= 0]):
        held_out = np.flatnonzero(numbers == number)
        kept = examples.select(np.flatnonzero(numbers != number))
        found = outputs_of(kept, examples.select(held_out))
        if not outputs.size:
            outputs = np.zeros((len(examples), *found.shape[1:]), found.dtype)
        outputs[held_out] = found
    return outputs


def _share(count: int, fraction: float) -> int:
    return min(max(1, round(fraction * count)), count - 1)


def sample_rows(
    counts: Mapping[str, int], fraction: float, seed: int, blocks: Iterable[tuple[list[str], Ints]]
) -> Ints:
    """The rows of a corpus on disk that are held out, ascending, counted over all blocks.

    A block has its labels and (rows,) targets, which index these.
    """
    generator = np.random.default_rng(seed)
    fraction = min(fraction, MAX_DEV / sum(counts.values()))
    ordinals = {  # which examples of a label are held out, of those that are still to come
        label: np.sort(generator.choice(count, _share(count, fraction), replace=False))
        for label, count in sorted(counts.items())
    }
    rows, first_row = [np.empty(0, np.int64)], 0
    for labels, targets in blocks:
        for place, label in enumerate(labels):
            here = np.flatnonzero(targets == place)
            inside = ordinals[label] < len(here)
            rows.append(first_row + here[ordinals[label][inside]])
            ordinals[label] = ordinals[label][~inside] - len(here)
        first_row += len(targets)
    return np.sort(np.concatenate(rows))
