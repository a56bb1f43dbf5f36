"""Whole processes: from the start of ``dcnn predict MODEL TEXT`` to its end, and their memory."""

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from dcnn import artifact as model_folder
from dcnn.errors import DcnnError
from dcnn.predictor import Predictor
from report import MEGABYTE, MILLISECONDS, Outcome, Row
from timing import Measure, TimedCall, time_interleaved
from workload import TORCH, Workload, describe_backend

WORDS = 18
EAGER = f"the same prediction in {TORCH}"
EAGER_SCRIPT = Path(__file__).parent / "eager_torch.py"
# Run by a process that imports nothing large: a child inherits the peak of the process that forks
# it until it executes its own program, so asked by a process that holds torch every command would
# seem as large. The system counts kilobytes, macOS bytes.
PEAK_MEMORY = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
unit = 1 if sys.platform == "darwin" else 1024
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit)
"""


def startup(workload: Workload) -> Outcome:
    """Time and memory of a process that predicts one text, and of processes that only import."""
    artifact = workload.artifact()
    backend = Predictor(artifact).backend  # a backend that is not there is found out now
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        model_folder.save(place, artifact)
        (text,) = workload.texts(1, WORDS)
        predict = [sys.executable, "-m", "dcnn", "predict", str(place), text]
        eager = [sys.executable, str(EAGER_SCRIPT), str(place), text]
        commands = {
            "ours": predict,
            EAGER: eager,
            "python -c 'import torch'": [sys.executable, "-c", "import torch"],
            "python -c 'import numpy'": [sys.executable, "-c", "import numpy"],
            "python -c pass": [sys.executable, "-c", "pass"],
        }
        rows = _time_rows(commands, workload.slow_rounds)
        peaks = [
            Measure.of([peak_memory(command) for _ in range(workload.slowest_rounds)])
            for command in (predict, eager)
        ]
    ours, theirs = (peak.times(1 / MEGABYTE) for peak in peaks)
    rows.append(Row.compare("dcnn predict MODEL TEXT, peak memory", "MB", ours, theirs, EAGER))
    note = (
        "the files are in the system's cache and compiled to bytecode, as after the first use; "
        f"the model knows {workload.vocabulary:,} words"
    )
    return Outcome(describe_backend(backend), rows, [note])


def _time_rows(commands: dict[str, list[str]], rounds: int) -> list[Row]:
    timed = [TimedCall(name, partial(run, command)) for name, command in commands.items()]
    for timed_call in timed:  # once, so that bytecode is written and files are cached
        timed_call.call()
    measures = time_interleaved(timed, rounds, warm_up=False)
    ours, *others = ((name, m.times(MILLISECONDS)) for name, m in measures.items())
    return [
        Row.compare("dcnn predict MODEL TEXT, whole process", "ms", ours[1], measure, name)
        for name, measure in others
    ]


def run(command: list[str]) -> str:
    """Run a process to its end, with bytecode as an installed package has it; its output.

    Raises:
        DcnnError: it failed; the message ends with its last line.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.splitlines() or ["no message"])[-1]
        raise DcnnError(f"{' '.join(command[1:4])} ... ended with {done.returncode}: {last}")
    return done.stdout


def peak_memory(command: list[str]) -> float:
    """Bytes of the largest resident memory of a process."""
    return float(run([sys.executable, "-c", PEAK_MEMORY, *command]))
