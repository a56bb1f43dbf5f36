"""The benchmark of few labels: its draws, its order, its teacher and its tables."""

import json

import numpy as np
import pytest

import few_labels
from dcnn.data.labels import number_labels
from dcnn.experiments.tables import replace_block
from dcnn.training.encoders import EncoderTeacher
from few_labels import Cell, FrozenTeacher, Report, Vectors, cells_of, draw_labels, missing
from results import ROOT
from tiny_encoder import save_encoder

TEXTS = [f"the plot {i} was {'good' if i % 3 else 'bad'}" for i in range(60)]
TRAIN = number_labels(TEXTS, ["pos" if i % 3 else "neg" for i in range(60)])


def run(method, corpus, labels, draw, accuracy):
    scores = {"accuracy": accuracy, "macro_f1": accuracy, "bytes": 2_000_000}
    return Cell(method, corpus, labels, draw)._asdict() | scores


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


def test_only_missing_runs_are_made(tmp_path):
    cells = cells_of(["dcnn"], ["mr"], [8, "all"], 2)
    write_runs(tmp_path, [run(*cells[0], 0.5), run(*cells[2], 0.5)])
    assert missing(cells, tmp_path) == [cells[1], cells[3]]


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
    found = FrozenTeacher(Vectors(tmp_path, ["v"]), train, dev)
    other = list(reversed(TEXTS))
    np.testing.assert_allclose(
        next(found.stream(other)), np.concatenate(list(expected.stream(other))), atol=5e-3
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


def test_the_page_has_the_tables_of_the_results():
    page = ROOT / "docs" / "distillation.md"
    text, report = page.read_text(encoding="utf-8"), Report(few_labels.RESULTS)
    for name, block in report.blocks().items():
        assert replace_block(text, name, block, page) == text
