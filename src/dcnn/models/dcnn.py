"""The Dynamic Convolutional Neural Network (Sect. 3, Fig. 3).

L times a wide convolution over every row, folding, dynamic k-max pooling, bias and tanh. The
topmost pooling keeps k_top values per row, so that the penultimate layer has one size for all
sentences.
"""

import torch
from torch import Tensor

from dcnn.config import DCNNConfig
from dcnn.models.sentence_model import SentenceModel
from dcnn.ops.reference import dynamic_k
from dcnn.ops.select import choose_layer, choose_network


class DCNN(SentenceModel):
    """The network of Fig. 3, of any depth."""

    config: DCNNConfig

    def logits(
        self, ids: Tensor, lengths: Tensor, dropout: Tensor | None, weight: Tensor, bias: Tensor
    ) -> Tensor:
        """In one call where a backend has one."""
        network = choose_network(self.embeddings)
        if network is None or self.projection is not None:  # projected words are made in torch
            return super().logits(ids, lengths, dropout, weight, bias)
        layers = [part for layer in self.convolutions for part in (layer.filters, layer.bias)]
        fold, k_top = self.config.fold, self.config.k_top
        return network(ids, lengths, dropout, fold, k_top, self.embeddings, weight, bias, *layers)

    def encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, s), (B,) -> (B, maps * rows * k_top)."""
        config = self.config
        x, valid = self.sentence_matrix(ids), lengths  # (B, 1, d, s), (B,)
        for number, parameters in enumerate(self.convolutions, start=1):
            k = dynamic_k(lengths, number, config.depth, config.k_top)
            # k grows with s, so the padded width bounds every k without a look at the lengths.
            width = dynamic_k(ids.shape[1], number, config.depth, config.k_top)
            weights = parameters.filters, parameters.bias
            x, _ = choose_layer(x)(x, valid, *weights, k, config.fold, width)
            valid = k  # x is (B, maps, rows, width)
        return torch.flatten(x, start_dim=1)
