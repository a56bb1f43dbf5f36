"""``dcnn cv``: folds, their mean and spread, and the predictions out of fold."""

import csv
import json
import subprocess
import sys
from statistics import fmean, stdev

import numpy as np
import pytest

from dcnn.cli.cv import _columns
from dcnn.data.labels import number_labels
from dcnn.ops import native
from dcnn.training.resampling import OutOfFold

SETTINGS = ("--set", "model.dim=8", "--set", "model.widths=[3]", "--set", "model.maps=[2]", "--set")
SETTINGS += ("model.k_top=2", "--set", "text.min_count=1", "--set", "training.n_ensemble=1")
QUICK = (*SETTINGS, "--set", "text.char_ngrams=[]", "--epochs", 6, "--device", "cpu")


def write(path, count=60, start=0):
    words = ("bad", "good")
    rows = (f"a {words[n % 2]} film {n},{words[n % 2]}\n" for n in range(start, start + count))
    path.write_text("text,label\n" + "".join(rows))


def test_folds_mean_and_spread_are_those_of_the_predictions(dcnn, tmp_path):
    write(tmp_path / "d.csv")
    text = (tmp_path / "d.csv").read_text()
    wrong = text.replace("film 7,good", "film 7,bad").replace("film 18,bad", "film 18,good")
    (tmp_path / "d.csv").write_text(wrong)  # two errors, so that the folds differ
    done = dcnn("cv", "d.csv", "--folds", 3, "--out-of-fold", "o.csv", "--json", *QUICK)
    assert done.code == 0, done.err
    assert "fold 3/3: accuracy" in done.err
    found = json.loads(done.out)
    with (tmp_path / "o.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == found["examples"] == 60
    for fold in found["folds"]:
        own = [row for row in rows if row["fold"] == str(fold["fold"])]
        assert len(own) == fold["examples"] == 20
        hits = [row["label"] == row["predicted"] for row in own]
        assert fold["accuracy"] == pytest.approx(fmean(hits))
    accuracies = [fold["accuracy"] for fold in found["folds"]]
    assert found["mean"]["accuracy"] == pytest.approx(fmean(accuracies))
    assert found["standard_deviation"]["accuracy"] == pytest.approx(stdev(accuracies))
    assert len(set(accuracies)) > 1
    low, high = found["intervals"]["accuracy"]
    assert low <= found["accuracy"] <= high
    for row in rows:
        shares = [float(row[f"probability_of_{label}"]) for label in ("bad", "good")]
        assert float(row["probability"]) == max(shares)
        assert sum(shares) == pytest.approx(1, abs=1e-5)
    assert rows[0]["where"] == "d.csv, line 2"
    again = dcnn("cv", "d.csv", "--folds", 3, "--json", *QUICK)
    assert again.out == done.out
    assert dcnn("cv", "d.csv", "--folds", 3, "--json", "--seed", 1, *QUICK).out != done.out


def test_people_get_a_table(dcnn, tmp_path):
    write(tmp_path / "d.csv", 20)
    out = dcnn("cv", "d.csv", "--folds", 2, *QUICK, "--epochs", 1).out
    for word in ("fold", "accuracy", "macro F1", "mean", "standard deviation", "95 % interval"):
        assert word in out


def test_multi_label_data_is_cross_validated(dcnn, tmp_path):
    rows = "".join(f"{'sun ' * (n % 2)}day {n},{'sun|' * (n % 2)}day\n" for n in range(24))
    (tmp_path / "d.csv").write_text("text,labels\n" + rows)
    command = ("cv", "d.csv", "--folds", 2, "--labels-separator", "|", *QUICK, "--epochs", 1)
    done = dcnn(*command, "--json", "--out-of-fold", "o.jsonl")
    assert done.code == 0, done.err
    assert {"micro_f1", "macro_f1", "subset_accuracy"} <= json.loads(done.out)["mean"].keys()
    first = json.loads((tmp_path / "o.jsonl").read_text().splitlines()[1])
    assert first["label"] == "day|sun"
    assert set(first["predicted"].split("|")) <= {"", "day", "sun"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--folds", 1), "--folds 1: input should be"),
        (("--folds", 61), "dcnn: --folds 61 is more than the 60 texts of d.csv; take fewer"),
        (
            ("--out-of-fold", "o.xls"),
            "dcnn: --out-of-fold o.xls: the suffix '.xls' names no format",
        ),
        (("--out-of-fold", "no/o.csv"), "dcnn: --out-of-fold no/o.csv: there is no folder no"),
        (("--text-column", "x"), "dcnn: d.csv: --text-column 'x' is no column"),
        (("--set", "model.dim=x"), "dcnn: "),
    ],
)
def test_mistakes_are_one_sentence(dcnn, tmp_path, arguments, message):
    write(tmp_path / "d.csv")
    done = dcnn("cv", "d.csv", *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_the_label_is_that_of_the_probabilities_before_they_are_rounded():
    examples = number_labels(["x", "y"], ["a", "b"])
    close = np.array([[0.4999998, 0.5000002], [0.9, 0.1]], np.float32)
    found = _columns(OutOfFold(examples, np.zeros(2, np.int64), close, None))
    assert found["predicted"] == ["b", "a"]
    assert found["probability_of_a"] == [0.5, 0.9]


@pytest.mark.skipif(not native.available(), reason="not compiled")
def test_folds_need_no_extra(tmp_path):
    write(tmp_path / "d.csv", 20)
    hide = "import sys\nfor name in ('torch', 'sklearn', 'scipy'): sys.modules[name] = None\n"
    for command in ("cv d.csv --folds 2 --epochs 1", "check d.csv --folds 2"):
        script = (
            f"{hide}sys.argv = 'dcnn {command}'.split()\nfrom dcnn.__main__ import main\nmain()"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
