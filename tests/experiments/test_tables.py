import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from dcnn.cli.experiment import tables
from dcnn.errors import DataError
from dcnn.experiments import results
from dcnn.experiments.results import EXPERIMENTS, code_hash, fingerprint, write_result
from dcnn.experiments.statistics import bootstrap_difference, bootstrap_mean
from dcnn.experiments.tables import (
    LEGEND,
    compare,
    experiment_tables,
    feature_table,
    paper,
    replace_block,
    summary_table,
)
from finished_runs import make_result, right

EXAMPLES = 200


def run(accuracy, seed=0, start=0, **changes):
    """A run on TREC with so many right answers in a hundred, from example ``start`` on."""
    correct = right(accuracy * EXAMPLES // 100, EXAMPLES, start)
    return make_result(seed=seed, test_correct=correct, **changes)


def row_of(rows, classifier):
    return next(row for row in rows if row[0] == classifier)


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def correct(*runs):
    return np.array([one.test_correct for one in runs])


def test_every_experiment_of_the_paper_is_known():
    assert tuple(paper()) == EXPERIMENTS
    assert all(one["accuracy"]["dcnn"] > one["accuracy"]["nbow"] for one in paper().values())


def test_without_results_the_table_has_the_papers_rows():
    rows = compare("trec", [])
    assert [row[0] for row in rows[-3:]] == ["Max-TDNN", "NBoW", "DCNN"]
    assert [float(row[1]) for row in rows] == [91.0, 92.6, 93.6, 95.0, 84.4, 88.2, 93.0]
    assert rows[-1][:5] == ["DCNN", "93.0", "-", "-", "not yet run"]
    assert rows[0][:5] == ["Hier (Li and Roth 2002)", "91.0", "-", "-", "-"]  # not ours to run
    lines = experiment_tables([]).splitlines()
    assert len({len(cells(line)) for line in lines if line.startswith("|")}) == 1


def test_a_row_summarizes_its_runs():
    runs = [run(80, 0), run(82, 1), run(87, 2)]
    row = row_of(compare("trec", runs), "DCNN")
    assert row[:7] == ["DCNN", "93.0", "tuned", "-", "83.0 ± 3.6", "87.0", "3"]
    assert re.fullmatch(r"7\d\.\d to 8\d\.\d", row[7])
    assert row[7] == bootstrap_mean(correct(*runs)).percent()
    assert row[8:11] == ["-", "-", "-"]  # it is the reference


def test_a_model_is_compared_with_all_runs_of_the_tuned_network():
    tuned = [run(82, seed, start=3 * seed) for seed in (0, 1, 2)]
    nbow = [run(accuracy, seed, model="nbow") for seed, accuracy in ((2, 80), (5, 81))]
    row = row_of(compare("trec", [*nbow, *tuned]), "NBoW")
    interval, p = bootstrap_difference(correct(*nbow), correct(*tuned))
    assert p > 0.001
    assert row[8:11] == ["-1.5", interval.percent("+"), f"{p:.3f}"]


def test_without_the_tuned_network_there_is_nothing_to_compare_with():
    rows = compare("trec", [run(90, recipe="paper"), run(80, model="nbow")])
    assert row_of(rows, "NBoW")[8:11] == ["-", "-", "-"]


def test_a_better_model_has_a_plus():
    row = row_of(compare("trec", [run(80), run(90, model="nbow")]), "NBoW")
    assert row[8] == "+10.0"
    assert re.fullmatch(r"\+\d\.\d to \+1\d\.\d", row[9])


def test_small_p_values_are_not_shown_as_zero():
    rows = compare("trec", [run(90), run(80, model="nbow"), run(90, model="max-tdnn")])
    assert row_of(rows, "NBoW")[10] == "< 0.001"
    assert row_of(rows, "Max-TDNN")[10] == "1.000"


def test_recipes_and_rows_keep_their_order():
    recipes = ["three-teachers", "other", "best", "paper", "tuned", "distilled"]
    results = [run(90, recipe=recipe) for recipe in recipes]
    results += [run(92, model="dcnn-ensemble", recipe="best"), run(70, model="nb", recipe="ngram")]
    rows = compare("trec", results)
    assert [row[:3] for row in rows if row[2] != "-"] == [
        ["DCNN", "93.0", "paper"],
        ["DCNN", "93.0", "tuned"],
        ["DCNN", "93.0", "distilled"],
        ["DCNN", "93.0", "three-teachers"],
        ["DCNN", "93.0", "best"],
        ["DCNN", "93.0", "other"],
        ["NB", "-", "ngram"],
        ["DCNN ensemble (several networks)", "-", "best"],
    ]
    assert "| NB | - | ngram | - | 70.0 | 70.0 | 1 |" in experiment_tables(results)


def test_a_table_has_only_the_runs_of_its_experiment():
    rows = compare("trec", [run(90, 0), run(50, 1, experiment="sst2")])
    assert row_of(rows, "DCNN")[6] == "1"


def test_rows_say_what_was_learned_from_outside_and_teachers_have_their_own():
    taught = {"text": {}, "distillation": {"encoder": "some/encoder", "unlabelled": ["questions"]}}
    results = [
        run(95, seed, recipe=recipe, settings=taught, notes={"teacher": {"test_accuracy": 0.97}})
        for recipe in ("best", "distilled")
        for seed in (0, 1)
    ]
    with_vectors = {"text": {"vectors": "glove"}, "distillation": {"encoder": ""}}
    rows = compare("trec", [*results, run(90, settings=with_vectors), run(80, model="nbow")])
    assert [row[2:4] for row in rows if row[0] == "DCNN"] == [
        ["tuned", "GloVe"],
        ["distilled", "encoder, questions"],
        ["best", "encoder, questions"],
    ]
    assert row_of(rows, "NBoW")[3] == "-"
    assert rows[-1][:7] == [
        *("teacher: encoder, fine-tuned", "-", "distilled, best", "encoder", "97.0", "97.0", "1")
    ]


def test_the_groups_of_engineered_features_have_a_table():
    groups = {"unigrams": {"features": 8000, "with those before": 0.8, "all others": 0.9}}
    notes = {"groups": groups, "features": 9000, "outside": ["parser", "WordNet"]}
    result = run(95, model="svm-features", recipe="ngram", notes=notes)
    assert row_of(compare("trec", [result]), "SVM, engineered features")[3] == "parser, WordNet"
    assert "| unigrams | 8,000 | 80.0 | 90.0 |" in feature_table([result])
    assert "| all | 9,000 |" in feature_table([result])
    assert feature_table([]) == "not yet run"


def test_two_teachers_of_the_same_accuracy_count_twice():
    taught = {"distillation": {"encoder": "some/encoder"}}
    results = [
        run(95, seed, recipe="distilled", settings=taught,
            notes={"teacher": {"test_accuracy": 0.97, "seed": seed}})
        for seed in (0, 1)
    ]  # fmt: skip
    assert compare("trec", results)[-1][4:7] == ["97.0 ± 0.0", "97.0", "2"]


def test_n_gram_models_are_not_shown_as_the_papers_engineered_systems():
    rows = compare("trec", [run(90, model="svm", recipe="ngram")])
    assert row_of(rows, "SVM (Silva et al. 2011)")[2:5] == ["-", "-", "-"]
    assert row_of(rows, "SVM")[1:3] == ["-", "ngram"]


def test_runs_on_other_test_sets_are_refused():
    other = run(90, 1, model="nbow", test_truth_sha256=fingerprint([1] * EXAMPLES))
    with pytest.raises(DataError, match="different test sets") as caught:
        compare("trec", [run(90), other])
    assert "trec/dcnn-tuned-seed0" in str(caught.value)
    assert "trec/nbow-tuned-seed1" in str(caught.value)


def test_every_table_has_its_title_and_legend():
    rendered = experiment_tables([run(90)])
    assert re.findall(r"^## (Table \d)", rendered, re.MULTILINE) == [
        "Table 1", "Table 1", "Table 2", "Table 3",
    ]  # fmt: skip
    assert rendered.count(LEGEND) == 4
    assert "\n" not in LEGEND


def test_the_summary_shows_the_network_by_recipe():
    results = [run(90, 0), run(94, 1), run(88, recipe="paper"), run(99, model="nbow")]
    results.append(run(95, recipe="three-teachers"))  # not a column
    lines = summary_table(results).splitlines()
    assert len(lines) == 4 + len(EXPERIMENTS)
    trec = next(line for line in lines if "TREC" in line)
    assert cells(trec)[1:] == [
        *("93.0", "88.0", "92.0 ± 2.8", "not yet run", "not yet run"),
        "`dcnn experiment trec --recipe R`",
    ]
    assert "86.8 | not yet run | not yet run | not yet run" in lines[2]


def test_only_what_lies_between_the_comments_is_replaced(tmp_path):
    text = "a\r\n<!-- t:begin -->\nold\n<!-- t:end -->\nz"
    once = replace_block(text, "t", "new", tmp_path)
    assert once == "a\r\n<!-- t:begin -->\n\nnew\n\n<!-- t:end -->\nz"
    assert replace_block(once, "t", "new", tmp_path) == once


@pytest.mark.parametrize(
    "text",
    [
        "<!-- t:begin -->",
        "<!-- t:end -->",
        "<!-- t:end --> <!-- t:begin -->",
        "<!-- t:begin --> <!-- t:end --> <!-- t:begin --> <!-- t:end -->",
    ],
)
def test_comments_without_a_block_are_refused(tmp_path, text):
    with pytest.raises(
        DataError, match="<!-- t:begin --> and <!-- t:end --> must occur once each"
    ) as caught:
        replace_block(text, "t", "new", tmp_path / "x.md")
    assert "x.md" in str(caught.value)


BLOCK = "<!-- {0}:begin -->\n<!-- {0}:end -->\n"


def test_tables_are_printed_or_put_into_files(tmp_path, capsys):
    result = run(90)
    write_result(tmp_path / "results", result)
    tables(tmp_path / "results", [])
    printed = capsys.readouterr().out
    blocks = (summary_table([result]), experiment_tables([result]), feature_table([result]))
    assert printed == "\n\n".join(blocks) + "\n"

    short, long = tmp_path / "README.md", tmp_path / "long.md"
    short.write_text("# ä\n" + BLOCK.format("experiments-summary"), encoding="utf-8")
    long.write_text(BLOCK.format("experiments") + "after\n", encoding="utf-8")
    tables(tmp_path / "results", [short, long])
    assert capsys.readouterr().out == ""
    written = short.read_text(encoding="utf-8")
    assert written.startswith("# ä\n")
    assert summary_table([result]) in written
    assert LEGEND not in written
    assert experiment_tables([result]) in long.read_text(encoding="utf-8")
    assert long.read_text(encoding="utf-8").endswith("after\n")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"no block", "has no place for the tables"), (b"\xff", "must be UTF-8")],
)
def test_no_file_is_changed_if_one_cannot_be(tmp_path, content, words):
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text(BLOCK.format("experiments"))
    bad.write_bytes(content)
    with pytest.raises(DataError, match=words):
        tables(tmp_path, [good, bad])
    assert good.read_text() == BLOCK.format("experiments")


