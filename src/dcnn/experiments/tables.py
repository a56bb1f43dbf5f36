"""The tables of the experiments in Markdown, rendered from the results alone.

One table per experiment, with the paper's figures (Tables 1 to 3), ours, and the difference of each
model from one reference, the DCNN of the ``tuned`` recipe; and the short table of the README. They
are printed, or written into a Markdown file between two comments:

    <!-- NAME:begin -->
    rendered
    <!-- NAME:end -->
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.config import read_toml
from dcnn.errors import DataError
from dcnn.experiments import statistics
from dcnn.experiments.results import (
    EXPERIMENTS,
    FEATURES,
    MODELS,
    RECIPES,
    SUMMARY_RECIPES,
    Result,
    code_hash,
)
from dcnn.files import open_bytes, write_atomically

REFERENCE = ("dcnn", "tuned")  # model and recipe
NOTHING = "-"
NOT_RUN = "not yet run"

_REFERENCE_NAME = f"{REFERENCE[1]} {MODELS[REFERENCE[0]]}"
_PERCENT = f"{statistics.CONFIDENCE:.0%}".replace("%", " %")
_HEADER = (
    *("classifier", "paper", "recipe", "outside knowledge", "ours, mean ± sd", "best run", "seeds"),
    f"{_PERCENT} interval",
    f"minus {_REFERENCE_NAME}",
    f"{_PERCENT} interval of that",
    "p",
    "commit",
)
LEGEND = (
    f"Test accuracy in %; sd over seeds. Intervals: {statistics.BOOTSTRAP_SAMPLES:,} bootstrap "
    "samples of test examples and seeds together. p: two-sided, of no difference from the "
    f"{_REFERENCE_NAME}, from the same samples. Chance alone does not explain a difference whose "
    "interval excludes 0 and whose p is below 0.05. The commit is that of the code of the runs."
)


@cache
def paper() -> dict[str, Any]:
    """By experiment: number and title of the paper's table, and its accuracies in %."""
    return read_toml(Path(__file__).with_name("paper.toml"))


def experiment_tables(results: Sequence[Result]) -> str:
    """All four tables, each under its title and above its legend."""
    return "\n\n".join(
        f"## Table {paper()[experiment]['table']}: {paper()[experiment]['title']}\n\n"
        f"{markdown_table(_HEADER, compare(experiment, results))}\n\n{LEGEND}"
        for experiment in EXPERIMENTS
    )


def summary_table(results: Iterable[Result]) -> str:
    """The DCNN on the four experiments, with a column per recipe: the table of the README."""
    shown = [one for one in results if one.model == "dcnn" and one.recipe in SUMMARY_RECIPES]
    accuracies = defaultdict(list)
    for result in shown:
        accuracies[result.experiment, result.recipe].append(result.test_accuracy)
    ours_by_recipe = (f"ours, {recipe} recipe" for recipe in SUMMARY_RECIPES)
    header = ("experiment", "paper", *ours_by_recipe, "command")
    rows = []
    for experiment in EXPERIMENTS:
        published = f"{paper()[experiment]['accuracy']['dcnn']:.1f}"
        measured = (accuracies[experiment, recipe] for recipe in SUMMARY_RECIPES)
        ours = (statistics.summarize(one).percent(1) if one else NOT_RUN for one in measured)
        title, command = paper()[experiment]["title"], f"`dcnn experiment {experiment} --recipe R`"
        rows.append((title, published, *ours, command))
    table = markdown_table(header, rows)
    names = commits(shown)
    noun = "commits" if "," in names else "commit"
    return f"{table}\n\nCode of these runs: {noun} {names}." if shown else table


def compare(experiment: str, results: Iterable[Result]) -> list[list[str]]:
    """The paper's classifiers with a row per recipe of ours, then the models it does not have."""
    runs = _by_model([result for result in results if result.experiment == experiment])
    reference = runs.get(REFERENCE[0], {}).get(REFERENCE[1])
    published = paper()[experiment]["accuracy"]
    rows = []
    for name in (*published, *(model for model in MODELS if model not in published)):
        start = [MODELS.get(name, name), f"{published[name]:.1f}" if name in published else NOTHING]
        rows += [
            [*start, recipe, _outside(runs[name][recipe]), *_measure(runs[name][recipe], reference)]
            for recipe in sorted(runs[name], key=_place)
        ]
        if not runs[name] and name in published:
            ours = NOT_RUN if name in MODELS else NOTHING
            rows.append([*start, NOTHING, NOTHING, ours, *[NOTHING] * 7])
    return rows + _teachers(runs["dcnn"])


