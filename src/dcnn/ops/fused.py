"""What the fused layers of a CPU and of a GPU share: an axis of runs, and how ``vmap`` becomes one.

Filters and bias may carry a leading axis of runs, (R, o, n, d, m) and (R, o, d'); the sentences are
then R groups of equal size. A stack maps its module with ``torch.func.vmap``, and the mapped
axis is that axis.
"""

from typing import Any

import torch
from torch import Tensor


def call(
    function: type[torch.autograd.Function],
    x: Tensor,
    lengths: Tensor,
    filters: Tensor,
    bias: Tensor,
    k: Tensor,
    fold_rows: bool,
    width: int | None,
) -> tuple[Tensor, Tensor]:
    """``function`` on the arguments of ``layer``, with an axis of runs in any case."""
    width = int(k.max()) if width is None else width
    if filters.dim() == 4:
        filters, bias = filters[None], bias[None]
    if 0 in x.stride():  # an expanded axis has no place for its gradient
        x = x.contiguous()
    pooled: tuple[Tensor, Tensor] = function.apply(  # type: ignore[no-untyped-call]
        x, lengths, filters, bias, k, fold_rows, width
    )
    return pooled


def call_mapped(
    function: type[torch.autograd.Function],
    runs: int,
    in_dims: tuple[int | None, ...],
    arguments: tuple[Any, ...],
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    """The ``vmap`` rule of ``function``: outputs, and where their mapped axis is."""
    *tensors, fold, width = arguments

    def batched(tensor: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return tensor.expand(runs, *tensor.shape)
        return tensor.movedim(dim, 0)

    x, lengths, filters, bias, k = (
        batched(tensor, dim) for tensor, dim in zip(tensors, in_dims[: len(tensors)], strict=True)
    )
    values, positions = function.apply(  # type: ignore[no-untyped-call]
        x.flatten(0, 1), lengths.flatten(), filters[:, 0], bias[:, 0], k.flatten(), fold, width
    )
    return (values.unflatten(0, (runs, -1)), positions.unflatten(0, (runs, -1))), (0, 0)
