"""The guide's table of what the forms of a model cost is rendered from the measured file."""

import importlib.util
import json
from pathlib import Path

from dcnn.experiments.tables import replace_block

ROOT = Path(__file__).parent.parent.parent


def test_the_table_of_the_guide_is_that_of_the_results():
    script = ROOT / "benchmarks" / "export_cost.py"
    spec = importlib.util.spec_from_file_location("export_cost", script)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    report = json.loads(benchmark.RESULT.read_text(encoding="utf-8"))
    guide = ROOT / "docs" / "guide.md"
    text = guide.read_text(encoding="utf-8")
    assert replace_block(text, benchmark.BLOCK, benchmark.table(report), guide) == text
    int8 = next(r for r in report["forms"] if (r["form"], r["dtype"]) == ("folder", "int8"))
    assert int8["bytes"] < 1e6
    assert report["agreement"]["beyond_otherwise"] == 0
