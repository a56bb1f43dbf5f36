"""Batches on the device: the examples stay there, and a batch per run is gathered and padded."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dcnn.data.batching import POOL_BATCHES, Examples
from dcnn.metrics import target_distributions
from dcnn.ops import select
from dcnn.text.vocabulary import UNKNOWN
from dcnn.training.batches import Batches, RunSpec
from dcnn.training.objective import TensorBatch


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

    def next(self, columns: int, generator: torch.Generator) -> tuple[TensorBatch, Tensor]:
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

            batch = TensorBatch(*triton_step.gather_batch(self, columns, draws))
        else:
            batch = self._gather(columns, draws)
        self.cursor += 1
        return batch, progress

    def _gather(self, columns: int, draws: Tensor | None) -> TensorBatch:
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
        return TensorBatch(ids, lengths, self.targets[runs, indices], weights)

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
