"""Time and memory against length, filter width, batch, threads, vocabulary, classes and corpus.

    python benchmarks/scaling.py             # measures, writes the figures and draws
    python benchmarks/scaling.py --draw      # draws what was measured before

The network is SST binary's; ours and eager torch compute the same. Whole commands, whose curves are
those of ``command_scaling``, are not compared. The figures go to
``results/bench/scaling.json``, the charts to ``docs/pictures``; ``python benchmarks/run.py tables
--write docs/performance.md`` puts a sentence below each chart.
"""

import argparse
import datetime
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from command_scaling import LABELS, TEXTS, command_curves
from curves import (
    ALL_AXES,
    AXES,
    PICTURES,
    SCALING,
    Axis,
    Curve,
    Scaling,
    read_scaling,
    write_scaling,
)
from dcnn.artifact import Artifact
from dcnn.experiments import results as provenance
from dcnn.predictor import Predictor
from prediction import eager_prediction, our_prediction
from report import MEGABYTE, MILLISECONDS, machine_load
from startup import run
from timing import TimedCall, time_interleaved
from workload import Workload, cores, describe_backend

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "results" / "bench" / f"{SCALING}.json"
CALLS_WORDS = 4096  # calls per turn: as many as make about so many words, at most 50
DIGITS = 4
STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


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
            case "classes":
                return cls(replace(workload, classes=size))
        raise AssertionError(axis)

    def timed_call(self, backend: str, artifact: Artifact) -> TimedCall:
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
        "classes": (2, 10, 100, 1000, 10_000),
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
    timed = [situation.timed_call(backend, artifact) for backend in ("ours", "torch")]
    calls = max(min(CALLS_WORDS // (situation.sentences * situation.words), 50), 1)
    measures = time_interleaved(timed, situation.workload.rounds, calls)
    return tuple(measure.median * MILLISECONDS for measure in measures.values())


def _memory(axis: str, size: int, backend: str) -> float:
    command = [sys.executable, __file__, "--memory", backend, axis, str(size)]
    return float(run(command)) / MEGABYTE


def _columns(points: list[tuple[float, ...]]) -> Iterator[tuple[float, ...]]:
    for column in zip(*points, strict=True):
        yield tuple(float(f"{value:.{DIGITS}g}") for value in column)


def peak() -> int:
    """Bytes of the largest resident memory since the start or the last reset."""
    with suppress(OSError):
        if found := re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text()):
            return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def reset_peak() -> None:
    """Restart the peak at the current resident memory; possible on Linux only."""
    with suppress(OSError):
        CLEAR_REFS.write_text("5")


def memory_growth(backend: str, axis: str, size: int, workload: Workload) -> int:
    """Peak bytes of one prediction beyond what the process held before the model; at least 1.

    The model counts, the temporary memory of building it does not (on Linux).
    """
    reset_peak()
    before = peak()
    situation = Situation.at(axis, size, workload)
    # Both sides hold the artifact: reading a text needs its vocabulary.
    artifact = situation.workload.artifact()
    timed_call = situation.timed_call(backend, artifact)
    reset_peak()
    with timed_call.context():
        timed_call.call()
    return max(peak() - before, 1)


def measure(rounds: int, largest: int, texts: int, labels: int) -> Scaling:
    """All curves; prints a line per curve."""
    load, workload, measured = machine_load(), Workload(rounds=rounds), []
    of_commands = command_curves(
        [count for count in LABELS if count <= labels], [count for count in TEXTS if count <= texts]
    )
    for curve in chain(curves(workload, largest), of_commands):
        print(f"{curve.axis:10} {curve.quantity:6} {curve.ours[-1]:10.3f} {curve.unit}", flush=True)
        measured.append(curve)
    return Scaling(
        ours=describe_backend(Predictor(workload.artifact()).backend),
        curves=tuple(measured),
        load=load,
        hardware=provenance.hardware("cpu"),
        versions=provenance.versions(),
        commit=provenance.commit(),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def draw(scaling: Scaling, folder: Path) -> None:
    """A chart per axis: time and, where it was measured, memory."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("drawing needs matplotlib: pip install '.[bench]'; the figures are written")
    matplotlib.use("svg")
    # Text stays text, and the same figures give the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "dcnn"})
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    for name, axis in ALL_AXES.items():
        chosen = [curve for curve in scaling.curves if curve.axis == name]
        if not chosen:
            continue
        size = (4.2 * len(chosen), 3.2)
        figure, panels = pyplot.subplots(1, len(chosen), figsize=size, squeeze=False)
        for panel, curve in zip(panels[0], chosen, strict=True):
            draw_curve(panel, curve, axis)
        theirs = " and eager torch" if chosen[0].torch else ""
        figure.suptitle(f"{axis.fixed}; {scaling.ours}{theirs}", fontsize=9)
        figure.tight_layout()
        figure.savefig(folder / f"{SCALING}-{name}.svg", metadata={"Date": None})
        pyplot.close(figure)


def draw_curve(panel, curve: Curve, axis: Axis) -> None:
    """Both sides over the sizes and, where growth is judged, a line of linear growth."""
    panel.plot(curve.sizes, curve.ours, "o-", markersize=3, color="#0b6e4f", label="ours")
    if curve.torch:
        theirs = {"color": "#c1554d", "label": "eager torch"}
        panel.plot(curve.sizes, curve.torch, "s-", markersize=3, **theirs)
    if axis.judged_from is None:
        panel.set(ylim=(0, None), xticks=curve.sizes)
    else:
        points = zip(curve.sizes, curve.ours, strict=True)
        if judged := [(size, value) for size, value in points if size >= axis.judged_from]:
            ends = [judged[0][0], judged[-1][0]]
            line = [judged[0][1] * size / ends[0] for size in ends]
            panel.plot(ends, line, ":", color="grey", label="in proportion")
        panel.set(xscale="log", yscale="log")
    panel.set(xlabel=axis.unit, ylabel=f"{curve.quantity}, {curve.unit}")
    panel.grid(which="major", alpha=0.3)
    panel.legend(fontsize=7, frameon=False)


def print_memory(backend: str, axis: str, size: str) -> None:
    """Print the bytes of one point; a process of its own calls this."""
    # torch creates its first tensors and threads on first use; that is no part of the growth.
    memory_growth(backend, "length", 1, Workload(vocabulary=100))
    print(memory_growth(backend, axis, int(size), Workload()))


def main() -> None:
    """Measure, unless asked to draw only; write; draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draw", action="store_true", help="draw the figures that exist")
    parser.add_argument(
        "--rounds", type=int, default=10, help="rounds of calls per side (default 10)"
    )
    parser.add_argument("--largest", type=int, default=4096, help="longest sentence")
    parser.add_argument("--texts", type=int, default=TEXTS[-1], help="largest corpus")
    parser.add_argument("--labels", type=int, default=LABELS[-1], help="most labels in training")
    parser.add_argument("--out", type=Path, default=RESULT, help="file of the figures")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / PICTURES)
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        print_memory(*options.memory)
        return
    if not options.draw:
        sizes = options.largest, options.texts, options.labels
        write_scaling(options.out, measure(options.rounds, *sizes))
    draw(read_scaling(options.out), options.pictures)


if __name__ == "__main__":
    main()
