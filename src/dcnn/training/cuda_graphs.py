"""Training steps under CUDA graphs, one graph a padded length.

A step of a small network is dozens of short kernels. Launched one by one they wait for Python;
recorded once and replayed they follow one another without a gap.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[[Tensor, int, Tensor], Tensor]


def rounded_length(length: int) -> int:
    """The padded length that sentences of up to ``length`` words share: few, so few graphs."""
    step = 4 if length <= 32 else 16
    return -(-length // step) * step


class GraphedStep:
    """Calls ``step(indices, columns, progress)``, from the third time on as a graph.

    The first call of a length runs as it is (and compiles its kernels), the second is recorded.

    Args:
        step: reads and writes tensors that stay where they are; returns the losses.
        indices: (R, B) like those of every call.
        progress: (R,) like those of every call.
        generator: what the step draws from.
    """

    def __init__(
        self, step: Step, indices: Tensor, progress: Tensor, generator: torch.Generator
    ) -> None:
        self._step, self._generator = step, generator
        self._indices, self._progress = indices.clone(), progress.clone()
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._met: set[int] = set()
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, indices: Tensor, columns: int, progress: Tensor) -> Tensor:
        """One step; the losses are overwritten by the next one."""
        columns = rounded_length(columns)
        # The first call too reads what a graph will: a kernel that takes other tensors for another
        # one would be compiled while a graph is recorded, which the device refuses.
        self._indices.copy_(indices)
        self._progress.copy_(progress)
        if columns not in self._met:
            self._met.add(columns)
            return self._step(self._indices, columns, self._progress)
        if columns not in self._graphs:
            self._graphs[columns] = self._record(columns)
        graph, losses = self._graphs[columns]
        graph.replay()
        return losses

    def _record(self, columns: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        with torch.cuda.graph(graph, pool=self._memory):
            losses = self._step(self._indices, columns, self._progress)
        return graph, losses
