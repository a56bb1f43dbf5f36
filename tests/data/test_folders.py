import sys
from pathlib import Path

import pytest

from dcnn.data.corpora.registry import cache_folder, data_folder

FOLDERS = {"data": (data_folder, "DCNN_DATA"), "cache": (cache_folder, "DCNN_CACHE")}


@pytest.fixture(autouse=True)
def home(monkeypatch):
    for name in ("DCNN_DATA", "DCNN_CACHE", "XDG_DATA_HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ann"))


@pytest.mark.parametrize(
    ("platform", "data", "cache"),
    [
        ("linux", ".local/share/dcnn", ".cache/dcnn"),
        ("darwin", "Library/Application Support/dcnn", "Library/Caches/dcnn"),
        ("win32", "AppData/Local/dcnn/data", "AppData/Local/dcnn/cache"),
    ],
)
def test_every_platform_has_its_places(monkeypatch, platform, data, cache):
    monkeypatch.setattr(sys, "platform", platform)
    assert data_folder() == Path("/home/ann") / data
    assert cache_folder() == Path("/home/ann") / cache


@pytest.mark.parametrize("kind", FOLDERS)
def test_what_is_given_comes_before_the_environment_and_that_before_the_platform(monkeypatch, kind):
    folder, variable = FOLDERS[kind]
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", "/xdg")
    assert folder() == Path("/xdg/dcnn")
    monkeypatch.setenv(variable, "/chosen")
    assert folder() == Path("/chosen")
    assert folder(Path("given")) == Path("given")
