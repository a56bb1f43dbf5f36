"""What all sentence models share: embeddings, dropout, the output layer and ensembles.

The column of a word (Eq. 2) may be the sum of a vector of its own, those of its character n-grams,
and a projection of a pretrained vector; neither is in the paper.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from dcnn.config import WEIGHT_DEVIATION, ModelConfig
from dcnn.ops import select
from dcnn.ops.torch_backend import ngram_matrix, sparse_product

WIDEST_HEAD = 256  # largest n_ensemble * classes whose output layers form one matrix, mostly zeros
# The buffers of the n-grams of all words, as ``ngram_matrix`` makes them.
_NGRAM_MATRIX = ("columns", "rows", "values", "columns_back", "rows_back", "values_back")


class ConvolutionalLayer(nn.Module):
    """The parameters of one layer: the order-4 filters, and a bias per row per map."""

    def __init__(self, filters: tuple[int, ...], bias: tuple[int, ...]) -> None:
        super().__init__()
        self.filters = nn.Parameter(torch.empty(filters))  # (o, n, d, m)
        self.bias = nn.Parameter(torch.empty(bias))  # (o, d')


class SentenceModel(nn.Module):
    """Embeddings, a sentence encoder that the subclass defines, dropout, and the output layer.

    In training, the rows may be divided equally among ``n_ensemble`` networks: an ensemble. Only
    folding and the output layer combine rows. So an ensemble, whose logits are the mean of its
    networks' logits, equals a single network with all rows and all output weights divided by
    ``n_ensemble``. Each network of the ensemble has its share of the last layer's rows, everything
    that is folded into them, and its own loss. The networks share the bias of the output layer.
    """

    def __init__(self, config: ModelConfig, vocabulary: int, classes: int) -> None:
        super().__init__()
        shapes = config.parameter_shapes(vocabulary, classes)
        self.embeddings = nn.Parameter(torch.empty(shapes["embeddings"]))
        self.convolutions = [  # bottom to top
            ConvolutionalLayer(shapes[f"layers.{i}.filters"], shapes[f"layers.{i}.bias"])
            for i in range(config.depth)
        ]
        self.layers = nn.ModuleList(self.convolutions)
        classes, features = shapes["head.weight"]
        self.head = nn.Linear(features, classes)
        self.projection: nn.Parameter | None = None
        self.register_buffer("vectors", None, persistent=False)
        self.ngrams: nn.Parameter | None = None
        for name in ("bag_offsets", "bag_buckets", *_NGRAM_MATRIX):
            self.register_buffer(name, None, persistent=False)
        self.config, self.n_ensemble = config, 1

    def project(self, vectors: Tensor) -> None:
        """In training, let a word's embedding be ``vector @ projection`` plus a part of its own.

        Rows are convolved separately, so what matters is what each row encodes. All words learn the
        projection together: words that are rare or never seen in training benefit from it too.
        ``merged`` makes a plain table of it. ``vectors`` (words, D) is zero for a word without one.
        """
        self.vectors: Tensor | None = vectors
        self.projection = nn.Parameter(torch.empty(vectors.shape[1], self.embeddings.shape[1]))

    def add_ngrams(self, offsets: Tensor, buckets: Tensor, n_buckets: int) -> None:
        """Let a word's embedding be its own vector plus those of its character n-grams.

        See ``dcnn.text.vocabulary``. The n-grams of word i are in
        ``buckets[offsets[i]:offsets[i + 1]]``; new words have ids beyond the vocabulary. The
        parameter only has rows for buckets that occur, often a small part of ``n_buckets``, since a
        step of the optimizer visits all of its rows.
        """
        every = torch.cat([buckets.new_zeros(1), buckets])  # one at least
        self.used_buckets, numbers = torch.unique(every, return_inverse=True)
        self.n_buckets = n_buckets
        self.bag_offsets: Tensor | None = offsets
        self.bag_buckets: Tensor | None = numbers[1:].to(buckets.dtype)
        self.ngrams = nn.Parameter(torch.empty(len(self.used_buckets), self.embeddings.shape[1]))

    def all_ngrams(self, ngrams: Tensor) -> Tensor:
        """The vectors of all buckets, zero where none occurs: (used, d) -> (n_buckets, d)."""
        table = ngrams.new_zeros(self.n_buckets, ngrams.shape[1])
        table[self.used_buckets.to(ngrams.device).long()] = ngrams
        return table

    def _ngram_matrix(self, ngrams: Tensor) -> list[Tensor]:
        """The n-grams of all words as a sparse matrix, and its transpose for the gradients.

        Built when first needed: both are several times as large as the n-grams, and the native
        backend does not use them.
        """
        if getattr(self, _NGRAM_MATRIX[0]) is None:
            assert self.bag_offsets is not None and self.bag_buckets is not None  # noqa: S101, PT018
            matrix = ngram_matrix(self.bag_offsets, self.bag_buckets, len(ngrams))
            for name, tensor in zip(_NGRAM_MATRIX, matrix, strict=True):
                setattr(self, name, tensor)
        return [getattr(self, name) for name in _NGRAM_MATRIX]

    def table(
        self, embeddings: Tensor, ngrams: Tensor | None, words: Tensor | None = None
    ) -> Tensor:
        """The vectors of ``words``, or of all words including new ones.

        ``embeddings`` are (vocabulary, d) and ``ngrams`` (used, d).
        """
        if ngrams is None or self.bag_offsets is None or self.bag_buckets is None:
            return embeddings if words is None else embeddings[words]
        bags, count = (self.bag_offsets, self.bag_buckets), len(self.bag_offsets) - 1
        compose = select.choose_compose(embeddings)
        if compose is not None and not (embeddings.requires_grad or ngrams.requires_grad):
            rows = torch.arange(count) if words is None else words
            return compose(rows, bags, embeddings, ngrams)
        own = torch.cat([embeddings, embeddings[:1].expand(count - len(embeddings), -1)])
        table = own + sparse_product(ngrams, *self._ngram_matrix(ngrams))
        return table if words is None else table[words]

    def merged(
        self, weights: Mapping[str, Tensor], words: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The weights of an equivalent plain network, without projection or ensemble.

        Its embeddings are those of ``words``, or of all words including new ones, with the vectors
        of their character n-grams added.
        """
        merged = dict(weights)
        if self.n_ensemble > 1:
            merged["head.weight"] = merged["head.weight"] / self.n_ensemble
        merged["embeddings"] = self.table(merged["embeddings"], merged.pop("ngrams", None), words)
        projection = merged.pop("projection", None)
        if projection is not None and self.vectors is not None:
            vectors = self.vectors if words is None else self.vectors[words]
            merged["embeddings"] = merged["embeddings"] + vectors @ projection
        return merged

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the authors' initial values from ``generator``."""
        with torch.no_grad():
            self.embeddings.normal_(0, WEIGHT_DEVIATION, generator=generator)
            for layer in self.convolutions:
                layer.filters.normal_(0, WEIGHT_DEVIATION, generator=generator)
                layer.bias.uniform_(0, 1, generator=generator)
            self.head.weight.normal_(0, WEIGHT_DEVIATION, generator=generator)
            self.head.bias.zero_()
            if self.ngrams is not None:
                self.ngrams.zero_()  # so that those never seen in training add no noise

    def sentence_matrix(self, ids: Tensor) -> Tensor:
        """One column per word (Eq. 2): (B, s) -> (B, 1, d, s)."""
        table = self.table(self.embeddings, self.ngrams)
        words = nn.functional.embedding(ids, table)  # (B, s, d)
        if self.projection is not None and self.vectors is not None:
            words = words + nn.functional.embedding(ids, self.vectors) @ self.projection
        return words.transpose(1, 2).unsqueeze(1)

    def encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Features of fixed size: (B, s), (B,) -> (B, features)."""
        raise NotImplementedError

    def draw_dropout(self, sentences: int, generator: torch.Generator) -> Tensor | None:
        """A dropout mask (B, features) of 0 and 1 / (1 - dropout); None without dropout."""
        if self.config.dropout == 0:
            return None
        keep = 1 - self.config.dropout
        mask = self.embeddings.new_empty(sentences, self.head.in_features)
        if (draw_mask := select.choose_draw_mask(mask)) is not None:
            return draw_mask(mask, keep, generator)
        if mask.device.type != "cpu":
            return mask.bernoulli_(keep, generator=generator).div_(keep)
        # Not bernoulli_, which on a CPU takes several times as long.
        return mask.uniform_(generator=generator).lt_(keep).div_(keep)

    def forward(
        self, ids: Tensor, lengths: Tensor, dropout: Tensor | None = None, apart: bool = False
    ) -> Tensor:
        """Logits (B, classes), the mean over an ensemble; ``dropout`` is a mask on the features.

        With ``apart``, (B * n_ensemble, classes): the logits of each network of the ensemble.
        """
        weight, bias = self.head.weight, self.head.bias
        if self.n_ensemble == 1:
            return self.logits(ids, lengths, dropout, weight, bias)
        if not apart:
            return self.logits(ids, lengths, dropout, weight / self.n_ensemble, bias)
        if self.n_ensemble * len(bias) > WIDEST_HEAD:
            return self._logits_apart(ids, lengths, dropout)
        # All output layers at once; weights are zero for the features of other networks.
        # (n_ensemble * classes, features)
        weights = (self._owned()[:, None] * weight).flatten(0, 1)
        logits = self.logits(ids, lengths, dropout, weights, bias.repeat(self.n_ensemble))
        return logits.reshape(-1, len(bias))

    def _logits_apart(self, ids: Tensor, lengths: Tensor, dropout: Tensor | None) -> Tensor:
        """Each output layer by itself: slower for few classes, but no matrix of zeros for many."""
        features = self._features(ids, lengths, dropout)
        maps, rows, values = self.config.feature_shape
        apart = (-1, maps, self.n_ensemble, rows // self.n_ensemble, values)
        products = torch.einsum(
            "bomrk,comrk->bmc", features.view(apart), self.head.weight.view(apart)
        )
        return (products + self.head.bias).flatten(0, 1)

    def _owned(self) -> Tensor:
        """(n_ensemble, features): whether a feature belongs to the network."""
        _, rows, values = self.config.feature_shape
        features = torch.arange(self.head.in_features, device=self.head.weight.device)
        owner = features // values % rows // (rows // self.n_ensemble)
        return owner == torch.arange(self.n_ensemble, device=features.device)[:, None]

    def logits(
        self, ids: Tensor, lengths: Tensor, dropout: Tensor | None, weight: Tensor, bias: Tensor
    ) -> Tensor:
        """The output layer with ``weight`` and ``bias`` on the features."""
        return nn.functional.linear(self._features(ids, lengths, dropout), weight, bias)

    def _features(self, ids: Tensor, lengths: Tensor, dropout: Tensor | None) -> Tensor:
        features = self.encode(ids, lengths)
        return features if dropout is None else features * dropout
