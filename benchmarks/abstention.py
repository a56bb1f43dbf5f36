"""How often an abstention threshold that was chosen on dev reaches its precision on new texts.

    python benchmarks/abstention.py        # two seconds on a CPU

Dev sets of a calibrated model with two labels and an accuracy of 90 % are simulated: the highest
probability of a text is 0.5 + x/2, where x has the distribution Beta(4, 1), and the label is
correct with that probability. On each dev set two thresholds are chosen for a precision of 95 %:
the lowest one with that precision on dev, and the lowest one whose lower bound reaches it, as
``dcnn train --target-precision`` chooses it. Precision and coverage on new texts follow from the
distribution. The result is ``results/bench/abstention.json``.
"""

from collections.abc import Sequence

import numpy as np

from dcnn.metrics import RiskCoverage, risk_coverage
from results import RESULTS, make_parser, provenance, write_json

RESULT = RESULTS / "abstention.json"
SHAPE = 4  # of Beta(SHAPE, 1)
TARGET = 0.95
SIZES = (100, 300, 1000, 3000)  # texts of a dev set
DEV_SETS = 2000  # per size


def simulate(texts: int, generator: np.random.Generator) -> RiskCoverage:
    """Risk and coverage on a simulated dev set."""
    confidences = 0.5 + generator.beta(SHAPE, 1, texts) / 2
    truth = np.where(generator.random(texts) < confidences, 0, 1)  # label 0 is predicted
    return risk_coverage(truth, np.column_stack([confidences, 1 - confidences]))


def on_new_texts(threshold: float) -> tuple[float, float]:
    """Precision and coverage of a threshold, by the distribution of the probabilities."""
    lowest = max(0.0, 2 * threshold - 1)
    coverage = 1 - lowest**SHAPE
    mean = SHAPE / (SHAPE + 1) * (1 - lowest ** (SHAPE + 1)) / coverage
    return 0.5 + mean / 2, coverage


def by_dev_precision(curve: RiskCoverage) -> int | None:
    """The index of the lowest threshold with the target precision on dev, or None."""
    reached = np.flatnonzero(curve.precision >= TARGET)
    return int(reached[-1]) if len(reached) else None


def summarize(thresholds: Sequence[float | None]) -> dict[str, float | int]:
    """What the thresholds do on new texts; ``None`` stands for a dev set without one."""
    found = [on_new_texts(one) for one in thresholds if one is not None]
    return {
        "without_threshold": len(thresholds) - len(found),
        "reached": sum(precision >= TARGET for precision, _ in found) / len(found),
        "mean_precision": sum(precision for precision, _ in found) / len(found),
        "mean_coverage": sum(coverage for _, coverage in found) / len(found),
    }


def measure(texts: int) -> dict[str, object]:
    """Both ways of choosing a threshold, on the same dev sets of one size."""
    generator = np.random.default_rng(texts)
    chosen: dict[str, list[float | None]] = {"dev precision": [], "lower bound": []}
    for _ in range(DEV_SETS):
        curve = simulate(texts, generator)
        places = by_dev_precision(curve), curve.choose(TARGET)
        for values, place in zip(chosen.values(), places, strict=True):
            values.append(None if place is None else float(curve.thresholds[place]))
    return {"texts": texts} | {name: summarize(values) for name, values in chosen.items()}


def main() -> None:
    """Simulate, print and write."""
    options = make_parser(__doc__, RESULT).parse_args()
    figures = []
    for texts in SIZES:
        figures.append(measure(texts))
        print(figures[-1])
    accuracy, _ = on_new_texts(0.5)
    report = {
        "benchmark": "abstention",
        "target": TARGET,
        "accuracy": accuracy,
        "dev_sets": DEV_SETS,
        "figures": figures,
    }
    write_json(options.out, report | provenance())


if __name__ == "__main__":
    main()
