"""Compiling the native backend: what it leaves, and what is said where it cannot be."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dcnn.ops import native

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "native" / "build.py"


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
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".crc32", ".so"]
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


@pytest.fixture(scope="module")
def no_compiler(tmp_path_factory):
    """Runs Python on a machine that has no compiler, with the package as it is installed there."""
    folder = tmp_path_factory.mktemp("no-compiler")
    copy = folder / "src"
    shutil.copytree(
        ROOT / "src", copy, ignore=shutil.ignore_patterns("_native-*", "__pycache__", "*.pyc")
    )
    hidden = {"PATH": str(folder / "nothing"), "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    removed = ("CC", "CXX", "DCNN_BACKEND", "DCNN_ISA")
    environment = {k: v for k, v in os.environ.items() if k not in removed} | hidden

    def run(*arguments, cwd=folder):
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            capture_output=True, text=True, cwd=cwd, env=environment, timeout=300,
        )  # fmt: skip

    built = run(SCRIPT, copy / "dcnn" / "ops")
    assert built.returncode == 1
    assert "the native backend was not built: no C++ compiler found" in built.stderr
    assert not list(copy.rglob("_native-*"))
    return run


def test_without_a_compiler_a_model_is_trained_and_used(no_compiler, tmp_path):
    (tmp_path / "train.csv").write_text("text,label\n" + "a good film,pos\na bad film,neg\n" * 20)
    small = [f"--set=model.{name}" for name in ("dim=8", "widths=[4,3]", "maps=[2,2]", "k_top=2")]
    command = ["-m", "dcnn", "train", "train.csv", "--out", "model", "--epochs", "2", *small]
    trained = no_compiler(*command, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    said = "with the torch backend: the native one is not available, it was not compiled"
    assert said in " ".join(trained.stderr.split())
    predicted = no_compiler("-m", "dcnn", "predict", "model", "a good film", cwd=tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    assert predicted.stdout.split()[0] in ("pos", "neg")


@pytest.mark.scale
def test_without_a_compiler_the_tests_of_the_native_backend_pass_or_are_skipped(no_compiler):
    names = ["ops", "training/test_adagrad.py", "training/test_backends.py"]
    # Of the others only a few: that all pass is what the whole suite shows on such a machine.
    chosen = "(native or smallest) and not command_line"
    finished = no_compiler(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen,
        *(ROOT / "tests" / name for name in names), cwd=ROOT,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout[-3000:]
    assert "not compiled" in finished.stdout
    assert " passed" in finished.stdout


@pytest.mark.skipif(not native.library_path().is_file(), reason="it was not compiled")
@pytest.mark.skipif(sys.platform != "linux", reason="versions of symbols are those of glibc")
def test_the_library_asks_for_no_newer_system_than_a_manylinux_wheel_may():
    content = native.library_path().read_bytes()  # the names of versions are among its strings
    for name, newest in ((b"GLIBC_2", (24,)), (b"GLIBCXX_3", (4, 22)), (b"CXXABI_1", (3, 10))):
        found = re.findall(re.escape(name) + rb"\.([0-9.]+)\0", content)
        versions = [tuple(map(int, version.split(b"."))) for version in found]
        assert versions, name
        assert max(versions) <= newest
