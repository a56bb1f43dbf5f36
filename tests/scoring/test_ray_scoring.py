"""The table of how fast shards are scored is rendered from the measured file."""

import importlib.util
import json
from pathlib import Path

from dcnn.experiments.tables import replace_block

ROOT = Path(__file__).parent.parent.parent


def test_the_table_of_the_page_is_that_of_the_results():
    script = ROOT / "benchmarks" / "ray_scoring.py"
    spec = importlib.util.spec_from_file_location("ray_scoring", script)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    report = json.loads(benchmark.RESULT.read_text(encoding="utf-8"))
    page = ROOT / "docs" / "ray.md"
    text = page.read_text(encoding="utf-8")
    assert replace_block(text, benchmark.BLOCK, benchmark.table(report), page) == text
    assert report["same_bytes"]
    assert len({run["rows"] for run in report["runs"]}) == 1
