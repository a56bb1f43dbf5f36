"""Ranking a corpus equals a search through all n-grams."""

from types import SimpleNamespace

import networkx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dcnn.config import DCNNConfig
from dcnn.inspection.detector_ranking import (
    BATCH,
    MOST_WORDS,
    Detection,
    Detector,
    FirstLayer,
    HigherLayers,
    StrongestLists,
    batches,
    rank_corpus,
)
from dcnn.inspection.feature_graph import to_networkx
from dcnn.inspection.trace import trace_sentence
from dcnn.ops import native, reference
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import Sentences
from small_networks import inspected, network_with_corpus
from untrained import VOCABULARY_TEXT, make_artifact

BACKENDS = ["reference", *(["native"] if native.available() else [])]
BATCH_MATES = [["the"], VOCABULARY_TEXT.split()]


def distinct(artifact, sentences, counts=None):
    ids = Sentences.from_lists([artifact.encoder.vocabulary.ids(words) for words in sentences])
    return sentences, ids, np.array(counts or [1] * len(sentences)), artifact.weights["embeddings"]


def pooled(artifact, sentences, layers, backend="reference"):
    network = HigherLayers(SimpleNamespace(artifact=artifact, backend=backend), layers, 1)
    words, ids, _, table = distinct(artifact, sentences)
    return network.pool(words, ids, np.arange(len(sentences)), table)


def all_mgrams(artifact, sentences):
    """Every m-gram of the corpus with its values (maps, rows), by the narrow convolution."""
    filters = artifact.weights["layers.0.filters"]
    width = filters.shape[-1]
    for words in sentences:
        ids = artifact.encoder.vocabulary.ids(words)
        matrix = artifact.weights["embeddings"][ids].T[None, None]  # (1, 1, d, s)
        padding = max(0, width - len(ids))
        padded = np.pad(matrix, [(0, 0)] * 3 + [(0, padding)])
        convolution = reference.narrow_convolution(padded, filters)[0]  # (o, d, w)
        for start in range(convolution.shape[-1]):
            part = slice(start, start + width)
            yield tuple(ids[part]), tuple(words[part]), convolution[:, :, start]


def strongest_mgrams(artifact, sentences):
    """For each detector: [(words, value, count)] of its distinct m-grams, by brute force."""
    found = {}
    for ids, words, values in all_mgrams(artifact, sentences):
        first_words, _, count = found.get(ids, (words, values, 0))
        found[ids] = (first_words, values, count + 1)
    maps, _, rows, _ = artifact.weights["layers.0.filters"].shape
    return {
        Detector(1, o, r): sorted(
            ((words, float(values[o, r]), count) for words, values, count in found.values()),
            key=lambda ngram: -ngram[1],  # stable: among equals the first one
        )
        for o in range(maps)
        for r in range(rows)
    }


def described(detections):
    return [(found.words, found.value, found.count) for found in detections]


@given(network_with_corpus(depth=2), st.integers(1, 40))
def test_the_first_layer_equals_a_search_through_all_mgrams(drawn, top):
    artifact, sentences = drawn
    ranked = rank_corpus(sentences, Predictor(artifact), [1], top)
    expected = strongest_mgrams(artifact, sentences)
    assert list(ranked.detections) == list(expected)
    for detector, ngrams in expected.items():
        assert described(ranked.detections[detector]) == ngrams[: max(top, 30)]


@given(network_with_corpus(depth=1), st.integers(1, 5), st.integers(1, 9))
def test_full_lists_drop_the_weakest_and_keep_exact_counts(drawn, length, block):
    artifact, sentences = drawn
    layer = FirstLayer(artifact, length, block)
    for words in sentences:
        layer.read(*distinct(artifact, [words]))
    expected = strongest_mgrams(artifact, sentences)
    for detector, detections, _ in layer.lists[0].results():
        assert described(detections) == expected.pop(detector)[:length]
    assert not expected


