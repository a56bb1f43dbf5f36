"""The tables of the experiments in Markdown, rendered from the results alone.

One table per experiment, with the paper's figures (Tables 1 to 3), ours, and the difference of each
model from one reference, the DCNN of the ``tuned`` recipe; and the short table of the README. They
are printed, or written into a Markdown file between two comments:

    <!-- NAME:begin -->
    rendered
    <!-- NAME:end -->
"""

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
    summarize,
)
from dcnn.files import open_bytes, write_atomically

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


# Tables 1 to 3 of the paper in their order: one of ``MODELS``, or a system that the paper quotes
# and that is not implemented here, and its test accuracy in %.
PUBLISHED: dict[str, tuple[tuple[str, float], ...]] = {
    "sst2": (
        ("nb", 81.8),
        ("binb", 83.1),
        ("svm", 79.4),
        ("RecNTN (Socher et al. 2013)", 85.4),
        ("max-tdnn", 77.1),
        ("nbow", 80.5),
        ("dcnn", 86.8),
    ),
    "sst5": (
        ("nb", 41.0),
        ("binb", 41.9),
        ("svm", 40.7),
        ("RecNTN (Socher et al. 2013)", 45.7),
        ("max-tdnn", 37.4),
        ("nbow", 42.4),
        ("dcnn", 48.5),
    ),
    # The first four use parsers, WordNet or rules; our n-gram models are not comparable.
    "trec": (
        ("Hier (Li and Roth 2002)", 91.0),
        ("MaxEnt (Blunsom et al. 2006)", 92.6),
        ("MaxEnt (Huang et al. 2008)", 93.6),
        ("SVM (Silva et al. 2011)", 95.0),
        ("max-tdnn", 84.4),
        ("nbow", 88.2),
        ("dcnn", 93.0),
    ),
    "twitter": (
        ("svm", 81.6),
        ("binb", 82.7),
        ("maxent", 83.0),
        ("max-tdnn", 78.8),
        ("nbow", 80.9),
        ("dcnn", 87.4),
    ),
}


REFERENCE = ("dcnn", "tuned")  # model and recipe
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
    f"test examples and seeds together. p: two-sided, of no difference from the {_REFERENCE_NAME}, "
    "from the same samples. Chance alone does not explain a difference whose interval excludes 0 "
    "and whose p is below 0.05."
)

Runs = tuple[Result, ...]  # of one model and recipe, by seed


@dataclass(frozen=True)
class Difference:
    """A model minus the reference: of the mean accuracies, its bootstrap interval, and p."""

    accuracy: float
    interval: Interval
    p: float


@dataclass(frozen=True)
class Measurement:
    """The runs of one model and recipe, summarized.

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
    """A row of a table.

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


def experiment_tables(results: Sequence[Result]) -> str:
    """All four tables, each under its title and above its legend."""
    return "\n\n".join(
        f"## Table {TABLE_NUMBERS[experiment]}: {TITLES[experiment]}\n\n"
        f"{render_rows(compare(experiment, results))}\n\n{LEGEND}"
        for experiment in EXPERIMENTS
    )


def summary_table(results: Iterable[Result]) -> str:
    """The DCNN on the four experiments, with a column per recipe: the table of the README."""
    accuracies: dict[tuple[str, str], list[float]] = {}
    for result in results:
        if result.model == "dcnn":
            key = (result.experiment, result.recipe)
            accuracies.setdefault(key, []).append(result.test_accuracy)
    header = ("experiment", "paper", *(f"ours, {recipe} recipe" for recipe in RECIPES), "command")
    rows = []
    for experiment in EXPERIMENTS:
        measured = (accuracies.get((experiment, recipe)) for recipe in RECIPES)
        ours = (_mean(summarize(runs)) if runs else NOT_RUN for runs in measured)
        paper = f"{dict(PUBLISHED[experiment])['dcnn']:.1f}"
        rows.append((TITLES[experiment], paper, *ours, f"`dcnn experiment {experiment}`"))
    return _markdown(header, rows)


def compare(experiment: str, results: Iterable[Result]) -> list[Row]:
    """The paper's classifiers with a row per recipe of ours, then the models it does not have.

    Raises:
        DataError: the results of the experiment are not of one test set.
    """
    runs = _group([result for result in results if result.experiment == experiment])
    reference = runs.get(REFERENCE)
    published = dict(PUBLISHED[experiment])
    rows = []
    for name in (*published, *(model for model in MODELS if model not in published)):
        shown, paper, runnable = NAMES.get(name, name), published.get(name), name in MODELS
        groups = _of_model(runs, name)
        rows += [Row(shown, paper, _measure(group, reference), runnable) for group in groups]
        if not groups and name in published:  # not yet run
            rows.append(Row(shown, paper, None, runnable))
    return rows


