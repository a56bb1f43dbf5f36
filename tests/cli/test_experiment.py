"""``dcnn experiment`` as a user runs it, on samples of the real corpora."""

import json
import lzma
import os
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import jsonschema
import pytest

from dcnn.artifact import load
from dcnn.cli.experiment import _differences
from dcnn.experiments.recipes import load_recipe
from dcnn.predictor import Predictor

SCHEMA = Path(__file__).parents[2] / "docs" / "results.schema.json"
NETWORKS = {
    "sst2": "[model]\ndim = 8\nwidths = [4, 3]\nmaps = [2, 2]\nk_top = 2\n",
    "sst5": "[data]\nneighbour_smoothing = 0.2\n[model]\ndim = 8\nwidths = [4]\nmaps = [2]\n",
    "trec": '[text]\nvectors = "glove"\nvectors_words = 500\n'
    "[data]\nfolds = 2\n[model]\ndim = 8\nwidths = [4]\nmaps = [2]\n"
    "[distillation]\nteachers = 1\n",
    "twitter": '[text]\ntokenizer = "tweet"\nmax_size = 500\n'
    "[data]\nheld_out = 0.2\n[model]\ndim = 8\nwidths = [4]\nmaps = [2]\n",
}
TRAINING = "[training]\nepochs = 2\nbatch_size = 64\nlearning_rate = 0.2\n"


def copy_lines(source, target, count, open_file=open):
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_file(source, "rb") as there, open_file(target, "wb") as here:
        here.writelines(islice(there, count))


@pytest.fixture
def sample(corpora, tmp_path):
    """The first lines of every file, under the names of the whole ones."""
    folder = tmp_path / "sample"
    for part, count in (("train", 60), ("dev", 30), ("test", 40)):
        copy_lines(corpora / "sst" / f"{part}.txt", folder / "sst" / f"{part}.txt", count)
    for name, count in (("train_5500.label", 200), ("TREC_10.label", 50)):
        copy_lines(corpora / "trec" / name, folder / "trec" / name, count)
    copy_lines(
        corpora / "vectors" / "glove.100d.subset.txt.xz",
        folder / "vectors" / "glove.100d.subset.txt.xz",
        800,
        lzma.open,
    )
    test = "testdata.manual.2009.06.14.csv"
    copy_lines(corpora / "twitter" / test, folder / "twitter" / test, 60)
    tweets = [f"{i % 2},{'sad' if i % 2 else 'happy'} tweet {i % 7}\n" for i in range(600)]
    (folder / "twitter" / "sentiment140.train.csv.xz").write_bytes(
        lzma.compress("".join(tweets).encode())
    )
    for experiment, text in NETWORKS.items():
        (tmp_path / f"{experiment}.toml").write_text(text + TRAINING)
    return folder


def results(folder, experiment):
    found = {}
    for path in sorted((folder / "results" / experiment).glob("*.json")):
        found[path.stem] = json.loads(path.read_text())
    return found


@pytest.mark.corpora
@pytest.mark.parametrize("experiment", NETWORKS)
def test_each_experiment_runs_end_to_end(experiment, sample, dcnn, tmp_path):
    command = (
        "experiment", experiment, "--data", "sample", "--sample", "--recipe", f"{experiment}.toml",
        "--seeds", 2, "--models", "dcnn,binb", "--save", "models", "--device", "cpu",
        "--jobs", 1,
    )  # fmt: skip
    environment = {"DCNN_CACHE": str(tmp_path / "cache")}
    done = dcnn(*command, **environment)
    assert done.code == 0, done.err
    found = results(tmp_path, experiment)
    recipe = experiment
    assert set(found) == {
        f"dcnn-{recipe}-seed0",
        f"dcnn-{recipe}-seed1",
        f"dcnn-ensemble-{recipe}-seed0",
        "binb-ngram-seed0",
    }
    assert found[f"dcnn-ensemble-{recipe}-seed0"]["notes"]["seeds"] == [0, 1]
    assert ("vectors" in found[f"dcnn-{recipe}-seed0"]["notes"]) == (experiment == "trec")
    schema = json.loads(SCHEMA.read_text())
    for result in found.values():
        jsonschema.validate(result, schema)
        assert result["selection"] == ("cross-validation" if experiment == "trec" else "dev")
    model = load(tmp_path / "models" / f"{experiment}-dcnn-{recipe}-seed0")
    assert len(Predictor(model).predict(["a text"])) == 1
    # A second time there is nothing left to do, and nothing is touched.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.json")}
    again = dcnn(*command, **environment)
    assert "2 of 2 seeds are done already" in again.err
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.scale
@pytest.mark.corpora
def test_parallel_processes_run_what_is_missing(sample, dcnn, tmp_path):
    command = (
        "experiment", "sst2", "--data", "sample", "--sample", "--recipe", "sst2.toml",
        "--models", "nbow", "--device", "cpu",
    )  # fmt: skip
    assert dcnn(*command, "--seeds", 1).code == 0
    done = dcnn(*command, "--seeds", 3, "--jobs", 2)
    assert done.code == 0, done.err
    assert "1 of 3 seeds are done already" in done.err
    assert set(results(tmp_path, "sst2")) == {f"nbow-sst2-seed{seed}" for seed in range(3)}


