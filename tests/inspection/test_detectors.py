"""The index of a network's detectors over a corpus."""

import json
import tracemalloc

import numpy as np
import pytest

from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig
from dcnn.errors import UserError
from dcnn.inspection import detector_ranking as corpus_ranking
from dcnn.inspection import rank_detectors
from dcnn.inspection.detectors import Detection, Detector
from dcnn.predictor import Predictor
from not_detector import NOT_DETECTOR, artifact_with_a_not_detector, corpus_with_not
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


def test_top_tells_words_value_and_count():
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


def test_long_texts_are_passed_over_above_the_first_layer():
    index = rank_detectors(Predictor(make_artifact()), ["good " * 1001, *TEXTS])
    alone = rank_detectors(Predictor(make_artifact()), TEXTS, layers=[2])
    for detector in alone.detectors:
        assert index.top(detector) == alone.top(detector)
    assert index.class_contributions(Detector(1, 0, 0))
    only = rank_detectors(Predictor(make_artifact()), ["good " * 1001])
    assert {detector.layer for detector in only.detectors} == {1}
    assert only.class_contributions(Detector(1, 0, 0)) == (0.0, 0.0)
    assert {r.detector.layer for r in only.for_text("very good")} == {1}


def test_a_corpus_of_one_word_is_no_contrast():
    index = rank_detectors(Predictor(make_artifact()), ["good good"])
    assert {index.name(detector) for detector in index.detectors} == {"no word stands out"}


def test_a_detector_is_named_and_found_by_its_word(index):
    assert index.name(NOT_DETECTOR).startswith("_ not _ _")
    assert index.find("not")[0] == NOT_DETECTOR
    assert index.find("NOT")[0] == NOT_DETECTOR  # as the tokenizer has it
    assert index.by_distinctiveness()[0] == NOT_DETECTOR
    for detector in index.find("not"):
        assert "not" in {w.word for w in index.distinctive_words(detector)}
    assert index.find("plot") == []
    assert not index.is_faint(NOT_DETECTOR)


def test_several_words_must_all_be_there(index):
    both = set(index.find("not good"))
    assert both == set(index.find("not")) & set(index.find("good"))


def test_faint_detectors_come_last():
    artifact = artifact_with_a_not_detector()
    artifact.weights["layers.0.filters"][0, 0, 0] = 1e-9
    index = rank_detectors(Predictor(artifact), TEXTS, layers=[1])
    assert index.is_faint(Detector(1, 0, 0))
    assert not index.is_faint(NOT_DETECTOR)
    order = [index.is_faint(detector) for detector in index.by_distinctiveness()]
    assert order == sorted(order)
    assert [index.is_faint(d) for d in index.find("not")] == sorted(
        index.is_faint(d) for d in index.find("not")
    )


def test_a_topmost_detector_pushes_by_value_times_weight():
    index = rank_detectors(Predictor(make_artifact()), TEXTS, top=2)
    weights = index.predictor.artifact.weights["head.weight"].reshape(2, 3, 2, 3)
    detector = Detector(2, 1, 0)
    entries = index.corpus.entries[detector][:2]
    carried = np.mean([e.value * weights[:, 1, 0, e.met.column] for e in entries], axis=0)
    np.testing.assert_allclose(
        index.class_contributions(detector), carried - carried.mean(), atol=1e-6
    )


def test_detectors_of_a_class_come_by_their_push(index):
    for number, label in enumerate(("neg", "pos")):
        pushes = index.for_class(label)
        amounts = [push.amount for push in pushes]
        assert amounts == sorted(amounts, reverse=True)
        assert {push.detector for push in pushes} == set(index.detectors)
        assert pushes[0].amount == index.class_contributions(pushes[0].detector)[number]
    assert sum(index.class_contributions(NOT_DETECTOR)) == pytest.approx(0)


def test_an_example_finds_what_fires_on_it(index):
    reactions = index.for_text("the plot was not bad at all")
    assert {reaction.detector for reaction in reactions} == set(index.detectors)
    order = [(index.is_faint(r.detector), -r.strength) for r in reactions]
    assert order == sorted(order)
    (of_not,) = (r for r in reactions if r.detector == NOT_DETECTOR)
    assert of_not.strength == pytest.approx(1)  # as strong as in the corpus
    assert "not" in of_not.detection.words
    (without,) = (r for r in index.for_text("the plot was bad") if r.detector == NOT_DETECTOR)
    assert without.strength < 0.1


def test_separated_words_have_gaps():
    assert str(Detection(("not", "bad", "at"), (2, 5, 6), 0.5, 1)) == "not \u2026 bad at"


def test_json_holds_all_of_it(index):
    values = json.loads(index.to_json())
    assert values["classes"] == ["neg", "pos"]
    assert values["sentences"] == 200
    assert len(values["detectors"]) == len(index.detectors)
    described = values["detectors"][list(index.detectors).index(NOT_DETECTOR)]
    assert described["name"] == index.name(NOT_DETECTOR)
    assert described["top"][0]["words"] == list(index.top(NOT_DETECTOR)[0].words)
    assert set(described["contributions"]) == {"neg", "pos"}


def test_the_corpus_is_read_once_and_only_a_chunk_ahead(monkeypatch):
    monkeypatch.setattr(corpus_ranking, "CHUNK_WORDS", 300)
    given, told = 0, []

    def corpus():
        nonlocal given
        for number in range(2000):
            given = number + 1
            assert given - (told[-1] if told else 0) <= 100  # 300 words, three a text
            yield f"not very {number % 7}"

    def progress(read):
        assert read == given
        told.append(read)

    rank_detectors(Predictor(make_artifact()), corpus(), progress=progress)
    assert told == list(range(100, 2001, 100))


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
        ({"texts": "not good"}, "the texts must be strings, one after the other; got 'not good'"),
        ({"texts": ["good", 3]}, "text 1 must be a string; got 3"),
        ({"texts": ["good " * 1001], "layers": [2]}, "more than 1,000 words"),
    ],
)
def test_mistakes_are_answered(wrong, message):
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
def test_wrong_questions_are_answered(index, ask, message):
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
    few, multi_label = (
        rank_detectors(Predictor(make_artifact()), texts, top=top) for top in (5, 100)
    )
    assert len(multi_label.top(multi_label.detectors[-1])) > 30
    assert [few.name(d) for d in few.detectors] == [
        multi_label.name(d) for d in multi_label.detectors
    ]
    assert len(multi_label.ngram_contributions(multi_label.detectors[-1])) == 30
