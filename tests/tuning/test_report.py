import csv
import io
import re
import xml.etree.ElementTree as ET

import optuna
import pytest
from matplotlib import pyplot

from dcnn.config import Config, load_toml
from dcnn.errors import UserError
from dcnn.tuning.report import SearchSummary, parse_size, write_report
from dcnn.tuning.search import Limits, Search, SearchSpace
from fake_training import FakeTraining

SUMMARY = SearchSummary("<reviews>.csv", 90, 10, "a tenth", 2000, "dcnn train 'a & b.csv'")


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
