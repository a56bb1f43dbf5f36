"""What a stack of runs learns from, resident on the device: sentences, targets, order."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dcnn.data.batching import POOL_BATCHES
from dcnn.text.vocabulary import UNKNOWN, Ints, Sentences

NONE = -1  # fills the places of a batch that no sentence takes


class DeviceSentences:
    """Sentences that live on the device and are padded there."""

    def __init__(self, sentences: Sentences, device: torch.device) -> None:
        def on_device(array: Ints) -> Tensor:
            return torch.from_numpy(np.array(array)).to(device)

        self.ids = on_device(sentences.ids)
        self.starts = on_device(sentences.offsets[:-1])
        self.lengths = on_device(sentences.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def lengths_of(self, indices: Tensor) -> Tensor:
        """Of the sentences at ``indices``; in a free place stands one unknown word."""
        return torch.where(indices == NONE, 1, self.lengths[indices.clamp(min=0)])

    def padded(self, indices: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        """Ids (..., columns) and lengths (...) of the sentences at ``indices`` (...)."""
        lengths = self.lengths_of(indices)
        places = torch.arange(columns, device=indices.device)
        inside = (places < lengths[..., None]) & (indices != NONE)[..., None]
        flat = torch.where(inside, self.starts[indices.clamp(min=0)][..., None] + places, 0)
        return torch.where(inside, self.ids[flat], UNKNOWN).long(), lengths


def stacked_order(
    lengths: Tensor,
    subsets: Sequence[Tensor],
    seeds: Sequence[int],
    batch_size: int,
    epoch: int,
) -> Tensor:
    """The batches of an epoch for every run: indices (batches, R, B), ``NONE`` in a free place.

    As in ``dcnn.data.batching``: shuffled, sorted by length inside pools, batches shuffled. The
    last shuffle is the same for all runs, so that lengths agree at every step and little is padded.

    Args:
        lengths: (N,) of all sentences.
        subsets: for each run, the indices it learns from.
        seeds: for each run; the first one's also decides the shuffle of the batches.
        batch_size: B.
        epoch: number of the epoch; each has its own order.
    """
    device = lengths.device
    batches = math.ceil(max(map(len, subsets)) / batch_size)
    order = torch.full((len(subsets), batches * batch_size), NONE, device=device)
    beyond = int(lengths.max()) + 1
    for run, (subset, seed) in enumerate(zip(subsets, seeds, strict=True)):
        shuffled = subset[_permutation(len(subset), (seed, epoch), device)]
        pool = torch.arange(len(subset), device=device) // (POOL_BATCHES * batch_size)
        by_length = (pool * beyond + lengths[shuffled]).argsort(stable=True)
        order[run, : len(subset)] = shuffled[by_length]
    by_batch = order.view(len(subsets), batches, batch_size).transpose(0, 1)
    return by_batch[_permutation(batches, (seeds[0], epoch, 1), device)].contiguous()


def _permutation(count: int, entropy: tuple[int, ...], device: torch.device) -> Tensor:
    seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randperm(count, generator=generator, device=device)
