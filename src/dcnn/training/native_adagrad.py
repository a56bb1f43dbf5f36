"""Adagrad in one pass over a parameter on a CPU: decay, clipping, L2, accumulator, step, average.

Written as separate torch operations an update goes through the embeddings several times, which for
a large vocabulary takes longer than the network itself.
"""

import torch
from torch import Tensor
from torch.optim import Adagrad

from dcnn.ops import native


class NativeAdagrad(Adagrad):
    """torch's Adagrad, its state included, for dense float32 parameters on a CPU.

    Attributes:
        clip: the factor that the gradients of the next step are multiplied with.
    """

    clip = 1.0

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """One update of every parameter that has a gradient; nothing is evaluated on the way."""
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is not None:
                    state = self.state[value]
                    state["step"] += 1
                    scalars = (
                        self.clip,
                        group["weight_decay"],
                        group["lr"],
                        1.0,
                        group["eps"],
                        0.0,
                    )
                    _update_one(value, value.grad, state["sum"], None, scalars)
        self.clip = 1.0


@torch.no_grad()
def update(
    value: Tensor, gradient: Tensor, total: Tensor, average: Tensor | None, scalars: list[Tensor]
) -> None:
    """See ``dcnn.training.triton_adagrad.update``."""
    for run, of_run in enumerate(torch.stack(scalars, dim=1).tolist()):
        _update_one(
            value[run],
            gradient[run],
            total[run],
            None if average is None else average[run],
            of_run,
        )


def _update_one(
    value: Tensor,
    gradient: Tensor,
    total: Tensor,
    average: Tensor | None,
    scalars: tuple[float, ...],
) -> None:
    gradient = gradient.contiguous()
    for tensor in (value, gradient, total, value if average is None else average):
        if tensor.dtype != torch.float32 or not tensor.is_contiguous():
            raise ValueError(f"a dense float32 tensor is needed; got {tensor.dtype}")
    native.library().dcnn_adagrad(
        value.data_ptr(),
        gradient.data_ptr(),
        total.data_ptr(),
        None if average is None else average.data_ptr(),
        value.numel(),
        *scalars,
    )
