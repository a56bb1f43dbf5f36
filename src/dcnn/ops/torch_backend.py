"""The layer of ``reference`` on torch tensors, with gradients, on any device.

Names, shapes and results are those of ``dcnn.ops.reference``. The convolution is one matrix product
per row, the m-grams of the row times its filters: on a CPU this is faster than a grouped
``conv1d``, forward and backward.
"""

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
