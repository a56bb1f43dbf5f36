"""Writes requirements-ci.txt: the packages that CI installs, with the hashes of their files.

    make lock

Run it with the Python of CI. What is resolved are the extras of `make setup`, within
constraints.txt, and what builds the package. torch is left out: CI takes its CPU build, which is
another file wherever it comes from; so are the CUDA packages that its usual build would bring.
"""

import json
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-ci.txt"
LEFT_OUT = ("dcnn", "torch", "nvidia-", "cuda-")
BUILD = ("hatchling", "editables")


def main() -> None:
    """Resolve without installing, and write the names, versions and hashes that were chosen."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    command += ["--quiet", "--report", "-", "--constraint", "constraints.txt", ".[all,dev]", *BUILD]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)  # noqa: S603
    lines = []
    for one in json.loads(done.stdout)["install"]:
        name, version = one["metadata"]["name"].lower(), one["metadata"]["version"]
        if not name.startswith(LEFT_OUT):
            digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    made_for = f"CPython {'.'.join(platform.python_version_tuple()[:2])}, {platform.system()}"
    head = f"# `make lock` writes this file. For {made_for} on {platform.machine()}.\n"
    LOCK.write_text(head + "".join(sorted(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()
