import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from dcnn.errors import DataError, StorageError
from report import (
    CASES,
    UNITS,
    Outcome,
    Report,
    Row,
    figure,
    read_report,
    render_tables,
    spread,
    summary_table,
    write_report,
)
from timing import Measure

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "bench.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)

FAST = Measure(median=2.0, low=1.0, high=3.0, repetitions=5)
SLOW = Measure(median=20.0, low=18.0, high=30.0, repetitions=4)


def make_report(**changes) -> Report:
    rows = [Row.compare("a step", "us", FAST, SLOW, "eager torch")]
    return replace(Report.make("layer", Outcome("native (avx2)", rows, ["mind"]), 0.5), **changes)


@pytest.mark.parametrize(("unit", "ratio"), [("us", 10), ("MB", 10), ("sentences/s", 0.1)])
def test_a_ratio_above_one_means_that_ours_is_better(unit, ratio):
    row = Row.compare("a", unit, FAST, SLOW, "b")
    assert row.ratio == pytest.approx(ratio)
    assert (row.ours_spread, row.baseline_spread) == ((1, 3), (18, 30))
    assert row.repetitions == 4


def test_write_then_read_is_the_identity_and_fits_the_schema(tmp_path):
    report = make_report()
    path = tmp_path / "new folder" / "layer.json"
    write_report(path, report)
    assert read_report(path) == report
    VALIDATOR.validate(json.loads(path.read_text(encoding="utf-8")))
    assert report.date
    assert "cores" in report.hardware


def test_the_schema_knows_every_field_name_and_unit():
    Draft202012Validator.check_schema(SCHEMA)
    row = SCHEMA["$defs"]["row"]
    for kind, part in ((Report, SCHEMA), (Row, row)):
        assert part["required"] == list(part["properties"]) == [item.name for item in fields(kind)]
    assert tuple(SCHEMA["properties"]["case"]["enum"]) == CASES
    assert row["properties"]["unit"]["enum"] == list(UNITS)


def test_the_reports_of_this_repository_fit_code_and_schema():
    for case in CASES:
        path = ROOT / "results" / "bench" / f"{case}.json"
        if path.exists():
            assert read_report(path).case == case
            VALIDATOR.validate(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"case": "nonsense"}, "case='nonsense' must be one of predict-one"),
        ({"rows": []}, "rows must be one or more"),
        ({"load": "high"}, "load='high' must be a number"),
        ({"extra": 1}, "a report must have the fields case, ours, notes"),
        ({"rows": [1]}, "a row must have the fields name"),
        ({"rows": 7}, "not iterable"),
    ],
)
def test_a_broken_report_is_named_with_its_remedy(tmp_path, change, message):
    path = tmp_path / "layer.json"
    path.write_text(json.dumps(asdict(make_report()) | change))
    with pytest.raises(DataError, match="measure that case again") as caught:
        read_report(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": "miles"}, "unit='miles' must be one of us, ms"),
        ({"ours": 0.0}, "ours=0.0 must be a finite number above 0"),
        ({"ratio": float("inf")}, "ratio=inf must be a finite number above 0"),
        ({"ours_spread": (3.0, 1.0)}, r"ours_spread=\(3.0, 1.0\) must be two quartiles"),
        ({"repetitions": 0}, "repetitions=0 must be 1 or more"),
    ],
)
def test_an_invalid_row_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        replace(make_report().rows[0], **change)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_a_file_that_is_no_report_is_refused(tmp_path, text):
    (tmp_path / "layer.json").write_text(text)
    with pytest.raises(DataError, match="measure that case again"):
        read_report(tmp_path / "layer.json")


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be created"):
        write_report(tmp_path / "file" / "x" / "layer.json", make_report())


ONE, TWO = Measure(20.04, 19.0, 21.0, 8), Measure(310.0, 300.0, 1234.5, 8)


def make_table_report(case: str) -> Report:
    rows = [
        Row.compare("the bar", "us", ONE, TWO, "eager torch"),
        Row.compare("more", "sentences/s", TWO, ONE, "fastText"),
    ]
    report = Report.make(case, Outcome("native (avx2)", rows, ["a note"]), 0.25)
    return replace(report, hardware="a machine", commit="c" * 40)


def test_a_missing_report_is_shown_by_its_command(tmp_path):
    text = render_tables(tmp_path)
    for case in CASES:
        assert (
            f"Not yet measured: `python benchmarks/run.py {case} --out results/bench/{case}.json`"
            in text
        )
    assert summary_table(tmp_path).count("not yet measured") == len(CASES)


def test_a_case_shows_its_rows_machine_and_notes(tmp_path):
    write_report(tmp_path / "layer.json", make_table_report("layer"))
    section = render_tables(tmp_path).partition("### layer\n")[2].partition("###")[0]
    line = "| the bar | us | 20.0 | 19.0 to 21.0 | eager torch | 310 | 300 to 1,230 | 15.5 |"
    assert line in section
    assert "| more | sentences/s | 310 |" in section
    assert "Ours: native (avx2). a machine; load 0.2 at the start" in section
    assert "commit cccccccccccc," in section
    assert "A note." in section


def test_the_summary_has_the_first_row_of_a_case_and_names_the_machine_once(tmp_path):
    for case in ("layer", "startup"):
        write_report(tmp_path / f"{case}.json", make_table_report(case))
    text = summary_table(tmp_path)
    assert text.count("| the bar | 20.0 us | 310 us (eager torch) | 15.5 |") == 2
    assert "more" not in text
    assert text.count("a machine; native (avx2).") == 1


def test_a_report_under_another_name_is_refused(tmp_path):
    write_report(tmp_path / "layer.json", make_table_report("startup"))
    with pytest.raises(DataError, match=r"holds the case 'startup'; it belongs in startup\.json"):
        render_tables(tmp_path)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.123456, "0.12"), (9.876, "9.88"), (12.34, "12.3"), (123.4, "123"), (67289, "67,300")],
)
def test_figures_have_three_significant_digits(value, shown):
    assert figure(value) == shown
    assert spread((value, value)) == f"{shown} to {shown}"
