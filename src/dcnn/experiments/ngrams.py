"""The non-neural baselines of Tables 1 to 3, on scikit-learn.

Naive Bayes on unigrams (nb) and on unigrams and bigrams (binb), a linear support vector machine
(svm) and maximum entropy, that is logistic regression (maxent), on unigrams and bigrams. A feature
is whether an n-gram occurs, not how often: for sentences that is the stronger choice.

``ngram_classifier`` classifies strings with usual settings. In an experiment a model works on ids,
and its one setting (smoothing, or strength of regularization) is chosen on dev, or by
cross-validation where there is no dev set; it is then fitted on all training examples.
"""

import warnings
from collections.abc import Callable
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC

from dcnn.errors import ConfigError
from dcnn.experiments.tasks import Task
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import Ints, Sentences

COMPARED_ON = 400_000  # of more training examples, a random sample is enough to choose a setting


class NGramModel(NamedTuple):
    """A baseline: its longest n-gram, how it is made from its setting, and values of that."""

    longest: int
    make: Callable[[float], Any]
    default: float
    choices: tuple[float, ...]


NGRAM_MODELS = {
    "nb": NGramModel(1, lambda alpha: MultinomialNB(alpha=alpha), 1.0, (0.1, 0.3, 1.0, 3.0)),
    "binb": NGramModel(2, lambda alpha: MultinomialNB(alpha=alpha), 1.0, (0.1, 0.3, 1.0, 3.0)),
    "svm": NGramModel(2, lambda c: LinearSVC(C=c), 0.1, (0.01, 0.03, 0.1, 0.3)),
    "maxent": NGramModel(
        2, lambda c: LogisticRegression(C=c, max_iter=1000), 1.0, (0.1, 0.3, 1.0, 3.0)
    ),
}


def ngram_classifier(name: str) -> Pipeline:
    """A classifier of strings: ``nb``, ``binb``, ``svm`` or ``maxent``, not yet fitted."""
    if name not in NGRAM_MODELS:
        raise ConfigError(f"model={name!r} must be one of {', '.join(NGRAM_MODELS)}")
    model = NGRAM_MODELS[name]
    counts = CountVectorizer(
        tokenizer=Tokenizer(),
        token_pattern=None,
        lowercase=False,  # the tokenizer decides
        ngram_range=(1, model.longest),
        binary=True,
    )
    return make_pipeline(counts, model.make(model.default))


class NGramFeatures:
    """The n-grams of the training set ``sentences``, and which of them a sentence holds."""

    def __init__(self, sentences: Sentences, longest: int, vocabulary: int) -> None:
        self.longest, self.vocabulary = longest, vocabulary
        self.known = np.unique(self._keys(sentences)[0])

    def _keys(self, sentences: Sentences) -> tuple[Ints, Ints]:
        """A number for every n-gram that occurs, and the sentence that it occurs in."""
        ids = sentences.ids.astype(np.int64)
        owners = np.repeat(np.arange(len(sentences)), sentences.lengths)
        if self.longest == 1:
            return ids, owners
        inside = owners[1:] == owners[:-1]
        pairs = self.vocabulary * (ids[:-1] + 1) + ids[1:]
        return np.append(ids, pairs[inside]), np.append(owners, owners[1:][inside])

    def __call__(self, sentences: Sentences) -> csr_matrix:
        """(sentences, n-grams), 1 where an n-gram occurs."""
        keys, owners = self._keys(sentences)
        columns = np.searchsorted(self.known, keys)
        columns[columns == len(self.known)] = 0
        seen = self.known[columns] == keys
        shape = (len(sentences), len(self.known))
        ones = np.ones(int(seen.sum()), np.float32)
        matrix = csr_matrix((ones, (owners[seen], columns[seen])), shape)  # sums duplicates
        matrix.data[:] = 1
        return matrix


def _features(name: str, task: Task) -> NGramFeatures:
    vocabulary = len(task.encoder.vocabulary)
    return NGramFeatures(task.train.sentences, NGRAM_MODELS[name].longest, vocabulary)


def choose_setting(name: str, task: Task, folds: int) -> tuple[float, float]:
    """The setting of a model that is best on dev, and its dev accuracy."""
    model, features = NGRAM_MODELS[name], _features(name, task)
    train, truth = features(task.train.sentences), task.train.targets
    estimators = [model.make(setting) for setting in model.choices]
    if task.dev is None:
        with warnings.catch_warnings():
            # A label rarer than the folds is not the user's mistake; it is then in fewer folds.
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            splits = list(StratifiedKFold(folds).split(truth, truth))
        scores = [
            fmean(score_held_out(one, train, truth, *split) for split in splits)
            for one in estimators
        ]
    else:
        dev, dev_truth = features(task.dev.sentences), task.dev.targets
        sample = np.random.default_rng(0).permutation(len(truth))[:COMPARED_ON]
        scores = [one.fit(train[sample], truth[sample]).score(dev, dev_truth) for one in estimators]
    best = int(np.argmax(scores))
    return model.choices[best], float(scores[best])


def score_held_out(
    model: Any, features: csr_matrix, truth: Ints, kept: Ints, held_out: Ints
) -> float:
    """The accuracy on ``held_out`` of a model that knows the n-grams of ``kept`` alone."""
    seen = np.flatnonzero(features[kept].getnnz(axis=0))
    model.fit(features[kept][:, seen], truth[kept])
    return float(model.score(features[held_out][:, seen], truth[held_out]))


def fit_ngrams(name: str, task: Task, setting: float) -> tuple[Ints, float | None, int]:
    """Fit on all training examples: classes of test, dev accuracy, and the number of n-grams."""
    features = _features(name, task)
    model = NGRAM_MODELS[name].make(setting)
    model.fit(features(task.train.sentences), task.train.targets)
    accuracy = None
    if task.dev is not None:
        accuracy = float(model.score(features(task.dev.sentences), task.dev.targets))
    return model.predict(features(task.test.sentences)), accuracy, len(features.known)