@given(network_with_corpus(), st.integers(1, 5))
def test_means_are_those_of_all_mgrams(drawn, chunk):
    artifact, sentences = drawn
    ranked = rank_corpus(sentences, Predictor(artifact), [1], 1, chunk=chunk)
    values = np.mean([v.astype(float) for _, _, v in all_mgrams(artifact, sentences)], axis=0)
    np.testing.assert_allclose(list(ranked.means.values()), values.ravel(), atol=1e-6)


def test_a_value_is_that_of_the_wide_convolution_at_its_place():
    artifact = make_artifact()
    sentences = [["the", "plot", "is", "not", "dull", "at", "all"], ["very", "good"]]
    ranked = rank_corpus(sentences, Predictor(artifact), [1], 5)
    filters = artifact.weights["layers.0.filters"]
    width = filters.shape[-1]
    for detector, detections in ranked.detections.items():
        for found in detections:
            ids = artifact.encoder.vocabulary.ids(found.sentence)
            matrix = artifact.weights["embeddings"][ids].T[None, None]
            wide = reference.wide_convolution(matrix, filters)[0]
            column = found.column + width - 1  # where the m-gram ends
            assert found.value == pytest.approx(wide[detector.map, detector.row, column], abs=1e-6)
            assert found.words == found.sentence[found.column : found.column + width]


def test_the_network_of_the_paper_has_288():
    artifact = make_artifact(DCNNConfig())
    ranked = rank_corpus([["good"]], Predictor(artifact), [1], 1)
    assert len(ranked.detections) == 288


def test_a_text_that_repeats_itself_offers_each_mgram_once_per_block():
    """Else every detector compares all of them: 10,000 times one word took 20 seconds."""
    artifact = make_artifact()
    layer = FirstLayer(artifact, length=5, block=16)
    words = [("good",) * 50, ("not", "good", "good", "good", "not", "good", "good", "good")]
    updates = []

    class Lists:
        def update(self, values, counts, key, detection, start):
            keys = [key(0, start + place) for place in np.flatnonzero(counts)]
            assert len(set(keys)) == len(keys)
            updates.append(counts)

    layer.lists = [Lists()]
    layer.read(*distinct(artifact, words, [1, 2]))
    assert sum(int(counts.sum()) for counts in updates) == 47 + 2 * 5
    assert sum(int((counts > 0).sum()) for counts in updates) <= 4 + 8


@given(inspected(), st.sampled_from(BACKENDS))
@settings(max_examples=60)
def test_the_receptive_field_is_the_words_with_a_path_to_the_node(seen, backend):
    graph = to_networkx(seen.graph)
    depth = seen.artifact.config.model.depth
    layers = pooled(seen.artifact, [*BATCH_MATES, seen.words], [depth], backend)
    number = len(BATCH_MATES)
    for node, at in graph.nodes(data=True):
        if node == "root" or at["layer"] == 0:
            continue
        below = networkx.ancestors(graph, node)
        words = {graph.nodes[n]["position"] for n in below if graph.nodes[n]["layer"] == 0}
        here = layers[at["layer"] - 1]
        place = here.positions[number, at["map"], at["row"]].tolist().index(at["position"])
        got = here.receptive_field(number, at["map"], at["row"], place)
        assert got.tolist() == sorted(words)
        value = here.values[number, at["map"], at["row"], place]
        assert value == pytest.approx(at["value"], abs=1e-5)


def strongest_nodes(artifact, sentences, layer):
    """For each detector: the best value of each (words, gaps), by brute force."""
    found = {}
    for words in sentences:
        trace = trace_sentence(artifact, words)
        here = pooled(artifact, [words], [layer])[-1]
        ids = artifact.encoder.vocabulary.ids(words)
        for o, r, k in np.ndindex(trace.layers[layer - 1].values.shape):
            at = here.receptive_field(0, o, r, k)
            key = tuple(ids[i] for i in at), tuple((at - at[0]).tolist())
            value = float(here.values[0, o, r, k])
            best = found.setdefault((o, r), {})
            best[key] = max(value, best.get(key, value))
    return found


