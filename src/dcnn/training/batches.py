"""Where the batches of a training come from: memory, or a corpus on disk.

An epoch's order follows from the seed and the number of the epoch alone. ``MemoryBatches`` and
``StoreBatches`` make batches of one run on the host. With several processes each gets its part of
every batch; the batches are those of a single process. ``dcnn.training.resident`` keeps examples on
a device instead.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.config import TrainingConfig
from dcnn.data.batching import Batch, Examples, Floats, make_batch, make_part, training_order
from dcnn.data.store import Corpus, Window
from dcnn.errors import DataError
from dcnn.metrics import target_distributions
from dcnn.text.vocabulary import Ints

Rank = tuple[int, int]  # the number of a process, and how many there are
ALONE: Rank = (0, 1)


@dataclass(frozen=True)
class RunSpec:
    """The settings, initial weights and data of one run.

    Runs that train together have the same ``batch_size``, ``evaluations_per_epoch`` and
    ``class_weights``, and none of them stops early.
    """

    training: TrainingConfig
    weights: Mapping[str, Any] | None = None  # initial ones by name; none are those of the model
    subset: Ints | None = None  # indices of its examples; none is all of them
    targets: NDArray[Any] | None = None  # (N, classes) in place of the examples'

    def prepare(self, examples: Examples, classes: int) -> Examples:
        """All examples with the targets of this run, and the weights that the network learns by."""
        own = examples.targets if self.targets is None else self.targets
        balanced = self.training.class_weights == "balanced"
        weights = example_weights(examples.targets, classes, balanced, examples.weights)
        return Examples(examples.sentences, own, weights)


def example_weights(
    targets: NDArray[Any], classes: int, balanced: bool, weights: Floats | None
) -> Floats | None:
    """Sample weights (N,) times class weights, scaled to a mean of one; none if all are alike.

    If ``balanced``, each class counts the same in total, however frequent it is.
    """
    if weights is None and not balanced:
        return None
    product = np.ones(len(targets)) if weights is None else weights.astype(np.float64)
    if balanced:
        tiny = np.finfo(float).tiny
        if targets.ndim == 1:
            mass = np.bincount(targets, product, classes)
            product = product * (1 / np.maximum(mass, tiny))[targets]
        else:
            mass = (product[:, None] * targets).sum(axis=0)  # (classes,)
            product = product * (targets @ (1 / np.maximum(mass, tiny)))
    if not product.any():
        raise DataError("every training example has weight 0; give at least one a weight above 0")
    return np.asarray(product / product.mean(), np.float32)


def class_factors(mass: Floats, examples: int, balanced: bool) -> Floats | None:
    """Factors (classes,) for the weights of examples, as in ``example_weights``; None if all are 1.

    ``mass`` (classes,) is the sum of the weights of each class's examples.
    """
    if balanced:
        some = mass > 0  # a class without examples weighs nothing
        return examples / np.count_nonzero(some) * some / np.where(some, mass, 1)
    factors = np.full(len(mass), examples / mass.sum())
    return None if (factors == 1).all() else factors


class Batches:
    """The batches of every epoch, in their order."""

    def batch(self, epoch: int, number: int) -> Batch:
        """One of the batches of an epoch, from 0."""
        raise NotImplementedError

    def done(self, epoch: int, number: int) -> tuple[int, int]:
        """The amount of data before that batch and in the whole epoch, in the same unit."""
        raise NotImplementedError

    def count(self, epoch: int) -> int:
        """The number of batches in an epoch, or an estimate."""
        return self.done(epoch, 0)[1]


def _with_distributions(
    batch: Batch, classes: int, config: TrainingConfig, multi_label: bool = False
) -> Batch:
    assert batch.targets is not None  # noqa: S101
    smoothing = config.label_smoothing
    targets = target_distributions(batch.targets, classes, smoothing, multi_label)
    return replace(batch, targets=targets)


class MemoryBatches(Batches):
    """Batches of a run's examples in memory."""

    def __init__(
        self,
        examples: Examples,
        spec: RunSpec,
        classes: int,
        rank: Rank = ALONE,
        multi_label: bool = False,
    ) -> None:
        self._config, self._rank = spec.training, rank
        self._classes, self._multi_label = classes, multi_label
        self.examples = spec.prepare(examples, classes)
        if spec.subset is not None:
            self.examples = self.examples.select(spec.subset)
        self._lengths = self.examples.sentences.lengths
        self._order: tuple[int, list[Ints]] = (-1, [])  # of an epoch

    def batch(self, epoch: int, number: int) -> Batch:
        """See ``Batches``."""
        indices = self._order_of(epoch)[number]
        if self._rank == ALONE:
            batch = make_batch(self.examples, indices)
        else:
            # Every size-th sentence: a batch is sorted by length, and each part gets all lengths.
            places = np.arange(self._rank[0], len(indices), self._rank[1])
            words = int(self._lengths[indices].max())
            batch = make_part(self.examples, indices[places], places, len(indices), words)
        # Here and not for all examples, which would be (N, classes).
        return _with_distributions(batch, self._classes, self._config, self._multi_label)

    def done(self, epoch: int, number: int) -> tuple[int, int]:
        """See ``Batches``; counted in batches."""
        return number, len(self._order_of(epoch))

    def _order_of(self, epoch: int) -> list[Ints]:
        if self._order[0] != epoch:
            size, seed = self._config.batch_size, self._config.seed
            self._order = epoch, training_order(self._lengths, size, seed, epoch)
        return self._order[1]


