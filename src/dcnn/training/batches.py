"""Where the batches of a run come from: examples in memory, or a corpus that is larger than it.

Both give an epoch in an order that follows from the seed and the epoch's number alone. A feed of
several processes gives each its part of every batch; the batches are those of a single process.

"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np

from dcnn.config import TrainingConfig
from dcnn.data.batching import Batch, Examples, make_batch, make_part, training_order
from dcnn.data.store import Corpus, Window
from dcnn.text.vocabulary import Ints
from dcnn.training.objective import (
    class_factors,
    example_weights,
    smoothed_indicators,
    target_distributions,
)

# Blocks that are in memory and shuffled together, about a million sentences.
WINDOW_BLOCKS = 16

Rank = tuple[int, int]  # the number of a process, and how many there are
ALONE: Rank = (0, 1)


class Feed(Protocol):
    """Gives the batches of every epoch, in their order."""

    def __len__(self) -> int:
        """Examples of an epoch."""
        ...

    def batch(self, epoch: int, number: int) -> Batch:
        """One of the batches of an epoch, from 0."""
        ...

    def behind(self, epoch: int, number: int) -> tuple[int, int]:
        """How much of the epoch lies before that batch, and how much the epoch is."""
        ...

    def batches(self, epoch: int) -> int:
        """How many there are, as far as is known."""
        ...


class MemoryFeed:
    """Batches of examples in memory."""

    def __init__(
        self,
        examples: Examples,
        config: TrainingConfig,
        classes: int,
        rank: Rank = ALONE,
        multi_label: bool = False,
    ) -> None:
        self._config, self._rank = config, rank
        self.examples = Examples(
            examples.sentences,
            smoothed_indicators(examples.targets, config.label_smoothing)
            if multi_label
            else target_distributions(examples.targets, classes, config.label_smoothing),
            example_weights(
                examples.targets, classes, config.class_weights == "balanced", examples.weights
            ),
        )
        self._lengths = examples.sentences.lengths
        self._order: list[Ints] = []
        self._order_epoch = -1

    def __len__(self) -> int:
        return len(self.examples)

    def batch(self, epoch: int, number: int) -> Batch:
        """See ``Feed``."""
        indices = self._order_of(epoch)[number]
        if self._rank == ALONE:
            return make_batch(self.examples, indices)
        # Every so manieth, since the sentences of a batch ascend in length.
        places = np.arange(self._rank[0], len(indices), self._rank[1])
        words = int(self._lengths[indices].max())
        return make_part(self.examples, indices[places], places, len(indices), words)

    def behind(self, epoch: int, number: int) -> tuple[int, int]:
        """See ``Feed``; counted in batches."""
        return number, len(self._order_of(epoch))

    def batches(self, epoch: int) -> int:
        """See ``Feed``; exactly."""
        return len(self._order_of(epoch))

    def _order_of(self, epoch: int) -> list[Ints]:
        if self._order_epoch != epoch:
            self._order = training_order(
                self._lengths, self._config.batch_size, self._config.seed, epoch
            )
            self._order_epoch = epoch
        return self._order


class _LoadedWindow:
    """A window with the order of its batches, and its place in the epoch."""

    def __init__(
        self,
        window: Window,
        examples: Examples,
        order: list[Ints],
        epoch: int,
        first_batch: int,
        first_sentence: int,
    ) -> None:
        self.window, self.examples, self.order, self.epoch = window, examples, order, epoch
        self.first_batch, self.first_sentence = first_batch, first_sentence
        self.ends = np.cumsum([len(indices) for indices in order])


class CorpusFeed:
    """Batches of a corpus on disk: its blocks in random order, a window of them at a time.

    The sentences of a window are shuffled together as those of a corpus in memory are, so that one
    that fits into a window is shuffled whole.
    """

    def __init__(
        self,
        corpus: Corpus,
        config: TrainingConfig,
        rank: Rank = ALONE,
        window_blocks: int = WINDOW_BLOCKS,
    ) -> None:
        self._corpus, self._config, self._rank = corpus, config, rank
        self._window_blocks = window_blocks
        balanced = config.class_weights == "balanced"
        self._factors = class_factors(np.array(corpus.weight_per_class), len(corpus), balanced)
        self._windows: Iterator[_LoadedWindow] = iter(())
        self._current: _LoadedWindow | None = None

    def __len__(self) -> int:
        return len(self._corpus)

    def batch(self, epoch: int, number: int) -> Batch:
        """See ``Feed``; a batch before those of the window at hand starts the epoch again."""
        window = self._window_with(epoch, number)
        indices = window.order[number - window.first_batch]
        examples, first, last = window.examples, window.window.first, window.window.last
        if self._rank == ALONE:
            batch = make_batch(examples, indices)
        else:
            places = np.flatnonzero((indices >= first) & (indices < last))
            words = int(window.window.lengths[indices].max())
            batch = make_part(examples, indices[places] - first, places, len(indices), words)
        classes, smoothing = len(self._corpus.classes), self._config.label_smoothing
        assert batch.targets is not None  # noqa: S101
        return replace(batch, targets=target_distributions(batch.targets, classes, smoothing))

    def behind(self, epoch: int, number: int) -> tuple[int, int]:
        """See ``Feed``; counted in sentences."""
        if number == 0:
            return 0, len(self)
        window = self._window_with(epoch, number - 1)
        done = window.first_sentence + window.ends[number - 1 - window.first_batch]
        return int(done), len(self)

    def batches(self, epoch: int) -> int:  # noqa: ARG002
        """See ``Feed``; long sentences, which go into smaller batches, are not known ahead."""
        windows = -(-len(self._corpus.blocks) // self._window_blocks)
        return max(1, len(self) // self._config.batch_size + windows // 2)

    def order_of_blocks(self, epoch: int) -> list[list[int]]:
        """The blocks of every window of an epoch."""
        shuffled = np.random.default_rng((self._config.seed, epoch)).permutation(
            len(self._corpus.blocks)
        )
        size = self._window_blocks
        return [shuffled[at : at + size].tolist() for at in range(0, len(shuffled), size)]

    def _window_with(self, epoch: int, number: int) -> "_LoadedWindow":
        current = self._current
        if current is None or current.epoch != epoch or number < current.first_batch:
            self._current = current = None  # its memory is needed for the next
            self._windows = self._load(epoch)
            current = next(self._windows)
        while number >= current.first_batch + len(current.order):
            self._current = None
            del current
            current = next(self._windows)
        self._current = current
        return current

    def _load(self, epoch: int) -> Iterator["_LoadedWindow"]:
        first_batch = first_sentence = 0
        for number, places in enumerate(self.order_of_blocks(epoch)):
            window = self._corpus.window(places, self._rank)
            if not len(window.lengths):
                continue
            order = training_order(
                window.lengths, self._config.batch_size, self._config.seed, epoch, number
            )
            yield _LoadedWindow(
                window, self._weighed(window.examples), order, epoch, first_batch, first_sentence
            )
            first_batch += len(order)
            first_sentence += len(window.lengths)

    def _weighed(self, given: Examples) -> Examples:
        if self._factors is None:
            return given
        ones = np.ones(len(given)) if given.weights is None else given.weights.astype(np.float64)
        weights = (ones * self._factors[given.targets]).astype(np.float32)
        return Examples(given.sentences, given.targets, weights)
