"""Runs ``dcnn`` for the tests: in this process, which has torch imported, or in one of its own."""

import contextlib
import gc
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

from dcnn.__main__ import run


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
    """Undo what a command does to its process: signals, logs, environment, garbage collection."""
    root, ours = logging.getLogger(), logging.getLogger("dcnn")
    state = (root.handlers, root.level, ours.level, dict(os.environ), sys.argv)
    streams = (sys.stdin, sys.stdout, sys.stderr)
    thresholds = gc.get_threshold()
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    root.handlers = []
    # Else help texts tell to write `python -m pytest.dcnn`, if that is how the tests were started.
    main = sys.modules["__main__"]
    package, main.__package__ = main.__package__, None
    try:
        yield
    finally:
        main.__package__ = package
        root.handlers, root.level, level, environment, sys.argv = state
        ours.setLevel(level)
        os.environ.clear()
        os.environ.update(environment)
        sys.stdin, sys.stdout, sys.stderr = streams
        gc.set_threshold(*thresholds)
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
        code = run(arguments)
    printed = []
    for stream in (out, err):
        stream.flush()
        printed.append(stream.buffer.getvalue().decode())
    return Finished(code, *printed)
