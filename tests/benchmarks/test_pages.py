"""The tables of the pages are rendered from the results files."""

import json
from pathlib import Path

import export_cost
import ray_scoring
from dcnn.experiments.tables import replace_block

ROOT = Path(__file__).parents[2]


def read_report(benchmark, page: str) -> dict:
    """The results of ``benchmark``, whose table ``page`` shows."""
    report = json.loads(benchmark.RESULT.read_text(encoding="utf-8"))
    path = ROOT / "docs" / page
    text = path.read_text(encoding="utf-8")
    assert replace_block(text, benchmark.BLOCK, benchmark.table(report), path) == text
    return report


def test_the_guide_has_the_table_of_export_formats():
    report = read_report(export_cost, "guide.md")
    int8 = next(r for r in report["forms"] if (r["form"], r["dtype"]) == ("folder", "int8"))
    assert int8["bytes"] < 1e6
    assert report["agreement"]["beyond_otherwise"] == 0


def test_the_page_on_ray_has_the_table_of_its_runs():
    report = read_report(ray_scoring, "ray.md")
    assert report["same_bytes"]
    assert len({run["rows"] for run in report["runs"]}) == 1
