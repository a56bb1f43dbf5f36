"""Contributions add up: a logit is a sum over the paths of the graph."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn.inspection import attribution
from dcnn.inspection.attribution import (
    COVERAGE,
    MOST_NGRAMS,
    NGRAM_SHARE,
    NGram,
    backward_step,
    fewest_words,
    logit_coefficients,
    ngram_table,
    node_word_contributions,
    phrase_attribution,
    strongest_nodes,
    word_attributions,
)
from small_networks import example, inspected, paths
from untrained import VOCABULARY_TEXT


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
    strength = every[strongest_nodes(trace, 1)]
    np.testing.assert_array_equal(strength, np.sort(every)[::-1])
    some = np.array([5, 2, 9])
    assert set(strongest_nodes(trace, 1, some)) == set(some)


@given(inspected(most_words=6, depth=2))
@settings(max_examples=40)
def test_the_table_of_ngrams_and_words_is_the_sum_over_the_paths(seen):
    """By the definition: each path counts to the n-gram of its topmost node and to its word."""
    table = ngram_table(seen.trace, 1)
    expected = np.zeros_like(table.shares)
    row_of = {node: row for row, nodes in enumerate(table.nodes) for node in nodes.tolist()}
    for word, top, amount in paths(seen, 1):
        if top in row_of:
            expected[row_of[top], word] += amount
        else:
            assert amount == 0
    np.testing.assert_allclose(table.shares, expected, atol=1e-5)


@given(inspected(), st.integers(0, 2))
def test_ngrams_and_words_are_the_rows_and_columns_of_one_table(seen, of_class):
    table = ngram_table(seen.trace, of_class)
    words = word_attributions(seen.trace, of_class)
    np.testing.assert_allclose(table.shares.sum(axis=0), words, atol=1e-6)
    rows = [ngram.attribution for ngram in table.ngrams]
    np.testing.assert_allclose(table.shares.sum(axis=1), rows, atol=1e-6)
    biases = float(seen.trace.logits[of_class]) - words.sum()
    assert sum(rows) + biases == pytest.approx(seen.trace.logits[of_class], abs=1e-5)
    for ngram, nodes in zip(table.ngrams, table.nodes, strict=True):
        assert ngram.words == tuple(seen.words[i] for i in ngram.positions)
        assert ngram.nodes == len(nodes)
        assert ngram.absolute >= abs(ngram.attribution) - 1e-9
    every = np.concatenate(table.nodes)
    assert len(set(every.tolist())) == len(every)


@given(inspected(most_words=6, depth=2))
@settings(max_examples=40)
def test_an_ngram_is_the_fewest_words_that_contribute_half_of_a_node(seen):
    table = ngram_table(seen.trace, 0)
    words = np.zeros((seen.trace.head_weight.shape[1], len(seen.words)))
    for word, top, amount in paths(seen, 0):
        words[top, word] += amount
    for ngram, nodes in zip(table.ngrams, table.nodes, strict=True):
        for row in words[nodes]:
            toward = np.maximum(row * (1 if row.sum() >= 0 else -1), 0)
            half = NGRAM_SHARE * toward.sum()
            assert toward[list(ngram.positions)].sum() >= half - 1e-5
            fewer = np.sort(toward)[::-1][: len(ngram.positions) - 1]
            assert fewer.sum() < half + 1e-5


@given(inspected(), st.floats(0.05, 1))
def test_the_fewest_ngrams_cover_what_is_asked(seen, share):
    table = ngram_table(seen.trace, 2)
    count = table.covering(share)
    sizes = [ngram.absolute for ngram in table.ngrams]
    assert sizes == sorted(sizes, reverse=True)
    assert table.coverage(count) >= share - 1e-9
    assert count == 1 or table.coverage(count - 1) < share
    assert table.coverage(len(sizes)) == pytest.approx(1)


@pytest.mark.parametrize("words", [20, 120, 700])
def test_a_long_sentence_has_coarser_ngrams_that_still_cover(words):
    """Of distinct nodes in number; each word still has its attribution."""
    text = " ".join(np.random.default_rng(words).choice(VOCABULARY_TEXT.split(), words))
    seen = example(text, dim=32, widths=(4, 3), maps=(3, 8), k_top=4)
    table = ngram_table(seen.trace, 0)
    count = table.covering(COVERAGE)
    assert count <= MOST_NGRAMS
    assert table.coverage(count) >= COVERAGE
    expected = word_attributions(seen.trace, 0)
    np.testing.assert_allclose(table.shares.sum(axis=0), expected, atol=1e-6)
    assert len({ngram.positions for ngram in table.ngrams}) == len(table.ngrams)


def test_words_that_contribute_exactly_half_are_enough():
    rows = np.array([[1.0, -3.0, 2.0, 1.0], [1.0, 2.0, 2.0, 1.0], [0.0, -1.0, 0.0, 0.0]])
    assert fewest_words(rows) == [(2,), (1, 2), ()]


def test_an_ngram_shows_its_gaps():
    assert str(NGram((1, 2, 5), ("not", "a", "moment"), 1.0, 1.0, 1)) == "not a ... moment"
    assert str(NGram((3,), ("good",), 1.0, 1.0, 1)) == "good"
