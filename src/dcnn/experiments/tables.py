"""The parts of a Markdown file that are rendered from results, between two comments.

<!-- NAME:begin -->
rendered
<!-- NAME:end -->


Tables 1 to 3 of the paper as data: test accuracy in %, in the paper's order.

The rows of the experiments' tables as numbers: the paper's, ours, and how ours differ.

Every model is compared with one reference, the DCNN of the ``tuned`` recipe.


The experiments' tables in Markdown: one an experiment, and the short one of the README.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dcnn.errors import DataError
from dcnn.experiments.results import EXPERIMENTS, MODELS, RECIPES, Result
from dcnn.experiments.statistics import (
    BOOTSTRAP_SAMPLES,
    CONFIDENCE,
    Correct,
    Interval,
    Summary,
    bootstrap_difference,
    bootstrap_mean,
    mcnemar,
    summarize,
)
from dcnn.files import open_bytes, write_atomically


def markers(name: str) -> tuple[str, str]:
    """The comments before and after the block ``name``."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def has_block(text: str, name: str) -> bool:
    """Whether ``text`` holds a comment of the block."""
    return any(marker in text for marker in markers(name))


def replace_block(text: str, name: str, content: str, path: Path) -> str:
    """Return ``text`` with ``content`` between the comments of ``name``.

    Args:
        text: the whole Markdown text.
        name: which block.
        content: what goes between its comments.
        path: where the text comes from, for the error.

    Raises:
        DataError: the two comments are not there once each, in their order.
    """
    begin, end = markers(name)
    before, opened, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (opened and closed) or text.count(begin) > 1 or text.count(end) > 1:
        raise DataError(
            f"{path}: the block must stand once between {begin} and {end}; found "
            f"{text.count(begin)} and {text.count(end)} of them, or the second first; mend the file"
        )
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def write_blocks(paths: Sequence[Path], blocks: Mapping[str, str]) -> None:
    """Put ``blocks``, by name, into the Markdown files that have a place for them.

    Raises:
        DataError: a file is not UTF-8 text, or has no place for any of the blocks.
    """
    # Every file is checked before the first is written.
    rendered = {path: _render(path, blocks) for path in paths}
    for path, text in rendered.items():
        with write_atomically(path) as stream:
            stream.write(text.encode())


def _render(path: Path, blocks: Mapping[str, str]) -> str:
    with open_bytes(path) as stream:
        raw = stream.read()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} must be UTF-8 text ({error}); name a Markdown file") from None
    present = [name for name in blocks if has_block(text, name)]
    if not present:
        wanted = " or ".join(" and ".join(markers(name)) for name in blocks)
        raise DataError(f"{path} has no place for the tables; put {wanted} on lines of their own")
    for name in present:
        text = replace_block(text, name, blocks[name], path)
    return text


TITLES = {
    "sst2": "Stanford Sentiment, 2 classes",
    "sst5": "Stanford Sentiment, 5 classes",
    "trec": "TREC questions, 6 classes",
    "twitter": "Tweets, 2 classes",
}
TABLE_NUMBERS = {"sst2": 1, "sst5": 1, "trec": 2, "twitter": 3}

NAMES = {
    "nb": "NB",
    "binb": "BiNB",
    "svm": "SVM",
    "maxent": "MaxEnt",
    "max-tdnn": "Max-TDNN",
    "nbow": "NBoW",
    "dcnn": "DCNN",
    "dcnn-ensemble": "DCNN ensemble (several networks)",
}


@dataclass(frozen=True)
class PublishedRow:
    """A classifier of one of the paper's tables.

    Attributes:
        classifier: its name.
        accuracy: on test, in %.
        model: our model of that kind; none where the paper quotes a system that is not here.
    """

    classifier: str
    accuracy: float
    model: str | None


def _ours(model: str, accuracy: float) -> PublishedRow:
    return PublishedRow(NAMES[model], accuracy, model)


def _quoted(classifier: str, accuracy: float) -> PublishedRow:
    return PublishedRow(classifier, accuracy, None)


PUBLISHED: dict[str, tuple[PublishedRow, ...]] = {
    "sst2": (
        _ours("nb", 81.8),
        _ours("binb", 83.1),
        _ours("svm", 79.4),
        _quoted("RecNTN (Socher et al. 2013)", 85.4),
        _ours("max-tdnn", 77.1),
        _ours("nbow", 80.5),
        _ours("dcnn", 86.8),
    ),
    "sst5": (
        _ours("nb", 41.0),
        _ours("binb", 41.9),
        _ours("svm", 40.7),
        _quoted("RecNTN (Socher et al. 2013)", 45.7),
        _ours("max-tdnn", 37.4),
        _ours("nbow", 42.4),
        _ours("dcnn", 48.5),
    ),
    # The first four rest on parsers, WordNet or rules; our n-gram models are not their kind.
    "trec": (
        _quoted("Hier (Li and Roth 2002)", 91.0),
        _quoted("MaxEnt (Blunsom et al. 2006)", 92.6),
        _quoted("MaxEnt (Huang et al. 2008)", 93.6),
        _quoted("SVM (Silva et al. 2011)", 95.0),
        _ours("max-tdnn", 84.4),
        _ours("nbow", 88.2),
        _ours("dcnn", 93.0),
    ),
    "twitter": (
        _ours("svm", 81.6),
        _ours("binb", 82.7),
        _ours("maxent", 83.0),
        _ours("max-tdnn", 78.8),
        _ours("nbow", 80.9),
        _ours("dcnn", 87.4),
    ),
}


