"""Recursive networks (Sect. 2.1, Table 1): a vector per node of a parse tree, from its children.

RecNN joins the children b and c of a node by one layer, p = tanh(W [b; c] + e), the same for all
nodes of all trees (Socher et al. 2011). RecNTN adds a tensor, p_k = tanh([b; c]' V_k [b; c] + ...),
so that one child can change what the other means (Socher et al. 2013). A leaf is the embedding of
its word. A softmax layer classifies every node; the node of the sentence is the root.

Nodes of one height do not depend on one another. So a mini-batch of trees is one ``Forest``: its
nodes sorted by height, the leaves first, and a level of all its trees at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dcnn.config import WEIGHT_DEVIATION, RecNNConfig
from dcnn.data.corpora.sst import Phrase
from dcnn.text.vocabulary import Ints


class Forest(NamedTuple):
    """A mini-batch of trees: their nodes sorted by height, so that children come before parents."""

    words: Tensor  # (leaves,): the leaves are the first nodes
    levels: tuple[tuple[Tensor, Tensor], ...]  # left and right children of heights 1, 2, ...
    roots: Tensor  # (trees,): the node of each tree
    nodes: Ints  # (N,): the place of every node in the ``Trees`` that this is part of


class Trees:
    """Binary trees as flat arrays: the nodes of each tree one after another, its root first."""

    def __init__(self, trees: Sequence[Sequence[Phrase]], words: Sequence[Sequence[int]]) -> None:
        """``trees`` are those of ``read_trees``; ``words`` are the ids of the words of each."""
        self.offsets = np.cumsum([0, *map(len, trees)])  # (trees + 1,)
        nodes = int(self.offsets[-1])
        self.words, self.heights = np.full(nodes, -1), np.zeros(nodes, np.int64)
        self.labels = np.array([phrase.label for tree in trees for phrase in tree])
        self.left, self.right = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
        for first, tree, ids in zip(self.offsets, trees, words, strict=False):
            for place in reversed(range(len(tree))):
                node = first + place
                if len(tree[place].words) == 1:
                    self.words[node] = ids[tree[place].start]
                    continue
                # In the order of opening, a subtree of n words has 2 n - 1 nodes.
                left, right = node + 1, node + 2 * len(tree[place + 1].words)
                self.left[node], self.right[node] = left, right
                self.heights[node] = 1 + max(self.heights[left], self.heights[right])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def roots(self) -> Ints:
        """(trees,): the node of each whole sentence."""
        return self.offsets[:-1]

    def forest(self, chosen: Ints, device: torch.device | str = "cpu") -> Forest:
        """The trees at ``chosen`` as one batch."""
        counts = self.offsets[chosen + 1] - self.offsets[chosen]
        starts = np.cumsum(counts) - counts
        shift = np.repeat(self.offsets[chosen] - starts, counts)  # from the batch to all nodes
        nodes = shift + np.arange(counts.sum())
        order = np.argsort(self.heights[nodes], kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        nodes, shift = nodes[order], shift[order]
        ends = np.cumsum(np.bincount(self.heights[nodes]))
        inner = slice(ends[0], None)
        sides = (side[nodes[inner]] - shift[inner] for side in (self.left, self.right))
        children = torch.from_numpy(np.stack([rank[side] for side in sides])).to(device)
        by_level = torch.split(children, np.diff(ends).tolist(), dim=1)  # (2, n) each
        words, roots = (
            torch.from_numpy(array).to(device)
            for array in (self.words[nodes[: ends[0]]], rank[starts])
        )
        return Forest(words, tuple((left, right) for left, right in by_level), roots, nodes)


class Composition(nn.Linear):
    """tanh(W [b; c] + e): (n, 2d) -> (n, d)."""

    def __init__(self, dim: int) -> None:
        super().__init__(2 * dim, dim)

    def forward(self, children: Tensor) -> Tensor:
        """The vectors of nodes from those of their children, side by side."""
        return torch.tanh(super().forward(children))


class TensorComposition(nn.Linear):
    """tanh([b; c]' V [b; c] + W [b; c] + e): (n, 2d) -> (n, d); V is ``tensor`` / 2d."""

    def __init__(self, dim: int) -> None:
        super().__init__(2 * dim, dim)
        self.tensor = nn.Parameter(torch.empty(dim, 2 * dim, 2 * dim))  # a slice per value

    def forward(self, children: Tensor) -> Tensor:
        """The vectors of nodes from those of their children, side by side."""
        # Adagrad's steps do not depend on the size of a gradient. A sum of (2d)^2 products is kept
        # on the scale of the linear part, of 2d terms, or the first steps would saturate tanh.
        scaled = self.tensor / children.shape[-1]
        bilinear = torch.einsum("ni,kij,nj->nk", children, scaled, children)
        return torch.tanh(bilinear + super().forward(children))


class RecursiveNetwork(nn.Module):
    """RecNN or RecNTN, whichever ``config`` is of."""

    def __init__(self, config: RecNNConfig, vocabulary: int, classes: int) -> None:
        super().__init__()
        composition = TensorComposition if config.kind == "recntn" else Composition
        self.embeddings = nn.Parameter(torch.empty(vocabulary, config.dim))
        self.composition = composition(config.dim)
        self.head = nn.Linear(config.dim, classes)
        self.config = config

    def initialize(self, generator: torch.Generator) -> None:
        """Small random values; the children are added at first, so that words reach the root."""
        with torch.no_grad():
            for name, value in self.named_parameters():
                value.zero_()
                if not name.endswith("bias"):
                    value.normal_(0, WEIGHT_DEVIATION, generator=generator)
            self.composition.weight += torch.eye(self.config.dim).repeat(1, 2)

    def states(self, forest: Forest) -> Tensor:
        """The vector of every node: (N, d)."""
        states = self.embeddings[forest.words]  # (leaves, d)
        for left, right in forest.levels:
            children = torch.cat([states[left], states[right]], dim=1)  # (n, 2d)
            states = torch.cat([states, self.composition(children)])
        return states

    def forward(self, forest: Forest, dropout: Tensor | None = None) -> Tensor:
        """The logits of every node (N, classes); ``dropout`` (N, d) is a mask on their vectors."""
        states = self.states(forest)
        logits: Tensor = self.head(states if dropout is None else states * dropout)
        return logits
