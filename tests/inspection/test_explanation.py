"""Explanations: deletions and pooling choices, comparison of two texts."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn import artifact as model_folder
from dcnn.config import NBoWConfig
from dcnn.errors import DataError, UserError
from dcnn.inspection import explain, to_networkx
from dcnn.inspection.explanation import align, compare, deletions, replacements
from dcnn.ops import reference
from dcnn.predictor import Predictor
from small_networks import example, inspected
from untrained import make_artifact

TEXT = "The plot is not dull, but the ending was xyzzy."


@pytest.fixture
def predictor():
    return Predictor(make_artifact(classes=("bad", "good", 3)))


def test_the_predicted_class_is_explained_by_default(predictor):
    found = explain(predictor, TEXT)
    assert found.prediction == predictor.predict([TEXT])[0]
    assert found.label == found.prediction.label
    assert " ".join(found.words) == "the plot is not dull , but the ending was xyzzy ."
    assert found.unknown == (10,)
    assert found.logit == pytest.approx(sum(found.attributions) + found.biases)
    assert found.changes == [deletion for deletion in found.deletions if deletion.changes]
    assert len(found.deletions) == len(found.words)
    assert found.picture().label == found.label
    assert to_networkx(found.graph).number_of_nodes() == len(found.graph.nodes) + 1


def test_what_takes_long_is_computed_when_asked_for(predictor):
    found = explain(predictor, TEXT)
    assert found.described_words()
    assert not vars(found).keys() & {"graph", "table", "deletions", "replacements"}
    assert found.table is found.table


@pytest.mark.parametrize("of_class", ["bad", "good", 3, "3"])
def test_any_class_can_be_explained(predictor, of_class):
    found = explain(predictor, TEXT, of_class)
    assert str(found.label) == str(of_class)
    assert (
        found.attributions
        != explain(predictor, TEXT, "good" if of_class == "bad" else "bad").attributions
    )


def test_to_dict_is_json(predictor):
    values = json.loads(json.dumps(explain(predictor, TEXT, "bad").to_dict()))
    assert values["class"] == "bad"
    assert [word["word"] for word in values["words"] if not word["known"]] == ["xyzzy"]
    attribution = sum(word["attribution"] for word in values["words"])
    assert attribution + values["biases"] == pytest.approx(values["logit"])
    assert sum(values["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert len(values["deletions"]) == len(values["words"])
    assert values["closest_choices"][0]["margin"] <= values["closest_choices"][-1]["margin"]
    ngrams = sum(ngram["attribution"] for ngram in values["ngrams"])
    assert ngrams == pytest.approx(attribution, abs=1e-5)
    assert len(values["replacements"]) == 8


@pytest.mark.parametrize("text", ["good", "xyzzy", "👍🏽 電影", "مرحبا بالعالم", "good " * 200])
def test_awkward_texts_are_explained_and_drawn(predictor, tmp_path, text):
    found = explain(predictor, text)
    for ending in ("svg", "html", "json", "graphml", "png"):
        found.save(tmp_path / f"graph.{ending}")
        assert (tmp_path / f"graph.{ending}").stat().st_size > 500


@pytest.mark.parametrize(
    ("text", "of_class", "error", "message"),
    [
        ("", None, UserError, "the text has no words"),
        (" \n", None, UserError, "the text has no words"),
        ("good " * 1001, None, UserError, "1,001 words.*give 1,000 or fewer"),
        ("good", "great", UserError, "no class 'great'; its classes are bad, good, 3"),
        (["good"], None, DataError, "must be a string"),
    ],
)
def test_invalid_arguments_raise_errors(predictor, text, of_class, error, message):
    with pytest.raises(error, match=message):
        explain(predictor, text, of_class)


def test_a_model_without_a_graph_is_refused():
    with pytest.raises(UserError, match="the model is of the kind nbow"):
        explain(Predictor(make_artifact(NBoWConfig(dim=5))), "good")


def test_explaining_needs_numpy_and_safetensors_only(tmp_path):
    model_folder.save(tmp_path / "model", make_artifact())
    refused = ("torch", "sklearn", "scipy", "rich", "typer", "networkx", "matplotlib")
    script = (
        "import sys\n"
        f"sys.modules |= dict.fromkeys({refused})\n"
        "from dcnn import Predictor, explain\n"
        "found = explain(Predictor.load('model'), 'not good')\n"
        "for ending in ('svg', 'html', 'json'): found.save('graph.' + ending)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "graph.html").exists()


@given(inspected())
@settings(max_examples=40)
def test_a_deletion_is_the_prediction_of_the_shorter_text(seen):
    predictor = Predictor(seen.artifact)
    whole = predictor.predict([" ".join(seen.words)])[0].label
    found = deletions(predictor, seen.words)
    assert [deletion.word for deletion in found] == seen.words
    for i, deletion in enumerate(found):
        assert deletion.position == i
        (shorter,) = predictor.predict([" ".join(seen.words[:i] + seen.words[i + 1 :])])
        assert deletion.label == shorter.label
        assert abs(deletion.probability - shorter.probability) < 1e-5
        assert deletion.changes == (shorter.label != whole)


def test_some_deletion_changes_the_label():
    seen = example()
    changes = [d.word for d in deletions(Predictor(seen.artifact), seen.words) if d.changes]
    assert 0 < len(changes) < len(seen.words)


@given(inspected(), st.integers(0, 2))
@settings(max_examples=30)
def test_a_replacement_is_the_prediction_of_the_text_with_the_other_word(seen, of_class):
    predictor = Predictor(seen.artifact)
    (whole,) = predictor.predict([" ".join(seen.words)])
    found = replacements(predictor, seen.trace, of_class)
    assert len(found) == min(8, len(seen.words))
    assert len({one.position for one in found}) == len(found)
    for one in found:
        assert one.word == seen.words[one.position] != one.replacement
        other = [*seen.words[: one.position], one.replacement, *seen.words[one.position + 1 :]]
        (answer,) = predictor.predict([" ".join(other)])
        assert one.label == answer.label
        assert abs(one.probability - answer.probability) < 1e-5
        assert one.changes == (answer.label != whole.label)
    assert [one.changes for one in found] == sorted((o.changes for o in found), reverse=True)


def test_replacements_that_are_tried_contain_the_one_that_changes_most():
    """Of a vocabulary as small as this, all words are tried; brute force finds the same."""
    seen = example("the plot is dull")
    predictor, words = Predictor(seen.artifact), seen.artifact.encoder.vocabulary.words
    (whole,) = predictor.predict(["the plot is dull"])
    for one in replacements(predictor, seen.trace, seen.trace.classes.index(whole.label)):
        left = []
        for word in words:
            other = [*seen.words[: one.position], word, *seen.words[one.position + 1 :]]
            (answer,) = predictor.predict([" ".join(other)])
            left.append(dict(answer.ranked)[whole.label])
        best = one.probability if one.label == whole.label else 1 - one.probability
        assert best == pytest.approx(min(left), abs=1e-5)


def test_a_replacement_moves_a_label_of_a_multi_label_model_across_its_threshold():
    predictor = Predictor(make_artifact(classes=("a", "b", "c"), thresholds=(0.5, 0.5, 0.5)))
    for label in predictor.classes:
        found = explain(predictor, "the plot is not dull", label)
        given = label in found.prediction.labels
        assert found.replacements
        for one in found.replacements:
            assert one.label == label
            assert one.changes == ((one.probability >= 0.5) != given)


def test_single_nodes_of_an_ngram_are_drawn_on_request(predictor):
    found = explain(predictor, TEXT)
    ngram, nodes = found.table.ngrams[0], found.table.nodes[0]
    picture = found.picture(nodes=10_000, ngram=ngram.positions)
    tops = [node.number for node in picture.nodes if node.layer == found.trace.depth]
    assert sorted(tops) == sorted(nodes.tolist())
    with pytest.raises(UserError, match=r"ngram=\[99\] is no n-gram of this text"):
        found.picture(ngram=[99])


def closest_choices(seen, count=None):
    return explain(Predictor(seen.artifact), " ".join(seen.words)).closest_choices(count)


def kept_after(layer, choice, loss):
    """Columns that the row keeps when the chosen value has lost something."""
    row = layer.convolution[choice.map, choice.row].astype(np.float64)
    row[choice.position] -= loss
    k = np.array([layer.values.shape[-1]])
    return reference.k_max(row[None], np.array([len(row)]), k)[1][0].tolist()


@given(inspected())
@settings(max_examples=40)
def test_a_value_that_falls_by_more_than_its_margin_is_replaced_by_its_rival(seen):
    for choice in closest_choices(seen):
        layer = seen.trace.layers[choice.layer - 1]
        before = layer.positions[choice.map, choice.row].tolist()
        assert choice.position in before
        after = kept_after(layer, choice, choice.margin * (1 + 1e-5) + 1e-5)
        assert sorted(after) == sorted({*before, choice.rival} - {choice.position})
        if choice.margin > 1e-3:
            assert kept_after(layer, choice, choice.margin - 1e-3) == before


@given(inspected())
def test_choices_are_sorted_by_margin(seen):
    margins = [choice.margin for choice in closest_choices(seen)]
    assert margins == sorted(margins)
    dropped = [layer for layer in seen.trace.layers if (layer.rivals >= 0).all()]
    assert len(margins) == sum(layer.margins.size for layer in dropped)
    assert [choice.margin for choice in closest_choices(seen, 3)] == margins[:3]


FIRST, SECOND = "the plot is not dull .", "the plot is very dull and bad ."


@pytest.fixture(scope="module")
def both():
    predictor = Predictor(make_artifact())
    return [explain(predictor, text, "pos") for text in (FIRST, SECOND)]


def difference(change):
    before, after = change.contributions
    return after - before


def test_all_changes_add_up_to_the_difference_of_the_logits(both):
    whole = compare(*both, count=10_000)
    assert sum(map(difference, whole.changes)) == pytest.approx(whole.difference)
    assert whole.others == pytest.approx(0, abs=1e-6)
    few = compare(*both, count=3)
    assert len(few.changes) == 3
    listed = sum(map(difference, few.changes))
    assert listed + few.others == pytest.approx(both[1].logit - both[0].logit, abs=1e-5)


def test_the_largest_changes_come_first(both):
    sizes = [abs(difference(change)) for change in compare(*both).changes]
    assert sizes == sorted(sizes, reverse=True)


def test_word_contributions_of_all_detectors_make_the_attributions(both):
    changes = compare(*both, count=10_000).changes
    for which, explanation in enumerate(both):
        words = np.sum([change.word_contributions[which] for change in changes], axis=0)
        np.testing.assert_allclose(words, explanation.attributions, atol=1e-5)


def test_the_same_sentence_twice_changes_nothing(both):
    same = compare(both[0], both[0])
    assert same.difference == 0
    assert all(difference(change) == 0 for change in same.changes)


def test_other_classes_cannot_be_compared(both):
    other = explain(Predictor(make_artifact()), SECOND, "neg")
    with pytest.raises(UserError, match="'pos' and the second of 'neg'"):
        compare(both[0], other)


@pytest.mark.parametrize(
    ("first", "second", "pairs"),
    [
        ("a b c", "a b c", [(0, 0), (1, 1), (2, 2)]),
        ("a b c", "a x c", [(0, 0), (1, 1), (2, 2)]),
        ("a c", "a b c", [(0, 0), (None, 1), (1, 2)]),
        ("a b c", "c", [(0, None), (1, None), (2, 0)]),
    ],
)
def test_words_are_aligned(first, second, pairs):
    assert align(tuple(first.split()), tuple(second.split())) == pairs
