"""``dcnn suggest``: texts that the model is unsure of and that differ, as a file to fill in."""

import csv
import json

import numpy as np
import pytest

from dcnn.artifact import load, save
from dcnn.data.readers import TableOptions, read_labelled
from dcnn.inspection import suggest
from dcnn.predictor import Predictor
from untrained import VOCABULARY_TEXT, make_artifact

WORDS = [word for word in VOCABULARY_TEXT.split() if word.isalpha()]
RNG = np.random.default_rng(0)
POOL = [" ".join(RNG.choice(WORDS, RNG.integers(1, 9))) for _ in range(300)]


@pytest.fixture(scope="module")
def predictor():
    return Predictor(make_artifact(classes=("a", "b", "c")))


def margins(predictor, texts):
    best = np.sort(predictor.probabilities(texts), axis=1)
    return 1 - (best[:, -1] - best[:, -2])


def test_the_first_is_the_most_uncertain_and_none_is_certain_or_twice(predictor):
    found = suggest(predictor, [*POOL, *POOL, " "], 20)
    texts = [one.text for one in found]
    assert len(set(texts)) == 20
    distinct = list(dict.fromkeys(POOL))
    uncertain = margins(predictor, distinct)
    assert texts[0] == distinct[uncertain.argmax()]
    assert min(one.uncertainty for one in found) >= np.sort(uncertain)[-200]
    for one in found:
        (expected,) = predictor.predict([one.text])
        assert (one.predicted, one.probability) == ((expected.label,), expected.probability)


def test_texts_differ_more_than_the_most_uncertain_ones_do(predictor):
    def nearest(texts):
        features = predictor.features(texts)
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        cosines = features @ features.T
        np.fill_diagonal(cosines, -1)
        return cosines.max(axis=1).mean()

    distinct = list(dict.fromkeys(POOL))
    most_uncertain = [distinct[i] for i in np.argsort(-margins(predictor, distinct))[:10]]
    assert nearest([one.text for one in suggest(predictor, POOL, 10)]) < nearest(most_uncertain)


def test_a_small_pool_is_suggested_whole_and_an_empty_one_not_at_all(predictor):
    texts = ["good plot", "bad ending", "good plot", ""]
    assert {one.text for one in suggest(predictor, texts, 9)} == {"good plot", "bad ending"}
    assert suggest(predictor, ["", " "], 9) == []


def test_of_a_multi_label_model_the_nearest_threshold_counts():
    model = Predictor(make_artifact(classes=("a", "b"), thresholds=(0.3, 0.6)))
    gaps = np.abs(model.probabilities(POOL) - [0.3, 0.6]).min(axis=1)
    (found,) = suggest(model, POOL, 1)
    assert found.text == POOL[gaps.argmin()]
    assert found.uncertainty == pytest.approx(1 - gaps.min(), abs=1e-6)


