"""The compiled layer in training: ``layer`` of ``dcnn.ops`` on float32 tensors of a CPU.

As in ``triton_backend``, filters and bias may carry a leading axis of runs, (R, o, n, d, m) and
(R, o, d'), and the sentences are then R groups of equal size: under ``torch.func.vmap`` that is how
a stack of runs is computed. Sentences are spread over torch's number of threads; as many threads
give the same bits.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dcnn.ops import fused, native


def _rows_last(tensor: Tensor) -> Tensor:
    """(B, n, d, s) as the library keeps it, (B, s, n, d); most often a view."""
    return tensor.permute(0, 3, 1, 2).contiguous()


class _Layer(torch.autograd.Function):
    """Arguments as ``layer``; filters and bias always with an axis of runs."""

    @staticmethod
    def forward(
        x: Tensor, lengths: Tensor, filters: Tensor, bias: Tensor, k: Tensor, fold: bool, width: int
    ) -> tuple[Tensor, Tensor]:
        """Values and positions."""
        x, filters, bias = _rows_last(x), filters.contiguous(), bias.contiguous()
        lengths, k = lengths.contiguous(), k.contiguous()
        runs, sentences = len(filters), len(x) // len(filters)
        sizes = native.layer_sizes(filters.shape[1:], fold)
        values = x.new_empty(len(x), width, *bias.shape[1:])
        positions = torch.empty_like(values, dtype=torch.int32)
        for run in range(runs):
            first = run * sentences
            native.check(
                native.library().dcnn_layer_forward(
                    ctypes.addressof(sizes),
                    sentences,
                    x.shape[1],
                    x[first].data_ptr(),
                    lengths[first].data_ptr(),
                    filters[run].data_ptr(),
                    bias[run].data_ptr(),
                    k[first].data_ptr(),
                    width,
                    values[first].data_ptr(),
                    positions[first].data_ptr(),
                    torch.get_num_threads(),
                )
            )
        return values.permute(0, 2, 3, 1), positions.permute(0, 2, 3, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what the backward pass needs."""
        x, lengths, filters, _, k, ctx.fold, _ = inputs
        values, positions = output
        ctx.mark_non_differentiable(positions)
        ctx.save_for_backward(x, lengths, filters, k, values, positions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_values: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of input, filters and bias."""
        x, lengths, filters, k, values, positions = ctx.saved_tensors
        x, filters = _rows_last(x), filters.contiguous()
        lengths, k = lengths.contiguous(), k.contiguous()
        values, positions = _rows_last(values), _rows_last(positions)
        gradient_values = _rows_last(gradient_values)
        runs, sentences = len(filters), len(x) // len(filters)
        sizes = native.layer_sizes(filters.shape[1:], ctx.fold)
        gradient_x, gradient_filters = torch.empty_like(x), torch.empty_like(filters)
        gradient_bias = values.new_empty(runs, *values.shape[2:])
        for run in range(runs):
            first = run * sentences
            native.check(
                native.library().dcnn_layer_backward(
                    ctypes.addressof(sizes),
                    sentences,
                    x.shape[1],
                    x[first].data_ptr(),
                    lengths[first].data_ptr(),
                    filters[run].data_ptr(),
                    k[first].data_ptr(),
                    values.shape[1],
                    values[first].data_ptr(),
                    positions[first].data_ptr(),
                    gradient_values[first].data_ptr(),
                    gradient_x[first].data_ptr(),
                    gradient_filters[run].data_ptr(),
                    gradient_bias[run].data_ptr(),
                    torch.get_num_threads(),
                )
            )
        return gradient_x.permute(0, 2, 3, 1), None, gradient_filters, gradient_bias, *[None] * 3

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
