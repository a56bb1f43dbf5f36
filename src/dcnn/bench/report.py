"""The rows of a benchmark and the file they are kept in.

The place is ``results/bench/<case>.json``; ``docs/bench.schema.json`` describes the fields for
other programs.
"""

import json
import math
import os
import typing
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from dcnn.compare import Measure
from dcnn.errors import DataError, StorageError
from dcnn.experiments import results as provenance
from dcnn.experiments.results import read_field
from dcnn.files import open_bytes, write_atomically

CASES = (
    "predict-one",
    "predict-batch",
    "train-step",
    "startup",
    "layer",
    "gpu",
)  # as the tables order them
# Unit: whether less of it is better.
UNITS = {"us": True, "ms": True, "s": True, "MB": True, "sentences/s": False}
DIGITS = 5  # that are kept: a time has no more to say


@dataclass(frozen=True)
class Row:
    """Ours beside a baseline. Figures are medians; a spread is the two quartiles.

    Attributes:
        name: what was measured.
        unit: one of ``UNITS``.
        ours: our figure.
        baseline: the other's figure.
        baseline_name: what the other is.
        ratio: how many times better ours is: faster, or smaller.
        ours_spread: quartiles of ours.
        baseline_spread: quartiles of the baseline.
        repetitions: how often each was measured.
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
        """Put two measures of the same ``unit`` side by side."""
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
    """What a case gives: the backend of ours in words, its rows, and what to say about them."""

    ours: str
    rows: list[Row]
    notes: list[str]
    device: str = "cpu"


@dataclass(frozen=True)
class Report:
    """A finished case.

    Attributes:
        case: one of ``CASES``.
        ours: what computed our figures: a backend with its instruction set.
        rows: the figures; the first one is what the case is about.
        notes: what was left out, and what to mind.
        load: programs that wanted to run when it began, on average: a quiet machine has about 0.
        hardware: the machine, in words.
        versions: versions of Python and of the libraries.
        commit: commit of the code.
        date: moment of the end, ISO 8601.
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
        """Add where and with what it was measured."""
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
        """A text that ``read_report`` reads."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False, allow_nan=False)


def machine_load() -> float:
    """The load of the last minute; 0 where the system does not tell it."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def write_report(path: Path, report: Report) -> None:
    """Write ``report``, whole or not at all.

    Raises:
        StorageError: the disk refused.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{path.parent} could not be made ({error.strerror}); choose another folder"
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
    """The fields of ``kind`` as JSON has them, but those ``given``."""
    names = [field.name for field in fields(kind) if field.name not in given]
    if not isinstance(values, dict) or sorted(values) != sorted(names):
        raise DataError(f"a {kind.__name__.lower()} must have the fields {', '.join(names)}")
    hints = typing.get_type_hints(kind)
    return {name: read_field(name, hints[name], values[name]) for name in names}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
