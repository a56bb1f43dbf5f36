"""Tables 1 to 3 of the paper as data: test accuracy in %, in the paper's order."""

from dataclasses import dataclass

TITLES = {
    "sst2": "Stanford Sentiment, 2 classes",
    "sst5": "Stanford Sentiment, 5 classes",
    "trec": "TREC questions, 6 classes",
    "twitter": "Tweets, 2 classes",
}
TABLE_NUMBERS = {"sst2": 1, "sst5": 1, "trec": 2, "twitter": 3}

NAMES = {
    "nb": "NB",
    "binb": "BiNB",
    "svm": "SVM",
    "maxent": "MaxEnt",
    "max-tdnn": "Max-TDNN",
    "nbow": "NBoW",
    "dcnn": "DCNN",
    "dcnn-ensemble": "DCNN ensemble (several networks)",
}


@dataclass(frozen=True)
class PublishedRow:
    """A classifier of one of the paper's tables.

    Attributes:
        classifier: its name.
        accuracy: on test, in %.
        model: our model of that kind; none where the paper quotes a system that is not here.
    """

    classifier: str
    accuracy: float
    model: str | None


def _ours(model: str, accuracy: float) -> PublishedRow:
    return PublishedRow(NAMES[model], accuracy, model)


def _quoted(classifier: str, accuracy: float) -> PublishedRow:
    return PublishedRow(classifier, accuracy, None)


PUBLISHED: dict[str, tuple[PublishedRow, ...]] = {
    "sst2": (
        _ours("nb", 81.8),
        _ours("binb", 83.1),
        _ours("svm", 79.4),
        _quoted("RecNTN (Socher et al. 2013)", 85.4),
        _ours("max-tdnn", 77.1),
        _ours("nbow", 80.5),
        _ours("dcnn", 86.8),
    ),
    "sst5": (
        _ours("nb", 41.0),
        _ours("binb", 41.9),
        _ours("svm", 40.7),
        _quoted("RecNTN (Socher et al. 2013)", 45.7),
        _ours("max-tdnn", 37.4),
        _ours("nbow", 42.4),
        _ours("dcnn", 48.5),
    ),
    # The first four rest on parsers, WordNet or rules; our n-gram models are not their kind.
    "trec": (
        _quoted("Hier (Li and Roth 2002)", 91.0),
        _quoted("MaxEnt (Blunsom et al. 2006)", 92.6),
        _quoted("MaxEnt (Huang et al. 2008)", 93.6),
        _quoted("SVM (Silva et al. 2011)", 95.0),
        _ours("max-tdnn", 84.4),
        _ours("nbow", 88.2),
        _ours("dcnn", 93.0),
    ),
    "twitter": (
        _ours("svm", 81.6),
        _ours("binb", 82.7),
        _ours("maxent", 83.0),
        _ours("max-tdnn", 78.8),
        _ours("nbow", 80.9),
        _ours("dcnn", 87.4),
    ),
}
