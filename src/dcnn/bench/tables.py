"""The figures of finished cases in Markdown, from ``results/bench`` alone."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from dcnn.bench.curves import SCALING, describe, read_scaling
from dcnn.bench.report import CASES, Report, read_report
from dcnn.errors import DataError

NOT_MEASURED = "not yet measured"

_HEADER = ("what", "unit", "ours", "quartiles", "baseline", "its figure", "quartiles", "ratio")


def render_tables(folder: Path) -> str:
    """Every case under its name, with machine and commit; then the curves."""
    parts = []
    for name in CASES:
        report = _report(folder, name)
        parts.append(f"### {name}\n\n{_missing(name) if report is None else _case(report)}")
    curves = folder / f"{SCALING}.json"
    scaling = (
        describe(read_scaling(curves))
        if curves.is_file()
        else _not_measured("python benchmarks/scaling.py")
    )
    return "\n\n".join([*parts, f"### {SCALING}\n\n{scaling}"])


def summary_table(folder: Path) -> str:
    """The first row of every case: what the case is about."""
    lines, machines = [], []
    for name in CASES:
        report = _report(folder, name)
        if report is None:
            lines.append((f"`dcnn bench {name}`", NOT_MEASURED, "-", "-"))
            continue
        row = report.rows[0]
        ours, theirs = (f"{figure(value)} {row.unit}" for value in (row.ours, row.baseline))
        name = f"{row.name}, on a GPU" if report.case == "gpu" else row.name
        lines.append((name, ours, f"{theirs} ({row.baseline_name})", figure(row.ratio)))
        machines.append(f"{report.hardware}; {report.ours}")
    table = _markdown(("what", "ours", "baseline", "ratio"), lines)
    return "\n\n".join([table, *(f"{machine}." for machine in dict.fromkeys(machines))])


def figure(value: float) -> str:
    """Three digits that count, and no more."""
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(quartiles: Sequence[float]) -> str:
    """The two quartiles, the lower first."""
    low, high = quartiles
    return f"{figure(low)} to {figure(high)}"


def _report(folder: Path, name: str) -> Report | None:
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    report = read_report(path)
    if report.case != name:
        raise DataError(f"{path} holds the case {report.case!r}; it belongs in {report.case}.json")
    return report


def _case(report: Report) -> str:
    lines = [
        (
            row.name,
            row.unit,
            figure(row.ours),
            spread(row.ours_spread),
            row.baseline_name,
            figure(row.baseline),
            spread(row.baseline_spread),
            figure(row.ratio),
        )
        for row in report.rows
    ]
    libraries = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    origin = (
        f"Ours: {report.ours}. {report.hardware}; load {report.load:.1f} at the start; "
        f"{libraries}; commit {report.commit[:12]}, {report.date[:10]}."
    )
    notes = [f"{note[0].upper()}{note[1:]}." for note in report.notes]
    return "\n\n".join([_markdown(_HEADER, lines), " ".join([origin, *notes])])


def _missing(name: str) -> str:
    return _not_measured(f"dcnn bench {name} --out results/bench/{name}.json")


def _not_measured(command: str) -> str:
    return f"{NOT_MEASURED[0].upper()}{NOT_MEASURED[1:]}: `{command}`"


def _markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
