"""The figures of the README are those of the results; tests/docs has its commands and links."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dcnn.config import Config, NBoWConfig
from dcnn.experiments.results import read_results
from dcnn.experiments.tables import experiment_tables, feature_table, replace_block, summary_table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_the_default_recipe_is_rendered_from_the_results():
    script = ROOT / "benchmarks" / "default_recipe.py"
    rendered = subprocess.run(
        [sys.executable, script, "--table"], capture_output=True, text=True, check=True
    ).stdout
    assert rendered.count("\n") > 2
    assert rendered.strip() in README


def test_runs_of_another_default_are_made_anew(tmp_path):
    script = ROOT / "benchmarks" / "default_recipe.py"
    specification = importlib.util.spec_from_file_location("default_recipe", script)
    benchmark = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(benchmark)
    path, before = tmp_path / "run.json", Config().with_training(seed=3)
    assert not benchmark.is_done(path, "dcnn", 3)
    now = benchmark.settings_of("dcnn", 3)
    for settings, done in [({}, False), (before, False), (now, True)]:
        noted = {"settings": settings.to_dict()} if settings else {}
        path.write_text(json.dumps(noted))
        assert benchmark.is_done(path, "dcnn", 3) is done
        assert not benchmark.is_done(path, "dcnn", 3, commit="another")
    path.write_text("{}")
    assert not benchmark.is_done(path, "nbow", 3)
    assert benchmark.is_done(path, "binb", 0, commit="another")
    ensemble, alone = benchmark.settings_of("nbow", 3), Config(model=NBoWConfig())
    for settings, title in [(ensemble, "nbow, 8 in one"), (alone, "nbow")]:
        noted = {"model": "nbow", "settings": settings.to_dict()}
        path.write_text(json.dumps(noted))
        assert benchmark.is_done(path, "nbow", 3) is (settings is ensemble)
        assert benchmark.title_of(noted) == title
    assert benchmark.title_of({"model": "binb"}) == "binb"


@pytest.mark.parametrize(
    ("file", "block", "render"),
    [
        ("README.md", "experiments-summary", summary_table),
        ("docs/experiments.md", "experiments", experiment_tables),
        ("docs/experiments.md", "experiments-features", feature_table),
    ],
)
def test_the_tables_of_the_experiments_are_rendered_from_the_results(file, block, render):
    text = (ROOT / file).read_text(encoding="utf-8")
    rendered = render(read_results(ROOT / "results"))
    assert replace_block(text, block, rendered, ROOT / file) == text, (
        f"{file} is out of date: dcnn experiment tables --write {file}"
    )
