"""Contributions add up: a logit is a sum over the paths of the graph."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn.inspection import attribution
from dcnn.inspection.attribution import (
    NGRAM_SHARE,
    NGram,
    backward_step,
    fewest_words,
    logit_coefficients,
    node_word_contributions,
    phrase_attribution,
    strongest_ngrams,
    strongest_nodes,
    word_attributions,
)
from small_networks import example, inspected, paths


def bias_contribution(trace, coefficients):
    """Of the biases of the nodes of a layer to the (one) output."""
    layer = trace.layers[coefficients.layer - 1]
    bias = np.broadcast_to(layer.bias[..., None], layer.values.shape).ravel()
    slopes = coefficients.values * layer.gains.ravel()[coefficients.nodes]
    return float(slopes @ bias[coefficients.nodes])


@given(inspected())
def test_every_layer_of_nodes_and_edges_adds_up_to_the_logit(seen):
    """With the biases above it; of layer 0 that is the words with all biases."""
    for of_class in range(3):
        coefficients = logit_coefficients(seen.trace, [of_class], seen.trace.depth)
        biases = float(seen.trace.head_bias[of_class])
        while True:
            total = coefficients.contributions(seen.trace).sum() + biases
            assert total == pytest.approx(seen.trace.logits[of_class], abs=1e-5)
            if coefficients.layer == 0:
                break
            biases += bias_contribution(seen.trace, coefficients)
            coefficients, edges = backward_step(seen.trace, coefficients)
            assert edges.contribution.sum() + biases == pytest.approx(
                seen.trace.logits[of_class], abs=1e-5
            )
        assert word_attributions(seen.trace, of_class).sum() + biases == pytest.approx(
            seen.trace.logits[of_class], abs=1e-5
        )


@given(inspected(most_words=6, depth=2))
@settings(max_examples=40)
def test_a_word_attribution_is_the_sum_over_its_paths(seen):
    expected = np.zeros(len(seen.words))
    for word, _, amount in paths(seen, 1):
        expected[word] += amount
    np.testing.assert_allclose(word_attributions(seen.trace, 1), expected, atol=1e-5)


@given(inspected(), st.integers(0, 3))
@settings(max_examples=60)
def test_words_and_biases_add_up_to_the_value_of_every_node(seen, layer):
    layer = min(max(layer, 1), seen.trace.depth)
    values = seen.trace.values(layer)
    words = node_word_contributions(seen.trace, layer, np.arange(values.size))
    assert words.shape == (values.size, len(seen.words))
    biases = np.zeros(values.size)
    for node in range(values.size):
        coefficients = attribution.Coefficients(
            layer, np.array([node]), np.zeros(1, int), np.ones(1)
        )
        while coefficients.layer > 0:
            biases[node] += bias_contribution(seen.trace, coefficients)
            coefficients, _ = backward_step(seen.trace, coefficients)
    np.testing.assert_allclose(words.sum(axis=1) + biases, values.ravel(), atol=1e-5)


def test_node_contributions_do_not_depend_on_order_or_on_what_is_computed_together(monkeypatch):
    trace = example(widths=(4, 3, 2), maps=(2, 3, 2)).trace
    nodes = np.arange(trace.values(3).size)
    expected = node_word_contributions(trace, 3, nodes)
    shuffled = np.random.default_rng(0).permutation(nodes)
    monkeypatch.setattr(attribution, "MOST_COEFFICIENTS", 200)
    np.testing.assert_allclose(node_word_contributions(trace, 3, shuffled), expected[shuffled])


def test_contributions_to_the_topmost_nodes_make_the_attributions():
    trace = example().trace
    words = node_word_contributions(trace, trace.depth, np.arange(trace.head_weight.shape[1]))
    np.testing.assert_allclose(trace.head_weight[1] @ words, word_attributions(trace, 1), atol=1e-5)


def test_a_word_outside_the_window_contributes_nothing():
    trace = example().trace
    positions = trace.layers[0].positions.ravel()
    words = node_word_contributions(trace, 1, np.arange(len(positions)))
    for last, contributions in zip(positions, words, strict=True):
        outside = [i for i in range(len(trace.words)) if not last - 4 < i <= last]
        assert not contributions[outside].any()


@given(inspected(most_words=6, depth=2), st.data())
@settings(max_examples=40)
def test_a_phrase_attribution_is_the_sum_over_its_paths_that_meet(seen, data):
    phrase = data.draw(st.sets(st.integers(0, len(seen.words) - 1), min_size=1, max_size=4))
    all_paths = paths(seen, 2)
    reached = [{top for word, top, _ in all_paths if word == w} for w in phrase]
    meet = set.intersection(*reached)
    expected = sum(amount for word, top, amount in all_paths if word in phrase and top in meet)
    assert phrase_attribution(seen.trace, 2, phrase) == pytest.approx(expected, abs=1e-5)


def test_a_phrase_of_one_word_has_the_words_attribution():
    trace = example().trace
    alone = [phrase_attribution(trace, 0, [word]) for word in range(len(trace.words))]
    np.testing.assert_allclose(alone, word_attributions(trace, 0), atol=1e-9)


def test_words_that_never_meet_are_no_phrase():
    trace = example(widths=(2,), maps=(2,), k_top=2).trace  # a node reads two words
    far_apart = [(a, b) for a, b in combinations(range(len(trace.words)), 2) if b > a + 1]
    assert far_apart
    assert all(phrase_attribution(trace, 0, pair) == 0 for pair in far_apart)
    assert any(phrase_attribution(trace, 0, (a, a + 1)) for a in range(len(trace.words) - 1))


@pytest.mark.parametrize("positions", [[], [-1], [0, 12]])
def test_a_phrase_is_of_words_of_the_sentence(positions):
    with pytest.raises(ValueError, match="one or more from 0 to 11"):
        phrase_attribution(example().trace, 0, positions)


def test_the_strongest_nodes_come_first_whether_for_or_against():
    trace = example().trace
    every = np.abs(trace.contributions[1])
    strength = every[strongest_nodes(trace, 1, 10)]
    assert (np.diff(strength) <= 0).all()
    assert strength[-1] >= np.sort(every)[-10]


@given(inspected(most_words=6, depth=2))
@settings(max_examples=40)
def test_an_ngram_is_the_fewest_words_that_contribute_half_of_a_node(seen):
    node = int(strongest_nodes(seen.trace, 0, 1)[0])
    direction = np.sign(seen.trace.contributions[0, node])
    words = np.zeros(len(seen.words))
    for word, top, amount in paths(seen, 0):
        words[word] += amount * direction * (top == node)
    ngrams = strongest_ngrams(seen.trace, 0, count=1)
    enough = NGRAM_SHARE * words.clip(min=0).sum()
    if enough == 0:
        assert ngrams == []
        return
    (ngram,) = ngrams
    assert ngram.words == tuple(seen.words[i] for i in ngram.positions)
    assert ngram.nodes == 1
    total = words[list(ngram.positions)].sum()
    assert ngram.attribution * direction == pytest.approx(total, abs=1e-5)
    assert ngram.attribution * direction >= enough - 1e-5
    fewer = np.sort(words)[::-1][: len(ngram.positions) - 1]
    assert fewer.sum() < enough + 1e-5


def test_words_that_contribute_exactly_half_are_enough():
    assert fewest_words(np.array([1.0, -3.0, 2.0, 1.0])) == (2,)
    assert fewest_words(np.array([1.0, 2.0, 2.0, 1.0])) == (1, 2)


def test_ngrams_of_all_nodes_are_listed_once_each_the_largest_first():
    trace = example().trace
    nodes = trace.head_weight.shape[1]
    ngrams = strongest_ngrams(trace, 0, count=nodes)
    assert sum(ngram.nodes for ngram in ngrams) <= nodes
    assert len({ngram.positions for ngram in ngrams}) == len(ngrams)
    strength = [abs(ngram.attribution) for ngram in ngrams]
    assert strength == sorted(strength, reverse=True)


def test_an_ngram_shows_its_gaps():
    assert str(NGram((1, 2, 5), ("not", "a", "moment"), 1.0, 1)) == "not a ... moment"
    assert str(NGram((3,), ("good",), 1.0, 1)) == "good"
