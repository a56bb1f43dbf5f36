"""``dcnn experiment``: run what is missing of the paper's experiments, and render their tables."""

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dcnn.cli import console as cli
from dcnn.data.corpora.registry import data_folder, find_corpus
from dcnn.errors import DataError, DcnnError, MissingExtraError, TrainingStoppedError, UserError
from dcnn.experiments.recipes import NGRAM_RECIPE, Recipe, corpus_of, load_recipe
from dcnn.experiments.results import MODELS, Result, read_result, read_results, result_path
from dcnn.experiments.tables import experiment_tables, summary_table, write_blocks

if TYPE_CHECKING:
    from dcnn.experiments.runs import ExperimentEnv
    from dcnn.training.callbacks import EpochReport

NETWORKS = ("dcnn", "max-tdnn", "nbow")
NGRAMS = ("nb", "binb", "svm", "maxent")


Results = Annotated[
    Path, typer.Option("--results", help="Folder of the results, one file per run.")
]

experiment = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run the paper's experiments, and render their tables.",
)

_TITLES = {
    "sst2": "Stanford Sentiment Treebank, 2 classes (Table 1)",
    "sst5": "Stanford Sentiment Treebank, 5 classes (Table 1)",
    "trec": "TREC questions, 6 classes (Table 2)",
    "twitter": "1.6 million tweets, 2 classes (Table 3)",
}


def _make_command(experiment: str, title: str) -> Callable[..., None]:
    def command(
        models: Annotated[
            str, typer.Option(help="Comma-separated: dcnn, max-tdnn, nbow, nb, binb, svm, maxent.")
        ] = "dcnn",
        seeds: Annotated[
            int, typer.Option(min=1, max=1000, help="How many, from 0; n-gram models have none.")
        ] = 5,
        recipe: Annotated[
            str, typer.Option(help="Settings: paper, tuned, best, or a .toml file.")
        ] = "tuned",
        device: cli.Device = "auto",
        jobs: Annotated[
            int, typer.Option(min=0, help="CPU: parallel runs; 0 is one per core.")
        ] = 0,
        data: cli.DataFolder = None,
        results: Results = Path("results"),
        save: Annotated[Path | None, typer.Option(help="Folder for the trained models.")] = None,
        sample: Annotated[
            bool, typer.Option("--sample", help="The corpus is a sample: do not check its files.")
        ] = False,
    ) -> None:
        names = cli.split_names("--models", models)
        if any(name not in (*NETWORKS, *NGRAMS) for name in names):
            known = ", ".join(name for name in MODELS if name in (*NETWORKS, *NGRAMS))
            raise UserError(f"--models {models}: choose from {known}")
        if recipe == NGRAM_RECIPE:
            raise UserError(f"--recipe {NGRAM_RECIPE} is for n-gram models, which always use it")
        recipes = {
            name: load_recipe(experiment, recipe, name)
            if name in NETWORKS
            else load_recipe(experiment, NGRAM_RECIPE)
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
                if not is_done(results, experiment, name, recipes[name], seed, sample)
            ]
            for name in names
        }
        try:
            from dcnn.experiments.runs import ExperimentEnv, run_ngrams
            from dcnn.training.fit import choose_device
        except ImportError:
            raise MissingExtraError("An experiment", "train") from None
        env = ExperimentEnv(
            experiment=experiment,
            data=corpora,
            results=results,
            device=choose_device(device).type,
            check=not sample,
            save=save,
            processes=os.cpu_count() or 1,
        )
        console = cli.make_console(stderr=True)
        try:
            for name in recipes:
                if name in NETWORKS:
                    _run_network(console, env, recipes[name], seeds, missing[name], jobs)
                elif missing[name]:
                    console.print(f"{experiment} {name}: fitting")
                    _print_results(console, [run_ngrams(env, recipes[name], name)])
                else:
                    console.print(f"{experiment} {name}: done already")
        except KeyboardInterrupt:
            raise TrainingStoppedError(
                "stopped; the finished runs are kept, and the same command does the rest"
            ) from None
        console.print(f"The results are in {results}; see them with: dcnn experiment tables")

    command.__doc__ = f"""{title}.

    Finished runs are kept, one JSON file per run; the same command again runs what is missing.

    \b
    Examples:
      dcnn experiment {experiment}
      dcnn experiment {experiment} --recipe paper --device cuda
      dcnn experiment {experiment} --models nbow,max-tdnn,binb,svm --seeds 3
    """
    return command


