"""The benchmark of the everyday commands: its rows, its times, and its table."""

import csv

import pytest

import commands
from results import ROOT


def test_rows_are_as_many_as_asked_for_and_no_two_are_the_same(tmp_path):
    commands.write_rows(tmp_path / "rows.csv", 1_000, 10_000)
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["text", "label"]
    assert len(rows) == 10_000
    assert len(set(map(tuple, rows))) == 10_000


def test_a_command_is_timed_and_its_failure_is_one(tmp_path):
    found = commands.run("predict --help", str(tmp_path))
    assert 0 < found["cpu_seconds"] < 60
    with pytest.raises(SystemExit, match="predict gone x ended with 2"):
        commands.run("predict gone x", str(tmp_path))


def test_the_page_has_the_times_of_the_results_file():
    report = commands.read_json(commands.RESULTS / "commands.json")
    assert [row["command"] for row in report["rows"]] == [*commands.COMMANDS, commands.BASELINE]
    page = (ROOT / "docs/how-to/know-your-data-and-model.md").read_text(encoding="utf-8")
    assert commands.markdown(report) in page