def test_tables_name_the_commits_of_their_runs():
    first, second = "1" * 40, f"{'2' * 40}-dirty"
    runs = [run(90, commit=first), run(80, seed=1, commit=second), run(70, seed=2, commit=first)]
    assert "1111111, 2222222-dirty" in row_of(compare("trec", runs), "DCNN")
    assert summary_table(runs).endswith("Code of these runs: commits 1111111, 2222222-dirty.")


def test_results_of_other_code_are_listed(tmp_path, dcnn):
    for seed, model, notes in (
        (0, "dcnn", {"code": code_hash("dcnn")}),
        (1, "dcnn", {"code": "of yesterday"}),
        (2, "dcnn", {}),
        (0, "nb", {"code": code_hash("nb")}),
    ):
        write_result(tmp_path / "results", run(90, seed, model=model, notes=notes))
    done = dcnn("experiment", "tables", "--check")
    assert done.code == 1
    assert done.out == "trec dcnn tuned: 2 of commit 0123abc, before the code changed\n"
    for seed in (1, 2):
        (tmp_path / "results" / "trec" / f"dcnn-tuned-seed{seed}.json").unlink()
    done = dcnn("experiment", "tables", "--check")
    assert (done.code, done.out) == (0, "All 2 results are of this code.\n")


def test_the_code_of_a_result_is_all_that_decides_it(tmp_path, monkeypatch):
    package = tmp_path / "src" / "dcnn"
    shutil.copytree(Path(results.__file__).parents[1], package)
    monkeypatch.setattr(results, "__file__", str(package / "experiments" / "results.py"))
    (tmp_path / "native").mkdir()

    def changed(path):
        before = {model: code_hash.__wrapped__(model) for model in ("dcnn", "nb")}
        path.write_text(f"{path.read_text() if path.exists() else ''}# changed\n")
        return [model for model in before if code_hash.__wrapped__(model) != before[model]]

    assert changed(package / "text" / "tokenizer.py") == ["dcnn", "nb"]
    assert changed(package / "data" / "corpora" / "sst.py") == ["dcnn", "nb"]
    assert changed(package / "training" / "trainer.py") == ["dcnn"]
    assert changed(tmp_path / "native" / "forward.h") == ["dcnn"]
    assert changed(package / "serve" / "app.py") == []