for _name, _title in _TITLES.items():
    experiment.command(_name)(_make_command(_name, _title))


@experiment.command()
def tables(results: Results = Path("results"), write: cli.MarkdownFiles = None) -> None:
    """Render Tables 1 to 3 beside the paper's figures, from the results alone.

    With --write, the block `experiments` of a Markdown file gets the four tables, and the block
    `experiments-summary` the short one.

    \b
    Examples:
      dcnn experiment tables
      dcnn experiment tables --write README.md --write docs/experiments.md
    """
    found = read_results(results)
    blocks = {"experiments-summary": summary_table(found), "experiments": experiment_tables(found)}
    if write:
        write_blocks(write, blocks)
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


def _run_network(
    console: Console,
    env: "ExperimentEnv",
    recipe: Recipe,
    seeds: int,
    missing: list[int],
    jobs: int,
) -> None:
    kind = recipe.config.model.kind
    title = f"{env.experiment} {kind} {recipe.name}"
    done = seeds - len(missing)
    console.print(
        f"{title}: {done} of {seeds} seeds are done already"
        if done
        else f"{title}: {seeds} seeds on {env.device}"
    )
    if env.save is not None and done:
        console.print("Runs that are done already are not repeated for --save.")
    if missing:
        # A GPU trains all seeds together; on a CPU each is a run of its own.
        groups = [missing] if env.device == "cuda" else [[seed] for seed in missing]
        for results in _in_parallel(env, recipe, groups, min(jobs or env.processes, len(missing))):
            _print_results(console, results)
    if kind == "dcnn" and seeds > 1:
        from dcnn.experiments.runs import has_ensemble, write_ensemble

        if missing or not has_ensemble(env, recipe, range(seeds)):
            try:
                _print_results(console, [write_ensemble(env, recipe, range(seeds))])
            except DataError as error:  # results of release 0.1 come without probabilities
                console.print(str(error), soft_wrap=True)


def is_done(
    results: Path, experiment: str, model: str, recipe: Recipe, seed: int, sample: bool
) -> bool:
    """Whether this run has a result.

    Raises:
        UserError: the file is the result of another run: other settings, or a sample.
    """
    path = result_path(results, experiment, model, recipe.name, seed)
    if not path.is_file():
        return False
    result = read_result(path)
    differences = [] if model in NGRAMS else _differences(recipe, result.settings)
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


def _in_parallel(
    env: "ExperimentEnv", recipe: Recipe, groups: list[list[int]], jobs: int
) -> Iterator[list[Result]]:
    work = partial(_train, env, recipe)
    if len(groups) == 1 or jobs == 1:
        yield from map(work, groups)
        return
    if env.experiment == "twitter":
        env.load(recipe)  # encodes the tweets once; the processes find them in the cache
    # Spawned, not forked: torch's threads do not survive a fork.
    with ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), _ignore_interrupts
    ) as pool:
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


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _train(env: "ExperimentEnv", recipe: Recipe, seeds: list[int]) -> list[Result]:
    """On a CPU this runs in a process of its own, so it creates its own console."""
    from dcnn.experiments.runs import run_networks

    console = cli.make_console(stderr=True)
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

    return run_networks(env, recipe, seeds, report)


def _print_results(console: Console, results: list[Result]) -> None:
    for result in results:
        dev = "" if result.dev_accuracy is None else f"dev {100 * result.dev_accuracy:.2f} %, "
        console.print(
            f"{result.experiment} {result.model} {result.recipe} seed {result.seed}: "
            f"{dev}test {100 * result.test_accuracy:.2f} % in {result.seconds:.0f} s"
        )
