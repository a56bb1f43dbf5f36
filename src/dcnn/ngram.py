"""The non-neural baselines of Tables 1 to 3, on scikit-learn.

Naive Bayes on unigrams (nb) and on unigrams and bigrams (binb), a linear support vector machine
(svm) and maximum entropy, that is logistic regression (maxent), on unigrams and bigrams. A feature
is whether an n-gram occurs, not how often: for sentences that is the stronger choice.
"""

from collections.abc import Callable

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC

from dcnn.errors import ConfigError
from dcnn.text.tokenizer import Tokenizer

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
