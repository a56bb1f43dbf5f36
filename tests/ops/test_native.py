"""Loading the compiled library: what is missing, damaged or foreign is named and never crashes."""

import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest

from dcnn.ops import native

COMPILER = shutil.which("c++") or shutil.which("g++")


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine on which the library was never compiled."""
    monkeypatch.setattr(native, "library_path", lambda: tmp_path / "_native.so")
    native._load.cache_clear()
    yield
    native._load.cache_clear()


def compile_library(folder, source):
    path = folder / "_native.so"
    (folder / "source.cpp").write_text(source)
    subprocess.run([COMPILER, "-shared", "-fPIC", folder / "source.cpp", "-o", path], check=True)
    note_checksum(path)
    return path


def note_checksum(path):
    path.with_suffix(".crc32").write_text(f"{crc32(path.read_bytes()):08x}")


def test_a_missing_library_is_told_once_and_refused_with_its_reason(nowhere, caplog):
    caplog.set_level(logging.DEBUG, "dcnn")
    assert not native.available()
    assert "was not compiled" in native.reason()
    (record,) = caplog.records
    assert record.levelname == "DEBUG"  # an install without a compiler may live in peace
    assert "the native backend is not available: it was not compiled" in record.getMessage()
    assert "not available" in native.describe()
    with pytest.raises(RuntimeError, match="not available: it was not compiled"):
        native.library()


@pytest.mark.skipif(not native.available(), reason="not compiled")
def test_a_library_cut_short_is_told_and_not_loaded(tmp_path, monkeypatch, caplog):
    path = tmp_path / "_native.so"
    whole = native.library_path().read_bytes()
    path.write_bytes(whole)
    note_checksum(path)
    path.write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr(native, "library_path", lambda: path)
    native._load.cache_clear()
    try:
        assert not native.available()
    finally:
        native._load.cache_clear()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "_native.so is damaged" in record.getMessage()


def test_a_damaged_checksum_is_that_of_a_damaged_library(tmp_path):
    path = tmp_path / "_native.so"
    path.write_bytes(b"nonsense")
    path.with_suffix(".crc32").write_bytes(b"\xff\xfe\0")
    with pytest.raises(OSError, match="is damaged: its checksum"):
        native.open_library(path)


def test_a_file_that_is_no_library_is_refused(tmp_path):
    path = tmp_path / "_native.so"
    path.write_bytes(b"nonsense")
    with pytest.raises(OSError, match="crc32"):  # it has no checksum
        native.open_library(path)
    note_checksum(path)
    with pytest.raises(OSError, match="_native"):
        native.open_library(path)


@pytest.mark.skipif(not COMPILER, reason="no compiler")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int nothing;", "is not dcnn's library"),
        ('extern "C" int dcnn_abi() { return 99; }', "has interface 99; this version of dcnn"),
        (f'extern "C" int dcnn_abi() {{ return {native.ABI}; }}', "is not dcnn's library"),
    ],
)
def test_a_foreign_library_is_refused(tmp_path, source, message):
    with pytest.raises(OSError, match=message):
        native.open_library(compile_library(tmp_path, source))


# What Python takes the interface to be, without comments and the number itself. A library of before
# a change of it would be called with structures that it reads otherwise, and end the process.
INTERFACE = (10, "65e73502e841")


def test_another_interface_has_another_number():
    header = (Path(__file__).parents[2] / "native" / "dcnn_native.h").read_text()
    number = int(re.search(r"DCNN_ABI = (\d+)", header)[1])
    declared = re.sub(r"//.*|DCNN_ABI = \d+|\s", "", header)
    assert (number, hashlib.sha256(declared.encode()).hexdigest()[:12]) == INTERFACE, (
        "raise DCNN_ABI and native.ABI by one, and note number and digest here"
    )
    assert number == native.ABI


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment
    )


@pytest.mark.skipif(not native.available(), reason="not compiled")
def test_the_instruction_set_can_be_forced():
    code = "from dcnn.ops import native; print(native.describe())"
    assert run(code, DCNN_ISA="plain").stdout == "native backend: plain\n"
    refused = run(code, DCNN_ISA="mmx").stderr
    assert "DCNN_ISA='mmx' is not an instruction set of this machine" in refused


def test_loading_imports_no_torch():
    code = "import sys; from dcnn.ops import native, select; native.available(); "
    assert run(code + "print('torch' in sys.modules)").stdout == "False\n"
