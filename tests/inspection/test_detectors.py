"""The index of detectors over a corpus, and their names."""

import json
import tracemalloc
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig
from dcnn.errors import UserError
from dcnn.inspection import detector_ranking as corpus_ranking
from dcnn.inspection import rank_detectors
from dcnn.inspection.attribution import fewest_words, logit_coefficients, node_word_contributions
from dcnn.inspection.detector_ranking import Detection, Detector
from dcnn.inspection.detectors import (
    DetectorIndex,
    WordScore,
    distinctive,
    log_odds_z_score,
    name_by_words,
    score_words,
)
from dcnn.ops import reference
from dcnn.predictor import Predictor
from not_detector import NOT_DETECTOR, artifact_with_a_not_detector, corpus_with_not
from small_networks import inspected
from untrained import VOCABULARY_TEXT, make_artifact

TEXTS = [
    "The plot is not dull, but acting was good.",
    "",
    "very good",
    "the ending is not good , the acting is not bad .",
    "The plot is not dull, but acting was good.",
    "xyzzy and plugh",
]


@pytest.fixture(scope="module")
def index():
    return rank_detectors(Predictor(artifact_with_a_not_detector()), corpus_with_not())


def test_every_detector_of_every_layer_is_there(index):
    config = DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=3)
    assert index.predictor.artifact.config.model == config
    assert len(index.detectors) == 2 * 8 + 3 * 2
    assert list(index.detectors) == sorted(index.detectors)
    assert all(len(index.top(detector)) == 5 for detector in index.detectors)


def test_top_has_words_value_and_count():
    index = rank_detectors(Predictor(artifact_with_a_not_detector()), TEXTS, top=3)
    first, second, third = index.top(NOT_DETECTOR)
    assert first == Detection(("is", "not", "dull", ","), (0, 1, 2, 3), 15.0, 2, (1,))
    assert (str(second), second.count) == ("is not good ,", 1)
    assert str(third) == "is not bad ."
    assert index.corpus.sentences == 5


def test_layers_can_be_chosen():
    predictor = Predictor(make_artifact())
    for layers, count in (([1], 16), ([2], 6), ([2, 1, 1], 22)):
        assert len(rank_detectors(predictor, TEXTS, layers=layers).detectors) == count


def test_long_texts_are_skipped_above_the_first_layer():
    index = rank_detectors(Predictor(make_artifact()), ["good " * 1001, *TEXTS])
    alone = rank_detectors(Predictor(make_artifact()), TEXTS, layers=[2])
    for detector in alone.detectors:
        assert index.top(detector) == alone.top(detector)
    assert index.class_contributions(Detector(1, 0, 0))
    only = rank_detectors(Predictor(make_artifact()), ["good " * 1001])
    assert {detector.layer for detector in only.detectors} == {1}
    assert only.class_contributions(Detector(1, 0, 0)) == (0.0, 0.0)
    assert {r.detector.layer for r in only.for_text("very good")} == {1}


def test_a_corpus_of_one_word_has_no_distinctive_word():
    index = rank_detectors(Predictor(make_artifact()), ["good good"])
    assert {index.name(detector) for detector in index.detectors} == {"no distinctive word"}


def test_a_detector_is_named_and_found_by_its_word(index):
    assert index.name(NOT_DETECTOR).startswith("_ not _ _")
    assert index.find("not")[0] == NOT_DETECTOR
    assert index.find("NOT")[0] == NOT_DETECTOR  # as the tokenizer has it
    assert index.by_distinctiveness()[0] == NOT_DETECTOR
    for detector in index.find("not"):
        assert "not" in {w.word for w in index.distinctive_words(detector)}
    assert index.find("plot") == []
    assert not index.is_weak(NOT_DETECTOR)


def test_several_words_must_all_be_distinctive(index):
    both = set(index.find("not good"))
    assert both == set(index.find("not")) & set(index.find("good"))


def test_of_several_words_the_least_distinctive_decides(index):
    found = index.find("bad the")
    scores = [{w.word: w.z_score for w in index.distinctive_words(one)} for one in found]
    least = [min(of["bad"], of["the"]) for of in scores]
    assert len(found) == 2
    assert least == sorted(least, reverse=True)


