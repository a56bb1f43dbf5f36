"""``dcnn experiment``: run what is missing of the paper's experiments, and render their tables."""

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from dcnn.cli import COMMANDS
from dcnn.cli import console as cli
from dcnn.config import RECIPE_KINDS, TREE_KINDS
from dcnn.data.corpora.registry import data_folder, find_corpus
from dcnn.errors import DataError, DcnnError, TrainingStoppedError, UserError, needs_extra
from dcnn.experiments import tables as rendering
from dcnn.experiments.recipes import NGRAM_RECIPE, Recipe, corpus_of, load_recipe
from dcnn.experiments.results import (
    FEATURES,
    LINEAR,
    MODELS,
    Result,
    read_result,
    read_results,
    result_path,
)

if TYPE_CHECKING:
    from dcnn.experiments.runs import ExperimentEnv
    from dcnn.training.callbacks import RunsReport

NETWORKS = tuple(RECIPE_KINDS)

experiment = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=COMMANDS["experiment"])

_TITLES = {
    "sst2": "Stanford Sentiment Treebank, 2 classes (Table 1)",
    "sst5": "Stanford Sentiment Treebank, 5 classes (Table 1)",
    "trec": "TREC questions, 6 classes (Table 2)",
    "twitter": "1.6 million tweets, 2 classes (Table 3)",
}


def run_experiment(
    context: typer.Context,
    models: str = "dcnn",
    seeds: Annotated[int, Option(min=1, max=1000)] = 5,
    recipe: str = "tuned",
    device: cli.Device = "auto",
    jobs: Annotated[int, Option(min=0)] = 0,
    data: cli.DataFolder = None,
    results: Path = Path("results"),
    save: Path | None = None,
    teacher: str = "",
    parser: str = "en_core_web_md",
    wordnet: Path = Path("/usr/share/wordnet"),
    sample: Annotated[bool, Option("--sample")] = False,
) -> None:
    """Run what is missing of the experiment that the command is named after."""
    experiment = str(context.info_name)
    names = cli.split_names("--models", models)
    known = [name for name in MODELS if name in (*NETWORKS, *LINEAR)]
    if not set(names) <= set(known):
        raise UserError(f"--models {models}: choose from {', '.join(known)}")
    if not experiment.startswith("sst") and (without := [n for n in names if n in TREE_KINDS]):
        raise UserError(
            f"--models {without[0]}: it composes along parse trees, which {experiment} does not "
            "have; choose it in sst2 or sst5"
        )
    if FEATURES in names and experiment != "trec":
        raise UserError(
            f"--models {FEATURES}: its rules are about questions, and {experiment} has none; "
            "choose it in trec"
        )
    if recipe == NGRAM_RECIPE:
        raise UserError(f"--recipe {NGRAM_RECIPE} is for n-gram models, which always use it")
    recipes = {
        name: load_recipe(experiment, *((recipe, name) if name in NETWORKS else (NGRAM_RECIPE,)))
        for name in names
    }
    # Everything is checked before torch is imported.
    corpora = data_folder(data)
    find_corpus(corpus_of(experiment), corpora, check=not sample)
    for folder in filter(None, (results / experiment, save)):
        _require_writable(folder)
    missing = {
        name: [
            seed
            for seed in range(seeds if name in NETWORKS else 1)
            if not _is_done(results, experiment, name, recipes[name], seed, sample)
        ]
        for name in names
    }
    with needs_extra("An experiment", "train"):
        from dcnn.experiments.runs import ExperimentEnv, run_features, run_ngrams
        from dcnn.training.fit import choose_device
    place, cores = choose_device(device), os.cpu_count() or 1
    env = ExperimentEnv(
        experiment,
        corpora,
        results,
        place,
        check=not sample,
        save=save,
        processes=cores,
        encoder=teacher,
    )
    try:
        for name in recipes:
            if name in NETWORKS:
                _run_network(env, recipes[name], seeds, missing[name], jobs)
            elif missing[name]:
                cli.note(f"{experiment} {name}: fitting")
                if name == FEATURES:
                    result = run_features(env, recipes[name], parser, wordnet)
                else:
                    result = run_ngrams(env, recipes[name], name)
                _print_results([result])
            else:
                cli.note(f"{experiment} {name}: done already")
    except KeyboardInterrupt:
        raise TrainingStoppedError(
            "stopped; the finished runs are kept, and the same command does the rest"
        ) from None
    cli.note(f"The results are in {results}; see them with: dcnn experiment tables")


_KEPT = (
    "Finished runs are kept, one JSON file per run; the same command again runs what is missing."
)
for _name, _title in _TITLES.items():
    experiment.command(_name, help=f"{_title}.\n\n{_KEPT}")(run_experiment)


