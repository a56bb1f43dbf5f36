"""The figures of the README are those of the results; tests/docs has its commands and links."""

import subprocess
import sys
from pathlib import Path

import pytest

from dcnn.experiments.marked_block import replace_block
from dcnn.experiments.results import read_results
from dcnn.experiments.tables import experiment_tables, summary_table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_the_default_recipe_is_rendered_from_the_results():
    script = ROOT / "benchmarks" / "default_recipe.py"
    rendered = subprocess.run(
        [sys.executable, script, "--table"], capture_output=True, text=True, check=True
    ).stdout
    assert rendered.count("\n") > 2
    assert rendered.strip() in README


@pytest.mark.parametrize(
    ("file", "block", "render"),
    [
        ("README.md", "experiments-summary", summary_table),
        ("docs/experiments.md", "experiments", experiment_tables),
    ],
)
def test_the_tables_of_the_experiments_are_rendered_from_the_results(file, block, render):
    text = (ROOT / file).read_text(encoding="utf-8")
    rendered = render(read_results(ROOT / "results"))
    assert replace_block(text, block, rendered, ROOT / file) == text, (
        f"{file} is out of date: dcnn experiment tables --write {file}"
    )
