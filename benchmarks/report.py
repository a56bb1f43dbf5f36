"""The report of a case: its rows, its file and its Markdown table.

The file is ``results/bench/<case>.json``; ``docs/bench.schema.json`` describes its fields.
"""

import json
import math
import os
import typing
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from dcnn.errors import DataError, StorageError
from dcnn.experiments import results as provenance
from dcnn.experiments.results import read_field
from dcnn.files import open_bytes, write_atomically
from timing import Measure

CASES = ("predict-one", "predict-batch", "train-step", "startup", "layer", "gpu")  # table order
MICROSECONDS, MILLISECONDS, MEGABYTE = 1e6, 1e3, 1e6
# Unit: whether lower is better.
UNITS = {"us": True, "ms": True, "s": True, "MB": True, "sentences/s": False}
DIGITS = 5  # significant digits that are stored
NOT_MEASURED = "not yet measured"


@dataclass(frozen=True)
class Row:
    """Ours and a baseline. Figures are medians; a spread is the two quartiles.

    Attributes:
        name: what was measured.
        unit: one of ``UNITS``.
        ours: our figure.
        baseline: the baseline's figure.
        baseline_name: its name.
        ratio: how many times better ours is: faster, or smaller.
        ours_spread: quartiles of ours.
        baseline_spread: quartiles of the baseline.
        repetitions: measurements per side.
    """

    name: str
    unit: str
    ours: float
    baseline: float
    baseline_name: str
    ratio: float
    ours_spread: tuple[float, ...]
    baseline_spread: tuple[float, ...]
    repetitions: int

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise DataError(f"unit={self.unit!r} must be one of {', '.join(UNITS)}")
        for name in ("ours", "baseline", "ratio"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise DataError(f"{name}={value} must be a finite number above 0")
        for name in ("ours_spread", "baseline_spread"):
            value = getattr(self, name)
            if len(value) != 2 or value[0] > value[1]:
                raise DataError(f"{name}={value} must be two quartiles, the lower first")
        if self.repetitions < 1:
            raise DataError(f"repetitions={self.repetitions} must be 1 or more")

    @classmethod
    def compare(
        cls, name: str, unit: str, ours: Measure, baseline: Measure, baseline_name: str
    ) -> Self:
        """A row of two measures in the same ``unit``."""
        better = baseline.median / ours.median if UNITS[unit] else ours.median / baseline.median
        return cls(
            name=name,
            unit=unit,
            ours=_rounded(ours.median),
            baseline=_rounded(baseline.median),
            baseline_name=baseline_name,
            ratio=_rounded(better),
            ours_spread=(_rounded(ours.low), _rounded(ours.high)),
            baseline_spread=(_rounded(baseline.low), _rounded(baseline.high)),
            repetitions=min(ours.repetitions, baseline.repetitions),
        )


class Outcome(NamedTuple):
    """The result of a case: our backend, the rows, and notes."""

    ours: str
    rows: list[Row]
    notes: list[str]
    device: str = "cpu"


@dataclass(frozen=True)
class Report:
    """A finished case.

    Attributes:
        case: one of ``CASES``.
        ours: our backend, with its instruction set.
        rows: the figures, the headline first.
        notes: what was left out, and caveats.
        load: load average of the machine at the start; about 0 if it is idle.
        hardware: CPU and GPU.
        versions: versions of Python and of the libraries.
        commit: commit of the code.
        date: of the end, ISO 8601.
    """

    case: str
    ours: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    load: float
    hardware: str
    versions: dict[str, str]
    commit: str
    date: str

    def __post_init__(self) -> None:
        if self.case not in CASES:
            raise DataError(f"case={self.case!r} must be one of {', '.join(CASES)}")
        if not self.rows:
            raise DataError("rows must be one or more")

    @classmethod
    def make(cls, case: str, outcome: Outcome, load: float) -> Self:
        """Add machine, versions, commit and date."""
        return cls(
            case=case,
            ours=outcome.ours,
            rows=tuple(outcome.rows),
            notes=tuple(outcome.notes),
            load=load,
            hardware=provenance.hardware(outcome.device),
            versions=provenance.versions(),
            commit=provenance.commit(),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def to_json(self) -> str:
        """JSON, as ``read_report`` reads it."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False, allow_nan=False)


def machine_load() -> float:
    """Load average of the last minute; 0 if the system has none."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def write_report(path: Path, report: Report) -> None:
    """Write ``report`` atomically.

    Raises:
        StorageError: the disk refused.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{path.parent} cannot be created ({error.strerror}); choose another folder"
        ) from error
    with write_atomically(path) as stream:
        stream.write(report.to_json().encode() + b"\n")


def read_report(path: Path) -> Report:
    """Read and check a report.

    Raises:
        DataError: the file cannot be read, or a field is missing, unknown or breaks its rule.
    """
    with open_bytes(path) as stream:
        text = stream.read()
    try:
        values = json.loads(text)
        rows = values.pop("rows") if isinstance(values, dict) and "rows" in values else []
        checked = _checked(Report, values, given=("rows",))
        return Report(rows=tuple(Row(**_checked(Row, row)) for row in rows), **checked)
    except (ValueError, TypeError) as error:  # a DataError is a ValueError too
        raise DataError(f"{path}: {error}; measure that case again") from None


def _checked(kind: type, values: object, given: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of the dataclass ``kind`` from JSON, except those in ``given``."""
    names = [field.name for field in fields(kind) if field.name not in given]
    if not isinstance(values, dict) or sorted(values) != sorted(names):
        raise DataError(f"a {kind.__name__.lower()} must have the fields {', '.join(names)}")
    hints = typing.get_type_hints(kind)
    return {name: read_field(name, hints[name], values[name]) for name in names}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


_HEADER = ("what", "unit", "ours", "quartiles", "baseline", "its figure", "quartiles", "ratio")


def render_tables(folder: Path) -> str:
    """A section per case: its table, machine and commit."""
    parts = []
    for name in CASES:
        report = _report(folder, name)
        shown = not_measured(command(name)) if report is None else _case(report)
        parts.append(f"### {name}\n\n{shown}")
    return "\n\n".join(parts)


def summary_table(folder: Path) -> str:
    """The first row of every case."""
    lines, machines = [], []
    for name in CASES:
        report = _report(folder, name)
        if report is None:
            lines.append((f"`{command(name)}`", NOT_MEASURED, "-", "-"))
            continue
        row = report.rows[0]
        ours, theirs = (f"{figure(value)} {row.unit}" for value in (row.ours, row.baseline))
        name = f"{row.name}, on a GPU" if report.case == "gpu" else row.name
        lines.append((name, ours, f"{theirs} ({row.baseline_name})", figure(row.ratio)))
        machines.append(f"{report.hardware}; {report.ours}")
    table = markdown(("what", "ours", "baseline", "ratio"), lines)
    return "\n\n".join([table, *(f"{machine}." for machine in dict.fromkeys(machines))])


def figure(value: float) -> str:
    """Three significant digits."""
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
        f"{libraries}; commit {report.commit[:12]}{report.commit[40:]}, {report.date[:10]}."
    )
    notes = [f"{note[0].upper()}{note[1:]}." for note in report.notes]
    return "\n\n".join([markdown(_HEADER, lines), " ".join([origin, *notes])])


def not_measured(command: str) -> str:
    """What a page shows until ``command`` has run."""
    return f"{NOT_MEASURED.capitalize()}: `{command}`"


def command(name: str) -> str:
    """The command that measures the case ``name``."""
    return f"python benchmarks/run.py {name} --out results/bench/{name}.json"


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def plural(count: int, noun: str) -> str:
    """The count and its noun: 1 thread, 2 threads."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
