"""What many tests share: the corpora's folder, a small trained model, and the command line."""

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from dcnn.__main__ import main
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


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str


def run_process(
    folder: Path, arguments: Sequence[str], stdin: bytes, environment: Mapping[str, str]
) -> Finished:
    done = subprocess.run(
        [sys.executable, "-m", "dcnn", *arguments],
        input=stdin,
        capture_output=True,
        cwd=folder,
        env=os.environ | environment,
        timeout=120,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err, err
    return Finished(done.returncode, out, err)


@contextlib.contextmanager
def restored_process_state() -> Iterator[None]:
    """Undo what a command does to its process: handlers of signals and of logs, the environment."""
    root, ours = logging.getLogger(), logging.getLogger("dcnn")
    state = (root.handlers, root.level, ours.level, dict(os.environ), sys.argv)
    streams = (sys.stdin, sys.stdout, sys.stderr)
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    root.handlers = []
    try:
        yield
    finally:
        root.handlers, root.level, level, environment, sys.argv = state
        ours.setLevel(level)
        os.environ.clear()
        os.environ.update(environment)
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, handler in signals.items():
            signal.signal(number, handler)


def run_here(
    folder: Path, arguments: Sequence[str], stdin: bytes, environment: Mapping[str, str]
) -> Finished:
    given, out, err = (io.TextIOWrapper(io.BytesIO(part), "utf-8") for part in (stdin, b"", b""))
    with (
        restored_process_state(),
        contextlib.chdir(folder),
        warnings.catch_warnings(action="ignore"),
    ):
        os.environ.update(environment)
        sys.argv = ["dcnn", *arguments]
        sys.stdin, sys.stdout, sys.stderr = given, out, err
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    printed = []
    for stream in (out, err):
        stream.flush()
        printed.append(stream.buffer.getvalue().decode())
    return Finished(code or 0, *printed)


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