@given(network_with_corpus(), st.integers(1, 5))
@settings(max_examples=60)
def test_higher_layers_equal_a_search_through_all_nodes(drawn, chunk):
    artifact, sentences = drawn
    depth = artifact.config.model.depth
    assume(depth > 1)
    predictor = Predictor(artifact)
    ranked = rank_corpus(sentences, predictor, list(range(2, depth + 1)), 12, chunk=chunk)
    for layer in range(2, depth + 1):
        for (o, r), ngrams in strongest_nodes(artifact, sentences, layer).items():
            got = [found.value for found in ranked.detections[Detector(layer, o, r)]]
            expected = sorted(ngrams.values(), reverse=True)[:12]
            np.testing.assert_allclose(got, expected, atol=1e-5)


@given(network_with_corpus(), st.integers(1, 7))
def test_the_result_does_not_depend_on_what_is_read_together(drawn, chunk):
    artifact, sentences = drawn
    predictor = Predictor(artifact)
    layers = list(range(1, artifact.config.model.depth + 1))
    one, other = (
        rank_corpus(sentences, predictor, layers, 2, chunk=size) for size in (chunk, 1000)
    )
    assert one.detections == other.detections
    assert (one.sentences, one.words, one.total) == (other.sentences, other.words, other.total)
    for detector, mean in one.means.items():
        assert mean == pytest.approx(other.means[detector], abs=1e-6)


def test_long_sentences_do_not_fill_the_memory():
    lengths = np.array([900] * 40 + [1001] + [1] * 300)
    cut = [lengths[batch] for batch in batches(lengths)]
    assert sum(map(len, cut)) == 340
    assert all(len(batch) * batch.max() <= 1 << 14 for batch in cut)
    assert max(map(len, cut)) == BATCH


def test_a_sentence_too_long_to_be_traced_is_not_kept():
    artifact = make_artifact()
    for length, kept in ((MOST_WORDS, MOST_WORDS), (MOST_WORDS + 1, 0)):
        ranked = rank_corpus([["good"] * length], Predictor(artifact), [1], 1)
        assert {len(found[0].sentence) for found in ranked.detections.values()} == {kept}


def update(lists, letters, values, counts):
    """Offer letters, the same for every detector."""
    lists.update(
        np.array([values], np.float32),
        np.array(counts),
        lambda _, place: letters[place],
        lambda _, place, value, count: Detection((letters[place],), (0,), value, count),
    )


def listed(lists):
    return [
        (found.words[0], found.value, found.count)
        for _, ngrams, _ in lists.results()
        for found in ngrams
    ]


# Few values and few letters, so that there are ties everywhere.
@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3)), max_size=40),
    st.integers(1, 5),
    st.integers(1, 7),
    st.data(),
)
def test_lists_have_the_strongest_of_each_key_and_the_count_of_that_value(
    offered, length, step, data
):
    """A letter may have several values here, as a receptive field in a higher layer may."""
    best = {}
    for order, (letter, count) in enumerate(offered):
        value = float(data.draw(st.integers(0, 3)))
        offered[order] = (letter, count, value)
        if not count:
            continue
        known = best.get(letter)
        if known is None or value > known[0]:
            best[letter] = (value, count, order)
        elif value == known[0]:
            best[letter] = (value, known[1] + count, known[2])
    lists = StrongestLists(1, 1, 1, length)
    for start in range(0, len(offered), step):
        letters, counts, values = zip(*offered[start : start + step], strict=True)
        update(lists, list(letters), values, counts)
    ranked = sorted(best.items(), key=lambda item: (-item[1][0], item[1][2]))
    expected = [(letter, value, count) for letter, (value, count, _) in ranked[:length]]
    assert listed(lists) == expected


def test_among_equal_values_the_first_one_stays():
    lists = StrongestLists(1, 1, 1, 2)
    for letter in "abc":
        update(lists, [letter], [1.0], [1])
    assert listed(lists) == [("a", 1.0, 1), ("b", 1.0, 1)]
    update(lists, ["d", "a"], [2.0, 1.0], [1, 3])
    assert listed(lists) == [("d", 2.0, 1), ("a", 1.0, 4)]
