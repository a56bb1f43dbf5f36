"""``dcnn experiment``: find the runs that are missing, run them side by side, say how they went."""

import multiprocessing
import os
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from dcnn.data.folders import data_folder
from dcnn.errors import MissingExtraError, TrainingStoppedError, UserError
from dcnn.experiments.recipes import Recipe, load_recipe
from dcnn.experiments.results import MODELS, Result, has_result
from dcnn.terminal import make_console

if TYPE_CHECKING:
    from dcnn.experiments.runner import Setting
    from dcnn.training.stack import EpochReport

NETWORKS = ("dcnn", "max-tdnn", "nbow")
NGRAMS = ("nb", "binb", "svm", "maxent")


@dataclass(frozen=True)
class ExperimentOptions:
    """The options of the command; see its help."""

    experiment: str
    models: tuple[str, ...]
    seeds: int
    recipe: str
    device: str
    jobs: int
    data: Path | None
    results: Path
    save: Path | None
    sample: bool


def run_experiment(options: ExperimentOptions) -> None:
    """Run what is missing in the results folder."""
    console = make_console(stderr=True)
    unknown = [name for name in options.models if name not in (*NETWORKS, *NGRAMS)]
    if unknown or not options.models:
        known = ", ".join(name for name in MODELS if name in (*NETWORKS, *NGRAMS))
        raise UserError(f"--models {','.join(options.models)}: take one or more of {known}")
    recipes = {
        name: load_recipe(options.experiment, options.recipe, name)
        if name in NETWORKS
        else load_recipe(options.experiment, "ngram")
        for name in options.models
    }
    try:
        from dcnn.experiments.runner import Setting
        from dcnn.training.fit import choose_device
    except ImportError:
        raise MissingExtraError("An experiment", "train") from None
    setting = Setting(
        experiment=options.experiment,
        data=data_folder(options.data),
        results=options.results,
        device=choose_device(options.device).type,
        check=not options.sample,
        save=options.save,
        processes=os.cpu_count() or 1,
    )
    try:
        for name, recipe in recipes.items():
            if name in NETWORKS:
                _run_network(console, setting, recipe, options)
            else:
                _run_ngrams(console, setting, recipe, name)
    except KeyboardInterrupt:
        raise TrainingStoppedError(
            "stopped; the finished runs are kept, and the same command does the rest"
        ) from None


def _run_network(
    console: Console, setting: "Setting", recipe: Recipe, options: ExperimentOptions
) -> None:
    kind = recipe.config.model.kind
    place = (setting.results, setting.experiment, kind, recipe.name)
    missing = [seed for seed in range(options.seeds) if not has_result(*place, seed)]
    title = f"{setting.experiment} {kind} {recipe.name}"
    console.print(
        f"{title}: {options.seeds - len(missing)} of {options.seeds} seeds are done already"
        if len(missing) < options.seeds
        else f"{title}: {options.seeds} seeds on {setting.device}"
    )
    if not missing:
        return
    jobs = min(options.jobs or os.cpu_count() or 1, len(missing))
    if setting.device == "cuda" or jobs == 1:
        # A GPU takes all seeds as one stack.
        groups = [missing] if setting.device == "cuda" else [[seed] for seed in missing]
        for group in groups:
            _print_results(console, _train(setting, recipe, group))
        return
    # Spawned, not forked: torch's threads do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(jobs, _leave_interrupts_to_the_parent) as pool:
        work = partial(_train, setting, recipe)
        for results in pool.imap_unordered(work, [[seed] for seed in missing]):
            _print_results(console, results)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _train(setting: "Setting", recipe: Recipe, seeds: list[int]) -> list[Result]:
    """In a process of its own on a CPU, so it makes its own console."""
    from dcnn.experiments.runner import run_networks

    console = make_console(stderr=True)
    who = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}-{seeds[-1]}"

    def report(what: str, epoch: "EpochReport") -> None:
        losses = sum(epoch.losses) / len(epoch.losses)
        dev = ""
        if epoch.dev_accuracies is not None:
            mean = sum(epoch.dev_accuracies) / len(epoch.dev_accuracies)
            dev = f"  dev accuracy {100 * mean:.2f} %"
        console.print(
            f"{who}, {what}: epoch {epoch.epoch:>2}/{epoch.epochs}  loss {losses:.4f}{dev}"
        )

    return run_networks(setting, recipe, seeds, report)


def _run_ngrams(console: Console, setting: "Setting", recipe: Recipe, name: str) -> None:
    from dcnn.experiments.runner import NGRAM_RECIPE, run_ngrams

    if has_result(setting.results, setting.experiment, name, NGRAM_RECIPE, 0):
        console.print(f"{setting.experiment} {name}: done already")
        return
    console.print(f"{setting.experiment} {name}: fitting")
    _print_results(console, [run_ngrams(setting, recipe, name)])


def _print_results(console: Console, results: list[Result]) -> None:
    for result in results:
        dev = "" if result.dev_accuracy is None else f"dev {100 * result.dev_accuracy:.2f} %, "
        console.print(
            f"{result.experiment} {result.model} {result.recipe} seed {result.seed}: "
            f"{dev}test {100 * result.test_accuracy:.2f} % in {result.seconds:.0f} s"
        )
