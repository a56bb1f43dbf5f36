"""What a node saw."""

import numpy as np
import pytest

from dcnn.config import DCNNConfig
from dcnn.inspection.attribution import word_attributions, word_contributions
from dcnn.inspection.feature_graph import build_graph
from dcnn.inspection.trace import trace_sentence
from untrained import make_artifact

WORDS = ("the", "plot", "is", "not", "dull", ",", "but", "the", "ending", "was", "bad")
NETWORKS = {
    "folding": DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=3),
    "three layers": DCNNConfig(dim=8, widths=(4, 3, 2), maps=(2, 3, 2), k_top=3),
    "one layer, no folding": DCNNConfig(dim=6, widths=(4,), maps=(3,), k_top=2, fold=False),
}


@pytest.fixture(params=NETWORKS.values(), ids=NETWORKS.keys())
def graph(request):
    artifact = make_artifact(request.param)
    for name in list(artifact.weights):  # so that words alone make the values
        if name.startswith("layers") and name.endswith("bias"):
            artifact.weights[name] = np.zeros_like(artifact.weights[name])
    return build_graph(trace_sentence(artifact, WORDS))


def test_without_biases_the_words_bring_all_of_a_value(graph):
    nodes = np.flatnonzero(graph.nodes.layer > 0)
    seen = word_contributions(graph, nodes)
    assert seen.shape == (len(nodes), len(WORDS))
    np.testing.assert_allclose(seen.sum(axis=1), graph.nodes.value[nodes], atol=1e-5)


def test_any_order_of_nodes_is_answered_in_that_order(graph):
    nodes = np.flatnonzero(graph.nodes.layer > 0)
    shuffled = np.random.default_rng(0).permutation(nodes)
    expected = dict(zip(nodes.tolist(), word_contributions(graph, nodes), strict=True))
    for node, seen in zip(shuffled.tolist(), word_contributions(graph, shuffled), strict=True):
        np.testing.assert_allclose(seen, expected[node])


def test_what_the_topmost_nodes_saw_is_the_relevance_of_the_words(graph):
    seen = word_contributions(graph, graph.top)
    np.testing.assert_allclose(
        graph.root_weight[:, 1] @ seen, word_attributions(graph, 1), atol=1e-5
    )


def test_a_word_outside_of_the_window_brings_nothing(graph):
    lowest = np.flatnonzero(graph.nodes.layer == 1)
    for node, seen in zip(lowest, word_contributions(graph, lowest), strict=True):
        last = graph.nodes.position[node]
        outside = [i for i in range(len(WORDS)) if not last - 4 < i <= last]
        assert not seen[outside].any()
