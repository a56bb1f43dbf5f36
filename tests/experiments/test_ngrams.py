import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer

from dcnn.config import TextConfig
from dcnn.data.batching import Examples
from dcnn.experiments import ngrams
from dcnn.experiments.ngrams import KINDS, NGramFeatures, choose_setting, fit_ngrams
from dcnn.experiments.tasks import Task
from dcnn.text.encoder import Encoder

TEXTS = ["a b a", "b c", "c", "a b c a b", "d d"]


@pytest.mark.parametrize("longest", [1, 2])
def test_features_are_those_of_scikit_learn(longest):
    encoder, sentences = Encoder.learn(TEXTS, TextConfig(tokenizer="whitespace"))
    features = NGramFeatures(sentences, longest, len(encoder.vocabulary))
    counter = CountVectorizer(
        tokenizer=str.split, token_pattern=None, ngram_range=(1, longest), binary=True
    )
    expected = counter.fit_transform(TEXTS)
    assert len(features) == expected.shape[1]
    new = ["c a b", "x y", "d"]
    for texts in (TEXTS, new):
        ours = features(encoder.encode_all(texts)).toarray()
        theirs = counter.transform(texts).toarray()
        # The same columns, in another order.
        assert sorted(ours.T.tolist()) == sorted(theirs.astype(float).T.tolist())
        assert set(np.unique(ours)) <= {0, 1}


def make_task(dev=True):
    """The label is whether "not good" or "good" occurs: bigrams tell, unigrams guess."""
    generator = np.random.default_rng(0)
    texts, labels = [], []
    for _ in range(200):
        label = int(generator.integers(2))
        fillers = [f"w{i}" for i in generator.integers(0, 5, 3)]
        core = ["good", "not", "bad"] if label else ["not", "good", "bad"]
        texts.append(" ".join([*fillers, *core]))
        labels.append(label)
    encoder, sentences = Encoder.learn(texts, TextConfig(tokenizer="whitespace"))
    parts = [
        Examples(sentences.select(np.arange(start, end)), np.array(labels[start:end]))
        for start, end in ((0, 120), (120, 160), (160, 200))
    ]
    return Task(("no", "yes"), encoder, parts[0], parts[1] if dev else None, parts[2])


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dev", [True, False])
def test_models_with_bigrams_learn_what_unigrams_cannot(name, dev):
    task = make_task(dev)
    setting, dev_accuracy = choose_setting(name, task, folds=3)
    fitted = fit_ngrams(name, task, setting)
    accuracy = (fitted.test_predictions == task.test.targets).mean()
    assert setting in KINDS[name].choices
    assert fitted.features >= 8
    assert fitted.dev_accuracy == (dev_accuracy if dev else None)
    if KINDS[name].longest == 2:
        assert accuracy == 1
        assert dev_accuracy == 1
    else:
        assert accuracy < 0.9


@pytest.mark.parametrize("dev", [True, False])
def test_the_setting_is_the_one_that_dev_prefers(dev, monkeypatch):
    class Fixed(BaseEstimator):
        """A classifier whose accuracy is its setting, on dev and in every fold."""

        def __init__(self, setting):
            self.setting = setting

        def fit(self, features, truth):
            assert len(truth) <= 100
            return self

        def score(self, features, truth):
            return self.setting

    monkeypatch.setattr(ngrams, "COMPARED_ON", 100)
    kind = ngrams._Kind(1, Fixed, (0.2, 0.7, 0.4))
    monkeypatch.setitem(KINDS, "fixed", kind)
    assert choose_setting("fixed", make_task(dev), folds=2) == (0.7, pytest.approx(0.7))
