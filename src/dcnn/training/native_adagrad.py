"""Adagrad in one pass over a parameter on a CPU: decay, clipping, L2, accumulator, step, average.

Written as separate torch operations an update goes through the embeddings several times, which for
a large vocabulary takes longer than the network itself. A sparse gradient, of the words of a batch,
updates the embeddings as a dense one with zeros for all other words would; where neither L2 nor
decay moves these, they are not touched. Rows are spread over torch's number of threads, which
changes no bit.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Adagrad

from dcnn.ops import native


class NativeAdagrad(Adagrad):
    """torch's Adagrad, its state included, for float32 parameters on a CPU.

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
    """See ``dcnn.training.stack_adagrad.update``."""
    for run, of_run in enumerate(torch.stack(scalars, dim=1).tolist()):
        _update_one(
            value[run],
            gradient[run],
            total[run],
            None if average is None else average[run],
            of_run,
        )


def norm(gradients: Sequence[Tensor]) -> float:
    """The norm of all of them together; what a sparse one does not hold is zero."""
    dense = [
        (gradient.coalesce().values() if gradient.is_sparse else gradient).contiguous()
        for gradient in gradients
    ]
    for tensor in dense:
        if tensor.dtype != torch.float32:
            raise ValueError(f"a float32 tensor is needed; got {tensor.dtype}")
    pointers, numbers = (
        native.array_of(kind, len(dense)) for kind in (ctypes.c_void_p, ctypes.c_int64)
    )
    places = pointers(*(tensor.data_ptr() for tensor in dense))
    sizes = numbers(*(tensor.numel() for tensor in dense))
    total: float = native.library().dcnn_norm(
        ctypes.addressof(places), ctypes.addressof(sizes), len(dense)
    )
    return total


def _update_one(
    value: Tensor,
    gradient: Tensor,
    total: Tensor,
    average: Tensor | None,
    scalars: tuple[float, ...],
) -> None:
    rows = None
    if gradient.is_sparse:
        gradient = gradient.coalesce()
        rows, gradient = gradient.indices()[0].contiguous(), gradient.values()
    gradient = gradient.contiguous()
    for tensor in (value, gradient, total, value if average is None else average):
        if tensor.dtype != torch.float32 or not tensor.is_contiguous():
            raise ValueError(f"a dense float32 tensor is needed; got {tensor.dtype}")
    average_at = None if average is None else average.data_ptr()
    if rows is None:
        native.library().dcnn_adagrad(
            value.data_ptr(),
            gradient.data_ptr(),
            total.data_ptr(),
            average_at,
            value.numel(),
            *scalars,
        )
        return
    native.check(
        native.library().dcnn_adagrad_rows(
            value.data_ptr(),
            gradient.data_ptr(),
            rows.data_ptr(),
            len(rows),
            total.data_ptr(),
            average_at,
            len(value),
            value.numel() // len(value),
            *scalars,
            torch.get_num_threads(),
        )
    )
