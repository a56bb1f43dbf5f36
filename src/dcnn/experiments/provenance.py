"""Where and with what a run was made: the facts that let a number be trusted later."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dcnn import __version__

LIBRARIES = ("torch", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Versions of dcnn, Python and the libraries that are installed."""
    found = {"dcnn": __version__, "python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


def hardware(device: str) -> str:
    """The machine in words: its GPU where it was used, else its processor."""
    if device == "cuda":
        import torch

        return f"{torch.cuda.get_device_name()}"
    return f"{_processor()}, {os.cpu_count()} cores, no GPU used"


def _processor() -> str:
    """The processor's name with its architecture; the architecture alone if no name is known."""
    machine = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({machine})" if names and names[0] else machine


def commit() -> str:
    """The commit of the code; ``DCNN_COMMIT`` says it where there is no repository.

    It ends with ``-dirty`` if files differ from it.
    """
    if given := os.environ.get("DCNN_COMMIT"):
        return given
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # else it is another's repository
        return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(  # noqa: S603
        ["git", *arguments],  # noqa: S607
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
