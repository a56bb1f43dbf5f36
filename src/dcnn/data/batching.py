"""Encoded examples and their mini-batches.

Sentences of similar length go into one batch, so that little is padded; the batches come in random
order. The order of an epoch follows from the seed and the epoch's number alone, so that a resumed
run gets the same batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.text.vocabulary import Ints, Sentences

Floats = NDArray[np.floating[Any]]

# Sentences are shuffled, cut into pools of this many batches, and sorted by length inside a pool:
# small enough to leave the order random, large enough to fill a batch with similar lengths.
POOL_BATCHES = 64

# A padded batch has at most this many words, or one sentence: bounds the memory of long texts.
MAX_WORDS = 1 << 14


@dataclass(frozen=True)
class Examples:
    """N encoded sentences with their targets."""

    sentences: Sentences
    targets: NDArray[Any]  # (N,) class numbers, or (N, classes) probabilities; 0/1 if multi-label
    weights: Floats | None = None  # (N,) float32, or none if all examples count the same

    def __len__(self) -> int:
        return len(self.sentences)

    def select(self, indices: Ints) -> "Examples":
        """The examples at ``indices``, in that order."""
        weights = None if self.weights is None else self.weights[indices]
        return Examples(self.sentences.select(indices), self.targets[indices], weights)


@dataclass(frozen=True)
class Part:
    """The part of a batch that one of several processes computes."""

    places: Ints  # (B,) the indices of its sentences in the whole batch
    sentences: int  # of the whole batch
    words: int  # of the longest sentence of the whole batch


@dataclass(frozen=True)
class Batch:
    """Padded sentences; ids past a sentence's length are ignored."""

    ids: Ints  # (B, s) int64
    lengths: Ints  # (B,) int64
    order: Ints  # (B,) the index of each sentence in the caller's order
    targets: NDArray[Any] | None = None  # (B,) or (B, classes)
    weights: Floats | None = None  # (B,)
    part: Part | None = None  # none is the whole batch


def make_batch(examples: Examples, indices: Ints) -> Batch:
    """Pad the examples at ``indices``."""
    ids, lengths = examples.sentences.padded(indices)
    weights = None if examples.weights is None else examples.weights[indices]
    return Batch(ids, lengths, indices, examples.targets[indices], weights)


def make_part(examples: Examples, indices: Ints, places: Ints, sentences: int, words: int) -> Batch:
    """Pad the examples at ``indices``, the ``Part`` of a batch that this process computes.

    Its weights are scaled by its share of the sentences, so that the mean losses of all parts add
    up to that of the whole batch. A process that gets no sentence takes one with weight 0.
    """
    share = len(indices) / sentences
    if not len(indices):
        indices, places = np.zeros(1, np.int64), np.zeros(1, np.int64)
    batch = make_batch(examples, indices)
    weights = np.ones(len(indices), np.float32) if batch.weights is None else batch.weights
    weights = (weights * share).astype(np.float32)
    return replace(batch, weights=weights, part=Part(places, sentences, words))


def training_order(
    lengths: Ints, batch_size: int, seed: int, epoch: int, window: int | None = None
) -> list[Ints]:
    """The batches of an epoch, or of one of its windows, as indices; each is in one batch."""
    generator = np.random.default_rng((seed, epoch) if window is None else (seed, epoch, window))
    return shuffled_batches(lengths, batch_size, generator)


def shuffled_batches(
    lengths: Ints, batch_size: int, generator: "np.random.Generator", max_words: int = MAX_WORDS
) -> list[Ints]:
    """Batches of similar length in random order: shuffled, sorted inside pools, shuffled again."""
    shuffled = generator.permutation(len(lengths))
    pool_size = POOL_BATCHES * batch_size
    batches: list[Ints] = []
    for start in range(0, len(shuffled), pool_size):
        pool = shuffled[start : start + pool_size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += _cut(pool, lengths, batch_size, max_words)
    return [batches[index] for index in generator.permutation(len(batches))]


def prediction_batches(
    sentences: Sentences, batch_size: int = 256, max_words: int = MAX_WORDS
) -> Iterator[Batch]:
    """Every sentence once, by length; ``order`` restores the caller's order."""
    lengths = sentences.lengths
    by_length = np.argsort(lengths, kind="stable")
    for chosen in _cut(by_length, lengths, batch_size, max_words):
        ids, chosen_lengths = sentences.padded(chosen)
        yield Batch(ids, chosen_lengths, chosen)


def _cut(by_length: Ints, lengths: Ints, batch_size: int, max_words: int) -> Iterator[Ints]:
    """Cut indices, by ascending length, into batches within both limits."""
    start = 0
    while start < len(by_length):
        widths = lengths[by_length[start : start + batch_size]]
        fits = int(np.sum(widths * np.arange(1, len(widths) + 1) <= max_words))
        yield by_length[start : start + max(fits, 1)]
        start += max(fits, 1)