REFERENCE = ("dcnn", "tuned")  # model and recipe

Runs = tuple[Result, ...]  # of one model and recipe, by seed


@dataclass(frozen=True)
class Difference:
    """A model minus the reference.

    Attributes:
        accuracy: difference of the mean accuracies, a fraction.
        interval: its bootstrap interval.
        p: of McNemar's test, median over pairs of runs; none where no two runs form a pair.
    """

    accuracy: float
    interval: Interval
    p: float | None


@dataclass(frozen=True)
class Measurement:
    """What the runs of one model and recipe amount to.

    Attributes:
        recipe: its name.
        summary: their test accuracies, fractions.
        interval: bootstrap interval of the mean.
        difference: to the reference; none where that is not measured, or is this one.
    """

    recipe: str
    summary: Summary
    interval: Interval
    difference: Difference | None


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes:
        classifier: its name.
        paper: the paper's accuracy in %, where it gives one.
        ours: our measurement, where there is one.
        runnable: whether there could be one: false for systems that the paper quotes.
    """

    classifier: str
    paper: float | None
    ours: Measurement | None
    runnable: bool = True


def compare(experiment: str, results: Iterable[Result]) -> list[Row]:
    """The paper's classifiers with a row for each recipe of ours, then what the paper lacks.

    Raises:
        DataError: the results of the experiment are not of one test set.
    """
    runs = _group([result for result in results if result.experiment == experiment])
    reference = runs.get(REFERENCE)
    rows = []
    for published in PUBLISHED[experiment]:
        groups = _of_model(runs, published.model) if published.model else []
        ours = [_measure(group, reference) for group in groups]
        for measurement in ours or (None,):
            runnable = published.model is not None
            rows.append(Row(published.classifier, published.accuracy, measurement, runnable))
    listed = {published.model for published in PUBLISHED[experiment]}
    for model in MODELS:
        if model not in listed:
            rows += [
                Row(NAMES[model], None, _measure(group, reference))
                for group in _of_model(runs, model)
            ]
    return rows


def _group(results: Sequence[Result]) -> dict[tuple[str, str], Runs]:
    """Results by model and recipe."""
    for result in results:
        if result.test_truth_sha256 != results[0].test_truth_sha256:
            raise DataError(
                f"{_name(results[0])} and {_name(result)} were measured on different test sets "
                "(test_truth_sha256 differs) and cannot stand in one table; run one of them again"
            )
    groups: dict[tuple[str, str], Runs] = {}
    for result in sorted(results, key=lambda result: result.seed):
        key = (result.model, result.recipe)
        groups[key] = (*groups.get(key, ()), result)
    return groups


def _name(result: Result) -> str:
    return f"{result.experiment}/{result.model}-{result.recipe}-seed{result.seed}"


def _of_model(runs: dict[tuple[str, str], Runs], model: str) -> list[Runs]:
    """The runs of ``model``, a group a recipe, in the order of the tables."""
    recipes = [recipe for name, recipe in runs if name == model]
    order = {recipe: place for place, recipe in enumerate(RECIPES)}
    recipes.sort(key=lambda recipe: (order.get(recipe, len(order)), recipe))
    return [runs[model, recipe] for recipe in recipes]


def _measure(runs: Runs, reference: Runs | None) -> Measurement:
    return Measurement(
        recipe=runs[0].recipe,
        summary=summarize([run.test_accuracy for run in runs]),
        interval=bootstrap_mean(_all_correct(runs)),
        difference=None if reference is None or reference is runs else _difference(runs, reference),
    )


def _difference(runs: Runs, reference: Runs) -> Difference:
    ours, theirs = _all_correct(runs), _all_correct(reference)
    # A seed pairs two runs; a model with a single run meets every run of the reference.
    p_values = [
        mcnemar(_correct(run), _correct(other))
        for run in runs
        for other in reference
        if len(runs) == 1 or run.seed == other.seed
    ]
    return Difference(
        accuracy=float(ours.mean() - theirs.mean()),
        interval=bootstrap_difference(ours, theirs),
        p=statistics.median(p_values) if p_values else None,
    )


def _correct(run: Result) -> Correct:
    """Right or wrong, (examples,)."""
    return np.array(run.test_correct, dtype=np.bool_)


def _all_correct(runs: Runs) -> Correct:
    """Right or wrong, (runs, examples)."""
    return np.stack([_correct(run) for run in runs])


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
