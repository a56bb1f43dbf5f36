"""The scaling curves as values: their file, how fast they grow, and a sentence for each."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from dcnn.errors import DataError
from dcnn.files import open_bytes, write_atomically

SCALING = "scaling"
PICTURES = "pictures"  # beside the document that shows them


class Axis(NamedTuple):
    """What changes along a curve, what stays, and from where on its growth is judged.

    Below that the cost of a call as such counts; none where growth says nothing.
    """

    unit: str
    fixed: str
    judged_from: int | None


AXES = {
    "length": Axis("words", "one sentence, one thread", 256),
    "width": Axis("columns", "filters of layer 1; one sentence of 256 words, one thread", 7),
    "batch": Axis("sentences", "20 words each, one thread", 16),
    "threads": Axis("threads", "256 sentences of 20 words", None),
    "vocabulary": Axis("known words", "one sentence of 18 words, one thread", 10_000),
    "classes": Axis("classes", "one sentence of 18 words, one thread", 100),
}
# Of whole commands: time is CPU time, and memory that of the process.
COMMANDS = {
    "labels": Axis("labels", "`dcnn train`, 20,000 texts of 8 words, 1 epoch", 1000),
    "corpus": Axis("texts", "`dcnn train`, texts of 8 words, 10 labels, 1 epoch", 10_000),
    "file": Axis("texts", "`dcnn predict --input`, texts of 8 words", 10_000),
}
ALL_AXES = AXES | COMMANDS
UNITS = {"time": "ms", "memory": "MB"}


@dataclass(frozen=True)
class Curve:
    """Ours and, but for whole commands, eager torch over the sizes of an axis.

    Attributes:
        axis: one of ``ALL_AXES``.
        quantity: time (milliseconds of a call) or memory (peak megabytes beyond the imports).
        sizes: ascending.
        ours: our figure at each.
        torch: eager torch's; none of a command.
    """

    axis: str
    quantity: str
    sizes: tuple[int, ...]
    ours: tuple[float, ...]
    torch: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.axis not in ALL_AXES or self.quantity not in UNITS:
            raise DataError(
                f"axis={self.axis!r} and quantity={self.quantity!r} must be one of "
                f"{', '.join(ALL_AXES)} and one of {', '.join(UNITS)}"
            )
        theirs = len(self.sizes) if self.axis in AXES else 0
        if not len(self.sizes) == len(self.ours) > 0 or len(self.torch) != theirs:
            raise DataError(f"{self.axis}: sizes, ours and torch must be equally many, 1 or more")

    @property
    def unit(self) -> str:
        """Of the figures."""
        return UNITS[self.quantity]


@dataclass(frozen=True)
class Scaling:
    """All curves of a run, and where they were measured."""

    ours: str
    curves: tuple[Curve, ...]
    load: float
    hardware: str
    versions: dict[str, str]
    commit: str
    date: str


def growth(sizes: Sequence[int], values: Sequence[float], start: int) -> float:
    """The power of the size that the values grow with, from ``start`` to the end: 1 is linear.

    0 where no two sizes lie there.
    """
    first = next((place for place, size in enumerate(sizes) if size >= start), -1)
    if sizes[first] == sizes[-1]:
        return 0.0
    return math.log(values[-1] / values[first]) / math.log(sizes[-1] / sizes[first])


def describe(scaling: Scaling) -> str:
    """Every axis as a picture and a sentence, and the machine."""
    parts = []
    for name, axis in ALL_AXES.items():
        curves = [curve for curve in scaling.curves if curve.axis == name]
        if curves:
            said = "; ".join(_figures(curve, axis) for curve in curves)
            picture = f"![{name}]({PICTURES}/{SCALING}-{name}.svg)"
            parts += [picture, f"{axis.fixed[0].upper()}{axis.fixed[1:]}: {said}."]
    parts.append(
        "Memory is the peak beyond the imports, model and vocabulary included; of a command, all "
        "that its process takes, and its time is CPU time. A power of 1 is "
        f"growth in proportion. Ours: {scaling.ours}. {scaling.hardware}; load "
        f"{scaling.load:.1f} at the start; commit {scaling.commit[:12]}{scaling.commit[40:]}, "
        f"{scaling.date[:10]}."
    )
    return "\n\n".join(parts)


def _figures(curve: Curve, axis: Axis) -> str:
    if not curve.torch:
        in_seconds = curve.quantity == "time"
        first, last = (
            f"{value / 1000:.3g} s" if in_seconds else f"{value:.3g} {curve.unit}"
            for value in (curve.ours[0], curve.ours[-1])
        )
        power = growth(curve.sizes, curve.ours, axis.judged_from or 0)
        return (
            f"{curve.quantity} {first} at {curve.sizes[0]:,} {axis.unit} and {last} at "
            f"{curve.sizes[-1]:,}, from {axis.judged_from:,} on growing with the power {power:.2f}"
        )
    figures = (
        f"{curve.quantity} {curve.ours[-1]:.3g} {curve.unit} at {curve.sizes[-1]:,} {axis.unit} "
        f"(eager torch {curve.torch[-1]:.3g})"
    )
    if axis.judged_from is None:
        return f"{figures}, at {curve.sizes[0]:,} {curve.ours[0]:.3g} ({curve.torch[0]:.3g})"
    start = axis.judged_from
    ours, torch = (growth(curve.sizes, values, start) for values in (curve.ours, curve.torch))
    return f"{figures}, from {start:,} on growing with the power {ours:.2f} ({torch:.2f})"


def write_scaling(path: Path, scaling: Scaling) -> None:
    """Write the curves, whole or not at all."""
    with write_atomically(path) as stream:
        stream.write(json.dumps(asdict(scaling), indent=1).encode() + b"\n")


def read_scaling(path: Path) -> Scaling:
    """Read what ``write_scaling`` wrote.

    Raises:
        DataError: the file cannot be read, or a field is missing, unknown or breaks its rule.
    """
    with open_bytes(path) as stream:
        text = stream.read()
    try:
        values: dict[str, Any] = json.loads(text)
        curves = tuple(map(_curve, values.pop("curves")))
        return Scaling(curves=curves, **values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        names = ", ".join(field.name for field in fields(Scaling))
        raise DataError(
            f"{path}: {error}; it must have the fields {names}: run benchmarks/scaling.py again"
        ) from None


def _curve(values: dict[str, Any]) -> Curve:
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return Curve(**plain)
