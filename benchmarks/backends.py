"""SST-2 trained with each backend: does the backend change the accuracy?

    python benchmarks/backends.py --data DIR                            # torch and native on a CPU
    python benchmarks/backends.py --data DIR --backend triton --device cuda --seeds 5
    python benchmarks/backends.py --data DIR --epochs 1                 # sooner

Every seed trains the recipe on the whole corpus, one at a time on a CPU thread and together on a
GPU, as ``dcnn experiment`` does; a recipe's teachers are left out. Runs go to
``results/bench/backends.json`` and replace older ones of the same backend, device, recipe, epochs
and seed; the summary compares backends at the same number of epochs.
"""

import os
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dcnn.data.corpora.registry import data_folder
from dcnn.errors import DcnnError
from dcnn.experiments.recipes import Recipe, load_recipe
from dcnn.experiments.runs import ExperimentEnv, train_networks
from dcnn.ops import select as backends
from dcnn.training.fit import choose_device
from results import RESULTS, make_parser, provenance, read_json, write_json

# Runs that agree in these are the same run.
IDENTITY = ("backend", "device", "recipe", "epochs", "seed")


def alone(recipe: Recipe, epochs: int | None) -> Recipe:
    """``recipe`` without teachers, and for so many epochs if a number is given."""
    recipe = replace(recipe, distillation=replace(recipe.distillation, teachers=0))
    if epochs is None:
        return recipe
    return replace(recipe, config=recipe.config.with_training(epochs=epochs))


def measure(
    setting: ExperimentEnv, recipe: Recipe, backend: str, seeds: int
) -> list[dict[str, Any]]:
    """One run per seed with ``backend``, which is forced."""
    os.environ[backends.VARIABLE] = backend
    choose_device(setting.device)  # fails, if it does, before the corpus is read
    task, located = setting.load(recipe)
    networks = train_networks(
        task,
        located,
        range(seeds),
        setting.device,
        lambda name, report: print(f"{backend}: {name}, epoch {report.epoch}", flush=True),
    )
    return [
        {
            "backend": backend,
            "device": setting.device,
            "recipe": recipe.name,
            "epochs": recipe.config.training.epochs,
            "seed": network.seed,
            "dev_accuracy": network.dev_accuracy,
            "sentences_per_second": round(network.sentences_per_second),
            "sentences": len(task.train),
        }
        | provenance(setting.device)
        for network in networks
    ]


def merge(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All runs, in order; a new run replaces the old run that it repeats."""
    by_identity = {tuple(run[name] for name in IDENTITY): run for run in [*old, *new]}
    return [by_identity[identity] for identity in sorted(by_identity)]


def summary(runs: list[dict[str, Any]]) -> str:
    """One line per backend: mean and spread of dev accuracy over its seeds, and its speed."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(tuple(run[name] for name in IDENTITY[:-1]), []).append(run)
    lines = []
    for (backend, device, recipe, epochs), group in groups.items():
        accuracies = [100 * run["dev_accuracy"] for run in group]
        spread = f" +- {statistics.stdev(accuracies):.2f}" if len(accuracies) > 1 else ""
        mean = statistics.mean(accuracies)
        rate = statistics.mean(run["sentences_per_second"] for run in group)
        lines.append(
            f"{recipe}, {epochs} epochs, {backend} on {device}: dev {mean:.2f}{spread} % "
            f"over {len(group)} seeds, {rate:,.0f} sentences/s"
        )
    return "\n".join(lines)


def main() -> None:
    """Train with one backend after another; write after each."""
    parser = make_parser(__doc__, RESULTS / "backends.json")
    parser.add_argument(
        "--backend", action="append", choices=("torch", "native", "triton"), help="one or more"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--recipe", default="tuned", help="of SST-2 (default tuned)")
    parser.add_argument("--seeds", type=int, default=1, help="how many, from 0 (default 1)")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's own")
    parser.add_argument("--data", type=Path, help="the data folder; else DCNN_DATA names it")
    parser.add_argument("--sample", action="store_true", help="corpus files may be any part")
    options = parser.parse_args()
    torch.set_num_threads(1)
    default = ["torch", "native"] if options.device == "cpu" else ["torch", "triton"]
    recipe = alone(load_recipe("sst2", options.recipe), options.epochs)
    setting = ExperimentEnv(
        "sst2", data_folder(options.data), options.out.parent, options.device,
        check=not options.sample,
    )  # fmt: skip
    runs = read_json(options.out)["runs"] if options.out.exists() else []
    for backend in options.backend or default:
        try:
            runs = merge(runs, measure(setting, recipe, backend, options.seeds))
        except DcnnError as error:
            sys.exit(str(error))
        write_json(options.out, {"runs": runs})
    print(summary(runs))


if __name__ == "__main__":
    main()
