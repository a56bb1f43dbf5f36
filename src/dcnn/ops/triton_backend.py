"""The fused layer for CUDA: convolution, folding, k-max, bias and tanh in one kernel.

The function is ``layer`` of ``dcnn.ops``, in float32, with one thing more: filters and bias may
carry a leading axis of runs, (R, o, n, d, m) and (R, o, d'), and the sentences are then R groups of
equal size. Under ``torch.func.vmap`` that is how a stack of runs is computed.

Forward, a program holds a few rows of one map of one sentence: the columns of their convolution
never leave its registers, and the rank of a value is the number of values ahead of it (larger, or
as large and further left). Backward, one kernel lays the gradient of the convolution out densely,
and two carry it to the input and to the filters.

Sentences of more than ``LONGEST`` columns would need more registers than there are: the caller
takes the torch backend for them.
"""

from typing import Any

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from dcnn.ops import fused, triton_kernels

LONGEST = 128
_TILE = 8192  # comparisons a program makes at once, in registers
_SMALLEST = 16  # columns of a tile: smaller ones would only be more kernels to compile
_SENTENCES_A_PROGRAM = 32  # whose part of the filters' gradient one program adds up


class _Layer(torch.autograd.Function):
    """Arguments as ``layer``; filters and bias always with an axis of runs."""

    @staticmethod
    def forward(
        x: Tensor, lengths: Tensor, filters: Tensor, bias: Tensor, k: Tensor, fold: bool, width: int
    ) -> tuple[Tensor, Tensor]:
        """Values and positions."""
        sentences, maps_below, rows_below, longest = x.shape
        runs, maps, _, _, m = filters.shape
        rows = bias.shape[-1]
        values = torch.empty(sentences, maps, rows, width, device=x.device)
        positions = torch.empty(sentences, maps, rows, width, device=x.device, dtype=torch.int32)
        columns = max(next_power_of_2(longest + m - 1), _SMALLEST)
        block = min(next_power_of_2(rows), max(_TILE // columns**2, 1))
        triton_kernels.forward[(sentences, maps, cdiv(rows, block))](
            x,
            lengths.contiguous(),
            filters.contiguous(),
            bias.contiguous(),
            k.contiguous(),
            values,
            positions,
            rows_below,
            rows,
            width,
            sentences // runs,
            *x.stride(),
            maps_below=maps_below,
            maps=maps,
            M=m,
            FOLD=fold,
            ROWS=block,
            COLUMNS=columns,
            SLOTS=max(next_power_of_2(width), columns),
        )
        return values, positions

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what the backward pass needs."""
        x, lengths, filters, _, _, _, _ = inputs
        values, positions = output
        ctx.mark_non_differentiable(positions)
        ctx.save_for_backward(x, lengths, filters, values, positions)

    @staticmethod
    def backward(ctx: Any, gradient_values: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of input, filters and bias."""
        x, lengths, filters, values, positions = ctx.saved_tensors
        sentences, maps_below, rows_below, longest = x.shape
        runs, maps, _, _, m = filters.shape
        rows, columns = values.shape[2], longest + m - 1
        gradient_c = torch.empty(sentences, maps, rows, columns, device=x.device)
        gradient_bias = torch.empty(sentences, maps, rows, device=x.device)
        slots = max(next_power_of_2(values.shape[3]), _SMALLEST)
        spread = max(next_power_of_2(columns), _SMALLEST)
        block = max(2048 // max(slots, spread), 1)
        triton_kernels.convolution_gradient[(cdiv(gradient_bias.numel(), block),)](
            gradient_values.contiguous(),
            values,
            positions,
            gradient_c,
            gradient_bias,
            gradient_bias.numel(),
            values.shape[3],
            columns,
            ROWS=block,
            SLOTS=slots,
            COLUMNS=spread,
        )

        filters, lengths, per_run = filters.contiguous(), lengths.contiguous(), sentences // runs
        gradient_x = torch.empty_strided(x.shape, x.stride(), device=x.device)
        places = max(next_power_of_2(longest), _SMALLEST)
        block = min(next_power_of_2(rows_below), max(4096 // places, 1))
        triton_kernels.input_gradient[(sentences, maps_below, cdiv(rows_below, block))](
            gradient_c,
            lengths,
            filters,
            gradient_x,
            rows_below,
            rows,
            columns,
            per_run,
            *x.stride(),
            longest,
            maps_below=maps_below,
            maps=maps,
            M=m,
            ROWS=block,
            PLACES=places,
        )
        at_once = min(next_power_of_2(per_run), _SENTENCES_A_PROGRAM)
        parts = cdiv(per_run, at_once)
        gradient_filters = torch.empty(runs, parts, *filters.shape[1:], device=x.device)
        triton_kernels.filter_gradient[(runs * parts, maps, rows_below)](
            x,
            gradient_c,
            lengths,
            gradient_filters,
            rows_below,
            rows,
            columns,
            per_run,
            parts,
            *x.stride(),
            maps_below=maps_below,
            maps=maps,
            M=m,
            GRAM=next_power_of_2(maps_below * m),
            COLUMNS=max(next_power_of_2(columns), _SMALLEST),
            SENTENCES=at_once,
        )
        of_bias = gradient_bias.view(runs, per_run, maps, rows).sum(dim=1)
        return gradient_x, None, gradient_filters.sum(dim=1), of_bias, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """A mapped axis is the axis of runs."""
        return fused.call_mapped(_Layer, info.batch_size, in_dims, arguments)


def layer(
    x: Tensor,
    lengths: Tensor,
    filters: Tensor,
    bias: Tensor,
    k: Tensor,
    fold_rows: bool,
    width: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Wide convolution, folding, dynamic k-max pooling, bias and tanh; see ``dcnn.ops``."""
    return fused.call(_Layer, x, lengths, filters, bias, k, fold_rows, width)
