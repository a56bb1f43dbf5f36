"""The Dynamic Convolutional Neural Network (Sect. 3, Fig. 3).

It has L layers of wide convolution over every row, folding, dynamic k-max pooling, bias and tanh.
The topmost pooling keeps k_top values per row, so that the penultimate layer has one size for all
sentences. Below the layers is the sentence matrix, above them the output layer, both those of
``SentenceModel``; a layer is that of the chosen backend, as ``dcnn.ops.reference`` defines it.
"""

import torch
from torch import Tensor

from dcnn.config import DCNNConfig
from dcnn.models.sentence import SentenceModel
from dcnn.ops import select
from dcnn.ops.reference import dynamic_k


class DCNN(SentenceModel):
    """The network of Fig. 3, of any depth."""

    config: DCNNConfig

    def encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, s), (B,) -> (B, maps * rows * k_top)."""
        config = self.config
        x, valid = self.sentence_matrix(ids), lengths  # (B, 1, d, s), (B,)
        for number, parameters in enumerate(self.convolutions, start=1):
            k = dynamic_k(lengths, number, config.depth, config.k_top)
            # k grows with s, so the padded width bounds every k whatever the lengths.
            width = dynamic_k(ids.shape[1], number, config.depth, config.k_top)
            weights = parameters.filters, parameters.bias
            x, _ = select.choose_layer(x)(x, valid, *weights, k, config.fold, width)
            valid = k  # x is (B, maps, rows, width)
        return torch.flatten(x, start_dim=1)

    def logits(
        self, ids: Tensor, lengths: Tensor, dropout: Tensor | None, weight: Tensor, bias: Tensor
    ) -> Tensor:
        """Compute the whole network in one call, where the backend has such a call."""
        layers = [part for layer in self.convolutions for part in (layer.filters, layer.bias)]
        parts = [self.embeddings, weight, bias, *layers]
        parts += [] if self.ngrams is None else [self.ngrams]
        learned = any(part.requires_grad for part in parts)
        network = select.choose_network(self.embeddings, learned and torch.is_grad_enabled())
        if network is None or self.projection is not None:  # projected words are made in torch
            return super().logits(ids, lengths, dropout, weight, bias)
        fold, k_top = self.config.fold, self.config.k_top
        given = ids, lengths, dropout, fold, k_top
        if self.ngrams is not None and select.adds_ngrams(self.embeddings):
            ngrams = self.bag_offsets, self.bag_buckets, self.ngrams
            return network(*given, self.embeddings, weight, bias, *layers, ngrams=ngrams)
        table = self.table(self.embeddings, self.ngrams)
        return network(*given, table, weight, bias, *layers)
