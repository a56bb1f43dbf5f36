"""A logit is a sum over the paths of the graph, and attribution is a part of that sum."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn.inspection.attribution import (
    CARRIED,
    NGram,
    descend,
    phrase_attribution,
    strongest_ngrams,
    strongest_nodes,
    word_attributions,
)
from small_networks import example, inspected, paths


def whole_descent(graph, of_class):
    return list(descend(graph, graph.top, graph.root_weight[:, of_class].astype(np.float64)))


@given(inspected())
def test_words_and_biases_add_up_to_the_logit(seen):
    for of_class in range(3):
        biases = sum(step.biases for step in whole_descent(seen.graph, of_class))
        total = word_attributions(seen.graph, of_class).sum() + biases + seen.graph.bias[of_class]
        assert total == pytest.approx(seen.graph.logits[of_class], abs=1e-5)


@given(inspected())
def test_every_layer_of_edges_and_the_biases_above_it_add_up_to_the_logit(seen):
    total_biases = float(seen.graph.bias[0])
    for step in whole_descent(seen.graph, 0):
        total_biases += step.biases
        total = step.flow.sum() + total_biases
        assert total == pytest.approx(seen.graph.logits[0], abs=1e-5)


@given(inspected(most_words=6, depth=2))
@settings(max_examples=40)
def test_a_words_relevance_is_the_sum_over_its_paths(seen):
    expected = np.zeros(len(seen.words))
    for word, _, amount in paths(seen, 1):
        expected[word] += amount
    np.testing.assert_allclose(word_attributions(seen.graph, 1), expected, atol=1e-5)


@given(inspected(most_words=6, depth=2), st.data())
@settings(max_examples=40)
def test_a_phrases_relevance_is_the_sum_over_its_paths_that_meet(seen, data):
    phrase = data.draw(st.sets(st.integers(0, len(seen.words) - 1), min_size=1, max_size=4))
    all_paths = paths(seen, 2)
    reached = [{top for word, top, _ in all_paths if word == w} for w in phrase]
    meet = set.intersection(*reached)
    expected = sum(amount for word, top, amount in all_paths if word in phrase and top in meet)
    assert phrase_attribution(seen.graph, 2, phrase) == pytest.approx(expected, abs=1e-5)


def test_a_phrase_of_one_word_has_the_words_relevance():
    graph = example().graph
    alone = [phrase_attribution(graph, 0, [word]) for word in range(len(graph.words))]
    np.testing.assert_allclose(alone, word_attributions(graph, 0), atol=1e-9)


def test_words_that_never_meet_are_no_phrase():
    seen = example(widths=(2,), maps=(2,), k_top=2)  # a node sees two words
    far_apart = [(a, b) for a, b in combinations(range(len(seen.words)), 2) if b > a + 1]
    assert far_apart
    assert all(phrase_attribution(seen.graph, 0, pair) == 0 for pair in far_apart)
    assert any(phrase_attribution(seen.graph, 0, (a, a + 1)) for a in range(len(seen.words) - 1))


@pytest.mark.parametrize("positions", [[], [-1], [0, 12]])
def test_a_phrase_is_of_words_of_the_sentence(positions):
    with pytest.raises(ValueError, match="one or more from 0 to 11"):
        phrase_attribution(example().graph, 0, positions)


def test_the_strongest_nodes_come_first_whether_for_or_against():
    graph = example().graph
    strength = np.abs(graph.contribution[strongest_nodes(graph, 1, 10), 1])
    assert (np.diff(strength) <= 0).all()
    assert strength[-1] >= np.sort(np.abs(graph.contribution[:, 1]))[-10]


@given(inspected(most_words=6, depth=2))
@settings(max_examples=40)
def test_an_ngram_is_the_fewest_words_that_bring_half_of_a_node(seen):
    node = int(strongest_nodes(seen.graph, 0, 1)[0])
    direction = np.sign(seen.graph.contribution[node, 0])
    brought = np.zeros(len(seen.words))
    for word, top, amount in paths(seen, 0):
        brought[word] += amount * direction * (top == node)
    ngrams = strongest_ngrams(seen.graph, 0, count=1)
    enough = CARRIED * brought.clip(min=0).sum()
    if enough == 0:
        assert ngrams == []
        return
    (ngram,) = ngrams
    assert ngram.words == tuple(seen.words[i] for i in ngram.positions)
    assert ngram.nodes == 1
    assert ngram.attribution * direction == pytest.approx(
        brought[list(ngram.positions)].sum(), abs=1e-5
    )
    assert ngram.attribution * direction >= enough - 1e-5
    fewer = np.sort(brought)[::-1][: len(ngram.positions) - 1]
    assert fewer.sum() < enough + 1e-5


def test_ngrams_of_all_nodes_are_told_once_each_the_most_relevant_first():
    graph = example().graph
    ngrams = strongest_ngrams(graph, 0, count=len(graph.top))
    assert sum(ngram.nodes for ngram in ngrams) <= len(graph.top)
    assert len({ngram.positions for ngram in ngrams}) == len(ngrams)
    strength = [abs(ngram.attribution) for ngram in ngrams]
    assert strength == sorted(strength, reverse=True)


def test_an_ngram_shows_where_words_are_left_out():
    assert str(NGram((1, 2, 5), ("not", "a", "moment"), 1.0, 1)) == "not a ... moment"
    assert str(NGram((3,), ("good",), 1.0, 1)) == "good"
