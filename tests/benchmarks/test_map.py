"""The map of the package: its sizes, and the modules that entry points enter."""

import sys
import types

from map import (
    ENTRY_POINTS,
    MAX_FILES,
    MAX_LINES,
    MAX_LINES_PER_FILE,
    Recorder,
    folders,
    line_counts,
    measure,
    module_name,
    over_limits,
    render,
)


def make_package(folder):
    """A package whose module ``a`` calls ``b``, and ``c`` while it is imported."""
    folder.mkdir()
    (folder / "a.py").write_text("import b, c\nx = c.h()\ndef f(): return b.g()\n")
    (folder / "b.py").write_text("class K: y = 1\ndef g(): return 1\n")
    (folder / "c.py").write_text("def h(): return 1\n")
    return folder


def test_modules_are_entered_by_calls_and_not_by_imports(tmp_path, monkeypatch):
    package = make_package(tmp_path / "p")
    monkeypatch.syspath_prepend(package)
    recorder = Recorder(package)
    sys.setprofile(recorder)
    try:
        import a

        assert recorder.entered == {}
        a.f()
    finally:
        sys.setprofile(None)
        for name in "abc":
            sys.modules.pop(name, None)
    assert isinstance(a, types.ModuleType)
    assert list(recorder.entered) == ["a.py", "b.py"]


def test_files_and_lines_are_counted_per_folder(tmp_path):
    make_package(tmp_path / "p")
    make_package(tmp_path / "p" / "inner")
    assert folders(line_counts(tmp_path / "p")) == {".": (3, 6), "inner": (3, 6)}


def test_module_names():
    assert module_name("text/encoder.py") == "text.encoder"
    assert module_name("cli/__init__.py") == "cli"
    assert module_name("__init__.py") == "dcnn"


def test_a_map_is_rendered_and_its_excesses_are_named():
    entered = {name: ["config"] for name in ENTRY_POINTS}
    found = {
        "files": MAX_FILES + 1,
        "lines": MAX_LINES,
        "longest": ("a.py", MAX_LINES_PER_FILE),
        "folders": {".": (2, 30), "text": (1, 5)},
        "entered": entered | {"dcnn predict": ["config"] * 13},
    }
    assert over_limits(found) == [
        "files: 161, at most 160",
        "modules entered by dcnn predict: 13, at most 12",
    ]
    page = render(found)
    assert "| `text/` | 1 | 5 |" in page
    assert "| `dcnn train` | 1 | `config` |" in page


def test_the_package_keeps_to_its_limits():
    assert over_limits(measure()) == []
