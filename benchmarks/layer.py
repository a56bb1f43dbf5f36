"""The native backend against eager torch: one sentence, many sentences, a training step.

    python benchmarks/layer.py [--json FILE]

The network is SST binary's (d=48, widths 7 and 5, maps 6 and 14, k_top 4, 15,448 words), sentences
have 18 words, and there is one thread. Both take turns, so that a busy machine slows both; figures
are microseconds, the median and, for machines that are never quiet, the fastest.
"""

import argparse
import datetime
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from dcnn.config import DCNNConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.experiments.provenance import commit, hardware, versions
from dcnn.models import SentenceModel, build_model
from dcnn.ops import native
from dcnn.ops.native_network import Network
from dcnn.text.sentences import Sentences
from dcnn.training.progress import Listener
from dcnn.training.run import Run

VOCABULARY, WORDS, BATCH, MANY = 15_448, 18, 64, 1024
CONFIG = DCNNConfig()
Cases = dict[str, Callable[[], object]]  # what each backend does


def make_sentences(count: int) -> Sentences:
    """Random words."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, count * WORDS).astype(np.int32)
    return Sentences.from_flat(ids, np.full(count, WORDS))


def make_model() -> SentenceModel:
    """The network with the authors' initial values."""
    model = build_model(CONFIG, VOCABULARY, 2)
    model.initialize(torch.Generator().manual_seed(0))
    return model


def prediction(count: int) -> Cases:
    """Ids to logits of ``count`` sentences."""
    model, sentences = make_model().eval(), make_sentences(count)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    network = Network(weights, CONFIG.fold, CONFIG.k_top)
    ids, lengths = (torch.from_numpy(part) for part in sentences.padded(np.arange(count)))
    forward = torch.no_grad()(model)
    return {
        "torch": lambda: forward(ids, lengths),
        "native": lambda: network.logits(sentences.ids, sentences.offsets),
    }


def training() -> Cases:
    """A whole step: batch, forward, backward, clipping, Adagrad."""
    examples = Examples(make_sentences(MANY), np.random.default_rng(1).integers(0, 2, MANY))
    config = TrainingConfig(batch_size=BATCH, epochs=10_000)

    def step(backend: str) -> Callable[[], object]:
        os.environ["DCNN_BACKEND"] = backend  # the optimizer is chosen now, the layers a step
        return Run(make_model(), examples, None, config, torch.device("cpu"), Listener()).step

    return {name: step(name) for name in ("torch", "native")}


def measure(cases: Cases, rounds: int, calls: int) -> dict[str, dict[str, float]]:
    """Microseconds a call of each: ``rounds`` turns of ``calls`` calls, the first a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            os.environ["DCNN_BACKEND"] = name
            for number in range(calls + 1):
                started = time.perf_counter()
                case()
                if number:
                    times[name].append((time.perf_counter() - started) * 1e6)
    figures = {
        "median": {name: statistics.median(values) for name, values in times.items()},
        "fastest": {name: min(values) for name, values in times.items()},
    }
    for figure in figures.values():
        figure["ratio"] = figure["torch"] / figure["native"]
    return {
        name: {key: round(value, 1) for key, value in figure.items()}
        for name, figure in figures.items()
    }


def main() -> None:
    """Measure, print, and write the JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--rounds", type=int, default=20, help="turns of each (default 20)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = {
        "one sentence": measure(prediction(1), options.rounds, 50),
        f"{MANY} sentences": measure(prediction(MANY), options.rounds, 1),
        f"training step of {BATCH}": measure(training(), options.rounds, 5),
    }
    for name, case in figures.items():
        for kind, figure in case.items():
            print(
                f"{name:22} {kind:8} torch {figure['torch']:10.1f} us   "
                f"native {figure['native']:9.1f} us   {figure['ratio']:.1f} times faster"
            )
    if options.json:
        record = {
            "benchmark": "layer",
            "unit": "microseconds",
            "instruction_set": native.instruction_set(),
            "figures": figures,
            "threads": 1,
            "hardware": hardware("cpu"),
            "versions": versions(),
            "commit": commit(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
