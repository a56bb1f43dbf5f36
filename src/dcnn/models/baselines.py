"""The paper's neural baselines: Max-TDNN (Sect. 2.3, Eq. 3) and Neural Bag-of-Words (Sect. 2.1)."""

import torch
from torch import Tensor

from dcnn.config import MaxTDNNConfig
from dcnn.models.sentence import SentenceModel
from dcnn.ops.torch_backend import wide_convolution


class MaxTDNN(SentenceModel):
    """One narrow convolution per row, tanh, and the maximum over time: d maxima are the sentence.

    A sentence shorter than the filter is padded with zero vectors on the right (the paper pads, and
    does not say where).
    """

    config: MaxTDNNConfig

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


class NBoW(SentenceModel):
    """The sum of the word vectors, then tanh; blind to word order by construction."""

    def encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, s), (B,) -> (B, d)."""
        words = self.sentence_matrix(ids)[:, 0]  # (B, d, s)
        beyond = torch.arange(ids.shape[1], device=ids.device) >= lengths[:, None, None]
        return torch.tanh(words.masked_fill(beyond, 0).sum(dim=-1))
