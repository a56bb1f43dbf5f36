"""SST-2 trained with each backend: does the choice change what is learned?

    python benchmarks/backends.py --data DIR                            # torch and native on a CPU
    python benchmarks/backends.py --data DIR --backend triton --device cuda --seeds 5
    python benchmarks/backends.py --data DIR --epochs 1                 # sooner

Every seed learns the recipe on the whole corpus, alone on its CPU thread and side by side on a GPU,
as ``dcnn experiment`` does; a recipe's teachers are left out. Runs go to
``results/bench/backends.json``, each in the place of an older one of the same backend, device,
recipe, epochs and seed; what is printed at the end compares the backends of one length of training.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dcnn.data.corpora.registry import data_folder
from dcnn.errors import DcnnError
from dcnn.experiments import results as provenance
from dcnn.experiments.recipes import Recipe, load_recipe
from dcnn.experiments.runs import ExperimentEnv, train_networks
from dcnn.ops import select as backends
from dcnn.training.fit import choose_device

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "results" / "bench" / "backends.json"
# What makes a run the same run.
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
    """A run a seed with ``backend``, which is forced."""
    os.environ[backends.VARIABLE] = backend
    choose_device(setting.device)  # says what is missing before the corpus is read
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
            "hardware": provenance.hardware(setting.device),
            "versions": provenance.versions(),
            "commit": provenance.commit(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        for network in networks
    ]


def merge(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All runs, in order; a new one takes the place of the old one that it repeats."""
    by_identity = {tuple(run[name] for name in IDENTITY): run for run in [*old, *new]}
    return [by_identity[identity] for identity in sorted(by_identity)]


def summary(runs: list[dict[str, Any]]) -> str:
    """A line a backend: mean and spread of dev accuracy over its seeds, and how fast it was."""
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
    """Train what is asked for, a backend after another; write after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--backend", action="append", choices=("torch", "native", "triton"), help="one or more"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--recipe", default="tuned", help="of SST-2 (default tuned)")
    parser.add_argument("--seeds", type=int, default=1, help="how many, from 0 (default 1)")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's own")
    parser.add_argument("--data", type=Path, help="the data folder; else DCNN_DATA names it")
    parser.add_argument("--sample", action="store_true", help="corpus files may be any part")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    default = ["torch", "native"] if options.device == "cpu" else ["torch", "triton"]
    recipe = alone(load_recipe("sst2", options.recipe), options.epochs)
    setting = ExperimentEnv(
        "sst2", data_folder(options.data), options.out.parent, options.device,
        check=not options.sample,
    )  # fmt: skip
    runs = json.loads(options.out.read_text())["runs"] if options.out.exists() else []
    for backend in options.backend or default:
        try:
            runs = merge(runs, measure(setting, recipe, backend, options.seeds))
        except DcnnError as error:
            sys.exit(str(error))
        options.out.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    print(summary(runs))


if __name__ == "__main__":
    main()
