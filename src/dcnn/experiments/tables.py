"""The experiments' tables in Markdown: one an experiment, and the short one of the README."""

from collections.abc import Iterable, Sequence

from dcnn.experiments.comparison import (
    REFERENCE,
    Difference,
    Measurement,
    Row,
    compare,
)
from dcnn.experiments.published import NAMES, PUBLISHED, TABLE_NUMBERS, TITLES
from dcnn.experiments.results import EXPERIMENTS, RECIPES, Result
from dcnn.experiments.statistics import (
    BOOTSTRAP_SAMPLES,
    CONFIDENCE,
    Interval,
    Summary,
    summarize,
)

COMMAND = "dcnn experiment {experiment}"
NOTHING = "-"
NOT_RUN = "not yet run"

_REFERENCE_NAME = f"{REFERENCE[1]} {NAMES[REFERENCE[0]]}"
_PERCENT = f"{CONFIDENCE:.0%}".replace("%", " %")
_HEADER = (
    "classifier",
    "paper",
    "recipe",
    "ours, mean ± sd",
    "best run",
    "seeds",
    f"{_PERCENT} interval",
    f"minus {_REFERENCE_NAME}",
    f"{_PERCENT} interval of that",
    "p",
)
LEGEND = (
    f"Test accuracy in %; sd over seeds. Intervals: {BOOTSTRAP_SAMPLES:,} bootstrap samples of "
    "test examples and seeds together. p: exact two-sided McNemar test against the "
    f"{_REFERENCE_NAME}, median over runs of the same seed (a single run meets every one). Chance "
    "alone does not explain a difference whose interval leaves out 0 and whose p is below 0.05."
)


def experiment_tables(results: Sequence[Result]) -> str:
    """All four tables, each under its title and above its legend."""
    return "\n\n".join(
        f"## Table {TABLE_NUMBERS[experiment]}: {TITLES[experiment]}\n\n"
        f"{render_rows(compare(experiment, results))}\n\n{LEGEND}"
        for experiment in EXPERIMENTS
    )


def summary_table(results: Iterable[Result]) -> str:
    """The DCNN on the four experiments, a column a recipe: the table of the README."""
    accuracies: dict[tuple[str, str], list[float]] = {}
    for result in results:
        if result.model == "dcnn":
            key = (result.experiment, result.recipe)
            accuracies.setdefault(key, []).append(result.test_accuracy)
    header = ("experiment", "paper", *(f"ours, {recipe} recipe" for recipe in RECIPES), "command")
    lines = []
    for experiment in EXPERIMENTS:
        paper = next(row.accuracy for row in PUBLISHED[experiment] if row.model == "dcnn")
        measured = (accuracies.get((experiment, recipe)) for recipe in RECIPES)
        ours = (_mean(summarize(runs)) if runs else NOT_RUN for runs in measured)
        command = f"`{COMMAND.format(experiment=experiment)}`"
        lines.append((TITLES[experiment], f"{paper:.1f}", *ours, command))
    return _markdown(header, lines)


def render_rows(rows: Iterable[Row]) -> str:
    """``rows`` as a Markdown table."""
    return _markdown(
        _HEADER,
        [
            (
                row.classifier,
                NOTHING if row.paper is None else f"{row.paper:.1f}",
                *_measurement_cells(row.ours, row.runnable),
            )
            for row in rows
        ],
    )


def _measurement_cells(ours: Measurement | None, runnable: bool) -> tuple[str, ...]:
    if ours is None:
        return (NOTHING, NOT_RUN if runnable else NOTHING, *[NOTHING] * 6)
    return (
        ours.recipe,
        _mean(ours.summary),
        f"{100 * ours.summary.best:.1f}",
        str(ours.summary.runs),
        _interval(ours.interval, ".1f"),
        *_difference_cells(ours.difference),
    )


def _difference_cells(difference: Difference | None) -> tuple[str, ...]:
    if difference is None:
        return (NOTHING,) * 3
    return (
        f"{100 * difference.accuracy:+.1f}",
        _interval(difference.interval, "+.1f"),
        NOTHING if difference.p is None else _probability(difference.p),
    )


def _mean(summary: Summary) -> str:
    mean = f"{100 * summary.mean:.1f}"
    return mean if summary.deviation is None else f"{mean} ± {100 * summary.deviation:.1f}"


def _interval(interval: Interval, form: str) -> str:
    return f"{100 * interval.low:{form}} to {100 * interval.high:{form}}"


def _probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(
        [_line(header), "|" + "---|" * len(header), *(_line(cells) for cells in lines)]
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