def test_the_file_has_a_column_to_fill_in(dcnn, tmp_path):
    save(tmp_path / "m", make_artifact())
    (tmp_path / "pool.csv").write_text("id,review\n" + "".join(f"1,{one}\n" for one in POOL))
    done = dcnn("suggest", "m", "pool.csv", "--n", 5, "--out", "next.csv")
    assert done.code == 0, done.err
    assert "5 of 300 texts are in next.csv; fill in the column label, then: dcnn train" in done.err
    with (tmp_path / "next.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["text", "label", "predicted", "probability"]
    assert [row["label"] for row in rows] == [""] * 5
    assert {row["text"] for row in rows} <= set(POOL)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_rows_that_are_not_labelled_yet_are_left_out_of_training(dcnn, tmp_path, suffix):
    save(tmp_path / "m", make_artifact())
    (tmp_path / "pool.csv").write_text("review\n" + "".join(f"{one}\n" for one in POOL))
    assert dcnn("suggest", "m", "pool.csv", "--n", 50, "--out", f"next.{suffix}").code == 0
    found = fill_in(tmp_path / f"next.{suffix}", [""] * 50)
    train = ("train", f"next.{suffix}", "--start-from", "m", "--epochs", 1, "--out", "new")
    done = dcnn(*train)
    assert (done.code, done.err.splitlines()[-1]) == (
        2,
        f"dcnn: next.{suffix}: no row has a label yet; fill in the column label",
    )
    labels = ["neg", "pos"] * 15 + [" ", ""] * 10
    fill_in(tmp_path / f"next.{suffix}", labels, found)
    done = dcnn(*train)
    assert done.code == 0, done.err
    assert f"next.{suffix}: 20 rows without a label are left out" in done.err
    assert load(tmp_path / "new").metadata["examples"]["train"] == 26  # four score both models


def test_a_file_that_was_filled_in_is_kept(dcnn, tmp_path):
    save(tmp_path / "m", make_artifact())
    (tmp_path / "pool.txt").write_text("".join(f"{one}\n" for one in POOL))
    write_suggested(tmp_path / "next.jsonl", ["pos"])
    before = (tmp_path / "next.jsonl").read_text()
    again = ("suggest", "m", "pool.txt", "--n", 3, "--out", "next.jsonl")
    done = dcnn(*again)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "next.jsonl exists and may have labels that were filled in" in done.err
    assert (tmp_path / "next.jsonl").read_text() == before
    assert dcnn(*again, "--overwrite").code == 0
    assert (tmp_path / "next.jsonl").read_text() != before


def write_suggested(path, labels, predicted="pos"):
    rows = [
        {"text": text, "label": label, "predicted": predicted, "probability": 0.5}
        for text, label in zip(POOL, labels, strict=False)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_label_of_0_is_a_label(tmp_path):
    write_suggested(tmp_path / "next.jsonl", [0, 1, None, " "])
    found = read_labelled(tmp_path / "next.jsonl")
    assert [found.classes[target] for target in found.targets] == ["0", "1"]


def test_labels_of_another_column_need_not_be_filled_in(tmp_path):
    write_suggested(tmp_path / "next.jsonl", ["", ""], predicted="neg")
    options = TableOptions(label_column="predicted")
    assert read_labelled(tmp_path / "next.jsonl", options).classes == ("neg",)


@pytest.mark.parametrize("empty", ["a", "z"])
def test_a_file_that_is_not_labelled_yet_may_be_any_of_several(tmp_path, empty):
    write_suggested(tmp_path / f"{empty}.jsonl", ["", ""])
    write_suggested(tmp_path / "m.jsonl", ["pos", "neg", ""])
    found = read_labelled(tmp_path)
    assert len(found) == 2


def fill_in(path, labels, rows=None):
    """Write ``labels`` into a file of ``dcnn suggest``; returns its rows."""
    is_csv = path.suffix == ".csv"
    if rows is None:
        lines = path.read_text().splitlines()
        rows = list(csv.DictReader(lines)) if is_csv else list(map(json.loads, lines))
    rows = [row | {"label": label} for row, label in zip(rows, labels, strict=True)]
    with path.open("w", newline="") as file:
        if is_csv:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return rows


def test_another_file_with_an_empty_label_is_refused(dcnn, tmp_path):
    rows = ["good,pos", "bad,neg", "dull,"]
    (tmp_path / "d.csv").write_text("text,label\n" + "\n".join(rows))
    done = dcnn("train", "d.csv", "--out", "new")
    assert done.code == 2
    assert "d.csv, line 4: the label in 'label' is empty; give the row a label" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--out", "x.xlsx"],
            "--out x.xlsx: the suffix '.xlsx' names no format that can be written",
        ),
        (["--out", "no/x.csv"], "no"),
        (
            ["--out", "pool.csv"],
            "--out pool.csv is a file of pool.csv, which is read; name another",
        ),
        (["--out", "x.csv", "--n", 0], "--n 0: input should be greater than or equal to 1"),
        (["--out", "x.csv", "--text-column", "txt"], "txt"),
    ],
)
def test_bad_options(dcnn, tmp_path, arguments, message):
    save(tmp_path / "m", make_artifact())
    (tmp_path / "pool.csv").write_text("id,review\n1,good\n")
    done = dcnn("suggest", "m", "pool.csv", *arguments)
    assert done.code == 2
    assert message in " ".join(done.err.split())
    assert not (tmp_path / "x.csv").exists()
    assert (tmp_path / "pool.csv").read_text() == "id,review\n1,good\n"


def test_a_pool_without_texts(dcnn, tmp_path):
    save(tmp_path / "m", make_artifact())
    (tmp_path / "pool.txt").write_text("\n\n")
    done = dcnn("suggest", "m", "pool.txt", "--out", "x.csv")
    assert done.code == 2
    assert "pool.txt" in done.err
