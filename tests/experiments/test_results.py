import json
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dcnn.errors import DataError, StorageError
from dcnn.experiments.results import (
    EXPERIMENTS,
    MODELS,
    Result,
    fingerprint,
    read_result,
    read_results,
    result_path,
    write_result,
)
from finished_runs import make_result

ROOT = Path(__file__).parent.parent.parent
SCHEMA = json.loads((ROOT / "docs" / "results.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)

texts = st.text(min_size=1, max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


@given(
    experiment=st.sampled_from(EXPERIMENTS),
    model=st.sampled_from(list(MODELS)),
    recipe=st.sampled_from(["paper", "tuned", "best", "ngram", "best-2"]),
    seed=st.integers(0, 2**31),
    dev_accuracy=st.none() | st.floats(0, 1),
    test_correct=st.lists(st.booleans(), min_size=1, max_size=30),
    classes=st.lists(texts, min_size=2, max_size=10, unique=True).map(tuple),
    epochs=st.none() | st.integers(0, 100),
    hardware=texts,
    settings=st.dictionaries(texts, plain, max_size=3),
    notes=st.dictionaries(texts, plain, max_size=3),
)
def test_write_then_read_is_the_identity_and_fits_the_schema(**changes):
    result = make_result(**changes)
    with tempfile.TemporaryDirectory() as folder:
        path = write_result(Path(folder), result)
        assert read_results(Path(folder)) == [result]
        VALIDATOR.validate(json.loads(path.read_text(encoding="utf-8")))


def test_the_schema_knows_every_field_and_name():
    Draft202012Validator.check_schema(SCHEMA)
    names = [item.name for item in fields(Result)]
    assert SCHEMA["required"] == list(SCHEMA["properties"]) == names
    assert tuple(SCHEMA["properties"]["experiment"]["enum"]) == EXPERIMENTS
    assert SCHEMA["properties"]["model"]["enum"] == list(MODELS)


def test_the_results_of_this_repository_fit_code_and_schema():
    for result in read_results(ROOT / "results"):
        path = result_path(
            ROOT / "results", result.experiment, result.model, result.recipe, result.seed
        )
        VALIDATOR.validate(json.loads(path.read_text(encoding="utf-8")))


def test_a_result_is_stored_under_its_name(tmp_path):
    key = ("trec", "max-tdnn", "paper", 3)
    path = write_result(tmp_path, make_result(model="max-tdnn", recipe="paper", seed=3))
    assert path == result_path(tmp_path, *key) == tmp_path / "trec" / "max-tdnn-paper-seed3.json"


def test_predictions_are_one_line(tmp_path):
    path = write_result(tmp_path, make_result(test_correct=[1, 0] * 1000))
    text = path.read_text(encoding="utf-8")
    assert '"test_predictions": "' + "01" * 1000 + '"' in text
    assert '"test_correct": "' + "10" * 1000 + '"' in text
    assert '"ÄÖ"' in text  # people read these files
    assert text.endswith("}\n")


def test_the_fingerprint_depends_on_every_class_and_its_place():
    assert fingerprint([0, 1, 2]) == fingerprint(iter([0, 1, 2]))
    assert len({fingerprint(truth) for truth in ([0, 1], [1, 0], [0, 1, 0], [0, 0])}) == 4


def test_older_files_without_predictions_are_left_out(tmp_path):
    older = tmp_path / "trec" / "dcnn-default-seed0.json"
    older.parent.mkdir()
    older.write_text('{"test_accuracy": 0.5}')
    write_result(tmp_path, make_result())
    assert len(read_results(tmp_path)) == 1


BROKEN = [
    ("experiment", "imdb", "'imdb' must be one of sst2, sst5, trec, twitter"),
    ("model", "transformer", "'transformer' must be one of nb, binb"),
    ("recipe", "a/b", "'a/b' must be lower-case letters"),
    ("recipe", "default", "'default' must be lower-case letters, digits and hyphens, and not"),
    ("seed", "1", "'1' must be a whole number"),
    ("seed", -1, "-1 must be a finite number, 0 or more"),
    ("dev_accuracy", 90.5, "90.5 must be a fraction from 0 to 1"),
    ("test_accuracy", 75, "75 must be a fraction from 0 to 1"),
    ("test_accuracy", True, "True must be a number"),
    ("test_accuracy", None, "None must be a number"),
    ("test_accuracy", 0.5, "0.5 must be the fraction of right answers in test_correct, 0.75"),
    ("test_predictions", [0, 0, 1, 0], "[0, 0, 1, 0] must be a string of digits"),
    ("test_predictions", "001", "(0, 0, 1) must be 4 numbers below 3"),
    ("test_predictions", "0013", "(0, 0, 1, 3) must be 4 numbers below 3"),
    ("test_correct", "1102", "'1102' must be a string of 0 and 1"),
    ("test_correct", "110", "(True, True, False) must be 4 marks, as in examples; there are 3"),
    ("test_truth_sha256", "abc", "'abc' must be 64 hexadecimal digits"),
    ("classes", ["a", "b", "a"], "('a', 'b', 'a') must be 2 to 10 distinct labels"),
    ("classes", ["a"], "('a',) must be 2 to 10 distinct labels"),
    ("classes", [0, 1], "[0, 1] must be a list of strings"),
    ("examples", {"test": 4}, "{'test': 4} must be the counts of train, dev, test"),
    ("examples", {"test": "4"}, "{'test': '4'} must be an object of whole numbers"),
    ("epochs", 1.5, "1.5 must be a whole number or null"),
    ("seconds", float("inf"), "inf must be a finite number"),
    ("versions", {"python": 3}, "{'python': 3} must be an object of strings"),
    ("hardware", "", "'' must be a text that is not empty"),
    ("date", "yesterday", "'yesterday' must be an ISO 8601 date"),
    ("settings", "default", "'default' must be an object"),
]


@pytest.mark.parametrize(("field", "value", "message"), BROKEN)
def test_a_broken_field_is_named_with_value_rule_and_remedy(tmp_path, field, value, message):
    path = write_result(tmp_path, make_result())
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {field: value}))
    with pytest.raises(DataError) as caught:
        read_results(tmp_path)
    assert str(caught.value).startswith(f"{path}: {field}={message}")
    assert str(caught.value).endswith("; remove the file and run that experiment again")


def test_a_broken_result_cannot_be_built():
    with pytest.raises(
        DataError, match=r"test_accuracy=0\.5 must be the fraction of right answers"
    ):
        replace(make_result(), test_accuracy=0.5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1"),
        ("[]", r"must be an object; got \[\]"),
        ("{}", "must have the field 'experiment'"),
        ("[" * 100_000, "recursion"),
        (b"\xff\xfe\xff", "decode"),
    ],
)
def test_a_file_that_is_not_a_result_is_refused(tmp_path, text, words):
    path = tmp_path / "result.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=words) as caught:
        read_result(path)
    assert str(path) in str(caught.value)


