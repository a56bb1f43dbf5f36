import csv
import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import optuna
import pytest
from matplotlib import pyplot

from dcnn.config import Config, load_toml
from dcnn.errors import UserError
from dcnn.files import parse_size
from dcnn.tuning.report import (
    SearchSummary,
    chance_of_best,
    gain_over_start,
    write_report,
)
from dcnn.tuning.search import Limits, Search, Trained, TrialRecord
from dcnn.tuning.space import SearchSpace
from fake_training import FakeTraining

SUMMARY = SearchSummary(
    "<reviews>.csv", 90, 10, "a tenth", 2000, "dcnn train 'a & b.csv'", "the default settings"
)


def searched(trials):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    training = FakeTraining()
    search = Search(
        optuna.create_study(direction="maximize"), SearchSpace(Config()), lambda config: config,
        training, Limits(trials=trials), clock=training.clock,
    )  # fmt: skip
    search.run()
    return search


@pytest.mark.parametrize("trials", [1, 14])
def test_the_report_is_one_self_contained_page_with_charts(tmp_path, trials):
    search = searched(trials)
    write_report(tmp_path, search, SUMMARY)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(charts) == (4 if trials == 14 else 3)  # importance needs several trials
    for chart in charts:
        ET.fromstring(chart)
    assert "&lt;reviews&gt;.csv" in page
    assert "<reviews>" not in page
    assert "a &amp; b.csv" in page
    assert not re.search(r"""(?:src|href)=["'](?!#)""", page.replace("xlink:href", "link"))
    assert f"Best is trial {search.best.number}:" in page
    assert ("no trial was better than the start" in page) == (search.best.number == 0)
    assert ("Hyperparameter Importance" in page) == (trials == 14)


def test_the_best_settings_are_a_config_file(tmp_path):
    search = searched(9)
    write_report(tmp_path, search, SUMMARY)
    assert load_toml(tmp_path / "best.toml") == search.best.config


def test_every_trial_has_a_row(tmp_path):
    search = searched(14)
    write_report(tmp_path, search, SUMMARY)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "trials.csv").read_text())))
    assert [int(row["trial"]) for row in rows] == list(range(14))
    assert [row["outcome"] for row in rows] == [record.outcome for record in search.records]
    for row, record in zip(rows, search.records, strict=True):
        assert float(row["training.learning_rate"]) == record.config.training.learning_rate
        assert (row["dev_accuracy"] != "") == (record.trained is not None)


def test_charts_leave_no_state_of_matplotlib_behind(tmp_path):
    before = dict(pyplot.rcParams)
    search = searched(8)
    write_report(tmp_path, search, SUMMARY)
    assert pyplot.get_fignums() == []
    assert dict(pyplot.rcParams) == before


def trial(number, correct):
    packed = np.packbits(correct).tobytes().hex()
    trained = Trained(float(correct.mean()), 0.5, 6, 1000, packed)
    return TrialRecord(number, "complete", Config(), {}, 1.0, (), trained)


START = np.arange(1001) < 800  # not a multiple of 8, as bytes have


def test_a_clear_gain_is_beyond_noise():
    better = np.roll(START, 10) | (np.arange(1001) < 860)
    gain = gain_over_start([trial(0, START), trial(1, ~START), trial(2, better)], 1001)
    assert (gain.best, gain.gained, gain.lost, gain.trials) == (2, 60, 0, 3)
    assert gain.points == pytest.approx(60 / 1001)
    assert gain.p < 0.001
    assert gain.describe("the default settings") == (
        "The gain of +5.99 points over the default settings (60 examples gained, 0 lost; "
        "p = 0.00025) is beyond noise."
    )


def test_a_small_gain_is_within_noise():
    better = START.copy()
    better[790:797], better[900:910] = False, True
    gain = gain_over_start([trial(0, START), trial(1, better)], 1001)
    assert (gain.gained, gain.lost) == (10, 7)
    assert not gain.is_significant
    assert "+0.30 points over the default settings (10 examples gained, 7 lost; p = 0." in (
        gain.describe("the default settings")
    )
    assert "is within noise" in gain.describe("the default settings")


def test_no_gain_keeps_the_start():
    gain = gain_over_start([trial(0, START), trial(1, START & (np.arange(1001) > 3))], 1001)
    assert (gain.best, gain.p, gain.points) == (0, 1.0, 0.0)
    assert gain.describe("the default settings") == (
        "No trial is better than the default settings, so they are kept."
    )
    assert gain_over_start([trial(1, START)], 1001) is None  # the start diverged


def test_the_best_of_many_equal_trials_is_not_called_better():
    """Of 40 trials as good as the start, the best alone would look better in most samples."""
    generator = np.random.default_rng(0)
    found, alone = [], []
    for _ in range(25):
        start, trials = generator.random(300) < 0.8, generator.random((40, 300)) < 0.8
        records = [trial(number, correct) for number, correct in enumerate((start, *trials))]
        found.append(gain_over_start(records, 300).p)
        best = trials[trials.mean(axis=1).argmax()]
        alone.append(chance_of_best(start, best[None]))
    assert np.mean(np.array(alone) < 0.05) > 0.3
    assert np.mean(np.array(found) < 0.05) < 0.1


@pytest.mark.parametrize(
    ("text", "size"),
    [("2MB", 2_000_000), ("500 kb", 500_000), ("1.5MiB", 1_572_864), ("1234", 1234), ("1g", None)]
    + [(text, None) for text in ("", "0MB", "-1MB", "MB", "2 bytes", "1e3")],
)
def test_sizes_are_parsed(text, size):
    if size is None:
        with pytest.raises(UserError, match=r"such as 2MB or 500KB"):
            parse_size(text)
    else:
        assert parse_size(text) == size
