"""The rows of the experiments' tables as numbers: the paper's, ours, and how ours differ.

Every model is compared with one reference, the DCNN of the ``tuned`` recipe.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dcnn.errors import DataError
from dcnn.experiments.published import NAMES, PUBLISHED
from dcnn.experiments.results import MODELS, RECIPES, Result
from dcnn.experiments.statistics import (
    Correct,
    Interval,
    Summary,
    bootstrap_difference,
    bootstrap_mean,
    mcnemar,
    summarize,
)

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
