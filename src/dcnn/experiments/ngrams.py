"""The non-neural baselines of Tables 1 to 3, on scikit-learn.

Naive Bayes on unigrams (nb) and on unigrams and bigrams (binb), a linear support vector machine
(svm) and maximum entropy, that is logistic regression (maxent), on unigrams and bigrams. A feature
is whether an n-gram occurs, not how often: for sentences that is the stronger choice.


The n-gram baselines of Tables 1 to 3 on the ids of an experiment.

Unigrams, and bigrams where the model has them; a feature is whether an n-gram occurs. Each model's
one setting (smoothing, or strength of regularisation) is chosen on dev, or by cross-validation
where there is no dev set; the model is then fitted on all training examples. Of more examples than
``COMPARED_ON`` that many, drawn at random, are enough to choose by.

"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC

from dcnn.data.batching import Examples
from dcnn.errors import ConfigError
from dcnn.experiments.tasks import Task
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import Ints, Sentences

_MODELS: dict[str, tuple[int, Callable[[], object]]] = {
    "nb": (1, MultinomialNB),
    "binb": (2, MultinomialNB),
    "svm": (2, lambda: LinearSVC(C=0.1)),
    "maxent": (2, lambda: LogisticRegression(max_iter=1000)),
}
NGRAM_MODELS = tuple(_MODELS)


def ngram_classifier(name: str, tokenizer: Tokenizer | None = None) -> Pipeline:
    """A classifier of strings: ``nb``, ``binb``, ``svm`` or ``maxent``, not yet fitted."""
    if name not in _MODELS:
        raise ConfigError(f"model={name!r} must be one of {', '.join(NGRAM_MODELS)}")
    longest, make = _MODELS[name]
    counts = CountVectorizer(
        tokenizer=tokenizer or Tokenizer(),
        token_pattern=None,
        lowercase=False,  # the tokenizer decides
        ngram_range=(1, longest),
        binary=True,
    )
    return make_pipeline(counts, make())


COMPARED_ON = 400_000


@dataclass(frozen=True)
class _Kind:
    longest: int
    make: Callable[[float], Any]
    choices: tuple[float, ...]


KINDS = {
    "nb": _Kind(1, lambda alpha: MultinomialNB(alpha=alpha), (0.1, 0.3, 1.0, 3.0)),
    "binb": _Kind(2, lambda alpha: MultinomialNB(alpha=alpha), (0.1, 0.3, 1.0, 3.0)),
    "svm": _Kind(2, lambda c: LinearSVC(C=c), (0.01, 0.03, 0.1, 0.3)),
    "maxent": _Kind(2, lambda c: LogisticRegression(C=c, max_iter=1000), (0.1, 0.3, 1.0, 3.0)),
}


class NGramFeatures:
    """The n-grams of a training set, and which of them a sentence holds.

    Args:
        sentences: the training set.
        longest: 1 for unigrams, 2 for bigrams too.
        vocabulary: number of ids.
    """

    def __init__(self, sentences: Sentences, longest: int, vocabulary: int) -> None:
        self.longest, self.vocabulary = longest, vocabulary
        keys, _ = self._keys(sentences)
        self.known = np.unique(keys)

    def __len__(self) -> int:
        return len(self.known)

    def _keys(self, sentences: Sentences) -> tuple[Ints, Ints]:
        """A number for every n-gram that occurs, and the sentence that it occurs in."""
        ids = sentences.ids.astype(np.int64)
        owners = np.repeat(np.arange(len(sentences)), sentences.lengths)
        keys, where = [ids], [owners]
        if self.longest == 2:
            inside = owners[1:] == owners[:-1]
            pairs = self.vocabulary * (ids[:-1] + 1) + ids[1:]
            keys.append(pairs[inside])
            where.append(owners[1:][inside])
        return np.concatenate(keys), np.concatenate(where)

    def __call__(self, sentences: Sentences) -> csr_matrix:
        """(sentences, n-grams), one where an n-gram occurs."""
        keys, owners = self._keys(sentences)
        places = np.searchsorted(self.known, keys)
        places[places == len(self.known)] = 0
        seen = self.known[places] == keys
        shape = (len(sentences), len(self.known))
        ones = np.ones(int(seen.sum()), np.float32)
        matrix = csr_matrix((ones, (owners[seen], places[seen])), shape)
        matrix.sum_duplicates()
        matrix.data[:] = 1
        return matrix


def choose_setting(name: str, task: Task, folds: int) -> tuple[float, float]:
    """The setting of ``nb``, ``binb``, ``svm`` or ``maxent`` that dev prefers, and its accuracy."""
    kind, features = KINDS[name], _features(name, task)
    train = features(task.train.sentences)
    scores = _scores(kind, train, task.train.targets, features, task.dev, folds)
    best = int(np.argmax(scores))
    return kind.choices[best], scores[best]


@dataclass(frozen=True)
class FittedNGrams:
    """A model fitted on all training examples.

    Attributes:
        test_predictions: class numbers.
        dev_accuracy: none without a dev set.
        features: number of n-grams.
    """

    test_predictions: Ints
    dev_accuracy: float | None
    features: int


def fit_ngrams(name: str, task: Task, setting: float) -> FittedNGrams:
    """Fit with ``setting``, and predict test."""
    features = _features(name, task)
    model = KINDS[name].make(setting).fit(features(task.train.sentences), task.train.targets)
    accuracy = None
    if task.dev is not None:
        accuracy = float(model.score(features(task.dev.sentences), task.dev.targets))
    return FittedNGrams(model.predict(features(task.test.sentences)), accuracy, len(features))


def _features(name: str, task: Task) -> NGramFeatures:
    vocabulary = len(task.encoder.vocabulary)
    return NGramFeatures(task.train.sentences, KINDS[name].longest, vocabulary)


def _scores(
    kind: _Kind,
    train: csr_matrix,
    truth: NDArray[Any],
    features: NGramFeatures,
    dev: Examples | None,
    folds: int,
) -> Sequence[float]:
    if dev is None:
        with warnings.catch_warnings():
            # A label rarer than the folds is no mistake of the user's; it is then in fewer folds.
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            return [
                float(cross_val_score(kind.make(setting), train, truth, cv=folds).mean())
                for setting in kind.choices
            ]
    held_out = features(dev.sentences)
    some = np.random.default_rng(0).permutation(len(truth))[:COMPARED_ON]
    return [
        float(kind.make(setting).fit(train[some], truth[some]).score(held_out, dev.targets))
        for setting in kind.choices
    ]
