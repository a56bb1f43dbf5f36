"""The strongest m-grams of the first layer are those of a search through all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.inspection.detector_layers import FirstLayer
from dcnn.inspection.detector_lists import Detector, StrongestLists
from dcnn.inspection.detector_ranking import rank_corpus
from dcnn.ops import reference
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import Sentences
from small_networks import network_with_corpus
from untrained import make_artifact

LENGTH = 3


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


def brute_force(artifact, sentences):
    """For each detector: [(words, value, count)] of its strongest distinct m-grams."""
    found = {}
    for ids, words, values in all_mgrams(artifact, sentences):
        first_words, _, count = found.get(ids, (words, values, 0))
        found[ids] = (first_words, values, count + 1)
    maps, _, rows, _ = artifact.weights["layers.0.filters"].shape
    return {
        Detector(1, o, r): sorted(
            ((words, float(values[o, r]), count) for words, values, count in found.values()),
            key=lambda ngram: -ngram[1],  # stable: among equals the one met first
        )
        for o in range(maps)
        for r in range(rows)
    }


def told(entries):
    return [(entry.met.words, entry.value, entry.count) for entry in entries]


@given(network_with_corpus(depth=2), st.integers(1, 40))
def test_ranking_equals_a_search_through_all_mgrams(drawn, top):
    artifact, sentences = drawn
    ranked = rank_corpus(sentences, Predictor(artifact), [1], top)
    expected = brute_force(artifact, sentences)
    assert list(ranked.entries) == list(expected)
    for detector, ngrams in expected.items():
        assert told(ranked.entries[detector]) == ngrams[: max(top, 30)]


@given(network_with_corpus(depth=1), st.integers(1, 5), st.integers(1, 9))
def test_full_lists_drop_the_weakest_and_still_count_right(drawn, length, block):
    artifact, sentences = drawn
    layer = FirstLayer(artifact, block)
    lists = StrongestLists(len(layer), length)
    for words in sentences:
        ids = Sentences.from_lists([artifact.encoder.vocabulary.ids(words)])
        layer.rank(layer.chunk([words], ids, np.array([1])), lists)
    for number, ngrams in enumerate(brute_force(artifact, sentences).values()):
        assert told(lists.entries(number)) == ngrams[:length]


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
    for detector, entries in ranked.entries.items():
        for entry in entries:
            met = entry.met
            matrix = artifact.weights["embeddings"][
                artifact.encoder.vocabulary.ids(met.sentence)
            ].T[None, None]
            wide = reference.wide_convolution(matrix, filters)[0]
            column = met.column + filters.shape[-1] - 1  # where the m-gram ends
            assert entry.value == pytest.approx(wide[detector.map, detector.row, column], abs=1e-6)
            assert met.words == met.sentence[met.column : met.column + filters.shape[-1]]


def test_the_paper_s_network_has_288():
    from dcnn.config import DCNNConfig

    assert len(FirstLayer(make_artifact(DCNNConfig()))) == 288


def test_a_text_that_repeats_itself_offers_each_mgram_once_a_block():
    """Else every detector walks over all of them: 10,000 times one word took 20 seconds."""
    artifact = make_artifact()
    layer = FirstLayer(artifact, block=16)
    words = [("good",) * 50, ("not", "good", "good", "good", "not", "good", "good", "good")]
    ids = [artifact.encoder.vocabulary.ids(sentence) for sentence in words]
    chunk = layer.chunk(words, Sentences.from_lists(ids), np.array([1, 2]))
    offers = []

    class Lists:
        def offer(self, values, times, offered):
            keys = [offered.key(0, place) for place in np.flatnonzero(times)]
            assert len(set(keys)) == len(keys)
            offers.append(times)

    layer.rank(chunk, Lists())
    assert sum(int(times.sum()) for times in offers) == 47 + 2 * 5
    assert sum(int((times > 0).sum()) for times in offers) <= 4 + 8