@experiment.command()
def tables(
    results: Path = Path("results"),
    write: list[Path] | None = None,
    check: Annotated[bool, Option("--check")] = False,
) -> None:
    """Render Tables 1 to 3 beside the paper's figures, from the results alone.

    With --write, the block `experiments` of a Markdown file gets the four tables, and the block
    `experiments-summary` the short one, and `experiments-features` the groups of engineered
    features. With --check, lists the results that other code than this
    decided, and ends with 1 if there are any.
    """
    found = read_results(results)
    if check:
        lines = rendering.outdated(found)
        print("\n".join(lines) or f"All {len(found):,} results are of this code.")
        raise typer.Exit(int(bool(lines)))
    blocks = {
        "experiments-summary": rendering.summary_table(found),
        "experiments": rendering.experiment_tables(found),
        "experiments-features": rendering.feature_table(found),
    }
    if write:
        rendering.write_blocks(write, blocks)
    else:
        print("\n\n".join(blocks.values()))


def _require_writable(folder: Path) -> None:
    """Check before a long training run that its results can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"{folder}: nothing can be written there ({error.strerror}); choose another folder"
        ) from error


def _is_done(
    results: Path, experiment: str, model: str, recipe: Recipe, seed: int, sample: bool
) -> bool:
    """Whether a run has a result, of the same settings and the same data."""
    path = result_path(results, experiment, model, recipe.name, seed)
    if not path.is_file():
        return False
    result = read_result(path)
    differences = [] if model in LINEAR else _differences(recipe, result.settings)
    if result.notes.get("sample", False) != sample:
        differences.append("it is not from a sample" if sample else "it is from a sample")
    if differences:
        shown = "; ".join(differences[:3]) + ("; ..." if len(differences) > 3 else "")
        raise UserError(
            f"{path} is the result of another run ({shown}); move it away, "
            "give the recipe another name, or choose another folder with --results"
        )
    return True


def _differences(recipe: Recipe, there: dict[str, dict[str, Any]]) -> list[str]:
    """Settings in which a finished run differs; one that its file lacks had its default."""
    defaults = Recipe.from_dict(recipe.name, recipe.config.model.kind, {}, "defaults")
    ours, theirs, usual = (
        {f"{section}.{key}": value for section in plain for key, value in plain[section].items()}
        for plain in (recipe.to_dict(), there, defaults.to_dict())
    )
    was = {name: theirs.get(name, usual.get(name)) for name in ours | theirs}
    return sorted(f"{name} was {was[name]!r}" for name in was if was[name] != ours.get(name))


def _run_network(
    env: "ExperimentEnv", recipe: Recipe, seeds: int, missing: list[int], jobs: int
) -> None:
    from dcnn.experiments.runs import has_ensemble, write_ensemble

    kind, done = recipe.config.model.kind, seeds - len(missing)
    state = (
        f"{done} of {seeds} seeds are done already" if done else f"{seeds} seeds on {env.device}"
    )
    cli.note(f"{env.experiment} {kind} {recipe.name}: {state}")
    if env.save is not None and done:
        cli.note("Runs that are done already are not repeated for --save.")
    # A GPU trains all seeds together; on a CPU each is a run of its own.
    groups = [missing] if env.device == "cuda" and missing else [[seed] for seed in missing]
    for results in _in_parallel(env, recipe, groups, min(jobs or env.processes, len(groups))):
        _print_results(results)
    every = range(seeds)
    if kind == "dcnn" and seeds > 1 and (missing or not has_ensemble(env, recipe, every)):
        try:
            _print_results([write_ensemble(env, recipe, every)])
        except DataError as error:  # results of release 0.1 come without probabilities
            cli.note(str(error))


def _in_parallel(
    env: "ExperimentEnv", recipe: Recipe, groups: list[list[int]], jobs: int
) -> Iterator[list[Result]]:
    work = partial(_train, env, recipe)
    if len(groups) < 2 or jobs == 1:
        yield from map(work, groups)
        return
    if env.experiment == "twitter" or recipe.distillation.encoder:
        env.load(recipe)  # what is encoded or labelled once, the processes find in the cache
    # Spawned, not forked: torch's threads do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    ignore_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(jobs, spawn, ignore_interrupts) as pool:
        futures = [pool.submit(work, group) for group in groups]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenExecutor as error:
            raise DcnnError(
                "a process was killed, perhaps out of memory; try again with --jobs 1"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _train(env: "ExperimentEnv", recipe: Recipe, seeds: list[int]) -> list[Result]:
    from dcnn.experiments.runs import run_networks

    who = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}-{seeds[-1]}"

    def report(what: str, epoch: "RunsReport") -> None:
        dev = ""
        if epoch.dev_accuracies is not None:
            dev = f"  dev accuracy {100 * fmean(epoch.dev_accuracies):.2f} %"
        progress = f"epoch {epoch.epoch:>2}/{epoch.epochs}  loss {fmean(epoch.losses):.4f}"
        cli.note(f"{who}, {what}: {progress}{dev}")

    return run_networks(env, recipe, seeds, report)


def _print_results(results: list[Result]) -> None:
    for result in results:
        dev = "" if result.dev_accuracy is None else f"dev {100 * result.dev_accuracy:.2f} %, "
        cli.note(
            f"{result.experiment} {result.model} {result.recipe} seed {result.seed}: "
            f"{dev}test {100 * result.test_accuracy:.2f} % in {result.seconds:.0f} s"
        )
