import pytest

from dcnn.errors import ConfigError
from dcnn.experiments.ngrams import NGRAM_MODELS, ngram_classifier

TEXTS = ["a good film", "a bad film", "not good", "not bad", "good", "bad"]
LABELS = ["pos", "neg", "neg", "pos", "pos", "neg"]


@pytest.mark.parametrize("name", NGRAM_MODELS)
def test_every_model_learns_strings(name):
    model = ngram_classifier(name).fit(TEXTS * 5, LABELS * 5)
    assert set(model.predict(["good", "bad"])) <= {"pos", "neg"}
    if name != "nb":  # bigrams tell "not good" from "good"
        assert model.score(TEXTS, LABELS) == 1.0


@pytest.mark.parametrize(("name", "longest"), [("nb", 1), ("binb", 2), ("svm", 2), ("maxent", 2)])
def test_features_are_the_papers(name, longest):
    model = ngram_classifier(name).fit(TEXTS, LABELS)
    features = model[0].get_feature_names_out()
    assert max(len(feature.split()) for feature in features) == longest


def test_an_unknown_model_is_named():
    with pytest.raises(ConfigError, match="model='knn' must be one of nb, binb, svm, maxent"):
        ngram_classifier("knn")
