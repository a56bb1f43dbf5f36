"""The texts that a model gets wrong: all of them, in order, with the words that say why."""

import numpy as np
import pytest

from dcnn.config import NBoWConfig
from dcnn.inspection import explain, find_mistakes
from dcnn.predictor import Predictor
from untrained import VOCABULARY_TEXT, make_artifact

WORDS = VOCABULARY_TEXT.split()
TEXTS = [" ".join(WORDS[n % 7 : n % 7 + 2 + n % 5]) + f" {n}" for n in range(40)]


def test_mistakes_are_all_wrong_predictions_the_most_confident_first():
    predictor = Predictor(make_artifact(classes=("a", "b", "c")))
    targets = np.random.default_rng(0).integers(3, size=40)
    p = predictor.probabilities(TEXTS)
    found = find_mistakes(predictor, TEXTS, targets)
    assert sorted(one.index for one in found) == np.flatnonzero(p.argmax(1) != targets).tolist()
    shares = [one.probability for one in found]
    assert shares == sorted(shares, reverse=True)
    for one in found:
        assert one.text == TEXTS[one.index]
        assert one.true == (predictor.classes[targets[one.index]],)
        assert one.predicted == (predictor.classes[p[one.index].argmax()],)
        assert one.probability == p[one.index].max()
    assert find_mistakes(predictor, TEXTS, targets, p) == found
    assert find_mistakes(predictor, TEXTS, p.argmax(axis=1)) == []


def test_words_are_responsible_by_the_difference_of_their_attributions():
    predictor = Predictor(make_artifact(classes=("a", "b", "c")))
    targets = (predictor.probabilities(TEXTS).argmax(axis=1) + 1) % 3
    for one in find_mistakes(predictor, TEXTS, targets)[:8]:
        of = [explain(predictor, one.text, labels[0]) for labels in (one.predicted, one.true)]
        against = np.subtract(*(explanation.attributions for explanation in of))
        best = sorted(zip(against, of[0].words, strict=True), key=lambda pair: -pair[0])[:5]
        expected = [(word, value) for value, word in best if value > 0]
        assert [word for word, _ in one.words] == [word for word, _ in expected]
        assert [by for _, by in one.words] == pytest.approx([by for _, by in expected])


def test_the_most_confident_wrong_decision_explains_a_multi_label_mistake():
    predictor = Predictor(make_artifact(classes=("a", "b"), thresholds=(0.5, 0.5)))
    p = predictor.probabilities(TEXTS)
    given = p >= 0.5
    targets = np.where(np.arange(40)[:, None] % 2, given, ~given).astype(np.float32)
    found = find_mistakes(predictor, TEXTS, targets)
    assert sorted(one.index for one in found) == list(range(0, 40, 2))
    for one in found:
        worst = np.where(given[one.index], p[one.index], 1 - p[one.index])
        assert one.probability == pytest.approx(worst.max())
        label = int(worst.argmax())
        side = 1 if given[one.index, label] else -1
        values = np.array(explain(predictor, one.text, "ab"[label]).attributions) * side
        assert [by for _, by in one.words] == pytest.approx(sorted(values[values > 0])[::-1][:5])


def test_a_text_or_model_without_a_graph_has_no_words_to_blame():
    predictor = Predictor(make_artifact(classes=("a", "b", "c")))
    wrong = (predictor.probabilities([""]).argmax(axis=1) + 1) % 3
    (empty,) = find_mistakes(predictor, [""], wrong)
    assert empty.words == ()
    bag = Predictor(make_artifact(NBoWConfig(dim=4), classes=("a", "b", "c")))
    targets = (bag.probabilities(TEXTS).argmax(axis=1) + 1) % 3
    assert {one.words for one in find_mistakes(bag, TEXTS, targets)} == {()}
