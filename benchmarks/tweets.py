"""From the raw tweets on disk to the test accuracy, on one device, with the time of each part.

    python benchmarks/tweets.py --device cuda

One network of the tuned recipe without teachers, from a cold start: nothing is encoded yet. Writes
``results/bench/tweets.json``. Triton caches compiled kernels; ``--fresh-kernels`` starts with an
empty cache, as on a machine that never trained before.
"""

import argparse
import json
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch

from dcnn.data.corpora.registry import data_folder
from dcnn.experiments.recipes import load_recipe
from dcnn.experiments.runs import ExperimentEnv
from dcnn.models import MODELS
from dcnn.training.batches import RunSpec
from dcnn.training.callbacks import Callback, RunsReport
from dcnn.training.fit import choose_device
from dcnn.training.trainer import Trainer
from results import RESULTS, make_parser, provenance, write_json


class EpochTimes(Callback):
    """Notes when every epoch ends."""

    def __init__(self, ends: list[float]) -> None:
        self.ends = ends

    def on_report(self, report: RunsReport) -> None:  # noqa: ARG002
        """Note it."""
        self.ends.append(time.perf_counter())


def main() -> None:
    """Measure and write."""
    parser = make_parser(__doc__, RESULTS / "tweets.json")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--fresh-kernels", action="store_true")
    options = parser.parse_args()
    device = choose_device(options.device)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DCNN_CACHE"] = folder
        if options.fresh_kernels:
            os.environ["TRITON_CACHE_DIR"] = f"{folder}/kernels"
        report = measure(options, device, Path(folder))
    print(json.dumps(report, indent=1))
    write_json(options.out, report)


def measure(options: argparse.Namespace, device: str, folder: Path) -> dict:
    """The parts in their order, in seconds."""
    started = time.perf_counter()
    recipe = load_recipe("twitter", "tuned", "dcnn")
    setting = ExperimentEnv(
        "twitter", data_folder(options.data), folder, device, processes=options.processes
    )
    task, located = setting.load(recipe)
    seconds = {"read and encode": time.perf_counter() - started}

    begun = time.perf_counter()
    config = located.config.with_training(epochs=options.epochs)
    model = MODELS[config.model.kind](config.model, len(task.encoder.vocabulary), len(task.classes))
    model.initialize(torch.Generator().manual_seed(config.training.seed))
    ends: list[float] = []
    trainer = Trainer(
        model,
        task.train,
        [RunSpec(config.training)],
        task.dev,
        device=device,
        callback=EpochTimes(ends),
    )
    seconds["move to the device"] = time.perf_counter() - begun

    ends.append(time.perf_counter())
    (summary,) = trainer.train()
    epochs = [after - before for before, after in pairwise(ends)]
    seconds["train"] = sum(epochs)

    begun = time.perf_counter()
    predicted = trainer.probabilities(task.test.sentences).argmax(axis=2)[0]
    seconds["test"] = time.perf_counter() - begun
    return {
        "tweets": len(task.train) + len(task.dev),
        "trained_on": len(task.train),
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "seconds_in_all": round(time.perf_counter() - started, 2),
        "seconds_an_epoch": [round(value, 2) for value in epochs],
        "dev_accuracy": summary.dev_accuracy,
        "test_accuracy": float((predicted == task.test.targets).mean()),
        "fresh_kernels": options.fresh_kernels,
        "processes": options.processes,
    } | provenance(device)


if __name__ == "__main__":
    main()
