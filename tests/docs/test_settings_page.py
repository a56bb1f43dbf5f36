"""The page of all settings is what the code generates."""

import importlib.util

from dcnn.config import DCNNConfig, TextConfig, TrainingConfig, settings_of
from documented import ROOT


def generator():
    path = ROOT / "docs" / "_site" / "settings_page.py"
    spec = importlib.util.spec_from_file_location("settings_page", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current():
    made = generator()
    assert made.PAGE.read_text(encoding="utf-8") == made.settings_page(), (
        "docs/settings.md is not what the code says; run: python docs/_site/settings_page.py"
    )


def test_every_setting_has_a_meaning():
    rows = generator().settings_page().splitlines()
    for kind in (TextConfig, DCNNConfig, TrainingConfig):
        for name in settings_of(kind):
            row = next(row for row in rows if row.startswith(f"| `{name}` |"))
            assert len(row.split(" | ")[-1]) > 10
