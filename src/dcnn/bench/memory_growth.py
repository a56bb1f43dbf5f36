"""The memory that a prediction takes beyond the imports, in a process of its own.

    python -m dcnn.bench.memory_growth ours|torch AXIS SIZE

The model counts, what making it took in passing does not. Only Linux can forget a peak; elsewhere
the figure may be that of making the model.
"""

import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

from dcnn.bench.peak_memory import UNIT
from dcnn.bench.scaling import Situation
from dcnn.bench.workload import Workload

STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak() -> int:
    """Bytes of the largest resident memory since the start, or since the peak was forgotten."""
    with suppress(OSError):
        if found := re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text()):
            return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


def forget_peak() -> None:
    """Let the peak begin anew at what the process holds now."""
    with suppress(OSError):
        FORGET.write_text("5")


def growth(backend: str, axis: str, size: int, workload: Workload) -> int:
    """Bytes of the peak of one prediction, above what there was before the model; at least 1."""
    forget_peak()
    before = peak()
    situation = Situation.at(axis, size, workload)
    artifact = situation.workload.artifact()  # held by both: reading a text needs its vocabulary
    contestant = situation.contestant(backend, artifact)
    forget_peak()
    with contestant.condition():
        contestant.call()
    return max(peak() - before, 1)


def main() -> None:
    """Print the bytes."""
    backend, axis, size = sys.argv[1:]
    # torch makes its first tensors and threads on first use; that is no part of the growth.
    growth(backend, "length", 1, Workload(vocabulary=100))
    print(growth(backend, axis, int(size), Workload()))


if __name__ == "__main__":
    main()
