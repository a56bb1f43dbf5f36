"""Frames and columns given to the classifier: what they hold counts, not whose they are."""

import logging
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

from dcnn import DCNNClassifier, Predictor
from dcnn.data.columns import is_frame
from dcnn.errors import DataError, MissingExtraError

TEXTS = [
    f"a {word} {tail}" for word in ("good", "bad") for tail in ["plot", "cast", "café", "joke"]
]
TEXTS = [f"{text} {i}" for i in range(3) for text in TEXTS]
LABELS = ["pos" if "good" in text else "neg" for text in TEXTS]
SMALL = {"dim": 8, "widths": (4, 3), "maps": (2, 3), "k_top": 2, "epochs": 2, "batch_size": 4}


class Dataset:
    """Stands for Hugging Face's: columns by name, each a sequence that is read one by one."""

    def __init__(self, columns):
        self._columns = columns

    @property
    def column_names(self):
        return list(self._columns)

    def __len__(self):
        return len(next(iter(self._columns.values())))

    def __getitem__(self, key):
        if isinstance(key, str):
            return DatasetColumn(self._columns[key])
        return {name: values[key] for name, values in self._columns.items()}


class DatasetColumn:
    def __init__(self, values):
        self._values = values

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return iter(self._values)


class DatasetDict(dict):
    @property
    def column_names(self):
        return {split: frame.column_names for split, frame in self.items()}


class Stream:
    """Speaks Arrow and has nothing else."""

    def __init__(self, columns):
        self._table = pa.table(columns)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


FRAMES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "record batch": pa.RecordBatch.from_pydict,
    "datasets": Dataset,
    "arrow stream": Stream,
}
COLUMNS = {
    "pandas": pd.Series,
    "pandas array": pd.array,
    "pandas, odd index": lambda values: pd.Series(values, index=range(len(values), 0, -1)),
    "polars": pl.Series,
    "pyarrow": pa.array,
    "pyarrow chunks": lambda values: pa.chunked_array([values[:5], values[5:]]),
    "datasets": DatasetColumn,
    "tuple": tuple,
}


@pytest.fixture(scope="module")
def fitted():
    return DCNNClassifier(**SMALL).fit(TEXTS, LABELS)


@pytest.fixture(scope="module")
def probabilities(fitted):
    return fitted.predict_proba(TEXTS)


@pytest.fixture(params=FRAMES.values(), ids=FRAMES)
def make_frame(request):
    return request.param


@pytest.fixture(params=COLUMNS.values(), ids=COLUMNS)
def make_column(request):
    return request.param


def test_a_frame_gives_the_model_that_lists_give(make_frame, probabilities):
    frame = make_frame({"label": LABELS, "id": list(range(len(TEXTS))), "text": TEXTS})
    model = DCNNClassifier(**SMALL).fit(frame)
    np.testing.assert_array_equal(model.predict_proba(frame), probabilities)
    assert model.classes_.dtype == np.array(LABELS).dtype
    assert model.text_column_ == "text"
    assert (model.predict(frame) == model.predict(TEXTS)).all()


def test_columns_can_be_named(make_frame, probabilities):
    frame = make_frame({"text": LABELS, "b": TEXTS, "label": ["x"] * len(TEXTS)})
    model = DCNNClassifier(**SMALL).fit(frame, text_column="b", label_column="text")
    np.testing.assert_array_equal(model.predict_proba(frame), probabilities)


def test_labels_may_be_outside_the_frame(make_frame, make_column, probabilities):
    frame = make_frame({"review": TEXTS})
    model = DCNNClassifier(**SMALL | {"epochs": 1}).fit(frame, make_column(LABELS))
    assert model.text_column_ == "review"
    assert model.predict_proba(frame).shape == probabilities.shape


def test_a_column_gives_the_model_that_lists_give(make_column, probabilities):
    texts, labels = make_column(TEXTS), make_column(LABELS)
    model = DCNNClassifier(**SMALL).fit(texts, labels)
    np.testing.assert_array_equal(model.predict_proba(texts), probabilities)
    assert model.classes_.dtype == np.array(LABELS).dtype
    assert model.predictor_.predict(texts)[3].text == TEXTS[3]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (pd.Series(LABELS, dtype="category"), ["neg", "pos"]),
        (pd.Categorical(LABELS), ["neg", "pos"]),
        (pd.Series(LABELS, dtype="object"), ["neg", "pos"]),
        (pl.Series(LABELS, dtype=pl.Categorical), ["neg", "pos"]),
        (pl.Series(LABELS, dtype=pl.Enum(["pos", "neg"])), ["neg", "pos"]),
        (pa.array(LABELS).dictionary_encode(), ["neg", "pos"]),
        (pd.Series([label == "pos" for label in LABELS]), [False, True]),
        (pl.Series([label == "pos" for label in LABELS]), [False, True]),
        (pd.Series([len(label) + (label == "pos") for label in LABELS], dtype="Int64"), [3, 4]),
        (pl.Series([7 * (label == "pos") for label in LABELS], dtype=pl.UInt8), [0, 7]),
        (pa.array([2.0 * (label == "pos") for label in LABELS]), [0.0, 2.0]),
    ],
)  # fmt: skip
def test_labels_of_every_kind_are_those_of_a_list(labels, expected):
    found = DCNNClassifier(**SMALL | {"epochs": 1}).fit(TEXTS, labels).classes_
    assert found.tolist() == expected
    assert found.dtype == np.array(expected).dtype


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
@pytest.mark.parametrize("make", [list, pd.Series, lambda values: pd.Series(values, dtype=object)])
def test_a_missing_label_is_found(missing, make):
    labels = make([*LABELS[:5], missing, *LABELS[6:]])
    with pytest.raises(DataError, match=r"label 5 is missing \(.*\); give the text a label"):
        DCNNClassifier(**SMALL).fit(TEXTS, labels)


