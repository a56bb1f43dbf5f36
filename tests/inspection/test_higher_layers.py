"""What a node of a higher layer really saw."""

import networkx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dcnn.inspection.detector_layers import BATCH, HigherLayers, batches
from dcnn.inspection.detector_lists import Detector
from dcnn.inspection.detector_ranking import rank_corpus
from dcnn.inspection.feature_graph import to_networkx
from dcnn.inspection.trace import trace_sentence
from dcnn.ops import native
from dcnn.predictor import Predictor
from small_networks import inspected, network_with_corpus
from untrained import VOCABULARY_TEXT

BACKENDS = ["reference", *(["native"] if native.available() else [])]
MATES = [["the"], VOCABULARY_TEXT.split()]


@given(inspected(), st.sampled_from(BACKENDS))
@settings(max_examples=60)
def test_the_words_seen_are_those_with_a_way_to_the_node(seen, backend):
    graph = to_networkx(seen.graph)
    depth = seen.artifact.config.model.depth
    pooled = HigherLayers(seen.artifact, backend).pool([*MATES, seen.words], depth)
    for node, at in graph.nodes(data=True):
        if node == "root" or at["layer"] == 0:
            continue
        below = networkx.ancestors(graph, node)
        words = {graph.nodes[n]["position"] for n in below if graph.nodes[n]["layer"] == 0}
        here = pooled.layers[at["layer"] - 1]
        places = here.positions[len(MATES), at["map"], at["row"]].tolist()
        place = places.index(at["position"])
        got = pooled.seen(len(MATES), at["layer"], at["map"], at["row"], place)
        assert got.tolist() == sorted(words)
        value = here.values[len(MATES), at["map"], at["row"], place]
        assert value == pytest.approx(at["value"], abs=1e-5)


def brute_force(artifact, sentences, layer):
    """For each detector: {(words, gaps): (best value, how often that value)}, from traces."""
    found = {}
    network = HigherLayers(artifact, "reference")
    for words in sentences:
        trace = trace_sentence(artifact, words)
        pooled = network.pool([words], layer)
        ids = artifact.encoder.vocabulary.ids(words)
        for o, r, k in np.ndindex(trace.layers[layer - 1].values.shape):
            at = pooled.seen(0, layer, o, r, k)
            key = tuple(ids[i] for i in at), tuple((at - at[0]).tolist())
            value = float(pooled.layers[layer - 1].values[0, o, r, k])
            best = found.setdefault((o, r), {})
            if key not in best or value > best[key][0]:
                best[key] = (value, 1)
            elif value == best[key][0]:
                best[key] = (value, best[key][1] + 1)
    return found


@given(network_with_corpus(), st.integers(1, 5))
@settings(max_examples=60)
def test_ranking_equals_a_search_through_all_nodes(drawn, chunk):
    artifact, sentences = drawn
    depth = artifact.config.model.depth
    assume(depth > 1)
    predictor = Predictor(artifact)
    ranked = rank_corpus(sentences, predictor, list(range(2, depth + 1)), 12, chunk=chunk)
    for layer in range(2, depth + 1):
        for (o, r), ngrams in brute_force(artifact, sentences, layer).items():
            entries = ranked.entries[Detector(layer, o, r)]
            strongest = sorted((value for value, _ in ngrams.values()), reverse=True)
            got = [entry.value for entry in entries]
            np.testing.assert_allclose(got, strongest[:12], atol=1e-5)


@given(network_with_corpus(), st.integers(1, 7))
def test_the_result_does_not_depend_on_what_is_read_together(drawn, chunk):
    artifact, sentences = drawn
    predictor = Predictor(artifact)
    layers = list(range(1, artifact.config.model.depth + 1))
    one, other = (
        rank_corpus(sentences, predictor, layers, 2, chunk=size) for size in (chunk, 1000)
    )
    assert one.entries == other.entries
    assert (one.sentences, one.words, one.total) == (other.sentences, other.words, other.total)
    for detector, mean in one.means.items():
        assert mean == pytest.approx(other.means[detector], abs=1e-6)


def test_long_sentences_do_not_fill_the_memory():
    sentences = [["a"] * 900] * 40 + [["a"] * 1001] + [["a"]] * 300
    cut = [[words for words, _ in batch] for batch in batches((s, 1) for s in sentences)]
    assert sum(map(len, cut)) == 340
    assert all(len(batch) * max(map(len, batch)) <= 1 << 14 for batch in cut)
    assert max(map(len, cut)) == BATCH