def _group(results: Sequence[Result]) -> dict[tuple[str, str], Runs]:
    """Results by model and recipe."""
    groups: dict[tuple[str, str], Runs] = {}
    for result in sorted(results, key=lambda result: result.seed):
        if result.test_truth_sha256 != results[0].test_truth_sha256:
            raise DataError(
                f"{_name(results[0])} and {_name(result)} were measured on different test sets "
                "(test_truth_sha256 differs) and cannot be in one table; run one of them again"
            )
        key = (result.model, result.recipe)
        groups[key] = (*groups.get(key, ()), result)
    return groups


def _name(result: Result) -> str:
    return f"{result.experiment}/{result.model}-{result.recipe}-seed{result.seed}"


def _of_model(runs: dict[tuple[str, str], Runs], model: str) -> list[Runs]:
    """The runs of ``model``, one group per recipe, in the order of the tables."""
    order = {recipe: place for place, recipe in enumerate(RECIPES)}
    recipes = [recipe for name, recipe in runs if name == model]
    recipes.sort(key=lambda recipe: (order.get(recipe, len(order)), recipe))
    return [runs[model, recipe] for recipe in recipes]


def _measure(runs: Runs, reference: Runs | None) -> Measurement:
    ours, difference = _correct(runs), None
    if reference is not None and reference is not runs:
        theirs = _correct(reference)
        difference = Difference(
            float(ours.mean() - theirs.mean()), *bootstrap_difference(ours, theirs)
        )
    return Measurement(
        recipe=runs[0].recipe,
        summary=summarize([run.test_accuracy for run in runs]),
        interval=bootstrap_mean(ours),
        difference=difference,
    )


def _correct(runs: Runs) -> Correct:
    """Right or wrong, (runs, examples)."""
    return np.array([run.test_correct for run in runs], dtype=np.bool_)


def render_rows(rows: Iterable[Row]) -> str:
    """``rows`` as a Markdown table."""
    return _markdown(_HEADER, map(_cells, rows))


def _cells(row: Row) -> tuple[str, ...]:
    start = (row.classifier, NOTHING if row.paper is None else f"{row.paper:.1f}")
    if (ours := row.ours) is None:
        return (*start, NOTHING, NOT_RUN if row.runnable else NOTHING, *[NOTHING] * 6)
    end = [NOTHING] * 3
    if ours.difference is not None:
        p = ours.difference.p
        end = [
            f"{100 * ours.difference.accuracy:+.1f}",
            _interval(ours.difference.interval, "+.1f"),
            "< 0.001" if p < 0.001 else f"{p:.3f}",
        ]
    return (
        *start,
        ours.recipe,
        _mean(ours.summary),
        f"{100 * ours.summary.best:.1f}",
        str(ours.summary.runs),
        _interval(ours.interval, ".1f"),
        *end,
    )


def _mean(summary: Summary) -> str:
    mean = f"{100 * summary.mean:.1f}"
    return mean if summary.deviation is None else f"{mean} ± {100 * summary.deviation:.1f}"


def _interval(interval: Interval, form: str) -> str:
    return f"{100 * interval.low:{form}} to {100 * interval.high:{form}}"


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def replace_block(text: str, name: str, content: str, path: Path) -> str:
    """Return ``text`` with ``content`` between the comments of ``name``.

    Args:
        text: the whole Markdown text.
        name: which block.
        content: what goes between its comments.
        path: the file of the text, for the error.

    Raises:
        DataError: the two comments are not there once each, in their order.
    """
    begin, end = _markers(name)
    before, opened, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (opened and closed) or text.count(begin) > 1 or text.count(end) > 1:
        raise DataError(
            f"{path}: {begin} and {end} must occur once each, in this order; found "
            f"{text.count(begin)} and {text.count(end)} of them, or the second first; fix the file"
        )
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def write_blocks(paths: Sequence[Path], blocks: Mapping[str, str]) -> None:
    """Write ``blocks``, by name, into the Markdown files that have their comments.

    Raises:
        DataError: a file is not UTF-8 text, or has no comments of any of the blocks.
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
    present = [name for name in blocks if any(marker in text for marker in _markers(name))]
    if not present:
        wanted = " or ".join(" and ".join(_markers(name)) for name in blocks)
        raise DataError(f"{path} has no place for the tables; put {wanted} on lines of their own")
    for name in present:
        text = replace_block(text, name, blocks[name], path)
    return text
