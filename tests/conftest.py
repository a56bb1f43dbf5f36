"""What many tests share: the corpora's folder, a small trained model, and the command line."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from dcnn.artifact import Artifact
from untrained import make_artifact

# Without a GPU the kernels for it run in Triton's interpreter; it must be known before Triton is
# imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Examples are drawn from a fixed seed, so that a red run can be repeated.
settings.register_profile("dcnn", deadline=None, derandomize=True)
settings.load_profile("dcnn")
# Other shapes each time, and many: for `make test-sanitized`.
settings.register_profile("fuzz", deadline=None, max_examples=3000)

# The suite runs a worker a core; more threads would only wait for one another.
torch.set_num_threads(1)

# A shell's background job ignores Ctrl-C, and so would the commands that a suite run as one starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of the real corpora."""
    folder = os.environ.get("DCNN_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("DCNN_DATA does not name the folder of the real corpora")
    return Path(folder)


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def dcnn(tmp_path: Path):
    """Run ``dcnn ARGUMENTS`` as a user does: a process of its own, in the test's folder."""

    def run(*arguments: object, stdin: str | bytes = "", **environment: str) -> Finished:
        done = subprocess.run(
            [sys.executable, "-m", "dcnn", *map(str, arguments)],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"} | environment,
            timeout=120,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in err, err
        return Finished(done.returncode, out, err)

    return run


@pytest.fixture
def artifact() -> Artifact:
    return make_artifact()
