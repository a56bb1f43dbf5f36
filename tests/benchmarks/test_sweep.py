import tomllib
from pathlib import Path

import pytest

from dcnn.config import NBoWConfig
from dcnn.errors import ConfigError
from dcnn.experiments.recipes import load_recipe
from sweep import with_settings

SWEEPS = Path(__file__).parents[2] / "benchmarks" / "sweeps"


def test_settings_of_every_section_can_be_changed(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[model]\ndim = 16\n")
    recipe = load_recipe("sst2", str(path), "nbow")
    changed = with_settings(
        recipe,
        ["training.epochs=2", "data.folds=3", "distillation.teachers=1", "model.dropout=0.1"],
    )
    assert changed.config.training.epochs == 2
    assert (changed.data.folds, changed.distillation.teachers) == (3, 1)
    assert changed.config.model == NBoWConfig(dim=16, dropout=0.1)
    assert with_settings(recipe, []) == recipe
    with pytest.raises(ConfigError, match="unknown setting 'dta'"):
        with_settings(recipe, ["dta.folds=3"])


def test_every_sweep_can_be_loaded():
    """A recipe may change after a sweep over its settings was written."""
    specs = [tomllib.loads(path.read_text()) for path in sorted(SWEEPS.glob("*.toml"))]
    of_experiments = [spec for spec in specs if "experiment" in spec]
    assert len(of_experiments) > 20
    for spec in of_experiments:
        recipe = load_recipe(spec["experiment"], spec["recipe"], spec.get("model", "dcnn"))
        for settings in spec["settings"]:
            with_settings(recipe, settings)