def test_weak_detectors_come_last():
    artifact = artifact_with_a_not_detector()
    artifact.weights["layers.0.filters"][0, 0, 0] = 1e-9
    index = rank_detectors(Predictor(artifact), TEXTS, layers=[1])
    assert index.is_weak(Detector(1, 0, 0))
    assert not index.is_weak(NOT_DETECTOR)
    order = [index.is_weak(detector) for detector in index.by_distinctiveness()]
    assert order == sorted(order)
    assert [index.is_weak(d) for d in index.find("not")] == sorted(
        index.is_weak(d) for d in index.find("not")
    )


def test_a_topmost_detector_contributes_value_times_weight():
    index = rank_detectors(Predictor(make_artifact()), TEXTS, top=2)
    weights = index.predictor.artifact.weights["head.weight"].reshape(2, 3, 2, 3)
    detector = Detector(2, 1, 0)
    entries = index.corpus.detections[detector][:2]
    expected = np.mean([e.value * weights[:, 1, 0, e.column] for e in entries], axis=0)
    np.testing.assert_allclose(
        index.class_contributions(detector), expected - expected.mean(), atol=1e-6
    )


def test_detectors_of_a_class_are_sorted_by_contribution(index):
    for number, label in enumerate(("neg", "pos")):
        pushes = index.for_class(label)
        amounts = [push.amount for push in pushes]
        assert amounts == sorted(amounts, reverse=True)
        assert {push.detector for push in pushes} == set(index.detectors)
        assert pushes[0].amount == index.class_contributions(pushes[0].detector)[number]
    assert sum(index.class_contributions(NOT_DETECTOR)) == pytest.approx(0)


def test_labels_of_a_multi_label_model_have_contributions_of_their_own():
    artifact = artifact_with_a_not_detector()
    single = rank_detectors(Predictor(artifact), TEXTS).ngram_contributions(NOT_DETECTOR)
    multi_label = Predictor(replace(artifact, thresholds=(0.5, 0.5)))
    multi = rank_detectors(multi_label, TEXTS).ngram_contributions(NOT_DETECTOR)
    means = np.mean(multi, axis=1, keepdims=True)
    assert np.abs(means).max() > 1e-3
    np.testing.assert_allclose(multi - means, single, atol=1e-6)


def test_detectors_of_a_text_are_sorted_by_strength(index):
    reactions = index.for_text("the plot was not bad at all")
    assert {reaction.detector for reaction in reactions} == set(index.detectors)
    order = [(index.is_weak(r.detector), -r.strength) for r in reactions]
    assert order == sorted(order)
    (of_not,) = (r for r in reactions if r.detector == NOT_DETECTOR)
    assert of_not.strength == pytest.approx(1)  # as strong as in the corpus
    assert "not" in of_not.detection.words
    (without,) = (r for r in index.for_text("the plot was bad") if r.detector == NOT_DETECTOR)
    assert without.strength < 0.1


def test_an_ngram_shows_its_gaps():
    assert str(Detection(("not", "bad", "at"), (2, 5, 6), 0.5, 1)) == "not \u2026 bad at"


def test_json_has_every_detector(index):
    values = json.loads(index.to_json())
    assert values["classes"] == ["neg", "pos"]
    assert values["sentences"] == 200
    assert len(values["detectors"]) == len(index.detectors)
    described = values["detectors"][list(index.detectors).index(NOT_DETECTOR)]
    assert described["name"] == index.name(NOT_DETECTOR)
    assert described["top"][0]["words"] == list(index.top(NOT_DETECTOR)[0].words)
    assert set(described["contributions"]) == {"neg", "pos"}


def test_the_corpus_is_read_once_and_only_a_chunk_ahead(monkeypatch):
    monkeypatch.setattr("dcnn.text.encoder.MOST_TOKENS", 300)
    given, reported = 0, []

    def corpus():
        nonlocal given
        for number in range(2000):
            given = number + 1
            assert given - (reported[-1] if reported else 0) <= 100  # 300 words, three per text
            yield f"not very {number % 7}"

    def progress(read):
        assert read == given
        reported.append(read)

    rank_detectors(Predictor(make_artifact()), corpus(), progress=progress)
    assert reported == list(range(100, 2001, 100))


