import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer

from dcnn.config import TextConfig
from dcnn.data.batching import Examples
from dcnn.errors import ConfigError
from dcnn.experiments import ngrams
from dcnn.experiments.ngrams import (
    NGRAM_MODELS,
    NGramFeatures,
    choose_setting,
    fit_ngrams,
    ngram_classifier,
)
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
    assert len(features.known) == expected.shape[1]
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


@pytest.mark.parametrize("name", NGRAM_MODELS)
@pytest.mark.parametrize("dev", [True, False])
def test_models_with_bigrams_learn_what_unigrams_cannot(name, dev):
    task = make_task(dev)
    setting, dev_accuracy = choose_setting(name, task, folds=3)
    predicted, fitted_accuracy, features = fit_ngrams(name, task, setting)
    accuracy = (predicted == task.test.targets).mean()
    assert setting in NGRAM_MODELS[name].choices
    assert features >= 8
    assert fitted_accuracy == (dev_accuracy if dev else None)
    if NGRAM_MODELS[name].longest == 2:
        assert accuracy == 1
        assert dev_accuracy == 1
    else:
        assert accuracy < 0.9


@pytest.mark.parametrize("dev", [True, False])
def test_the_setting_with_the_best_dev_accuracy_is_chosen(dev, monkeypatch):
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
    model = ngrams.NGramModel(1, Fixed, 0.2, (0.2, 0.7, 0.4))
    monkeypatch.setitem(NGRAM_MODELS, "fixed", model)
    assert choose_setting("fixed", make_task(dev), folds=2) == (0.7, pytest.approx(0.7))


OPINIONS = ["a good film", "a bad film", "not good", "not bad", "good", "bad"]
LABELS = ["pos", "neg", "neg", "pos", "pos", "neg"]


@pytest.mark.parametrize("name", NGRAM_MODELS)
def test_every_model_classifies_strings(name):
    model = ngram_classifier(name).fit(OPINIONS * 5, LABELS * 5)
    assert set(model.predict(["good", "bad"])) <= {"pos", "neg"}
    if name != "nb":  # bigrams tell "not good" from "good"
        assert model.score(OPINIONS, LABELS) == 1.0


@pytest.mark.parametrize(("name", "longest"), [("nb", 1), ("binb", 2), ("svm", 2), ("maxent", 2)])
def test_the_longest_n_gram_is_that_of_the_paper(name, longest):
    model = ngram_classifier(name).fit(OPINIONS, LABELS)
    features = model[0].get_feature_names_out()
    assert max(len(feature.split()) for feature in features) == longest


def test_an_unknown_model_is_refused_by_name():
    with pytest.raises(ConfigError, match="model='knn' must be one of nb, binb, svm, maxent"):
        ngram_classifier("knn")