@pytest.mark.corpora
def test_the_same_seed_gives_the_same_predictions(sample, dcnn, tmp_path):
    for folder in ("first", "second"):
        done = dcnn(
            "experiment", "sst2", "--data", "sample", "--sample", "--recipe", "sst2.toml",
            "--seeds", 1, "--results", folder, "--device", "cpu",
        )  # fmt: skip
        assert done.code == 0, done.err
    first, second = (
        json.loads((tmp_path / folder / "sst2" / "dcnn-sst2-seed0.json").read_text())
        for folder in ("first", "second")
    )
    assert first["test_predictions"] == second["test_predictions"]
    assert first["dev_accuracy"] == second["dev_accuracy"]


def test_a_setting_that_is_new_had_its_default_before():
    recipe = load_recipe("trec", "tuned")
    before = recipe.to_dict()
    assert _differences(recipe, before) == []
    del before["text"]["vectors_projection"], before["training"]["l2_projection"]
    assert _differences(recipe, before) == ["text.vectors_projection was 0.0"]
    before["text"]["forgotten"] = 3
    assert "text.forgotten was 3" in _differences(recipe, before)


@pytest.mark.corpora
def test_a_sample_is_refused_unless_it_is_called_one(sample, dcnn):
    done = dcnn("experiment", "sst2", "--data", "sample", "--recipe", "sst2.toml")
    assert done.code == 2
    assert "train.txt has " in done.err
    assert "where 2,160,058 are expected: it was cut short" in done.err


@pytest.mark.corpora
def test_a_result_of_another_run_is_refused(sample, corpora, dcnn, tmp_path):
    command = (
        "experiment", "sst2", "--recipe", "sst2.toml", "--seeds", 1, "--models", "nbow",
        "--device", "cpu",
    )  # fmt: skip
    on_sample = ("--data", "sample", "--sample")
    assert dcnn(*command, *on_sample).code == 0
    path = tmp_path / "results" / "sst2" / "nbow-sst2-seed0.json"
    before = path.read_bytes()
    whole = dcnn(*command, "--data", corpora)
    assert whole.code == 2
    assert f"{path.relative_to(tmp_path)} is the result of another run (it is from a" in whole.err
    recipe = tmp_path / "sst2.toml"
    recipe.write_text(recipe.read_text().replace("epochs = 2", "epochs = 3"))
    edited = dcnn(*command, *on_sample)
    assert edited.code == 2
    assert "another run (training.epochs was 2); move it away" in edited.err
    assert path.read_bytes() == before


@pytest.mark.corpora
def test_the_authors_tokens_cannot_be_saved_in_a_model_folder(sample, dcnn, tmp_path):
    (tmp_path / "sst2.toml").write_text("[data]\nauthors_tokens = true\n" + TRAINING)
    done = dcnn(
        "experiment", "sst2", "--data", "sample", "--sample", "--recipe", "sst2.toml",
        "--save", "models", "--seeds", 1,
    )  # fmt: skip
    assert done.code == 2
    assert "data.authors_tokens: a model folder splits texts at spaces" in done.err


@pytest.mark.corpora
def test_an_interrupted_experiment_keeps_what_is_finished(sample, tmp_path):
    (tmp_path / "long.toml").write_text(
        NETWORKS["sst2"] + TRAINING.replace("epochs = 2", "epochs = 500")
    )
    process = subprocess.Popen(
        [
            sys.executable, "-m", "dcnn", "experiment", "sst2", "--data", "sample", "--sample",
            "--recipe", "long.toml", "--seeds", "2", "--jobs", "2", "--device", "cpu",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )  # fmt: skip
    for line in process.stderr:
        if "epoch  2/500" in line:
            break
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to parent and workers
    started = time.monotonic()
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; the finished runs are kept" in rest
    assert "Traceback" not in rest
    assert time.monotonic() - started < 30
    assert not results(tmp_path, "sst2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sst2", "--models", "dcmn"), "--models dcmn: choose from nb, binb, svm"),
        (("sst2", "--models", ""), "--models '' holds no name"),
        (("sst2", "--recipe", "tunned"), "recipe='tunned' is not known for sst2"),
        (("sst3",), "sst3"),
        (("sst2", "--seeds", "0"), "--seeds"),
        (("sst2", "--recipe", "ngram"), "--recipe ngram is for n-gram models"),
    ],
)
def test_wrong_input_is_named_at_once(dcnn, arguments, message):
    done = dcnn("experiment", *arguments)
    assert done.code == 2
    assert message in done.err


@pytest.mark.corpora
def test_a_place_that_cannot_be_written_is_found_before_training(corpora, dcnn, tmp_path):
    (tmp_path / "file").write_text("")
    for option in ("--results", "--save"):
        done = dcnn("experiment", "trec", option, "file")
        assert done.code == 2
        assert "nothing can be written there" in done.err


def test_missing_data_is_named_with_what_to_do(dcnn, tmp_path):
    done = dcnn("experiment", "trec", "--data", tmp_path / "nowhere", "--models", "nb")
    assert done.code == 2
    assert "dcnn data fetch trec" in done.err


def test_tables_without_any_result_are_an_error(dcnn, tmp_path):
    assert "results: no such folder" in dcnn("experiment", "tables").err
    (tmp_path / "results").mkdir()
    done = dcnn("experiment", "tables")
    assert done.code == 0, done.err
    assert "not yet run" in done.out
