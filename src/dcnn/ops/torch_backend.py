"""The layer of ``reference`` on torch tensors, with gradients, on any device.

Names, shapes and results are those of ``dcnn.ops.reference``. The convolution is one matrix product
per row, the m-grams of the row times its filters: on a CPU this is faster than a grouped
``conv1d``, forward and backward.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from dcnn.ops.reference import fold


def wide_convolution(x: Tensor, filters: Tensor) -> Tensor:
    """(B, n, d, s), (o, n, d, m) -> (B, o, d, s + m - 1); see ``reference``."""
    sentences, maps_below, rows, length = x.shape
    maps, _, _, width = filters.shape
    columns = length + width - 1
    grams = F.pad(x, (width - 1, width - 1)).unfold(-1, width, 1)  # (B, n, d, columns, m)
    grams = grams.permute(2, 0, 3, 1, 4).reshape(rows, sentences * columns, maps_below * width)
    by_row = filters.permute(2, 1, 3, 0).reshape(rows, maps_below * width, maps)
    c = torch.bmm(grams, by_row)  # (d, B * columns, o)
    return c.view(rows, sentences, columns, maps).permute(1, 3, 0, 2)


def k_max(c: Tensor, lengths: Tensor, k: Tensor, width: int | None = None) -> tuple[Tensor, Tensor]:
    """Keep the k largest values of each row in their original order; see ``reference``.

    ``torch.topk`` promises no order among equal values, a stable sort does.
    """
    columns = c.shape[-1]
    per_sentence = (-1,) + (1,) * (c.dim() - 1)
    lengths, k = lengths.view(per_sentence), k.view(per_sentence)
    width = int(k.max()) if width is None else width

    numbers = torch.arange(columns, device=c.device)
    ranked = c.detach().masked_fill(numbers >= lengths, -torch.inf)
    order = ranked.sort(dim=-1, descending=True, stable=True).indices[..., :width]
    kept = numbers[:width] < k
    positions = order.masked_fill(~kept, columns).sort(dim=-1).values  # those beyond k go last

    values = c.gather(-1, positions.clamp(max=columns - 1)).masked_fill(~kept, 0)
    positions = positions.masked_fill(~kept, -1)
    missing = width - positions.shape[-1]
    if missing > 0:
        values, positions = F.pad(values, (0, missing)), F.pad(positions, (0, missing), value=-1)
    return values, positions


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
    beyond = torch.arange(x.shape[-1], device=x.device) >= lengths[:, None, None, None]
    c = wide_convolution(x.masked_fill(beyond, 0), filters)  # (B, o, d, s + m - 1)
    if fold_rows:
        c = fold(c)  # (B, o, d/2, s + m - 1)
    pooled, positions = k_max(c, lengths + filters.shape[-1] - 1, k, width)  # (B, o, d', K)
    values = torch.tanh(pooled + bias[:, :, None]).masked_fill(positions < 0, 0)
    return values, positions


def ngram_matrix(offsets: Tensor, buckets: Tensor, n_buckets: int) -> list[Tensor]:
    """The n-grams of words as a sparse matrix (words, n_buckets), then its transpose.

    Both are in CSR form: column indices, row offsets, values. The n-grams of word i are in
    ``buckets[offsets[i]:offsets[i + 1]]``, and its values 1 / sqrt of their number; see
    ``reference.compose``.
    """
    counts = offsets.diff()
    weights = counts.float().rsqrt().repeat_interleave(counts)
    words = torch.arange(len(counts), device=offsets.device).repeat_interleave(counts)
    order = buckets.argsort(stable=True)
    ends = torch.bincount(buckets, minlength=n_buckets).cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends])
    return [buckets.long(), offsets, weights, words[order], starts, weights[order]]


def sparse_product(x: Tensor, *matrix: Tensor) -> Tensor:
    """A sparse matrix (N, K), as ``ngram_matrix`` gives it, times a dense one, (K, d) -> (N, d)."""
    product: Tensor = _SparseProduct.apply(x, *matrix)  # type: ignore[no-untyped-call]
    return product


class _SparseProduct(torch.autograd.Function):
    """Supports ``vmap`` over runs, as torch's own sparse matrices do not."""

    @staticmethod
    def forward(x: Tensor, *matrix: Tensor) -> Tensor:
        """The product."""
        columns, rows, values = matrix[:3]
        return F.embedding_bag(
            *(columns, x, rows), mode="sum", per_sample_weights=values, include_last_offset=True
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        """Keep the matrix."""
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The transpose times the gradient."""
        matrix = ctx.saved_tensors
        return sparse_product(gradient.contiguous(), *matrix[3:], *matrix[:3]), *[None] * 6

    @staticmethod
    def vmap(
        _: Any, in_dims: tuple[int | None, ...], x: Tensor, *matrix: Tensor
    ) -> tuple[Tensor, int]:
        """Put the runs side by side, as the columns of one dense matrix (K, R * d)."""
        assert in_dims[0] is not None  # noqa: S101
        runs = x.movedim(in_dims[0], 1)  # (K, R, d)
        return sparse_product(runs.flatten(1), *matrix).view(-1, *runs.shape[1:]), 1
