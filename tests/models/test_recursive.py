"""Recursive networks on trees: a tree computed by hand, laws of batching, gradients, learning."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.func import functional_call

from dcnn.config import RecNNConfig, RecNTNConfig
from dcnn.data.corpora.sst import Phrase
from dcnn.models.recursive import RecursiveNetwork, Trees

VOCABULARY, CLASSES = 7, 3
both = pytest.mark.parametrize("config", [RecNNConfig(dim=3), RecNTNConfig(dim=3)], ids=str)


def make_network(config, seed=0):
    network = RecursiveNetwork(config, VOCABULARY, CLASSES).double()
    network.initialize(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for value in network.parameters():
            value += 0.3 * torch.randn(value.shape, generator=torch.Generator().manual_seed(seed))
    return network


def phrases(shape, start=0):
    """The nodes of a tree given as nested pairs of word ids, root first, as a file has them."""
    if isinstance(shape, int):
        return [Phrase((str(shape),), shape % 5, start)]
    left = phrases(shape[0], start)
    right = phrases(shape[1], start + len(left[0].words))
    return [Phrase(left[0].words + right[0].words, len(left) % 5, start), *left, *right]


def trees_of(shapes):
    found = [phrases(shape) for shape in shapes]
    return Trees(found, [[int(word) for word in tree[0].words] for tree in found])


def root_logits(network, trees, chosen):
    forest = trees.forest(np.array(chosen))
    return network(forest)[forest.roots]


tree = st.recursive(
    st.integers(0, VOCABULARY - 1), lambda part: st.tuples(part, part), max_leaves=8
)


def test_a_tree_by_hand():
    # d = 1: the vector of (a (b c)) is tanh(w1 a + w2 p + e) with p = tanh(w1 b + w2 c + e).
    network = RecursiveNetwork(RecNTNConfig(dim=1), VOCABULARY, 2).double()
    w1, w2, e, v = 0.5, -2.0, 0.25, [[0.1, 0.2], [0.3, -0.4]]
    a, b, c = 0.3, -0.7, 0.9
    with torch.no_grad():
        network.embeddings[:3, 0] = torch.tensor([a, b, c])
        network.composition.weight.copy_(torch.tensor([[w1, w2]]))
        network.composition.bias.fill_(e)
        network.composition.tensor.copy_(2 * torch.tensor([v]))  # V is a 2d-th of it

    def compose(x, y):
        bilinear = v[0][0] * x * x + (v[0][1] + v[1][0]) * x * y + v[1][1] * y * y
        return np.tanh(bilinear + w1 * x + w2 * y + e)

    forest = trees_of([(0, (1, 2))]).forest(np.array([0]))
    states = network.states(forest)[:, 0]
    inner = compose(b, c)
    expected = torch.tensor([a, b, c, inner, compose(a, inner)], dtype=torch.float64)
    torch.testing.assert_close(states, expected)
    assert forest.roots.tolist() == [4]
    assert forest.nodes.tolist() == [1, 3, 4, 2, 0]


@both
@settings(max_examples=25)
@given(st.lists(tree, min_size=1, max_size=5), st.data())
def test_a_batch_equals_one_tree_at_a_time(config, shapes, data):
    network, trees = make_network(config), trees_of(shapes)
    order = data.draw(st.permutations(range(len(shapes))))
    together = root_logits(network, trees, order)

    def state(shape):
        if isinstance(shape, int):
            return network.embeddings[shape]
        return network.composition(torch.cat([state(part) for part in shape])[None])[0]

    for place, index in enumerate(order):
        torch.testing.assert_close(together[place], root_logits(network, trees, [index])[0])
        torch.testing.assert_close(together[place], network.head(state(shapes[index])))


@both
def test_labels_and_targets_follow_the_nodes_of_a_forest(config):
    trees = trees_of([(1, 2), 3, ((4, 5), 6)])
    forest = trees.forest(np.array([2, 0]))
    leaves = forest.nodes[: len(forest.words)]
    assert trees.words[leaves].tolist() == forest.words.tolist()
    assert sorted(forest.words.tolist()) == [1, 2, 4, 5, 6]
    assert (
        trees.labels[forest.nodes[forest.roots]].tolist()
        == trees.labels[trees.roots[[2, 0]]].tolist()
    )
    assert trees.heights[forest.nodes].tolist() == sorted(trees.heights[forest.nodes])


@both
def test_gradients_equal_finite_differences(config):
    network = make_network(config, seed=3)
    forest = trees_of([((1, 2), (3, 4)), (5, 6), 0]).forest(np.arange(3))
    names = [name for name, _ in network.named_parameters()]

    def logits(*values):
        return functional_call(network, dict(zip(names, values, strict=True)), (forest,))

    values = tuple(value.detach().requires_grad_() for value in network.parameters())
    assert gradcheck(logits, values, eps=1e-7, atol=1e-5)


@both
def test_parameters_have_the_names_and_shapes_of_the_config(config):
    network = RecursiveNetwork(config, VOCABULARY, CLASSES)
    shapes = {name: tuple(value.shape) for name, value in network.named_parameters()}
    assert shapes == config.parameter_shapes(VOCABULARY, CLASSES)
