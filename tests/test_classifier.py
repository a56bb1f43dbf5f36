import numpy as np
import pytest
from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from dcnn import DCNNClassifier, Predictor
from dcnn.errors import ConfigError, DataError, UserError

TEXTS = [
    "good film",
    "a good plot",
    "good",
    "very good",
    "bad film",
    "a bad plot",
    "bad",
    "very bad",
]
TEXTS = [f"{text} {tail}" for text in TEXTS for tail in ("", "indeed", "today", "again", "!")]
LABELS = ["pos" if "good" in text else "neg" for text in TEXTS]
SMALL = {"dim": 8, "widths": (4, 3), "maps": (2, 3), "k_top": 2, "epochs": 12, "batch_size": 4}
SMALL |= {"char_ngrams": (), "min_count": 1}  # so small a network learns words alone


@pytest.fixture(scope="module")
def fitted():
    return DCNNClassifier(**SMALL, device="cpu").fit(TEXTS, LABELS)


def test_it_learns_and_predicts(fitted):
    assert fitted.classes_.tolist() == ["neg", "pos"]
    assert fitted.predict(["a very good film", "a bad film"]).tolist() == ["pos", "neg"]
    assert fitted.score(TEXTS, LABELS) == 1.0
    probabilities = fitted.predict_proba(TEXTS)
    assert probabilities.shape == (len(TEXTS), 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    assert fitted.n_epochs_ == 12
    assert 0 <= fitted.dev_accuracy_ <= 1  # of a cross-validation
    assert fitted.history_ == []


def test_the_number_of_texts_decides_what_was_not_set():
    parameters = SMALL | {"epochs": "auto", "dev_fraction": 0.25}
    fitted = DCNNClassifier(**parameters, device="cpu").fit(TEXTS, LABELS)
    learned = fitted.predictor_.artifact.config.training
    assert learned.epochs == 15  # of eight updates
    assert len(fitted.history_) == fitted.n_epochs_ <= 15
    assert clone(fitted).get_params()["epochs"] == "auto"


def test_it_explains_what_it_predicts(fitted):
    found = fitted.explain("a very good film")
    assert found.label == "pos"
    assert found.words[np.argmax(found.attributions)] == "good"
    assert fitted.explain("a very good film", of_class=fitted.classes_[0]).label == "neg"
    with pytest.raises(NotFittedError):
        DCNNClassifier().explain("good")


@pytest.mark.parametrize("labels", [[0, 1], [False, True], [-1, 7], [0.0, 1.0], ["a", "é"]])
def test_labels_of_any_type_come_back_from_a_folder(tmp_path, labels):
    y = [labels[label == "pos"] for label in LABELS]
    model = DCNNClassifier(**SMALL | {"epochs": 1}).fit(TEXTS, y)
    model.save(tmp_path / "model")
    again = DCNNClassifier.load(tmp_path / "model")
    assert again.classes_.tolist() == sorted(labels)
    assert again.classes_.dtype == model.classes_.dtype
    assert again.predict(TEXTS).tolist() == model.predict(TEXTS).tolist()
    lists = {"widths": (), "maps": (), "l2_filters": (), "char_ngrams": ()}
    decided = {"patience": 5, "dev_fraction": 0.0, "folds": 5, "schedule": "linear"}
    decided |= {"keep": "last", "word_dropout": 0.0}
    assert again.get_params() | lists == model.get_params() | lists | decided
    np.testing.assert_array_equal(again.predict_proba(TEXTS), model.predict_proba(TEXTS))
    assert Predictor.load(tmp_path / "model").predict(["good"])[0].label in labels


def test_it_is_a_well_behaved_estimator(fitted):
    parameters = fitted.get_params()
    assert parameters["epochs"] == 12
    twin = clone(fitted)
    assert twin.get_params() == parameters
    with pytest.raises(NotFittedError):
        twin.predict(TEXTS)
    assert clone(fitted).set_params(dim=4).dim == 4


def test_search_and_cross_validation_take_lists_of_strings():
    model = DCNNClassifier(**SMALL | {"epochs": 2})
    scores = cross_val_score(model, TEXTS, LABELS, cv=2)
    assert len(scores) == 2
    search = GridSearchCV(model, {"epochs": [1, 6]}, cv=2, error_score="raise").fit(TEXTS, LABELS)
    assert search.best_params_["epochs"] in (1, 6)
    assert search.predict(["good"]).shape == (1,)


def test_the_same_seed_gives_the_same_model(fitted):
    again = clone(fitted).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(again.predict_proba(TEXTS), fitted.predict_proba(TEXTS))
    other = clone(fitted).set_params(random_state=1).fit(TEXTS, LABELS)
    assert not np.array_equal(other.predict_proba(TEXTS), fitted.predict_proba(TEXTS))


def test_numpy_arrays_of_texts_are_taken(fitted):
    np.testing.assert_array_equal(
        fitted.predict_proba(np.array(TEXTS)), fitted.predict_proba(np.array(TEXTS, dtype=object))
    )


def test_the_progress_bar_is_closed_even_after_early_stopping(capsys):
    import threading

    model = DCNNClassifier(**SMALL | {"epochs": 40}, patience=1, dev_fraction=0.2, verbose=True)
    threads = threading.active_count()
    model.fit(TEXTS, LABELS)
    assert threading.active_count() == threads
    assert "dev accuracy" in capsys.readouterr().err


def test_numbers_of_numpy_are_taken_as_parameters():
    model = DCNNClassifier(
        **SMALL | {"epochs": np.int64(1), "dim": np.int32(8), "widths": np.array([4, 3])},
        dropout=np.float64(0.25), random_state=np.random.RandomState(0),
    )  # fmt: skip
    assert model.fit(TEXTS, LABELS).predictor_.artifact.config.model.dropout == 0.25
    assert DCNNClassifier(**SMALL | {"epochs": 1}, random_state=None).fit(TEXTS, LABELS)


def test_a_dev_set_and_weights_can_be_given():
    model = DCNNClassifier(**SMALL | {"epochs": 1})
    plain = clone(model).fit(TEXTS, LABELS).predict_proba(TEXTS)
    weighted = clone(model).fit(TEXTS, LABELS, sample_weight=np.arange(len(TEXTS)))
    assert not np.array_equal(weighted.predict_proba(TEXTS), plain)
    model.fit(
        TEXTS, LABELS, sample_weight=np.ones(len(TEXTS)), dev=(["good", "bad"], ["pos", "neg"])
    )
    assert model.dev_accuracy_ in (0, 0.5, 1)


@pytest.mark.parametrize(
    ("x", "y", "more", "message"),
    [
        ("one text", ["a"], {}, "the texts must be a list of strings; got 'one text'"),
        (None, ["a"], {}, "the texts must be a list of strings; got None"),
        (["a", 3], ["x", "y"], {}, "text 1 must be a string; got 3"),
        (["a", None], ["x", "y"], {}, "text 1 must be a string; got None"),
        (["a", "b"], None, {}, r"y must be one label per text; got an array of shape \(\)"),
        (["a", "b"], np.array(["2020", "2021"], "M8[D]"), {}, "the labels must be strings, numb"),
        (["a", "b"], ["x", "y"], {"dev": (["a", "b"], ["x"])}, "X has 2 texts and y 1 labels"),
        ([], [], {}, "X has no texts"),
        (["a", "b"], np.array([["x"], ["y"]]), {}, "y must be one label per text"),
        (["a", "b"], ["x"], {}, "X has 2 texts and y 1 labels"),
        (["a", "b"], ["x", "x"], {}, r"y has one class only, \['x'\]"),
        (["a", "b"], ["x", "y"], {"sample_weight": [1]}, "sample_weight must be one finite"),
        (["a", "b"], ["x", "y"], {"sample_weight": [1, -1]}, "sample_weight must be one finite"),
        (["a"] * 4, ["x", "y"] * 2, {"sample_weight": [0] * 4}, "every training example has weig"),
        (["a", "b"], ["x", "y"], {"dev": ([], [])}, "dev has no texts"),
        (["a", "b"], ["x", "\ud800"], {}, "which cannot be printed; remove it"),
        (["a", "b"], [1.0, float("inf")], {}, "X: the label inf is not a finite number"),
        (["a", "b"], [{"x": 0.9}, "y"], {}, "y, text 0: the probabilities of 'x' sum to 0.9; thos"),
        (["a", "b"], ["x", {}], {}, "y, text 1: probabilities of no label sum to 0"),
        (["a", "b"], ["x", {"y": 2}], {}, "y, text 1: the label 'y' holds 2; it must be 1 where"),
        (["a", "b"], ["x", {"y": "high"}], {}, "y, text 1: the label 'y' holds 'high'"),
        (["a", "b"], ["x", {None: 1}], {}, "label 1 holds None"),
        (["a", "b"], [{"x": 1}, {2: 1}], {}, "some of the labels are strings and some are not"),
        (["a", "b"], [None, {"x": 1}], {}, "label 0 holds None"),
        (["a", "b"], [{"x": 1}], {}, "X has 2 texts and y 1 labels"),
        (["a", "b", "c"], [["x"], {"x": 1}, "y"], {}, "label 2 is 'y', where others are lists"),
        (
            ["a", "b"],
            ["x", "y"],
            {"dev": (["a"], ["z"])},
            "dev, text 0: the label 'z' is not in the training set",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_explained(x, y, more, message):
    with pytest.raises(DataError, match=message):
        DCNNClassifier(**SMALL).fit(x, y, **more)


def soft(labels, share):
    other = {"pos": "neg", "neg": "pos"}
    return [{label: share, other[label]: 1 - share} for label in labels]


def test_dicts_of_probabilities_are_learned():
    model = DCNNClassifier(**SMALL)
    matrix = np.array([[one["neg"], one["pos"]] for one in soft(LABELS, 0.8)])
    hard = np.array(["neg", "pos"])[matrix.argmax(axis=1)]
    dev = (TEXTS, hard.tolist())
    given = clone(model).fit(TEXTS, soft(LABELS, 0.8), dev=(TEXTS, soft(LABELS, 0.8)))
    assert given.classes_.tolist() == ["neg", "pos"]
    expected = clone(model).fit(TEXTS, matrix, dev=(TEXTS, (hard == "pos").astype(int)))
    np.testing.assert_array_equal(given.predict_proba(TEXTS), expected.predict_proba(TEXTS))
    assert given.dev_accuracy_ == expected.dev_accuracy_
    plain = clone(model).fit(TEXTS, list(LABELS), dev=dev)
    certain = clone(model).fit(TEXTS, [*soft(LABELS[:5], 1.0), *LABELS[5:]], dev=dev)
    np.testing.assert_allclose(certain.predict_proba(TEXTS), plain.predict_proba(TEXTS), atol=1e-6)


def test_an_impossible_network_is_refused_when_fitting():
    with pytest.raises(ConfigError, match=r"widths\[0\]=3 is below k_top=4"):
        DCNNClassifier(widths=(3,), k_top=4).fit(TEXTS, LABELS)
    with pytest.raises(ConfigError, match="device='tpu' must be auto, cpu or cuda"):
        DCNNClassifier(**SMALL, device="tpu").fit(TEXTS, LABELS)


def test_overwriting_needs_a_flag(tmp_path, fitted):
    fitted.save(tmp_path / "model")
    with pytest.raises(UserError, match="exists; pass --overwrite"):
        fitted.save(tmp_path / "model")
    fitted.save(tmp_path / "model", overwrite=True)


@pytest.mark.parametrize("dev", [(1, 2, 3), "texts", 7])
def test_a_dev_set_that_is_no_pair_is_refused(dev):
    with pytest.raises(DataError, match="must be a pair of texts and labels"):
        DCNNClassifier().fit(["a", "b"] * 4, [0, 1] * 4, dev=dev)


def test_class_weights_are_named_as_in_scikit_learn():
    skewed = TEXTS + [text for text, label in zip(TEXTS, LABELS, strict=True) if label == "pos"] * 3
    labels = LABELS + ["pos"] * (len(skewed) - len(TEXTS))
    weights = {"neg": 4.0}
    plain, by_class, by_text, balanced = (
        DCNNClassifier(**SMALL | {"epochs": 2}, **more).fit(skewed, labels, sample_weight=given)
        for more, given in (
            ({}, None),
            ({"class_weight": weights}, None),
            ({}, [weights.get(label, 1) for label in labels]),
            ({"class_weight": "balanced"}, None),
        )
    )
    expected = by_text.predict_proba(TEXTS)
    np.testing.assert_array_equal(by_class.predict_proba(TEXTS), expected)
    np.testing.assert_array_equal(balanced.predict_proba(TEXTS), expected)  # 20 to 80
    assert not np.array_equal(plain.predict_proba(TEXTS), expected)
    both = DCNNClassifier(**SMALL | {"epochs": 2}, class_weight={"neg": 2})
    both.fit(skewed, labels, sample_weight=[2 if label == "neg" else 1 for label in labels])
    np.testing.assert_array_equal(both.predict_proba(TEXTS), expected)


@pytest.mark.parametrize(
    ("old", "new"),
    [("class_weights", "class_weight"), ("seed", "random_state"), ("threads", "n_j")],
)
def test_names_of_settings_that_scikit_learn_has_otherwise_are_refused(old, new):
    with pytest.raises(ConfigError, match=f"has no parameter {old}=1; it is named {new}.*scikit"):
        DCNNClassifier(**{old: 1})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"class_weight": "even"}, "class_weight='even' must be None, 'balanced' or a dict"),
        ({"class_weight": {"no": 1}}, "a weight for 'no', which is no label of y; the labels are"),
        ({"class_weight": {"neg": -1}}, "class_weight must have finite numbers of 0 or more"),
        ({"n_jobs": 0}, "n_jobs=0 must be a number of threads, or -1 for one per core"),
    ],
)
def test_wrong_weights_and_jobs_are_refused(parameters, message):
    with pytest.raises(UserError, match=message):
        DCNNClassifier(**SMALL, **parameters).fit(TEXTS, LABELS)


def test_n_jobs_counts_as_in_scikit_learn(fitted):
    for n_jobs in (1, -1):  # none is 1
        again = clone(fitted).set_params(n_jobs=n_jobs, epochs=1).fit(TEXTS, LABELS)
        threads = again.predictor_.artifact.metadata["threads"]
        assert threads == (1 if n_jobs == 1 else effective_n_jobs(-1))
