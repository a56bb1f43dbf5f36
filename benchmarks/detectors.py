"""Ranking what detectors react to: time and memory against the size of the corpus.

    python benchmarks/detectors.py [--sizes 10000 100000 1000000] [--out FILE]

The network is SST binary's (d=48, widths 7 and 5, maps 6 and 14, k_top 4) with random weights and
the paper's vocabulary of 15,448; a sentence has 20 words, drawn by Zipf's law. There is
one thread, and each size runs in its own process, so that the peak memory is its own. Texts are
generated while they are read: generating and tokenizing them is part of the time.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from dcnn.inspection import rank_detectors
from dcnn.predictor import Predictor
from results import RESULTS, make_parser, provenance, random_artifact, write_json

WORDS = 20
VOCABULARY = 15_447
LAYERS = {"first layer, 288 detectors": [1], "both layers, 456 detectors": [1, 2]}


def make_predictor() -> Predictor:
    """The network with weights large enough for its nodes to differ."""
    return Predictor(random_artifact([f"w{i}" for i in range(VOCABULARY)], scale=0.3))


def texts(count: int) -> Iterator[str]:
    """Sentences that follow Zipf's law."""
    generator = np.random.default_rng(1)
    share = 1 / np.arange(1, VOCABULARY + 1)
    share /= share.sum()
    made = 0
    while made < count:
        for row in generator.choice(VOCABULARY, (min(1000, count - made), WORDS), p=share).tolist():
            made += 1
            yield " ".join([f"w{i}" for i in row])


def measure(count: int, layers: list[int]) -> dict[str, float]:
    """Seconds, and the peak of the process's memory, which includes Python and numpy.

    CPU seconds do not include waiting for other work on the machine.
    """
    predictor = make_predictor()
    started, started_cpu = time.perf_counter(), time.process_time()
    rank_detectors(predictor, texts(count), layers=layers)
    seconds, cpu = time.perf_counter() - started, time.process_time() - started_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "sentences_per_cpu_second": round(count / cpu),
        "peak_mib": round(peak, 1),
    }


def main() -> None:
    """Measure every size in a process of its own, and write the JSON."""
    parser = make_parser(__doc__, RESULTS / "detectors.json")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--one", nargs=2, metavar=("SIZE", "LAYERS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(int(options.one[0]), json.loads(options.one[1]))))
        return
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for name, layers in LAYERS.items():
        figures[name] = {}
        for size in options.sizes:
            command = [sys.executable, __file__, "--one", str(size), json.dumps(layers)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            figures[name][str(size)] = json.loads(done.stdout)
            print(name, size, figures[name][str(size)], flush=True)
    report = {
        "benchmark": "detectors",
        "words": WORDS,
        "vocabulary": VOCABULARY + 1,
        "backend": make_predictor().backend,
        "figures": figures,
        "threads": 1,
    }
    write_json(options.out, report | provenance())


if __name__ == "__main__":
    main()
