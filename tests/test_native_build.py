"""Compiling the native backend: what it leaves, and what is said where it cannot be."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from dcnn.ops import native

SCRIPT = Path(__file__).parent.parent / "native" / "build.py"


@pytest.fixture
def script():
    specification = importlib.util.spec_from_file_location("native_build", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.skipif(not (shutil.which("c++") or shutil.which("g++")), reason="no compiler")
def test_what_is_built_can_be_loaded(script, tmp_path, monkeypatch):
    monkeypatch.setenv("CXXFLAGS", "-O0")  # quick
    path = script.build(tmp_path)
    assert path.name == native.library_path().name
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".sha256", ".so"]
    assert native.open_library(path).dcnn_abi() == native.ABI


@pytest.mark.parametrize(
    ("compiler", "message"),
    [("no-such-compiler", "no C\\+\\+ compiler found"), ("false", "the compiler failed")],
)
def test_without_a_working_compiler_nothing_is_left(
    script, tmp_path, monkeypatch, compiler, message
):
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(script.BuildError, match=message):
        script.build(tmp_path)
    assert not list(tmp_path.iterdir())