@pytest.mark.parametrize("name", ["pandas", "polars", "pyarrow", "datasets"])
def test_what_is_missing_in_a_frame_is_found(name):
    labels, texts = [*LABELS[:5], None, *LABELS[6:]], [*TEXTS[:7], None, *TEXTS[8:]]
    with pytest.raises(DataError, match="label 5 is missing"):
        DCNNClassifier(**SMALL).fit(FRAMES[name]({"text": TEXTS, "label": labels}))
    frame = FRAMES[name]({"text": texts, "label": LABELS})
    with pytest.raises(DataError, match=r"text 7 must be a string; got (None|nan)"):
        DCNNClassifier(**SMALL).fit(frame)


def test_numbers_that_are_missing_are_no_class():
    for labels in (np.array([0.0, 1.0, np.nan] * 8), pl.Series([0, 1, None] * 8)):
        with pytest.raises(DataError, match="label 2 is missing"):
            DCNNClassifier(**SMALL).fit(TEXTS, labels)


def test_a_dev_set_may_be_a_frame(make_frame, probabilities):
    data = {"text": TEXTS, "label": LABELS}
    expected = DCNNClassifier(**SMALL).fit(TEXTS, LABELS, dev=(TEXTS[:9], LABELS[:9]))
    dev = {"label": LABELS[:9], "text": TEXTS[:9]}
    for given in (make_frame(dev), (make_frame(dev), pd.Series(LABELS[:9]))):
        found = DCNNClassifier(**SMALL).fit(make_frame(data), dev=given)
        assert found.history_ == expected.history_
    other = make_frame({"review": TEXTS, "label": LABELS})
    with pytest.raises(DataError, match="dev: text_column 'text' is no column; the columns are"):
        DCNNClassifier(**SMALL).fit(make_frame(data), dev=other)


def test_series_are_explained_one_by_one(fitted):
    texts = ["a good plot", "a bad café"]
    expected = [fitted.explain(text).to_dict() for text in texts]
    for given in (texts, pd.Series(texts), pl.Series(texts), pa.array(texts)):
        assert [found.to_dict() for found in fitted.explain(given)] == expected
    frame = pl.DataFrame({"text": texts})
    assert [found.to_dict() for found in fitted.explain(frame)] == expected
    with pytest.raises(DataError, match="the texts must be a list of strings; got 3"):
        fitted.explain(3)


def test_search_and_cross_validation_take_frames_and_columns():
    model = DCNNClassifier(**SMALL | {"epochs": 1})
    expected = cross_val_score(model, TEXTS, LABELS, cv=2)
    for texts, labels in (
        (pd.Series(TEXTS), pd.Series(LABELS)),
        (pd.DataFrame({"text": TEXTS, "id": 1}), pd.Series(LABELS, dtype="category")),
        (pl.DataFrame({"text": TEXTS}), LABELS),
    ):
        np.testing.assert_array_equal(cross_val_score(model, texts, labels, cv=2), expected)
    search = GridSearchCV(model, {"dim": [4, 8]}, cv=2, error_score="raise")
    assert search.fit(pd.Series(TEXTS), pd.Series(LABELS)).predict(pd.Series(["good"])).size == 1


def test_guessed_columns_are_logged_and_kept(caplog):
    caplog.set_level(logging.INFO, "dcnn")
    model = DCNNClassifier(**SMALL | {"epochs": 1}).fit(pd.DataFrame({"u": LABELS, "v": TEXTS}))
    assert caplog.records[0].message == (
        "X: reading text from column 'v' and labels from 'u' "
        "(guessed; choose with text_column and label_column)"
    )
    with pytest.raises(DataError, match="X: text_column 'v' is no column; the columns are 'text'"):
        model.predict(pd.DataFrame({"text": TEXTS}))


def test_a_loaded_model_takes_frames_too(tmp_path, fitted, probabilities):
    fitted.save(tmp_path / "model")
    frame = pl.DataFrame({"id": 1, "sentence": TEXTS}, strict=False)
    loaded = DCNNClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(frame), probabilities)
    predictor = Predictor.load(tmp_path / "model")
    assert predictor.predict(frame["sentence"])[0].text == TEXTS[0]


