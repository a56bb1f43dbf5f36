"""What many tests share: the corpora's folder, a small trained model, and the command line."""

import os
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from command_line import Finished, run_here, run_process
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

# The suite runs one worker per core; more threads would only wait for one another.
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


@pytest.fixture
def dcnn(tmp_path: Path):
    """Run ``dcnn ARGUMENTS`` as a user does, in the test's folder.

    It runs in this process, since importing torch takes longer than most commands; in a process of
    its own where the environment decides how Python or torch start.
    """

    def run(*arguments: object, stdin: str | bytes = "", **environment: str) -> Finished:
        words = list(map(str, arguments))
        given = stdin.encode() if isinstance(stdin, str) else stdin
        environment = {"OMP_NUM_THREADS": "1", "COLUMNS": "200"} | environment
        if {"PYTHONPATH", "DCNN_BACKEND"}.intersection(environment):
            return run_process(tmp_path, words, given, environment)
        return run_here(tmp_path, words, given, environment)

    return run


@pytest.fixture
def artifact() -> Artifact:
    return make_artifact()
