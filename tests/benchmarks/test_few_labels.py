"""The benchmark of few labels: its draws, its order, its teacher and its tables."""

import hashlib
import json

import numpy as np
import pytest

import few_labels
from dcnn.data.labels import number_labels
from dcnn.experiments.tables import replace_block
from dcnn.training.distillation import pseudo_label
from dcnn.training.encoders import EncoderTeacher
from dcnn.training.teachers import FunctionTeacher
from few_labels import Cell, Report, Vectors, cells_of, draw_labels, frozen_teacher, missing
from results import ROOT
from tiny_encoder import save_encoder

TEXTS = [f"the plot {i} was {'good' if i % 3 else 'bad'}" for i in range(60)]
TRAIN = number_labels(TEXTS, ["pos" if i % 3 else "neg" for i in range(60)])


def run(method, corpus, labels, draw, accuracy):
    scores = {"accuracy": accuracy, "macro_f1": accuracy, "bytes": 2_000_000}
    return Cell(method, corpus, labels, draw)._asdict() | scores


def of_default(one, **changes):
    """A run of today's default."""
    settings = few_labels.settings_of(one["method"])
    return one | {"settings": settings, "commit": "c"} | changes


def write_runs(folder, runs):
    (folder / "runs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in runs), "utf-8")


def test_a_draw_keeps_so_many_labels_of_each_class_and_the_other_texts():
    few, pool = draw_labels(TRAIN, 8, 0)
    assert np.bincount(few.class_numbers).tolist() == [8, 8]
    assert sorted([*few.texts, *pool]) == sorted(TEXTS)
    more, _ = draw_labels(TRAIN, 32, 0)
    assert np.bincount(more.class_numbers).tolist() == [20, 32]  # all of the smaller class
    assert set(few.texts) < set(more.texts)
    assert set(few.texts) != set(draw_labels(TRAIN, 8, 1)[0].texts)
    assert draw_labels(TRAIN, "all", 0) == (TRAIN, [])


def test_a_draw_is_complete_before_the_next_and_what_has_no_seed_runs_once():
    cells = cells_of(["setfit", "tfidf-lr", "dcnn"], ["mr"], [8, "all"], 2)
    assert cells == [
        Cell("tfidf-lr", "mr", "all", 0), Cell("dcnn", "mr", "all", 0),
        Cell("setfit", "mr", 8, 0), Cell("tfidf-lr", "mr", 8, 0), Cell("dcnn", "mr", 8, 0),
        Cell("dcnn", "mr", "all", 1),
        Cell("setfit", "mr", 8, 1), Cell("tfidf-lr", "mr", 8, 1), Cell("dcnn", "mr", 8, 1),
    ]  # fmt: skip


def test_a_number_of_labels_can_be_complete_before_the_next():
    cells = cells_of(["dcnn", "svm"], ["mr"], ["all", 32, 8], 2, "labels")
    assert cells == [
        Cell("dcnn", "mr", 8, 0), Cell("svm", "mr", 8, 0),
        Cell("dcnn", "mr", 8, 1), Cell("svm", "mr", 8, 1),
        Cell("dcnn", "mr", 32, 0), Cell("svm", "mr", 32, 0),
        Cell("dcnn", "mr", 32, 1), Cell("svm", "mr", 32, 1),
        Cell("dcnn", "mr", "all", 0), Cell("svm", "mr", "all", 0), Cell("dcnn", "mr", "all", 1),
    ]  # fmt: skip


def test_augmented_texts_weigh_as_dcnn_distill_weighs_them():
    pool, augmented = [f"real {i}" for i in range(40)], [f"made {i}" for i in range(200)]
    teacher = FunctionTeacher(lambda texts: np.full((len(texts), 2), 0.5), TRAIN.classes)
    labels = pseudo_label(teacher, TRAIN, TRAIN, unlabelled=[*pool, *augmented], copies=0)
    weights = few_labels.weigh_augmented(labels, set(augmented)).examples.weights
    np.testing.assert_allclose(weights, [1] * 100 + [0.5] * 200)
    assert few_labels.weigh_augmented(labels, set(augmented[:100])).examples.weights is None


def test_only_missing_runs_are_made(tmp_path):
    cells = cells_of(["dcnn"], ["mr"], [8, "all"], 2)
    write_runs(tmp_path, [of_default(run(*cell, 0.5)) for cell in (cells[0], cells[2])])
    assert missing(cells, tmp_path) == [cells[1], cells[3]]


def test_networks_of_another_default_or_commit_are_made_again(tmp_path):
    cells = cells_of(["tfidf-lr", "dcnn", "distilled"], ["mr"], [8], 1)
    linear, plain, student = (run(*cell, 0.5) for cell in cells)
    write_runs(tmp_path, [linear, plain, of_default(student)])  # the plain one notes no settings
    assert missing(cells, tmp_path) == [cells[1]]
    assert missing(cells, tmp_path, commit="c") == [cells[1]]
    assert missing(cells, tmp_path, commit="another") == cells[1:]


def test_lines_of_runs_that_are_made_again_are_dropped(tmp_path):
    old, other = cells_of(["dcnn"], ["mr"], [8], 2)
    lines = [json.dumps(run(*cell, 0.5)) + "\n" for cell in (old, other)]
    (tmp_path / "dcnn.jsonl").write_text("".join(lines), "utf-8")
    few_labels.drop([old], tmp_path)
    assert (tmp_path / "dcnn.jsonl").read_text("utf-8") == lines[1]


def test_without_a_method_that_needs_one_no_encoder_has_to_be_named(monkeypatch, capsys):
    monkeypatch.setenv("DCNN_DATA", ".")
    monkeypatch.setattr("sys.argv", ["few_labels.py", "--methods", "svm", "dcnn"])
    assert few_labels.parse().methods == ["svm", "dcnn"]
    for method, option in (("teacher", "--teacher"), ("setfit", "--setfit-base")):
        monkeypatch.setattr("sys.argv", ["few_labels.py", "--methods", "svm", method])
        with pytest.raises(SystemExit):
            few_labels.parse()
        assert f"give {option} DIR to run" in capsys.readouterr().err


def test_a_line_names_the_encoder_that_its_method_starts_from(tmp_path):
    for name in ("teacher", "base"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text(name)
    folders = (str(tmp_path / "teacher"), str(tmp_path / "base"))
    options = few_labels.Options(tmp_path, tmp_path, *folders, "cpu")
    expected = {"distilled": "teacher", "model2vec": "teacher", "setfit": "base"}
    for method, role in expected.items():
        found = few_labels.encoder_of(method, options)
        assert found[role]["weights_sha256"] == hashlib.sha256(role.encode()).hexdigest()
        assert list(found) == [role]
    assert few_labels.encoder_of("svm", options) == {}


@pytest.mark.parametrize("with_dev", [True, False])
def test_the_teacher_is_that_of_the_package(tmp_path, with_dev):
    encoder = save_encoder(tmp_path / "encoder", " ".join(TEXTS).split())
    # Labels that cannot be learned make the strongest regularization the best.
    random = number_labels(TEXTS[40:], ["neg", "pos"] * 10)
    train, dev = TRAIN.select(range(40)), random if with_dev else None
    expected = EncoderTeacher(str(encoder), train, dev, mode="frozen")
    expected.prepare()
    vectors = expected.embed(TEXTS)
    np.save(tmp_path / "v.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    (tmp_path / "v.json").write_text(json.dumps(TEXTS), "utf-8")
    found = frozen_teacher(Vectors(tmp_path, ["v"]), train, dev)
    other = list(reversed(TEXTS))
    np.testing.assert_allclose(
        next(found.stream(other)), np.concatenate(list(expected.stream(other))), atol=1e-5
    )


def test_a_mean_needs_all_corpora_and_the_best_is_bold(tmp_path):
    runs = [
        run(method, corpus, 8, draw, accuracy + draw / 100)
        for method, accuracy in (("dcnn", 0.5), ("tfidf-lr", 0.6))
        for corpus in few_labels.SETS
        for draw in (0, 2)
    ]
    write_runs(tmp_path, [*runs, run("teacher", "mr", 8, 0, 0.9)])
    report = Report(tmp_path)
    rows = {
        line.split(" | ")[0].lstrip("| "): line for line in report.by_method("accuracy").split("\n")
    }
    assert rows["DCNN"].startswith("| DCNN | 51.0 | - |")
    assert rows["TF-IDF + LR"].startswith("| TF-IDF + LR | **61.0** | - |")
    assert rows["its teacher"].startswith("| its teacher | - |")
    mr = next(line for line in report.by_corpus().split("\n") if line.startswith("| mr | 8 |"))
    assert "**90.0** |" in mr
    assert "61.0 ± 1.4" in mr


def test_means_of_fewer_draws_are_named(tmp_path):
    every = cells_of(few_labels.BESIDE_ENCODERS, few_labels.SETS, few_labels.LABELS, 5)
    lacking = [Cell("setfit", "mr", 8, 4), Cell("distilled", "trec", "all", 0)]
    write_runs(tmp_path, [run(*cell, 0.5) for cell in every if cell not in lacking])
    named = "distilled DCNN, all labels: trec 4; SetFit, MiniLM, 8 per class: mr 4."
    assert Report(tmp_path).fewer_draws() == f"Means of fewer than 5 draws: {named}"
    write_runs(tmp_path, [run(*cell, 0.5) for cell in every])
    assert Report(tmp_path).fewer_draws().startswith("All means are of 5 draws;")


def test_the_difference_is_to_the_best_linear_model_of_a_row(tmp_path):
    values = {"dcnn": 0.6, "char-svm": 0.5, "tfidf-lr": 0.55}
    runs = [run(*values, 0.1) for values in (("dcnn", "mr", 32, 0), ("model2vec", "mr", 8, 0))]
    for corpus in few_labels.SETS:
        runs += [run(method, corpus, 8, 0, value) for method, value in values.items()]
    runs.append(run("char-lr", "mr", 8, 0, 0.9))
    write_runs(tmp_path, runs)
    rows = Report(tmp_path).without_encoders("macro_f1").split("\n")
    found = {tuple(row.split(" | ")[:2]): row.split(" | ")[2:] for row in rows[2:]}
    assert found["| mr", "8"] == ["60.0", "55.0", "-", "-", "50.0", "**90.0**", "-30.0 |"]
    assert found["| mr", "32"] == ["**10.0**", "-", "-", "-", "-", "-", "- |"]
    # The mean has no value of a method that lacks a corpus.
    assert found["| mean", "8"] == ["**60.0**", "55.0", "-", "-", "50.0", "-", "+5.0 |"]
    assert ("| mr", "all") not in found


@pytest.mark.parametrize(
    ("page", "blocks"),
    [
        (
            "distillation.md",
            ("few-labels-mean", "few-labels-f1", "few-labels-corpora", "few-labels-draws"),
        ),
        ("languages.md", ("few-examples-accuracy", "few-examples-f1")),
    ],
)
def test_the_page_has_the_tables_of_the_results(page, blocks):
    path, found = ROOT / "docs" / page, Report(few_labels.RESULTS).blocks()
    text = path.read_text(encoding="utf-8")
    for name in blocks:
        assert replace_block(text, name, found[name], path) == text


def test_timing_one_corpus_keeps_the_times_of_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(few_labels, "time_methods", lambda corpus, *_: {"dcnn": len(corpus)})
    monkeypatch.setattr(few_labels, "start_worker", lambda: None)
    options = few_labels.Options(tmp_path, tmp_path, "some/encoder", "", "cpu")
    for corpora in (["mr", "trec"], ["subj"]):
        few_labels.time_all(corpora, options, tmp_path)
    found = json.loads((tmp_path / "time.json").read_text("utf-8"))
    assert {corpus: one["us_per_text"] for corpus, one in found.items()} == {
        "mr": {"dcnn": 2}, "trec": {"dcnn": 4}, "subj": {"dcnn": 4},
    }  # fmt: skip
    assert Report(tmp_path).microseconds("dcnn") == pytest.approx(10 / 3)