def test_an_unknown_field_is_refused(tmp_path):
    path = write_result(tmp_path, make_result())
    path.write_text(path.read_text(encoding="utf-8").replace('"notes"', '"nots": 1, "notes"'))
    with pytest.raises(DataError, match="must not have the field 'nots'"):
        read_result(path)


def test_settings_of_release_0_1_are_read_under_their_new_names(tmp_path):
    old = {
        "training": {"members": 2, "l2_top": 0.1}, "text": {"subwords": 9}, "data": {"folds": 3},
        "distillation": {"share": 0.5},
    }  # fmt: skip
    assert read_result(write_result(tmp_path, make_result(settings=old))).settings == {
        "training": {"n_ensemble": 2, "l2_head": 0.1}, "text": {"n_subwords": 9},
        "data": {"folds": 3}, "distillation": {"teacher_weight": 0.5},
    }  # fmt: skip


def test_a_file_under_another_name_is_refused(tmp_path):
    path = write_result(tmp_path, make_result())
    moved = path.rename(path.with_name("dcnn-tuned-seed7.json"))
    with pytest.raises(DataError, match="move it there") as caught:
        read_results(tmp_path)
    assert str(moved) in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        read_results(tmp_path / "resluts")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "trec").write_text("a file")
    with pytest.raises(StorageError, match="trec could not be made"):
        write_result(tmp_path, make_result())