@pytest.mark.parametrize(
    ("x", "y", "more", "message"),
    [
        (pd.DataFrame({"txt": TEXTS, "label": LABELS}), None, {"text_column": "text"},
         "X: text_column 'text' is no column; the columns are 'txt', 'label'; did you mean 'txt'"),
        (pl.DataFrame({"a": TEXTS, "b": TEXTS, "c": TEXTS}), None, {},
         "X: cannot guess which column holds the text; .* choose with text_column"),
        (pd.DataFrame({"text": TEXTS}), None, {}, "X has just one column to read, 'text'"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), None, {},
         "X: more than one column is named 'text'"),
        (pd.DataFrame({"text": TEXTS, "label": LABELS}), LABELS, {"label_column": "label"},
         "both y and label_column 'label' give the labels"),
        (TEXTS, LABELS, {"text_column": "text"}, "text_column names a column, and X is a list"),
        (pd.Series(TEXTS), None, {"label_column": "y"}, "label_column names .* X is a Series"),
        (pd.DataFrame({"text": [1, 2], "label": [1, 2]}), None, {}, "text 0 must be a string; got"),
        (pl.LazyFrame({"text": TEXTS}), LABELS, {}, r"X is a LazyFrame, .* give X\.collect\(\)"),
        (DatasetDict(train=Dataset({"text": TEXTS})), LABELS, {},
         r"X is a DatasetDict of 'train'; give one of them, for instance X\['train'\]"),
        (TEXTS, pd.DataFrame({"label": LABELS}), {}, r"got an array of shape \(24, 1\)"),
        (TEXTS, "pos", {}, r"got an array of shape \(\)"),
        (TEXTS, 3, {}, r"got an array of shape \(\)"),
        (TEXTS, pd.to_datetime(pd.Series(["2020"] * 24)), {}, "the labels must be strings, numb"),
    ],
)  # fmt: skip
def test_wrong_frames_are_explained_in_one_sentence(x, y, more, message):
    with pytest.raises(DataError, match=message):
        DCNNClassifier(**SMALL).fit(x, y, **more)


def test_a_predictor_takes_frames_and_columns(fitted, make_frame, make_column):
    predictor = fitted.predictor_
    expected = predictor.predict(TEXTS)
    assert predictor.predict(make_column(TEXTS)) == expected
    assert predictor.predict(make_frame({"id": list(range(24)), "review": TEXTS})) == expected
    frame = make_frame({"a": TEXTS[::-1], "b": TEXTS, "c": LABELS})
    assert predictor.predict(frame, text_column="b") == expected
    for found in (fitted.predict_proba, predictor.probabilities):
        np.testing.assert_array_equal(found(frame, text_column="b"), found(TEXTS))
    assert (fitted.predict(frame, text_column="b") == fitted.predict(TEXTS)).all()


@pytest.mark.parametrize(
    ("given", "column", "message"),
    [
        (pd.DataFrame({"a": ["x"], "b": ["y"], "c": ["z"]}), None,
         "X: cannot guess which column holds the text; .* choose with text_column"),
        (pl.DataFrame({"text": ["x"]}), "txt", "X: text_column 'txt' is no column; .* did you"),
        (pl.LazyFrame({"text": ["x"]}), None, r"X is a LazyFrame, .* give X\.collect\(\)"),
        (["x"], "text", "text_column 'text' names a column, and the texts are a list without any"),
        ({"text": ["x"]}, None, "the texts must be a list of strings; got {'text'.*; give a list"),
        (b"x", None, "the texts must be a list of strings; got b'x'"),
        (pd.Series(["x", None]), None, "text 1 must be a string; got (None|nan)"),
        (pa.array([1]), None, "text 0 must be a string; got 1"),
    ],
)  # fmt: skip
def test_what_is_no_column_of_texts_is_refused(fitted, given, column, message):
    for predict in (fitted.predict, fitted.predictor_.predict):
        with pytest.raises(DataError, match=message):
            predict(given, text_column=column)


def test_columns_that_are_numbered_can_be_named(probabilities):
    frame = pd.DataFrame(list(zip(LABELS, TEXTS, strict=True)))
    model = DCNNClassifier(**SMALL).fit(frame, text_column="1", label_column="0")
    np.testing.assert_array_equal(model.predict_proba(frame), probabilities)


def test_arrow_without_pyarrow_names_the_extra(monkeypatch):
    stream = Stream({"text": TEXTS, "label": LABELS})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match="Reading a Stream needs the extra 'data'"):
        DCNNClassifier(**SMALL).fit(stream)


def test_lists_and_arrays_are_no_frames():
    for value in (TEXTS, tuple(TEXTS), np.array(TEXTS), pd.Series(TEXTS), pa.array(TEXTS), "x", 3):
        assert not is_frame(value)


def test_lists_need_none_of_the_libraries():
    script = (
        "import sys\nfrom dcnn.data import columns\nfrom dcnn.predictor import checked_texts\n"
        "checked_texts(iter(['a'])), columns.is_frame(['a'])\n"
        "assert not {'pyarrow', 'pandas', 'polars', 'datasets'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
