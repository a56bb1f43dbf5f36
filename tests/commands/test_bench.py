"""``dcnn bench`` as a user runs it."""

import io
import json
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from dcnn.bench.report import Outcome, Report, Row
from dcnn.bench.tables import render_tables, summary_table
from dcnn.commands.bench import print_report
from dcnn.compare import Measure
from dcnn.experiments.tables import replace_block

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "bench.schema.json").read_text(encoding="utf-8"))


def test_a_case_is_printed_as_json_and_kept_and_rendered(dcnn, tmp_path):
    done = dcnn("bench", "layer", "--rounds", 1, "--json", "--out", "bench/layer.json")
    assert done.code == 0
    printed = json.loads(done.out)
    jsonschema.validate(printed, SCHEMA)
    assert json.loads((tmp_path / "bench" / "layer.json").read_text()) == printed

    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n")
    assert dcnn("bench", "tables", "--results", "bench", "--write", "page.md").code == 0
    assert "| layer 1, forward, batch of 64, 18 words | us |" in page.read_text()
    assert "old" not in page.read_text()


def test_a_case_is_a_table_that_fits_80_columns():
    rows = [
        Row.compare("a sentence of 18 words", "us", Measure.of([2.0]), Measure.of([30.0]), name)
        for name in ("eager torch", "fastText")
    ]
    rows.append(Row.compare("memory", "MB", Measure.of([2.0]), Measure.of([3.0]), "eager torch"))
    report = Report.make("startup", Outcome("native (avx2)", rows, ["a note"]), 0.5)
    console = Console(file=io.StringIO(), width=80, markup=False)
    print_report(console, report)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.startswith("    ")] == [
        *("ours", "eager", "fastText"),
        *("ours", "eager"),
    ]
    assert any(
        line.split() == ["fastText", "30.0", "30.0", "to", "30.0", "15.0", "x"] for line in lines
    )
    text = " ".join(lines)
    assert "ours: native (avx2);" in text
    assert "load 0.5 at the start" in text
    assert "note: a note" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nonsense",), "nonsense"),
        (("layer", "--rounds", "0"), "--rounds"),
        (("layer", "--out", "."), "--out . is a folder; name a file"),
        (("tables", "--write", "gone.md"), "gone.md: no such file"),
    ],
)
def test_mistakes_are_exit_code_2(dcnn, arguments, message):
    done = dcnn("bench", *arguments)
    assert done.code == 2
    assert message in done.err


def test_tables_need_no_torch(dcnn, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('hidden')\n")
    done = dcnn("bench", "tables", PYTHONPATH=f"{tmp_path}:{ROOT / 'src'}")
    assert (done.code, done.err) == (0, "")
    assert "Not yet measured" in done.out
    done = dcnn("bench", "layer", PYTHONPATH=f"{tmp_path}:{ROOT / 'src'}")
    assert done.code == 2
    assert "dcnn bench needs the extra 'bench': pip install 'dcnn[bench]'" in done.err


@pytest.mark.parametrize(
    ("name", "block", "render"),
    [
        ("docs/performance.md", "bench", render_tables),
        ("README.md", "bench-summary", summary_table),
    ],
)
def test_the_pages_are_rendered_from_the_results(name, block, render):
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    rendered = render(ROOT / "results" / "bench")
    assert replace_block(text, block, rendered, page) == text, (
        f"{name} is out of date: dcnn bench tables --write {name}"
    )
