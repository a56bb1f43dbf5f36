"""The Dynamic Convolutional Neural Network (Sect. 3, Fig. 3), and what all sentence models share.

The DCNN has L layers of wide convolution over every row, folding, dynamic k-max pooling, bias and
tanh. The topmost pooling keeps k_top values per row, so that the penultimate layer has one size for
all sentences. ``SentenceModel`` adds embeddings, dropout, the output layer and ensembles.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.config import WEIGHT_DEVIATION, DCNNConfig, ModelConfig
from dcnn.ops import select
from dcnn.ops.reference import dynamic_k

WIDEST_HEAD = 256  # largest n_ensemble * classes whose output layers form one matrix, mostly zeros


class ConvolutionalLayer(nn.Module):
    """The parameters of one layer: the order-4 filters, and a bias per row per map."""

    def __init__(self, filters: tuple[int, ...], bias: tuple[int, ...]) -> None:
        super().__init__()
        self.filters = nn.Parameter(torch.empty(filters))  # (o, n, d, m)
        self.bias = nn.Parameter(torch.empty(bias))  # (o, d')


# A sparse matrix in CSR form (column indices, row offsets, values), then its transpose.
_PRODUCTS = ("columns", "rows", "values", "columns_back", "rows_back", "values_back")


class _SparseProduct(torch.autograd.Function):
    """A sparse matrix (N, K) times a dense one, (K, d) -> (N, d); supports ``vmap`` over runs."""

    @staticmethod
    def forward(x: Tensor, *matrix: Tensor) -> Tensor:
        """The product; ``matrix`` is as in ``_PRODUCTS``."""
        columns, rows, values = matrix[:3]
        return nn.functional.embedding_bag(
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
        turned = *matrix[3:], *matrix[:3]
        return _SparseProduct.apply(gradient.contiguous(), *turned), *[None] * 6  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(
        _: Any, in_dims: tuple[int | None, ...], x: Tensor, *matrix: Tensor
    ) -> tuple[Tensor, int]:
        """Put the runs side by side, as the columns of one dense matrix (K, R * d)."""
        assert in_dims[0] is not None  # noqa: S101
        runs = x.movedim(in_dims[0], 1)  # (K, R, d)
        product = _SparseProduct.apply(runs.flatten(1), *matrix)  # type: ignore[no-untyped-call]
        return product.unflatten(1, runs.shape[1:]), 1


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
        for name in ("bag_offsets", "bag_buckets", *_PRODUCTS):
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

    def _products(self, offsets: Tensor, buckets: Tensor, n_buckets: int) -> list[Tensor]:
        """The n-grams of all words as a sparse matrix, and its transpose for the gradients.

        Built when first needed: both are several times as large as the n-grams, and the native
        backend does not use them.
        """
        if getattr(self, _PRODUCTS[0]) is None:
            counts = offsets.diff()
            weights = counts.float().rsqrt().repeat_interleave(counts)
            words = torch.arange(len(counts), device=offsets.device).repeat_interleave(counts)
            order = buckets.argsort(stable=True)
            ends = torch.bincount(buckets, minlength=n_buckets).cumsum(0)
            starts = torch.cat([ends.new_zeros(1), ends])
            matrix = buckets.long(), offsets, weights, words[order], starts, weights[order]
            for name, tensor in zip(_PRODUCTS, matrix, strict=True):
                setattr(self, name, tensor)
        return [getattr(self, name) for name in _PRODUCTS]

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
        matrix = self._products(*bags, len(ngrams))
        spelled: Tensor = _SparseProduct.apply(ngrams, *matrix)  # type: ignore[no-untyped-call]
        return own + spelled if words is None else (own + spelled)[words]

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


class DCNN(SentenceModel):
    """The network of Fig. 3, of any depth."""

    config: DCNNConfig

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
