"""Where the batches of a training come from: memory, the device, or a corpus on disk.

An epoch's order follows from the seed and the number of the epoch alone. ``MemoryBatches`` and
``StoreBatches`` make batches of one run on the host. With several processes each gets its part of
every batch; the batches are those of a single process. ``ResidentBatches`` keeps the examples on
the device and makes a batch per run there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dcnn.config import TrainingConfig
from dcnn.data.batching import POOL_BATCHES, Batch, Examples, make_batch, make_part, training_order
from dcnn.data.store import Corpus, Window
from dcnn.metrics import target_distributions
from dcnn.ops import select
from dcnn.text.vocabulary import UNKNOWN, Ints
from dcnn.training import objective
from dcnn.training.adagrad import Weights

Rank = tuple[int, int]  # the number of a process, and how many there are
ALONE: Rank = (0, 1)


@dataclass(frozen=True)
class RunSpec:
    """The settings, initial weights and data of one run.

    Runs that train together have the same ``batch_size``, ``evaluations_per_epoch`` and
    ``class_weights``, and none of them stops early.
    """

    training: TrainingConfig
    weights: Weights | None = None  # initial ones by name; none are those of the model
    subset: Ints | None = None  # indices of its examples; none is all of them
    targets: NDArray[Any] | None = None  # (N, classes) in place of the examples'

    def prepare(self, examples: Examples, classes: int) -> Examples:
        """All examples with the targets of this run, and the weights that the network learns by."""
        own = examples.targets if self.targets is None else self.targets
        balanced = self.training.class_weights == "balanced"
        weights = objective.example_weights(examples.targets, classes, balanced, examples.weights)
        return Examples(examples.sentences, own, weights)


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


class ResidentBatches(Batches):
    """Examples that stay on the device, where a batch per run is gathered and padded.

    All runs have the same number of batches, of the same size. A run that has no sentences left
    repeats its shortest one, with weight 0. Everything that a step reads stays in the same memory,
    so that a CUDA graph of a step can be replayed: ``start`` writes the order of an epoch there,
    and ``next`` takes its next batch.
    """

    def __init__(
        self,
        examples: Examples,
        specs: Sequence[RunSpec],
        classes: int,
        device: torch.device,
        multi_label: bool = False,
    ) -> None:
        def on_device(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.array(array)).to(device)

        self._configs, self._device = [spec.training for spec in specs], device
        self._triton = select.for_training(device.type) == "triton"
        sentences = examples.sentences
        self.ids, self.starts = on_device(sentences.ids), on_device(sentences.offsets[:-1])
        self.lengths = on_device(sentences.lengths)
        everything = np.arange(len(examples))
        parts = [everything if spec.subset is None else spec.subset for spec in specs]
        self.subsets = [on_device(part) for part in parts]
        fillers = [int(part[np.argmin(sentences.lengths[part])]) for part in parts]
        self._fillers = torch.tensor(fillers, device=device)
        alike = len({config.label_smoothing for config in self._configs}) == 1
        alike &= all(spec.targets is None for spec in specs)
        prepared = [spec.prepare(examples, classes) for spec in specs[: 1 if alike else None]]
        targets = [
            target_distributions(of_run.targets, classes, config.label_smoothing, multi_label)
            for of_run, config in zip(prepared, self._configs, strict=False)
        ]
        self.targets = on_device(np.stack(targets))  # (R or 1, N, classes)
        weights = prepared[0].weights
        self.weights = None if weights is None else on_device(weights)  # (N,)
        word_dropout = [config.word_dropout for config in self._configs]
        self.word_dropout = on_device(np.array(word_dropout, np.float32))
        self._drops_words = any(word_dropout)
        most = max(map(len, parts))
        self.size = min(self._configs[0].batch_size, most)
        shape = -(-most // self.size), len(specs), self.size
        self.order = torch.zeros(shape, dtype=torch.int64, device=device)
        self.place_weights = torch.zeros(shape, device=device)
        precision = torch.float64 if device.type == "cpu" else torch.float32
        self.progress = torch.zeros(shape[:2], dtype=precision, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self.columns: list[int] = []  # length of the longest sentence of every batch of the epoch
        self.sentences: list[int] = []  # number of sentences of every batch, over all runs
        self._epoch = -1

    def done(self, epoch: int, number: int) -> tuple[int, int]:  # noqa: ARG002
        """See ``Batches``; counted in batches."""
        return number, len(self.order)

    def start(self, epoch: int, number: int = 0) -> None:
        """Let batch ``number`` of an epoch be the next one."""
        if epoch != self._epoch:
            order, real = self._order_of(epoch)
            self.order.copy_(order)
            weights = real * (self.size / real.sum(dim=-1, keepdim=True).clamp(min=1))
            if self.weights is not None:
                weights = weights * self.weights[order]
            self.place_weights.copy_(weights)
            epochs = torch.tensor([config.epochs for config in self._configs], device=self._device)
            batches = torch.arange(len(order), device=self._device, dtype=self.progress.dtype)
            progress = (epoch + batches[:, None] / len(order)) / epochs
            self.progress.copy_(progress.clamp(max=1))
            longest, counts = self.lengths[order].amax(dim=(1, 2)), real.sum(dim=(1, 2))
            self.columns, self.sentences = torch.stack([longest, counts]).tolist()
            self._epoch = epoch
        self.cursor.fill_(number)

    def next(
        self, columns: int, generator: torch.Generator
    ) -> tuple[objective.TensorBatch, Tensor]:
        """The next batch of the epoch, padded to ``columns``, and the progress of the runs (R,).

        Some of its words are replaced by the unknown word, as ``word_dropout`` of each run says.
        """
        draws = None
        if self._drops_words:
            shape = (*self.order.shape[1:], columns)
            draws = torch.rand(shape, generator=generator, device=self._device)
        progress = self.progress.index_select(0, self.cursor)[0]
        if self._triton:
            from dcnn.training import triton_step

            batch = objective.TensorBatch(*triton_step.gather_batch(self, columns, draws))
        else:
            batch = self._gather(columns, draws)
        self.cursor += 1
        return batch, progress

    def _gather(self, columns: int, draws: Tensor | None) -> objective.TensorBatch:
        indices = self.order.index_select(0, self.cursor)[0]  # (R, B)
        lengths = self.lengths[indices]
        words = torch.arange(columns, device=self._device)
        inside = words < lengths[..., None]
        flat = torch.where(inside, self.starts[indices][..., None] + words, 0)
        ids = torch.where(inside, self.ids[flat], UNKNOWN).long()
        if draws is not None:
            ids = ids.masked_fill(draws < self.word_dropout[:, None, None], UNKNOWN)
        runs = torch.arange(len(self.targets), device=self._device)[:, None]
        weights = self.place_weights.index_select(0, self.cursor)[0]
        return objective.TensorBatch(ids, lengths, self.targets[runs, indices], weights)

    def _order_of(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Indices (batches, R, B), and whether they are sentences rather than fillers.

        As in ``dcnn.data.batching``: shuffled, sorted by length inside pools, batches shuffled. A
        single run has the same order as on the host (except for long texts, whose batches are
        smaller there). Several runs share the last shuffle, so that their batches have similar
        lengths at every step, and little padding.
        """
        batches, runs, size = self.order.shape
        if runs == 1:
            generator = np.random.default_rng((self._configs[0].seed, epoch))
            permutations = [torch.from_numpy(generator.permutation(len(self.subsets[0])))]
            shuffle = torch.from_numpy(generator.permutation(batches)).to(self._device)
        else:
            seeds = [config.seed for config in self._configs]
            permutations = [
                _permutation(len(subset), (seed, epoch), self._device)
                for subset, seed in zip(self.subsets, seeds, strict=True)
            ]
            shuffle = _permutation(batches, (seeds[0], epoch, 1), self._device)
        order = self._fillers[:, None].repeat(1, batches * size)
        real = torch.zeros_like(order, dtype=torch.bool)
        beyond = int(self.lengths.max()) + 1
        for run, (subset, chosen) in enumerate(zip(self.subsets, permutations, strict=True)):
            shuffled = subset[chosen.to(self._device)]
            pool = torch.arange(len(subset), device=self._device) // (POOL_BATCHES * size)
            by_length = (pool * beyond + self.lengths[shuffled]).argsort(stable=True)
            order[run, : len(subset)] = shuffled[by_length]
            real[run, : len(subset)] = True
        shape = runs, batches, size
        return order.view(shape).transpose(0, 1)[shuffle], real.view(shape).transpose(0, 1)[shuffle]


def _permutation(count: int, entropy: tuple[int, ...], device: torch.device) -> Tensor:
    seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randperm(count, generator=generator, device=device)


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
        self._factors = objective.class_factors(mass, len(corpus), balanced)
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
