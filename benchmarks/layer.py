"""The native backend against eager torch: one sentence, many sentences, a training step.

    python benchmarks/layer.py [--json FILE]

The network is SST binary's (d=48, widths 7 and 5, maps 6 and 14, k_top 4, 15,448 words), sentences
have 18 words, and there is one thread. Both take turns, so that a busy machine slows both; figures
are medians, in microseconds.
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


def make_sentences(count: int) -> Sentences:
    """Random words."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, count * WORDS).astype(np.int32)
    return Sentences.from_flat(ids, np.full(count, WORDS))


def make_model() -> SentenceModel:
    """The network with the authors' initial values."""
    model = build_model(CONFIG, VOCABULARY, 2)
    model.initialize(torch.Generator().manual_seed(0))
    return model


def prediction(count: int) -> dict[str, Callable[[], object]]:
    """Ids to logits of ``count`` sentences."""
    model, sentences = make_model().eval(), make_sentences(count)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    network = Network(weights, CONFIG.fold, CONFIG.k_top)
    ids, lengths = (torch.from_numpy(part) for part in sentences.padded(np.arange(count)))
    return {
        "torch": lambda: torch.no_grad()(model)(ids, lengths),
        "native": lambda: network.logits(sentences.ids, sentences.offsets),
    }


def training() -> dict[str, Callable[[], object]]:
    """A whole step: batch, forward, backward, clipping, Adagrad."""
    examples = Examples(make_sentences(MANY), np.random.default_rng(1).integers(0, 2, MANY))
    config = TrainingConfig(batch_size=BATCH, epochs=10_000)

    def step(backend: str) -> Callable[[], object]:
        os.environ["DCNN_BACKEND"] = backend
        run = Run(make_model(), examples, None, config, torch.device("cpu"), Listener())

        def take() -> None:
            os.environ["DCNN_BACKEND"] = backend
            run.step()

        return take

    return {name: step(name) for name in ("torch", "native")}


def medians(cases: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Microseconds a call of each, in turns."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 3):
        for name, case in cases.items():
            os.environ["DCNN_BACKEND"] = "native" if name == "native" else "torch"
            started = time.perf_counter()
            case()
            if number >= 3:  # the first calls warm up
                times[name].append((time.perf_counter() - started) * 1e6)
    return {name: round(statistics.median(values), 1) for name, values in times.items()}


def main() -> None:
    """Measure, print, and write the JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--rounds", type=int, default=200, help="calls of each (default 200)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = {
        "one sentence": medians(prediction(1), options.rounds),
        f"{MANY} sentences": medians(prediction(MANY), max(options.rounds // 20, 5)),
        f"training step of {BATCH}": medians(training(), max(options.rounds // 4, 5)),
    }
    for name, case in figures.items():
        case["ratio"] = round(case["torch"] / case["native"], 1)
        print(
            f"{name:22} torch {case['torch']:10.1f} us   native {case['native']:9.1f} us   "
            f"{case['ratio']:.1f} times faster"
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
