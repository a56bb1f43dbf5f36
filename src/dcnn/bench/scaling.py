"""Time and memory of a prediction against length, filter width, batch, threads and vocabulary."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dcnn.artifact import Artifact
from dcnn.bench.conditions import cores
from dcnn.bench.curves import AXES, Curve
from dcnn.bench.prediction import eager_prediction, our_prediction
from dcnn.bench.processes import run
from dcnn.bench.workload import Workload
from dcnn.compare import Contestant, take_turns

MILLISECONDS, MEGABYTE = 1e3, 1e6
CALLS_WORDS = 4096  # a turn has as many calls as bring it to about so many words, 50 at most
DIGITS = 4


@dataclass(frozen=True)
class Situation:
    """What is predicted at one point of a curve."""

    workload: Workload
    sentences: int = 1
    words: int = 18
    threads: int = 1

    @classmethod
    def at(cls, axis: str, size: int, workload: Workload) -> "Situation":
        """The point ``size`` of ``axis``, one of ``AXES``; the rest as there."""
        match axis:
            case "length":
                return cls(workload, words=size)
            case "width":
                widths = (size, *workload.model.widths[1:])
                wider = replace(workload.model, widths=widths)
                return cls(replace(workload, model=wider), words=256)
            case "batch":
                return cls(workload, sentences=size, words=20)
            case "threads":
                return cls(workload, sentences=256, words=20, threads=size)
            case "vocabulary":
                return cls(replace(workload, vocabulary=size))
        raise AssertionError(axis)

    def contestant(self, backend: str, artifact: Artifact) -> Contestant:
        """``ours`` or ``torch`` with the model of ``artifact``, on the same sentences."""
        make = our_prediction if backend == "ours" else eager_prediction
        return make(artifact, self.workload.sentences(self.sentences, self.words), self.threads)


def sizes(axis: str, largest: int = 4096) -> tuple[int, ...]:
    """The points of an axis; ``largest`` is that of the length."""
    return {
        "length": tuple(2**i for i in range(largest.bit_length())),
        "width": (7, 14, 28, 56),
        "batch": (1, 4, 16, 64, 256, 1024),
        "threads": tuple(range(1, cores() + 1)),
        "vocabulary": (1000, 10_000, 100_000, 1_000_000),
    }[axis]


def curves(workload: Workload, largest: int = 4096) -> Iterator[Curve]:
    """Every curve, time before memory."""
    for axis in AXES:
        points = sizes(axis, largest)
        times = [_times(Situation.at(axis, size, workload)) for size in points]
        yield Curve(axis, "time", points, *_columns(times))
        if axis == "threads":  # they share the memory of the process
            continue
        peaks = [tuple(_memory(axis, size, who) for who in ("ours", "torch")) for size in points]
        yield Curve(axis, "memory", points, *_columns(peaks))


def _times(situation: Situation) -> tuple[float, ...]:
    artifact = situation.workload.artifact()
    contestants = [situation.contestant(backend, artifact) for backend in ("ours", "torch")]
    calls = max(min(CALLS_WORDS // (situation.sentences * situation.words), 50), 1)
    measures = take_turns(contestants, situation.workload.rounds, calls)
    return tuple(measure.median * MILLISECONDS for measure in measures.values())


def _memory(axis: str, size: int, backend: str) -> float:
    command = [sys.executable, "-m", "dcnn.bench.memory_growth", backend, axis, str(size)]
    return float(run(command)) / MEGABYTE


def _columns(points: list[tuple[float, ...]]) -> Iterator[tuple[float, ...]]:
    for column in zip(*points, strict=True):
        yield tuple(float(f"{value:.{DIGITS}g}") for value in column)
