"""Real servers, each in a process of its own."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ADDRESS = re.compile(r"on (http://\S+?)/ ")


@dataclass
class Running:
    """A server in a process of its own."""

    address: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def end(self) -> tuple[int, str]:
        """Stop it in good order; its exit code and what it logged."""
        self.process.terminate()
        _, err = self.process.communicate(timeout=20)
        return self.process.returncode, err


def start_server(folder: Path, *arguments: object, stderr: Any = subprocess.PIPE) -> Running:
    process = subprocess.Popen(
        [sys.executable, "-m", "dcnn", "serve", *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if found := ADDRESS.search(line):
            return Running(found[1], process)
    raise AssertionError(process.communicate()[1])
