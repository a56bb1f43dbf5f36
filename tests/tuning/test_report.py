import csv
import io
import re
import xml.etree.ElementTree as ET

import optuna
import pytest

from dcnn.config import Config, load_toml
from dcnn.tuning.report import SearchFacts, setting_importance, write_report
from dcnn.tuning.search import Limits, Search, SearchSpace
from fake_training import FakeTraining

FACTS = SearchFacts("<reviews>.csv", 90, 10, "a tenth", 0, 61.0, 2000, "dcnn train 'a & b.csv'")


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
def test_the_report_is_one_page_with_charts_and_nothing_from_elsewhere(tmp_path, trials):
    search = searched(trials)
    write_report(tmp_path, search.study, search.records, search.best, FACTS)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(charts) == (4 if trials == 14 else 3)  # one trial says nothing of importance
    for chart in charts:
        ET.fromstring(chart)
    assert "&lt;reviews&gt;.csv" in page
    assert "<reviews>" not in page
    assert "a &amp; b.csv" in page
    assert not re.search(r"""(?:src|href)=["'](?!#)""", page.replace("xlink:href", "link"))
    assert f"Best is trial {search.best.number}:" in page


def test_the_best_settings_are_a_config_file(tmp_path):
    search = searched(9)
    write_report(tmp_path, search.study, search.records, search.best, FACTS)
    assert load_toml(tmp_path / "best.toml") == search.best.config


def test_every_trial_has_its_line(tmp_path):
    search = searched(14)
    write_report(tmp_path, search.study, search.records, search.best, FACTS)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "trials.csv").read_text())))
    assert [int(row["trial"]) for row in rows] == list(range(14))
    assert [row["outcome"] for row in rows] == [record.outcome for record in search.records]
    for row, record in zip(rows, search.records, strict=True):
        assert float(row["training.learning_rate"]) == record.config.training.learning_rate
        assert (row["dev_accuracy"] != "") == (record.trained is not None)


def test_importance_finds_what_the_accuracy_hangs_on():
    importance = setting_importance(searched(40).study)
    assert sum(importance.values()) == pytest.approx(1)
    assert max(importance, key=importance.get) == "dropout"
