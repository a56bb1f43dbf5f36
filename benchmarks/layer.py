"""The fused layer alone: both layers of the network, forward and backward, on one thread."""

from functools import partial

import torch
from torch import Tensor

from dcnn.config import DCNNConfig
from dcnn.ops import select as backends
from dcnn.ops.reference import dynamic_k
from dcnn.ops.select import choose_layer
from report import MICROSECONDS, Outcome, Row
from timing import TimedCall, time_interleaved
from training import training_backend
from workload import TORCH, Workload, computing_with, describe_backend

BATCH, WORDS = 64, 18
CALLS = 5


class LayerCall:
    """Layer ``number`` of ``config`` on random values, for a batch of equally long sentences."""

    def __init__(
        self,
        config: DCNNConfig,
        number: int,
        batch: int = BATCH,
        words: int = WORDS,
        device: str = "cpu",
    ) -> None:
        generator = torch.Generator(device).manual_seed(number)
        self.lengths = torch.full((batch,), self.columns(config, number, words), device=device)
        k = dynamic_k(words, number, config.depth, config.k_top)
        self.k = torch.full((batch,), k, device=device)
        self.fold = config.fold
        shapes = config.parameter_shapes(1, 2)
        filters = shapes[f"layers.{number - 1}.filters"]
        x_shape = (batch, *filters[1:3], int(self.lengths[0]))

        def random(shape: tuple[int, ...]) -> Tensor:
            return torch.randn(shape, generator=generator, device=device, requires_grad=True)

        self.x, self.filters = random(x_shape), random(filters)
        self.bias = random(shapes[f"layers.{number - 1}.bias"])

    @staticmethod
    def columns(config: DCNNConfig, number: int, words: int) -> int:
        """Columns that the layer is given: words, or what the layer below keeps."""
        if number == 1:
            return words
        return int(dynamic_k(words, number - 1, config.depth, config.k_top))

    def forward(self) -> Tensor:
        """The values of the layer."""
        layer = choose_layer(self.x)
        values, _ = layer(self.x, self.lengths, self.filters, self.bias, self.k, self.fold)
        return values

    def forward_only(self) -> None:
        """Without a graph for gradients, as in evaluation."""
        with torch.inference_mode():
            self.forward()

    def both(self) -> None:
        """Forward, and back to the gradients of input, filters and bias."""
        values = self.forward()
        torch.autograd.grad(values, (self.x, self.filters, self.bias), torch.ones_like(values))


def layer(workload: Workload) -> Outcome:
    """Each layer of the network: forward alone, and forward and backward."""
    own, chosen = training_backend(), backends.forced()
    rows = []
    for number in range(1, workload.model.depth + 1):
        call = LayerCall(workload.model, number)
        for what, timed in (("forward", call.forward_only), ("forward and backward", call.both)):
            timed = [
                TimedCall("ours", timed, partial(computing_with, chosen)),
                TimedCall(TORCH, timed, partial(computing_with, "torch")),
            ]
            measures = time_interleaved(timed, workload.rounds, CALLS)
            name = f"layer {number}, {what}, batch of {BATCH}, {WORDS} words"
            ours, theirs = (measures[key].times(MICROSECONDS) for key in ("ours", TORCH))
            rows.append(Row.compare(name, "us", ours, theirs, TORCH))
    return Outcome(describe_backend(own), rows, [])
