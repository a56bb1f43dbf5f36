"""The benchmark of languages: which runs it makes, what it keeps, and its tables."""

import json
import re

import pytest

import languages
import small_corpora
from dcnn.experiments.tables import replace_block
from languages import MODELS, OURS, Report, Run
from results import ROOT, is_current

SOURCE = {"commit": "c", "hardware": "a machine", "versions": {}, "date": "today"}
NETWORKS = [name for name in MODELS if name.startswith("dcnn-")]


def scores(model, seed=0, accuracy=0.5):
    parts = {f"test_{key}": accuracy for key in ("accuracy", "macro_f1")}
    size = 8 if model in NETWORKS else 1
    return {"model": model, "seed": seed, "bytes": 1, "n_ensemble": size, **parts}


def source_of(model, **changes):
    config = languages.settings_of(model)
    return SOURCE | ({} if config is None else {"settings": config.to_dict()}) | changes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(languages, "RESULTS", tmp_path)
    return tmp_path


def write(folder, corpus, runs, sources=None):
    sources = sources or {run["model"]: source_of(run["model"]) for run in runs}
    text = json.dumps({"corpus": corpus, "sources": sources, "runs": runs})
    (folder / f"{corpus}.json").write_text(text, "utf-8")


def test_only_missing_runs_are_made_and_what_has_no_seed_runs_once(folder):
    write(folder, "mr", [scores(OURS, seed=1)])
    found = Report("mr").missing([OURS, "svm", "fasttext"], 2)
    assert found == [
        Run("mr", OURS, 0), Run("mr", "svm", 0), Run("mr", "fasttext", 0), Run("mr", "fasttext", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "commit", "kept"),
    [
        ({}, None, True),
        ({}, "c", True),
        ({}, "another", False),
        ({"settings": {"training": {"members": 8}}}, None, False),
        ({"settings": None}, None, False),
    ],
)
def test_networks_of_another_default_or_commit_are_outdated_and_baselines_are_not(
    folder, changes, commit, kept
):
    runs = [scores(OURS), scores("svm"), scores("fasttext")]
    sources = {OURS: source_of(OURS, **changes), "svm": SOURCE, "fasttext": SOURCE}
    write(folder, "mr", runs, sources)
    report = Report("mr")
    report.drop_outdated(list(MODELS), commit)
    left = [run["model"] for run in report.runs]
    assert left == ([OURS, "svm", "fasttext"] if kept else ["svm", "fasttext"])


def test_a_network_of_other_tokens_has_settings_of_its_own():
    settings = languages.settings_of("dcnn-bpe").to_dict()
    assert is_current({"settings": settings}, settings)
    assert not is_current({"settings": languages.settings_of(OURS).to_dict()}, settings)


def write_umsab(folder, language):
    texts = [f"{word} text {i}" for i in range(20) for word in ("good", "bad")]
    place = folder / "umsab" / language
    place.mkdir(parents=True)
    for part in ("train", "val", "test"):
        (place / f"{part}_text.txt").write_text("\n".join(texts) + "\n", "utf-8")
        (place / f"{part}_labels.txt").write_text("0\n1\n" * 20, "utf-8")


@pytest.mark.scale
def test_runs_of_several_processes_get_into_their_files_and_one_that_fails_stops_no_other(
    folder, monkeypatch, capsys
):
    write_umsab(folder / "corpora", "french")
    monkeypatch.setenv("DCNN_COMMIT", "this")
    reports = [Report("umsab-french"), Report("umsab-german")]  # there is no German file
    models = ["svm", "char-lr"]
    assert not languages.run_missing(reports, folder / "corpora", models, 3, 2)
    assert "umsab-german svm 0 FAILED" in capsys.readouterr().out
    found = json.loads((folder / "umsab-french.json").read_text("utf-8"))
    assert found["examples"] == {"train": 80, "test": 40}  # dev is trained on
    assert found["classes"] == 2
    assert [run["model"] for run in found["runs"]] == models
    assert all(run["test_accuracy"] == 1.0 for run in found["runs"])
    assert {source["commit"] for source in found["sources"].values()} == {"this"}
    assert Report("umsab-french").missing(models, 3) == []
    assert len(Report("umsab-german").missing(models, 3)) == 2


def test_a_network_notes_its_settings_and_the_size_of_its_ensemble(folder):
    corpora = folder / "corpora"
    write_umsab(corpora, "french")
    run = languages.make_run(Run("umsab-french", OURS, 0), corpora)
    Report("umsab-french").add(run, languages.load("umsab-french", corpora), SOURCE)
    found = json.loads((folder / "umsab-french.json").read_text("utf-8"))
    assert found["runs"][0]["n_ensemble"] == 8
    assert is_current(found["sources"][OURS], languages.settings_of(OURS).to_dict(), "c")


def rows_of(table):
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.split("\n")]
    return {line[0]: dict(zip(lines[0], line, strict=True)) for line in lines}


def test_the_difference_is_to_the_best_baseline_of_the_row_and_the_mean_needs_all_corpora(folder):
    last = f"{OURS} minus the best baseline"
    seeds = [scores(OURS, seed, 0.6 + seed / 100) for seed in range(3)]
    write(folder, "mr", [*seeds, scores("svm", 0, 0.5), scores("char-svm", 0, 0.64)])
    write(folder, "sms", [scores(OURS, 0, 0.7), scores("svm", 0, 0.6), scores("char-lr", 0, 0.9)])
    rows = rows_of(languages.score_table([Report("mr"), Report("sms")], "test_accuracy"))
    assert rows["mr"][last] == "-3.0"
    assert rows["sms"][last] == "-20.0"
    assert rows["mr"]["char-svm"] == "**64.0**"
    ours = f"{OURS}, 8 in one"
    assert rows["mr"][ours] == "61.0"
    assert rows["sms"][ours] == "70.0 (of 1)"
    mean = rows["mean"]
    assert (mean[ours], mean["svm"], mean["char-svm"]) == ("**65.5**", "55.0", "-")
    assert mean[last] == "+10.5"  # of the baselines only svm has all corpora


def test_costs_of_models_that_are_not_installed_are_kept_with_their_machine(folder):
    write_umsab(folder / "corpora", "french")
    old = {"train_cpu_seconds": 1.1, "bytes": 2e6, "latency_cpu_us": 36, "hardware": "an old one"}
    (folder / "costs.json").write_text(json.dumps({"svm": old, "fasttext": old}), "utf-8")
    languages.measure_costs(["umsab-french"], folder / "corpora", ["svm"])
    costs = json.loads((folder / "costs.json").read_text("utf-8"))
    assert costs["fasttext"] == old
    assert costs["svm"]["corpora"] == 1
    table = languages.cost_table(costs)
    assert rows_of(table.split("\n\n")[0])["latency of a text, us"]["fasttext"] == "36"
    assert "fasttext: an old one." in table
    assert re.search(r"^svm, former default: .*cores", table, re.MULTILINE)


def test_what_is_not_installed_is_left_out(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert languages.installed(["svm", "fasttext"]) == ["svm"]
    assert "fasttext is not installed: its earlier runs are kept" in capsys.readouterr().out


def test_the_page_has_the_tables_of_the_results():
    page = ROOT / "docs" / "languages.md"
    text = page.read_text(encoding="utf-8")
    for name, block in languages.tables().items():
        assert replace_block(text, name, block, page) == text
    assert all(
        (ROOT / "results" / "languages" / f"{one}.json").exists() for one in small_corpora.CORPORA
    )
