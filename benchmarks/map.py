"""The size of the package, and the modules that its main entry points pass through.

    python benchmarks/map.py           # prints Markdown: make map
    python benchmarks/map.py --json    # prints JSON

Each entry point runs in a process of its own on a few texts of the built-in corpus. A module is
entered when one of its functions is called; calls made while a module is imported do not count.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import dcnn

PACKAGE = Path(dcnn.__file__).parent
MAX_FILES, MAX_LINES, MAX_LINES_PER_FILE = 160, 33_320, 750
TEXT = "the plot is not dull but good"
# Entry point: its arguments, and how many modules it may enter.
ENTRY_POINTS = {
    "dcnn train": (["train", "reviews.csv", "--out", "model", "--epochs", "1"], 30),
    "dcnn predict": (["predict", "model", TEXT], 12),
    "dcnn explain": (["explain", "model", TEXT], 20),
    "DCNNClassifier.fit": (["fit"], 25),
}
ROWS = 240  # of reviews.csv


def line_counts(package: Path = PACKAGE) -> dict[str, int]:
    """Lines of every Python file of ``package``, by its path below it."""
    return {
        path.relative_to(package).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted(package.rglob("*.py"))
    }


def folders(lines: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Files and lines per folder; what lies in no folder comes first, as ``.``."""
    counts: dict[str, tuple[int, int]] = {".": (0, 0)}
    for name, count in lines.items():
        folder = name.partition("/")[0] if "/" in name else "."
        files, total = counts.get(folder, (0, 0))
        counts[folder] = files + 1, total + count
    return counts


class Recorder:
    """Notes the modules of ``package`` in the order in which they are entered."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self.root = f"{package}/"
        self.entered: dict[str, None] = {}
        self._outside: set[CodeType] = set()  # code that needs no second look

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """A profile function for ``sys.setprofile``."""
        code = frame.f_code
        if event != "call" or code in self._outside:
            return
        path = code.co_filename
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)  # a class body is none
        name = path.removeprefix(self.root)
        if name == path or not is_function or name in self.entered:
            self._outside.add(code)
        elif not self._is_importing(frame):
            self.entered[name] = None

    def _is_importing(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(
                self.root
            ):
                return True
            frame = frame.f_back
        return False


def module_name(path: str) -> str:
    """``text/encoder.py`` as ``text.encoder``; a folder's own file as the folder."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return "dcnn" if name == "__init__" else name


def run_recorded(arguments: Sequence[str]) -> list[str]:
    """Run an entry point in this process; the modules that it entered, in order."""
    recorder = Recorder()
    if arguments == ["fit"]:
        sys.setprofile(recorder)
        _fit()
    else:
        from dcnn.__main__ import run

        sys.argv[1:] = arguments
        threading.setprofile(recorder)
        sys.setprofile(recorder)
        if code := run(arguments):
            sys.exit(code)
    sys.setprofile(None)
    return [module_name(path) for path in recorder.entered]


def _fit() -> None:
    rows = [line.rsplit(",", 1) for line in Path("reviews.csv").read_text().splitlines()[1:]]
    classifier = dcnn.DCNNClassifier(epochs=1)
    classifier.fit([text for text, _ in rows], [label for _, label in rows])


def entered_modules() -> dict[str, list[str]]:
    """The modules that each of ``ENTRY_POINTS`` enters, in order of first entry."""
    from dcnn.data.corpora.opinions import read_opinions

    found = {}
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    with tempfile.TemporaryDirectory() as folder:
        rows = [f"{o.text.replace(',', '')},{o.label}" for o in read_opinions()["train"][:ROWS]]
        (Path(folder) / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n")
        for name, (arguments, _) in ENTRY_POINTS.items():
            command = [sys.executable, __file__, "--run", *arguments]
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(f"{name} failed:\n{done.stderr}")
            found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure() -> dict[str, Any]:
    """Everything, as plain values."""
    lines = line_counts()
    return {
        "files": len(lines),
        "lines": sum(lines.values()),
        "longest": max(lines.items(), key=lambda item: item[1]),
        "folders": folders(lines),
        "entered": entered_modules(),
    }


def over_limits(found: dict[str, Any]) -> list[str]:
    """What exceeds its limit, a sentence each."""
    name, longest = found["longest"]
    figures = [
        ("files", found["files"], MAX_FILES),
        ("lines", found["lines"], MAX_LINES),
        (f"lines of {name}", longest, MAX_LINES_PER_FILE),
    ]
    for entry, (_, limit) in ENTRY_POINTS.items():
        figures.append((f"modules entered by {entry}", len(found["entered"][entry]), limit))
    return [f"{what}: {count:,}, at most {most:,}" for what, count, most in figures if count > most]


def render(found: dict[str, Any]) -> str:
    """Two Markdown tables: the folders, and the entry points with their modules."""
    rows = [
        f"| {'no folder' if name == '.' else f'`{name}/`'} | {files} | {lines:,} |"
        for name, (files, lines) in found["folders"].items()
    ]
    entries = [
        f"| `{name}` | {len(modules)} | {' '.join(f'`{module}`' for module in modules)} |"
        for name, modules in found["entered"].items()
    ]
    name, longest = found["longest"]
    return "\n".join(
        [
            "| folder of `src/dcnn` | files | lines |",
            "|---|--:|--:|",
            *rows,
            f"| all | {found['files']} | {found['lines']:,} |",
            "",
            f"The longest file is `{name}` with {longest} lines.",
            "",
            "| entry point | modules | in order of first entry |",
            "|---|--:|---|",
            *entries,
        ]
    )


def main() -> None:
    """Print the map, and what exceeds its limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.add_argument("--run", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run_recorded(options.run)))
        return
    found = measure()
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print(render(found))
    for line in over_limits(found):
        print(f"over the limit: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
