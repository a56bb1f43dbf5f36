"""Dev accuracy of many settings and seeds, trained together; test is never read.

    python benchmarks/sweep.py benchmarks/sweeps/trec-l2.toml --device cuda

A sweep is a TOML file: an experiment, a recipe to start from, a number of seeds, and a list of
settings, each a list of ``section.key=value`` strings. The result, a JSON file of the same name in
``results/sweeps/``, has dev accuracies by seed (for TREC by cross-validation) and the settings.
"""

import multiprocessing
import os
import time
import tomllib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from dcnn.config import check_names, parse_setting
from dcnn.data.corpora.registry import data_folder
from dcnn.experiments.recipes import Recipe, load_recipe
from dcnn.experiments.runs import ExperimentEnv, Job, NetworkTrainer
from dcnn.training.callbacks import RunsReport
from dcnn.training.fit import choose_device
from results import ROOT, make_parser, provenance, write_json

RESULTS = ROOT / "results" / "sweeps"


def print_report(what: str, report: RunsReport) -> None:
    """One line per epoch: mean loss, and the accuracy of every run."""
    accuracies = [f"{100 * value:.1f}" for value in report.dev_accuracies or []]
    print(
        f"{what}: epoch {report.epoch}, loss {np.mean(report.losses):.4f}", *accuracies, flush=True
    )


def together(recipes: list[Recipe]) -> list[list[int]]:
    """Indices of the recipes that differ in training settings only: they train together."""
    groups: dict[str, list[int]] = {}
    for number, recipe in enumerate(recipes):
        values = recipe.to_dict()
        training = values.pop("training")
        shared = (
            training["batch_size"],
            training["evaluations_per_epoch"],
            training["class_weights"],
        )
        groups.setdefault(repr((values, shared)), []).append(number)
    return list(groups.values())


def with_settings(recipe: Recipe, settings: list[str]) -> Recipe:
    """A copy with ``section.key=value`` strings applied; values are written as in TOML."""
    values = recipe.to_dict()
    for section, key, value in map(parse_setting, settings):
        check_names("settings", {section: None}, list(values))
        values[section][key] = value
    return Recipe.from_sections(recipe.name, recipe.config.model.kind, values, "settings")


def sweep(setting: ExperimentEnv, recipes: list[Recipe], seeds: int) -> list[dict]:
    """Dev accuracies of every recipe, in their order."""
    torch.set_num_threads(1)
    found: dict[int, dict] = {}
    loaded = None  # what decides the task that was read last: a teacher's takes a minute
    for group in together(recipes):
        recipe = recipes[group[0]]
        wanted = recipe.config.text, recipe.data, recipe.distillation
        if loaded != wanted:
            (task, located), loaded = setting.load(recipe), wanted
        text = located.config.text  # with the path of its vectors
        located = replace(recipe, config=replace(recipe.config, text=text))
        trainer = NetworkTrainer(task, located, setting.device, print_report)
        runs = [(number, seed) for number in group for seed in range(seeds)]
        configs = [
            located.config.with_training(**recipes[number].to_dict()["training"] | {"seed": seed})
            for number, seed in runs
        ]
        if task.dev is None:
            outcomes = [{"dev": value} for value in trainer.cross_validated(configs)]
        else:
            outcomes = [
                {
                    "dev": outcome.dev_accuracy,
                    "epochs": outcome.epochs,
                    "history": [asdict(record) for record in outcome.history],
                }
                for outcomes, _ in trainer.train([Job(config) for config in configs], "sweep")
                for outcome in outcomes
            ]
        for (number, _), outcome in zip(runs, outcomes, strict=True):
            record = found.setdefault(number, {name: [] for name in outcome})
            for name, value in outcome.items():
                record[name].append(value)
    return [found[number] for number in range(len(recipes))]


def sweep_in_processes(
    setting: ExperimentEnv, recipes: list[Recipe], seeds: int, jobs: int
) -> list[dict]:
    """The same with one process per recipe, ``jobs`` at a time."""
    # Spawned, not forked: torch's threads do not survive a fork.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        work = partial(sweep, setting, seeds=seeds)
        return [outcome for (outcome,) in pool.map(work, [[recipe] for recipe in recipes])]


def main() -> None:
    """Run a sweep and write its file."""
    parser = make_parser(__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--jobs", type=int, help="processes; as many as there are cores, on a GPU one"
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--teacher", help="the folder of the encoder of a distilled recipe")
    options = parser.parse_args()
    spec = tomllib.loads(options.file.read_text())
    named = start = load_recipe(spec["experiment"], spec["recipe"], spec.get("model", "dcnn"))
    if options.teacher is not None:  # a copy of the encoder that the recipe names
        start = with_settings(start, [f"distillation.encoder={options.teacher}"])
    recipes = [with_settings(start, settings) for settings in spec["settings"]]
    device = choose_device(options.device)
    setting = ExperimentEnv(
        spec["experiment"],
        data_folder(options.data),
        RESULTS,
        device,
        processes=os.cpu_count() or 1,
    )
    started = time.monotonic()
    jobs = options.jobs or (1 if device == "cuda" else os.cpu_count() or 1)
    if device == "cpu" or jobs > 1:
        outcomes = sweep_in_processes(setting, recipes, spec["seeds"], jobs)
    else:
        outcomes = sweep(setting, recipes, spec["seeds"])
    report = {
        **{name: spec[name] for name in ("experiment", "recipe", "seeds")},
        "model": start.config.model.kind,
        "start": named.to_dict(),
        "seconds": round(time.monotonic() - started, 1),
        **provenance(device),
        "settings": [
            {"changed": changed, "mean": round(float(np.mean(outcome["dev"])), 5), **outcome}
            for changed, outcome in zip(spec["settings"], outcomes, strict=True)
        ],
    }
    for one in sorted(report["settings"], key=lambda one: -one["mean"]):
        print(f"{100 * one['mean']:.2f}", " ".join(one["changed"]))
    write_json(RESULTS / f"{options.file.stem}.json", report)


if __name__ == "__main__":
    main()
