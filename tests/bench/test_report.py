import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from dcnn.bench.report import CASES, UNITS, Outcome, Report, Row, read_report, write_report
from dcnn.compare import Measure
from dcnn.errors import DataError, StorageError

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
def test_a_row_breaks_no_rule(change, message):
    with pytest.raises(DataError, match=message):
        replace(make_report().rows[0], **change)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_no_report_is_told(tmp_path, text):
    (tmp_path / "layer.json").write_text(text)
    with pytest.raises(DataError, match="measure that case again"):
        read_report(tmp_path / "layer.json")


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not be made"):
        write_report(tmp_path / "file" / "x" / "layer.json", make_report())