def feature_table(results: Iterable[Result]) -> str:
    """What each group of engineered features adds on TREC, cross-validated."""
    found = [run for run in results if run.model == FEATURES and "groups" in run.notes]
    if not found:
        return NOT_RUN
    header = ("group", "features", "with those before it", "without it")
    rows = [
        [name, f"{one['features']:,}"]
        + [f"{100 * one[key]:.1f}" for key in ("with those before", "all others")]
        for name, one in found[0].notes["groups"].items()
    ]
    whole = f"{100 * (found[0].dev_accuracy or 0):.1f}"
    rows.append(["all", f"{found[0].notes['features']:,}", whole, NOTHING])
    return markdown_table(header, rows)


def _teachers(runs: Mapping[str, Sequence[Result]]) -> list[list[str]]:
    """The pretrained encoders that taught, with the recipes of their students."""
    recipes = defaultdict(list)
    for recipe, found in sorted(runs.items(), key=lambda item: _place(item[0])):
        taught = [run for run in found if "teacher" in run.notes]
        by_seed = {
            run.notes["teacher"].get("seed", 0): run.notes["teacher"]["test_accuracy"]
            for run in taught
        }
        if taught:
            name = taught[0].settings["distillation"]["encoder"].rpartition("/")[2]
            recipes[name, tuple(by_seed.values())].append(recipe)
    rows = []
    for (name, scores), names in recipes.items():
        ours = statistics.summarize(scores)
        start = [f"teacher: {name}, fine-tuned", NOTHING, ", ".join(names), "encoder"]
        cells = [ours.percent(1), f"{100 * ours.best:.1f}", str(ours.runs)]
        rows.append([*start, *cells, *[NOTHING] * 5])
    return rows


def _place(recipe: str) -> tuple[int, str]:
    """For sorting: the known recipes in their order, then the others by name."""
    return (RECIPES.index(recipe) if recipe in RECIPES else len(RECIPES)), recipe


def _outside(runs: Sequence[Result]) -> str:
    """What the runs learned from besides the training set."""
    text, taught = (runs[0].settings.get(name, {}) for name in ("text", "distillation"))
    known = ["GloVe"] if text.get("vectors") else []
    if taught.get("encoder"):
        known += ["encoder", *taught.get("unlabelled", ())]
    known += runs[0].notes.get("outside", ())
    return ", ".join(known) or NOTHING


def _by_model(results: Sequence[Result]) -> dict[str, dict[str, list[Result]]]:
    """Results by model and recipe, in the order of their seeds."""
    runs: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in sorted(results, key=lambda result: result.seed):
        if result.test_truth_sha256 != results[0].test_truth_sha256:
            names = [
                f"{one.experiment}/{one.model}-{one.recipe}-seed{one.seed}"
                for one in (results[0], result)
            ]
            raise DataError(
                f"{' and '.join(names)} were measured on different test sets "
                "(test_truth_sha256 differs) and cannot be in one table; run one of them again"
            )
        runs[result.model][result.recipe].append(result)
    return runs


def _measure(runs: Sequence[Result], reference: Sequence[Result] | None) -> list[str]:
    """The cells of a model's runs; the reference itself has nothing to be compared with."""
    summary = statistics.summarize([run.test_accuracy for run in runs])
    correct = np.array([run.test_correct for run in runs])
    difference = [NOTHING] * 3
    if reference is not None and reference is not runs:
        theirs = np.array([run.test_correct for run in reference])
        interval, p = statistics.bootstrap_difference(correct, theirs)
        difference = [
            f"{100 * (correct.mean() - theirs.mean()):+.1f}",
            interval.percent("+"),
            "< 0.001" if p < 0.001 else f"{p:.3f}",
        ]
    return [
        summary.percent(1),
        f"{100 * summary.best:.1f}",
        str(summary.runs),
        statistics.bootstrap_mean(correct).percent(),
        *difference,
        commits(runs),
    ]


def commits(runs: Iterable[Result]) -> str:
    """The commits that runs are from, shortened."""
    names = [name for run in runs for name in run.commit.split(", ")]
    short = (name[:7] + "-dirty" * name.endswith("-dirty") for name in names)
    return ", ".join(dict.fromkeys(short))


def outdated(results: Sequence[Result]) -> list[str]:
    """A line per experiment, model and recipe whose runs are of other code than the current."""
    groups = defaultdict(list)
    for result in results:
        if result.notes.get("code") != code_hash(result.model):
            groups[result.experiment, result.model, result.recipe].append(result)
    return [
        f"{' '.join(group)}: {len(runs)} of commit {commits(runs)}, before the code changed"
        for group, runs in groups.items()
    ]


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells as a Markdown table."""
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def replace_block(text: str, name: str, content: str, path: Path) -> str:
    """Return ``text`` with ``content`` between the comments of ``name``; ``path`` is its file."""
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
    """Write ``blocks``, by name, into the Markdown files that have their comments."""
    # Every file is checked before the first is written.
    rendered = {path: _with_blocks(path, blocks) for path in paths}
    for path, text in rendered.items():
        with write_atomically(path) as stream:
            stream.write(text.encode())


def _with_blocks(path: Path, blocks: Mapping[str, str]) -> str:
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
