"""``benchmarks/run.py`` as a developer runs it."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from dcnn.experiments.tables import replace_block
from report import CASES, Outcome, Report, Row
from run import blocks, load_cases, main, print_report
from timing import Measure

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "bench.schema.json").read_text(encoding="utf-8"))


def test_every_case_has_a_function():
    assert tuple(load_cases()) == CASES


def test_a_case_is_printed_as_json_written_and_rendered(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["layer", "--rounds", "1", "--json", "--out", "bench/layer.json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, SCHEMA)
    assert json.loads(Path("bench/layer.json").read_text()) == printed

    page = Path("page.md")
    page.write_text("before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n")
    assert main(["tables", "--results", "bench", "--write", "page.md"]) == 0
    assert "| layer 1, forward, batch of 64, 18 words | us |" in page.read_text()
    assert "old" not in page.read_text()


def test_the_printed_table_fits_80_columns():
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
        (["layer", "--out", "."], "--out . is a folder; name a file"),
        (["tables", "--write", "gone.md"], "gone.md: no such file"),
    ],
)
def test_mistakes_are_exit_code_2(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nonsense"], ["layer", "--rounds", "0"]])
def test_wrong_arguments_are_exit_code_2(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


def test_tables_need_no_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('hidden')\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"}
    script = [sys.executable, ROOT / "benchmarks" / "run.py"]
    run = {"capture_output": True, "text": True, "env": environment, "cwd": tmp_path}
    done = subprocess.run([*script, "tables", "--results", "none"], **run)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Not yet measured" in done.stdout
    done = subprocess.run([*script, "layer"], **run)
    assert done.returncode == 2
    assert "benchmarks/run.py needs the extra 'bench': pip install 'dcnn[bench]'" in done.stderr


@pytest.mark.parametrize(
    ("name", "block"), [("docs/performance.md", "bench"), ("README.md", "bench-summary")]
)
def test_the_pages_are_rendered_from_the_results(name, block):
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    rendered = blocks(ROOT / "results" / "bench")[block]
    assert replace_block(text, block, rendered, page) == text, (
        f"{name} is out of date: python benchmarks/run.py tables --write {name}"
    )
