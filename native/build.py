"""Compile the native backend into the package: ``python native/build.py``, or ``make native``.

Another folder than the package's may follow: ``make test-sanitized`` builds into a copy of it.
``CXX`` and ``CXXFLAGS`` choose the compiler and add flags, as everywhere.

Only the standard library is needed, so that the package's build hook can use it too. The kernels
are compiled once per instruction set; the library chooses among them when it is loaded.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "src" / "dcnn" / "ops"
# Where a wheel is made for many machines, nothing here may depend on the one that compiles.
FLAGS = [
    *("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wno-psabi"),
    # Without these two, square roots and comparisons are not vectorised. Results stay the same.
    *("-fno-math-errno", "-fno-trapping-math"),
]
X86_SETS = {
    "avx2": ["-mavx2", "-mfma", "-mbmi"],
    "avx512": ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mavx2", "-mfma", "-mbmi"],
}


class BuildError(Exception):
    """There is no library; the message says why."""


def library_name() -> str:
    """The file name for this machine; ``dcnn.ops.native`` looks for the same one."""
    return f"_native-{sys.platform}-{platform.machine()}.so"


def build(folder: Path = PACKAGE) -> Path:
    """Compile and link the library into ``folder``; returns its path.

    Beside it goes its checksum: loading a library that was cut short can kill the process, so the
    loader compares first.

    Raises:
        BuildError: there is no compiler, or it failed.
    """
    compiler, own = _compiler(), shlex.split(os.environ.get("CXXFLAGS", ""))
    text_code = zlib.crc32(b"".join((HERE / name).read_bytes() for name in ("text.h", "text.cpp")))
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        sets = {"plain": []} | (X86_SETS if platform.machine() in ("x86_64", "AMD64") else {})
        units = [("kernels", isa, [f"-DDCNN_ISA={isa}", *flags]) for isa, flags in sets.items()]
        units += [
            (source, "", [])
            for source in (
                "library",
                "layer",
                "network",
                "training",
                "learner",
                "adagrad",
                "char_ngrams",
                "random",
            )
        ]
        units.append(("text", "", [f"-DDCNN_TEXT_CODE={text_code}u"]))
        objects = [work / f"{source}{isa}.o" for source, isa, _ in units]
        for (source, _, flags), target in zip(units, objects, strict=True):
            _run(compiler, *FLAGS, *flags, *own, "-c", HERE / f"{source}.cpp", "-o", target)
        library = work / library_name()
        _run(compiler, "-shared", "-pthread", *own, *objects, "-o", library)
        checksum = zlib.crc32(library.read_bytes())
        target = folder / library_name()
        # A process may have the old one mapped: replace the file, do not write into it.
        beside = target.with_suffix(".new")
        shutil.copyfile(library, beside)
        beside.replace(target)
        target.with_suffix(".crc32").write_text(f"{checksum:08x}\n")
    return target


def _compiler() -> str:
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["c++", "g++", "clang++"]:
        if found := shutil.which(name):
            return found
    raise BuildError(f"no C++ compiler found ({wanted or 'c++, g++, clang++'})")


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise BuildError(f"the compiler failed: {lines[0]}")


if __name__ == "__main__":
    try:
        print(f"built {build(*map(Path, sys.argv[1:2]))}")
    except BuildError as error:
        sys.exit(f"the native backend was not built: {error}")