@dataclass(frozen=True)
class _LoadedWindow:
    """A window with the order of its batches, and its position in the epoch."""

    window: Window
    order: list[Ints]
    epoch: int
    first_batch: int
    ends: Ints  # sentences of the epoch up to the end of each batch


class StoreBatches(Batches):
    """Batches of a corpus on disk: its blocks in random order, a window of them at a time.

    The sentences of a window, about a million, are shuffled together as those of a corpus in memory
    are, so that one that fits into a window is shuffled whole.
    """

    def __init__(
        self, corpus: Corpus, config: TrainingConfig, rank: Rank = ALONE, window_blocks: int = 16
    ) -> None:
        self._corpus, self._config, self._rank = corpus, config, rank
        self._window_blocks = window_blocks
        balanced = config.class_weights == "balanced"
        mass = np.array(corpus.weight_per_class)
        self._factors = class_factors(mass, len(corpus), balanced)
        self._windows: Iterator[_LoadedWindow] = iter(())
        self._current: _LoadedWindow | None = None

    def batch(self, epoch: int, number: int) -> Batch:
        """See ``Batches``; a batch before those of the current window starts the epoch again."""
        loaded = self._window_with(epoch, number)
        indices, window = loaded.order[number - loaded.first_batch], loaded.window
        if self._rank == ALONE:
            batch = make_batch(window.examples, indices)
        else:
            places = np.flatnonzero((indices >= window.first) & (indices < window.last))
            words = int(window.lengths[indices].max())
            own = indices[places] - window.first
            batch = make_part(window.examples, own, places, len(indices), words)
        return _with_distributions(batch, len(self._corpus.classes), self._config)

    def done(self, epoch: int, number: int) -> tuple[int, int]:
        """See ``Batches``; counted in sentences."""
        if number == 0:
            return 0, len(self._corpus)
        loaded = self._window_with(epoch, number - 1)
        return int(loaded.ends[number - 1 - loaded.first_batch]), len(self._corpus)

    def count(self, epoch: int) -> int:  # noqa: ARG002
        """See ``Batches``; long sentences, which go into smaller batches, are not known ahead."""
        windows = -(-len(self._corpus.blocks) // self._window_blocks)
        return max(1, len(self._corpus) // self._config.batch_size + windows // 2)

    def order_of_blocks(self, epoch: int) -> list[list[int]]:
        """The blocks of every window of an epoch."""
        generator = np.random.default_rng((self._config.seed, epoch))
        shuffled = generator.permutation(len(self._corpus.blocks))
        size = self._window_blocks
        return [shuffled[at : at + size].tolist() for at in range(0, len(shuffled), size)]

    def _window_with(self, epoch: int, number: int) -> _LoadedWindow:
        loaded = self._current
        if loaded is None or loaded.epoch != epoch or number < loaded.first_batch:
            self._windows, loaded = self._load(epoch), None
        while loaded is None or number >= loaded.first_batch + len(loaded.order):
            self._current = loaded = None  # its memory is needed for the next
            self._current = loaded = next(self._windows)
        return loaded

    def _load(self, epoch: int) -> Iterator[_LoadedWindow]:
        config, first_batch, sentences = self._config, 0, 0
        for number, places in enumerate(self.order_of_blocks(epoch)):
            window = self._corpus.window(places, self._rank)
            if not len(window.lengths):
                continue
            if self._factors is not None:
                examples = window.examples
                ones = np.ones(len(examples)) if examples.weights is None else examples.weights
                weights = ones.astype(np.float64) * self._factors[examples.targets]
                examples = replace(examples, weights=weights.astype(np.float32))
                window = replace(window, examples=examples)
            order = training_order(window.lengths, config.batch_size, config.seed, epoch, number)
            ends = sentences + np.cumsum([len(indices) for indices in order])
            yield _LoadedWindow(window, order, epoch, first_batch, ends)
            first_batch, sentences = first_batch + len(order), sentences + len(window.lengths)
