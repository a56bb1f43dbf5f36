"""The Max-TDNN sentence model (Sect. 2.3, Eq. 3).

One narrow convolution per row, tanh, and the maximum over time. A sentence shorter than the filter
is padded with zero vectors on the right (the paper pads, and does not say where).
"""

import torch
from torch import Tensor

from dcnn.config import MaxTDNNConfig
from dcnn.models.sentence_model import SentenceModel
from dcnn.ops.torch_backend import wide_convolution


class MaxTDNN(SentenceModel):
    """One feature map; d maxima are the sentence."""

    def __init__(self, config: MaxTDNNConfig, vocabulary: int, classes: int) -> None:
        super().__init__(config, vocabulary, classes)
        self.config = config

    def encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, s), (B,) -> (B, d)."""
        width = self.config.width
        (layer,) = self.convolutions
        x = self.sentence_matrix(ids)  # (B, 1, d, s)
        columns = torch.arange(x.shape[-1], device=x.device)
        x = x.masked_fill(columns >= lengths[:, None, None, None], 0)
        c = wide_convolution(x, layer.filters)[:, 0]  # (B, d, s + m - 1)
        # Narrow: the m-grams that end inside the sentence, or inside its padding up to m words.
        ends = torch.arange(c.shape[-1], device=x.device)
        last = lengths.clamp(min=width)[:, None, None]
        inside = (ends >= width - 1) & (ends < last)
        c = c.masked_fill(~inside, -torch.inf)
        # tanh grows with its argument: the maximum may be taken first.
        return torch.tanh(c.amax(dim=-1) + layer.bias[0])  # (B, d)
