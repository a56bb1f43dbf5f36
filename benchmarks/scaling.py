"""Time and memory against length, filter width, batch, threads and vocabulary, as curves.

    python benchmarks/scaling.py             # measures, writes the figures and draws
    python benchmarks/scaling.py --draw      # draws what was measured before

The network is SST binary's, and eager torch computes the same beside ours. The figures go to
``results/bench/scaling.json``, the pictures to ``docs/pictures``; ``dcnn bench tables --write
docs/performance.md`` puts a sentence below each.
"""

import argparse
import datetime
import sys
from pathlib import Path

from dcnn.artifact import Artifact
from dcnn.bench.conditions import describe_backend
from dcnn.bench.curves import (
    AXES,
    PICTURES,
    SCALING,
    Axis,
    Curve,
    Scaling,
    read_scaling,
    write_scaling,
)
from dcnn.bench.report import machine_load
from dcnn.bench.scaling import curves
from dcnn.bench.workload import Workload
from dcnn.experiments import results as provenance
from dcnn.predictor import Predictor

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "results" / "bench" / f"{SCALING}.json"


def measure(rounds: int, largest: int) -> Scaling:
    """All curves, with a line on each as it is done."""
    load, workload, measured = machine_load(), Workload(rounds=rounds), []
    for curve in curves(workload, largest):
        print(f"{curve.axis:10} {curve.quantity:6} {curve.ours[-1]:10.3f} {curve.unit}", flush=True)
        measured.append(curve)
    artifact: Artifact = workload.artifact()
    return Scaling(
        ours=describe_backend(Predictor(artifact).backend),
        curves=tuple(measured),
        load=load,
        hardware=provenance.hardware("cpu"),
        versions=provenance.versions(),
        commit=provenance.commit(),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def draw(scaling: Scaling, folder: Path) -> None:
    """A picture an axis: time and, where it was measured, memory."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("drawing needs matplotlib: pip install '.[bench]'; the figures are written")
    matplotlib.use("svg")
    # Text stays text, and the same figures give the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "dcnn"})
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    for name, axis in AXES.items():
        chosen = [curve for curve in scaling.curves if curve.axis == name]
        if not chosen:
            continue
        size = (4.2 * len(chosen), 3.2)
        figure, panels = pyplot.subplots(1, len(chosen), figsize=size, squeeze=False)
        for panel, curve in zip(panels[0], chosen, strict=True):
            draw_curve(panel, curve, axis)
        figure.suptitle(f"{axis.fixed}; {scaling.ours} and eager torch", fontsize=9)
        figure.tight_layout()
        figure.savefig(folder / f"{SCALING}-{name}.svg", metadata={"Date": None})
        pyplot.close(figure)


def draw_curve(panel, curve: Curve, axis: Axis) -> None:
    """Both figures over the sizes and, where growth is judged, a line in proportion to the size."""
    panel.plot(curve.sizes, curve.ours, "o-", markersize=3, color="#0b6e4f", label="ours")
    panel.plot(curve.sizes, curve.torch, "s-", markersize=3, color="#c1554d", label="eager torch")
    if axis.judged_from is None:
        panel.set(ylim=(0, None), xticks=curve.sizes)
    else:
        points = zip(curve.sizes, curve.ours, strict=True)
        judged = [(size, value) for size, value in points if size >= axis.judged_from]
        ends = [judged[0][0], judged[-1][0]]
        line = [judged[0][1] * size / ends[0] for size in ends]
        panel.plot(ends, line, ":", color="grey", label="in proportion")
        panel.set(xscale="log", yscale="log")
    panel.set(xlabel=axis.unit, ylabel=f"{curve.quantity}, {curve.unit}")
    panel.grid(which="major", alpha=0.3)
    panel.legend(fontsize=7, frameon=False)


def main() -> None:
    """Measure unless told only to draw, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="draw the figures that are there")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each (default 10)")
    parser.add_argument("--largest", type=int, default=4096, help="longest sentence")
    parser.add_argument("--out", type=Path, default=RESULT, help="where the figures lie")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / PICTURES)
    options = parser.parse_args()
    if not options.draw:
        write_scaling(options.out, measure(options.rounds, options.largest))
    draw(read_scaling(options.out), options.pictures)


if __name__ == "__main__":
    main()