def test_memory_does_not_grow_with_the_corpus():
    artifact = make_artifact()
    words = [w for w in artifact.encoder.vocabulary.words if w.isalpha()]

    def peak(count):
        generator = np.random.default_rng(0)
        corpus = (generator.choice(words, 8).tolist() for _ in range(count))
        tracemalloc.start()
        corpus_ranking.rank_corpus(corpus, Predictor(artifact), [1, 2], 3, chunk=100)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(10)
    assert peak(2400) < 1.3 * peak(600)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"texts": []}, "no text with a word"),
        ({"texts": ["", " "]}, "no text with a word"),
        ({"top": 0}, "top=0 must be from 1 to 200"),
        ({"top": 201}, "top=201 must be from 1 to 200"),
        ({"layers": [3]}, r"layers=\[3\] must be one or more from 1 to 2"),
        ({"layers": []}, "from 1 to 2"),
        ({"texts": "not good"}, "the texts must be an iterable of strings; got 'not good'"),
        ({"texts": ["good", 3]}, "text 1 must be a string; got 3"),
        ({"texts": ["good " * 1001], "layers": [2]}, "more than 1,000 words"),
    ],
)
def test_invalid_arguments_raise_errors(wrong, message):
    with pytest.raises(UserError, match=message):
        rank_detectors(Predictor(make_artifact()), **({"texts": TEXTS} | wrong))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda index: index.find("xyzzy"), "does not know the word 'xyzzy'"),
        (lambda index: index.find(" "), "no word to find"),
        (lambda index: index.for_class("great"), "no class 'great'; its classes are neg, pos"),
        (lambda index: index.for_text(""), "the text has no words"),
        (lambda index: index.top(Detector(3, 0, 0)), "no detector 3:0:0.*1:0:0 to 2:2:1"),
    ],
)
def test_invalid_queries_raise_errors(index, ask, message):
    with pytest.raises(UserError, match=message):
        ask(index)


@pytest.mark.parametrize("config", [NBoWConfig(dim=5), MaxTDNNConfig(dim=5)])
def test_other_kinds_of_models_are_refused(config):
    with pytest.raises(UserError, match=f"of the kind {config.kind}.*only those of dcnn can"):
        rank_detectors(Predictor(make_artifact(config)), TEXTS)


def test_names_do_not_depend_on_how_many_ngrams_are_shown():
    """Nor does the time they take: each n-gram of a higher layer has to be traced for them."""
    words = VOCABULARY_TEXT.split()
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(words, 9)) for _ in range(80)]
    few, many = (rank_detectors(Predictor(make_artifact()), texts, top=top) for top in (5, 100))
    assert len(many.top(many.detectors[-1])) > 30
    assert [few.name(d) for d in few.detectors] == [many.name(d) for d in many.detectors]
    assert len(many.ngram_contributions(many.detectors[-1])) == 30


CORPUS = Counter({"the": 600, "film": 90, "not": 30, "bad": 10, "as": 20})


def placed(text):
    return list(enumerate(text.split()))


def test_rare_words_score_high_and_common_ones_do_not():
    ngrams = [placed("the not film"), placed("the not bad"), placed("film not the")]
    found = score_words(ngrams, CORPUS, 1000)
    assert found[0].word == "not"
    assert found[0].ngrams == 3
    assert found[0].place == 1
    assert {w.word: w.z_score > 0 for w in found}["the"] is False


def test_the_frequency_of_the_corpus_scores_zero():
    assert log_odds_z_score(30, 1000, 300, 10_000) == pytest.approx(0, abs=1e-6)
    assert log_odds_z_score(60, 1000, 300, 10_000) > 0 > log_odds_z_score(15, 1000, 300, 10_000)
    assert log_odds_z_score(3, 100, 300, 10_000) > log_odds_z_score(0, 100, 300, 10_000)


