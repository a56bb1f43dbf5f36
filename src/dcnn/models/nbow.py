"""The Neural Bag-of-Words (Sect. 2.1): the sum of the word vectors, then tanh."""

import torch
from torch import Tensor

from dcnn.config import NBoWConfig
from dcnn.models.sentence_model import SentenceModel


class NBoW(SentenceModel):
    """Blind to word order by construction."""

    def __init__(self, config: NBoWConfig, vocabulary: int, classes: int) -> None:
        super().__init__(config, vocabulary, classes)
        self.config = config

    def encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, s), (B,) -> (B, d)."""
        words = self.sentence_matrix(ids)[:, 0]  # (B, d, s)
        beyond = torch.arange(ids.shape[1], device=ids.device) >= lengths[:, None, None]
        return torch.tanh(words.masked_fill(beyond, 0).sum(dim=-1))
