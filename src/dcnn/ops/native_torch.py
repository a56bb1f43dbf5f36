"""The compiled backend on torch's tensors of a CPU: a layer with gradients, and parts of a DCNN.

The work is spread over torch's number of threads; the same number gives the same bits. The memory
of the tensors is that of the arrays which ``dcnn.ops.native`` and ``native_training`` take.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dcnn.ops import native, native_training


def _rows_last(tensor: Tensor) -> Tensor:
    """(B, n, d, s) as the library keeps it, (B, s, n, d); most often a view."""
    return tensor.permute(0, 3, 1, 2).contiguous()


class _Layer(torch.autograd.Function):
    """Arguments as ``layer``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        """Values and positions."""
        lengths, filters, bias, k, ctx.fold, width = others
        x = _rows_last(x)
        lengths, filters, k = (tensor.contiguous() for tensor in (lengths, filters, k))
        given = x.permute(0, 2, 3, 1), lengths, filters, bias, k
        arguments: list[Any] = [tensor.detach().numpy() for tensor in given]
        arguments += [ctx.fold, width, torch.get_num_threads()]
        values, positions = map(torch.from_numpy, native.layer(*arguments))
        ctx.save_for_backward(x, lengths, filters, k, values, positions)
        ctx.mark_non_differentiable(positions)
        return values, positions

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_values: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of input, filters and bias."""
        x, lengths, filters, k, *pooled = ctx.saved_tensors
        values, positions, of_values = map(_rows_last, (*pooled, of_values))
        sizes = native.layer_sizes(filters.shape, ctx.fold)
        of_x, of_filters = torch.empty_like(x), torch.empty_like(filters)
        of_bias = values.new_empty(values.shape[2:])
        others = values, positions, of_values, of_x, of_filters, of_bias
        status = native.library().dcnn_layer_backward(
            ctypes.byref(sizes),
            *x.shape[:2],
            *(tensor.data_ptr() for tensor in (x, lengths, filters, k)),
            values.shape[1],
            *(tensor.data_ptr() for tensor in others),
            torch.get_num_threads(),
        )
        native.check(status)
        return of_x.permute(0, 2, 3, 1), None, of_filters, of_bias, *[None] * 3


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
    width = int(k.max()) if width is None else width
    pooled: tuple[Tensor, Tensor] = _Layer.apply(  # type: ignore[no-untyped-call]
        x, lengths, filters, bias, k, fold_rows, width
    )
    return pooled


@torch.no_grad()
def logits(
    ids: Tensor, lengths: Tensor, dropout: Tensor | None, fold: bool, k_top: int, *weights: Tensor
) -> Tensor:
    """Logits (B, classes) of a DCNN, without gradients; see ``native_training.logits``."""
    mask, threads = None if dropout is None else _array(dropout), torch.get_num_threads()
    tables, words = map(_array, weights), (_array(ids), _array(lengths))
    found = native_training.logits(*words, mask, fold, k_top, *tables, threads=threads)
    return torch.from_numpy(found)


def _array(tensor: Tensor) -> native.Array:
    if tensor.device.type != "cpu":
        raise ValueError(f"a tensor on {tensor.device} is not on the CPU")
    return tensor.detach().numpy()


def compose(ids: Tensor, bags: tuple[Tensor, Tensor], embeddings: Tensor, ngrams: Tensor) -> Tensor:
    """Vectors (ids, d) of words with character n-grams; see ``reference.compose``."""
    tables, given = (embeddings.numpy(), ngrams.numpy()), (bags[0].numpy(), bags[1].numpy())
    vectors = native.compose(ids.numpy(), given, *tables, torch.get_num_threads())
    return torch.from_numpy(vectors)


def draw_mask(mask: Tensor, keep: float, generator: torch.Generator) -> Tensor:
    """Fill ``mask`` with 1 / keep with probability ``keep``, else 0, as torch would draw it."""
    own = native_training.Generator(generator.get_state().numpy())
    mask.copy_(torch.from_numpy(own.mask(tuple(mask.shape), keep)))
    generator.set_state(torch.from_numpy(own.state))
    return mask


def to_tensor(gradient: native_training.Gradient) -> Tensor:
    """A gradient as a tensor, sparse if it has rows."""
    rows, values, shape = gradient
    if rows is None:
        return torch.from_numpy(values)
    # By the context manager: some releases of torch warn about the argument.
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        places, found = torch.from_numpy(rows)[None], torch.from_numpy(values)
        return torch.sparse_coo_tensor(places, found, shape, is_coalesced=True)


def from_tensor(tensor: Tensor) -> native_training.Gradient:
    """A gradient, dense or sparse, as the compiled backend takes it."""
    if not tensor.is_sparse:
        return native_training.Gradient(None, tensor.numpy(), tuple(tensor.shape))
    rows = tensor.coalesce()
    places, values = rows.indices()[0].numpy(), rows.values().numpy()
    return native_training.Gradient(places, values, tuple(tensor.shape))