def test_a_word_of_one_ngram_is_not_distinctive():
    ngrams = [placed("the film rare"), *[placed("the film seldom")] * 9]
    corpus = CORPUS + Counter({"rare": 1, "seldom": 9})
    found = score_words(ngrams, corpus, 1_000_000)
    scores = {w.word: w.z_score for w in found}
    assert scores["rare"] > 3
    clear = {w.word for w in distinctive(found, len(ngrams))}
    assert "seldom" in clear
    assert "rare" not in clear


def test_words_outside_the_vocabulary_are_left_out():
    assert score_words([placed("xyzzy not")], CORPUS, 1000)[0].word == "not"
    assert [w.word for w in score_words([placed("xyzzy")], CORPUS, 1000)] == []


def test_a_word_at_two_places_has_no_place():
    ngrams = [placed("as good as"), placed("as bad as")]
    assert {w.word: w.place for w in score_words(ngrams, CORPUS, 1000)}["as"] is None


@pytest.mark.parametrize(
    ("words", "width", "name"),
    [
        ([], 3, "no distinctive word"),
        ([("not", 1)], 3, "_ not _"),
        ([("not", 1), ("never", 1), ("bad", 2)], 4, "_ not/never bad _"),
        ([("not", 0), ("film", None)], 2, "not _, anywhere film"),
        ([("film", None), ("movie", None)], 5, "film/movie"),
        ([("not", 7), ("bad", 9)], None, "not/bad"),
    ],
)
def test_names_show_places(words, width, name):
    assert name_by_words([WordScore(word, 9.0, 5, place) for word, place in words], width) == name


@given(inspected())
def test_the_detectors_that_folding_joins_contribute_what_their_node_contributes(seen):
    """Of an m-gram that pooling kept; what it dropped contributes nothing."""
    occurrences, layer = DetectorIndex(Predictor(seen.artifact), None, 1), seen.trace.layers[0]
    wide = reference.wide_convolution(seen.trace.matrix[None, None], layer.filters)[0]
    found = logit_coefficients(seen.trace, range(3), 1)
    coefficients = np.zeros((3, layer.values.size))
    coefficients[found.outputs, found.nodes] = found.values
    coefficients = coefficients.reshape(3, *layer.values.shape)
    rows, width = layer.bias.shape[1], layer.filters.shape[-1]
    for o, row in np.ndindex(layer.bias.shape):
        for column in range(width - 1, len(seen.words)):
            detections = {
                r: Detection((), (), float(wide[o, r, column]), 1, (), tuple(seen.words), start)
                for r in range(row, wide.shape[1], rows)
                for start in [column - width + 1]
            }
            contributions = sum(
                occurrences.logit_contributions(Detector(1, o, r), one)
                for r, one in detections.items()
            )
            kept = np.flatnonzero(layer.positions[o, row] == column)
            if not len(kept):
                assert not contributions.any()
                continue
            at = o, row, kept[0]
            z = layer.pooled[at] + layer.bias[o, row]
            share = layer.pooled[at] / z if z else 1.0  # the rest is the bias's
            expected = coefficients[:, *at] * layer.values[at] * share
            np.testing.assert_allclose(contributions, expected, atol=1e-5)


@given(inspected(depth=3, most_words=8), st.data())
@settings(max_examples=40)
def test_a_node_without_a_path_to_the_root_contributes_nothing_and_has_strongest_words(seen, data):
    layer = data.draw(st.integers(1, seen.trace.depth))
    if layer == 1:
        return
    occurrences = DetectorIndex(Predictor(seen.artifact), None, 1)
    values = seen.trace.values(layer)
    alive = seen.graph.nodes.layer == layer
    nodes = seen.graph.nodes
    known = set(zip(nodes.map[alive], nodes.row[alive], nodes.position[alive], strict=True))
    for map_, row, place in np.ndindex(values.shape):
        position = seen.trace.layers[layer - 1].positions[map_, row, place]
        value = float(values[map_, row, place])
        found = Detection((), (), value, 1, (), tuple(seen.words), place)
        detector = Detector(layer, map_, row)
        if (map_, row, position) not in known:
            assert not occurrences.logit_contributions(detector, found).any()
        words = node_word_contributions(
            seen.trace, layer, np.array([np.ravel_multi_index((map_, row, place), values.shape)])
        )
        assert occurrences.strongest_words(detector, found) == fewest_words(words)[0]
