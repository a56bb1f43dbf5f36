"""``dcnn experiment``: find the runs that are missing, run them side by side, say how they went."""

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from dcnn.data.corpora.registry import data_folder, find_corpus
from dcnn.errors import DcnnError, MissingExtraError, TrainingStoppedError, UserError
from dcnn.experiments.recipes import NGRAM_RECIPE, Recipe, corpus_of, load_recipe
from dcnn.experiments.results import MODELS, Result, has_result, read_result, result_path
from dcnn.terminal import make_console

if TYPE_CHECKING:
    from dcnn.experiments.runs import ExperimentEnv, FinishedNetwork
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
    if options.recipe == NGRAM_RECIPE:
        raise UserError(
            f"--recipe {NGRAM_RECIPE} is for n-gram models, which take it by themselves"
        )
    recipes = {
        name: load_recipe(options.experiment, options.recipe, name)
        if name in NETWORKS
        else load_recipe(options.experiment, NGRAM_RECIPE)
        for name in options.models
    }
    # All that can be wrong is looked at before torch is imported.
    data = data_folder(options.data)
    find_corpus(corpus_of(options.experiment), data, check=not options.sample)
    for place in filter(None, (options.results / options.experiment, options.save)):
        _require_writable(place)
    for name, recipe in recipes.items():
        for seed in range(options.seeds if name in NETWORKS else 1):
            _is_done(options, name, recipe, seed)
    try:
        from dcnn.experiments.runs import ExperimentEnv
        from dcnn.training.fit import choose_device
    except ImportError:
        raise MissingExtraError("An experiment", "train") from None
    setting = ExperimentEnv(
        experiment=options.experiment,
        data=data,
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
                _run_ngrams(console, setting, recipe, options, name)
    except KeyboardInterrupt:
        raise TrainingStoppedError(
            "stopped; the finished runs are kept, and the same command does the rest"
        ) from None
    console.print(f"The results are in {options.results}; see them with: dcnn experiment tables")


def _require_writable(folder: Path) -> None:
    """Find out before a long training, and not after it, that nothing can be left there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"{folder}: nothing can be written there ({error.strerror}); choose another folder"
        ) from error


def _run_network(
    console: Console, setting: "ExperimentEnv", recipe: Recipe, options: ExperimentOptions
) -> None:
    kind = recipe.config.model.kind
    missing = [seed for seed in range(options.seeds) if not _is_done(options, kind, recipe, seed)]
    title = f"{setting.experiment} {kind} {recipe.name}"
    console.print(
        f"{title}: {options.seeds - len(missing)} of {options.seeds} seeds are done already"
        if len(missing) < options.seeds
        else f"{title}: {options.seeds} seeds on {setting.device}"
    )
    if setting.save is not None and len(missing) < options.seeds:
        console.print("Models of runs that are done already are not made again for --save.")
    if not missing:
        return
    jobs = min(options.jobs or os.cpu_count() or 1, len(missing))
    finished: list[FinishedNetwork] = []
    # A GPU takes all seeds as one stack; on a CPU each is one of its own.
    groups = [missing] if setting.device == "cuda" else [[seed] for seed in missing]
    for networks in _side_by_side(setting, recipe, groups, jobs):
        _print_results(console, [one.result for one in networks])
        finished += networks
    if kind == "dcnn" and 1 < options.seeds == len(finished):
        from dcnn.experiments.runs import write_ensemble

        ordered = sorted(finished, key=lambda one: one.result.seed)
        _print_results(console, [write_ensemble(setting, ordered)])


def _is_done(options: ExperimentOptions, model: str, recipe: Recipe, seed: int) -> bool:
    """Whether the run has a result, and that result is this run's.

    Raises:
        UserError: the file was made with other settings, or from a sample.
    """
    run = (options.results, options.experiment, model, recipe.name, seed)
    if not has_result(*run):
        return False
    path = result_path(*run)
    there = read_result(path)
    differences = [] if model in NGRAMS else _differences(recipe, there.settings)
    if there.notes.get("sample", False) != options.sample:
        differences.append("it is not from a sample" if options.sample else "it is from a sample")
    if differences:
        shown = "; ".join(differences[:3]) + ("; ..." if len(differences) > 3 else "")
        raise UserError(
            f"{path} is the result of another run ({shown}); move it away, "
            "give the recipe another name, or choose another folder with --results"
        )
    return True


def _differences(recipe: Recipe, there: dict[str, dict[str, Any]]) -> list[str]:
    """What a finished run was told otherwise.

    A setting that did not exist when its file was written had the value of its default.
    """
    here = recipe.to_dict()
    defaults = Recipe.from_dict(recipe.name, recipe.config.model.kind, {}, "defaults").to_dict()
    found = []
    for section in here.keys() | there.keys():
        ours, theirs = here.get(section, {}), there.get(section, {})
        for key in sorted(ours.keys() | theirs.keys()):
            was = theirs.get(key, defaults.get(section, {}).get(key))
            if was != ours.get(key):
                found.append(f"{section}.{key} was {was!r}")
    return sorted(found)


def _side_by_side(
    setting: "ExperimentEnv", recipe: Recipe, groups: list[list[int]], jobs: int
) -> Iterator["list[FinishedNetwork]"]:
    work = partial(_train, setting, recipe)
    if len(groups) == 1 or jobs == 1:
        yield from map(work, groups)
        return
    if setting.experiment == "twitter":
        setting.load(recipe)  # encodes the tweets once; the processes find them in the cache
    # Spawned, not forked: torch's threads do not survive a fork.
    with ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), _leave_interrupts_to_the_parent
    ) as pool:
        futures = [pool.submit(work, group) for group in groups]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenExecutor as error:
            raise DcnnError(
                "a process was killed, perhaps for want of memory; try again with --jobs 1"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _train(setting: "ExperimentEnv", recipe: Recipe, seeds: list[int]) -> "list[FinishedNetwork]":
    """In a process of its own on a CPU, so it makes its own console."""
    from dcnn.experiments.runs import run_networks

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


def _run_ngrams(
    console: Console,
    setting: "ExperimentEnv",
    recipe: Recipe,
    options: ExperimentOptions,
    name: str,
) -> None:
    from dcnn.experiments.runs import run_ngrams

    if _is_done(options, name, recipe, 0):
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
