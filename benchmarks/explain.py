"""Explaining one sentence: trace, graph, relevance, and the formats it is written in.

    python benchmarks/explain.py [--json FILE]

The network is SST binary's (d=48, widths 7 and 5, maps 6 and 14, k_top 4) with random weights, the
sentence has 20 words, and there is one thread. Figures are milliseconds, the median and, for
machines that are never quiet, the fastest.
"""

import argparse
import datetime
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from dcnn.artifact import Artifact
from dcnn.config import Config
from dcnn.experiments.results import commit, hardware, versions
from dcnn.inspection import build_graph, explain, to_networkx, trace_sentence
from dcnn.inspection.attribution import strongest_ngrams, word_attributions
from dcnn.inspection.counterfactuals import deletions
from dcnn.inspection.feature_graph import to_json
from dcnn.inspection.picture import make_picture
from dcnn.inspection.render import to_svg
from dcnn.predictor import Predictor
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import Vocabulary

WORDS = 20


def make_predictor() -> Predictor:
    """The network with weights large enough for its nodes to differ."""
    config, classes = Config(), ("negative", "positive")
    encoder = Encoder(Tokenizer(), Vocabulary([f"w{i}" for i in range(1000)]))
    generator = np.random.default_rng(0)
    shapes = config.model.parameter_shapes(len(encoder.vocabulary), len(classes))
    weights = {
        name: generator.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()
    }
    return Predictor(Artifact(config, classes, encoder, weights))


def steps(predictor: Predictor) -> dict[str, Callable[[], object]]:
    """What is measured; the first three together are the bar of 20 ms."""
    words = [f"w{i}" for i in np.random.default_rng(1).integers(0, 1000, WORDS)]
    trace = trace_sentence(predictor.artifact, words)
    graph = build_graph(trace)

    def core() -> None:
        built = build_graph(trace_sentence(predictor.artifact, words))
        word_attributions(built, 0)
        strongest_ngrams(built, 0)

    return {
        "trace": lambda: trace_sentence(predictor.artifact, words),
        "graph": lambda: build_graph(trace),
        "relevance of words and n-grams": lambda: (
            word_attributions(graph, 0),
            strongest_ngrams(graph, 0),
        ),
        "trace, graph and relevance": core,
        "deletions": lambda: deletions(predictor, words),
        "explain(), all of it": lambda: explain(predictor, " ".join(words)),
        "SVG": lambda: to_svg(make_picture(graph, 0)),
        "JSON": lambda: to_json(graph),
        "networkx": lambda: to_networkx(graph),
    }


def measure(step: Callable[[], object], rounds: int) -> dict[str, float]:
    """Milliseconds a call, after a warm-up."""
    step()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        step()
        times.append((time.perf_counter() - started) * 1e3)
    return {"median": round(statistics.median(times), 2), "fastest": round(min(times), 2)}


def main() -> None:
    """Measure, print, and write the JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--rounds", type=int, default=50, help="calls of each (default 50)")
    options = parser.parse_args()
    predictor = make_predictor()
    figures = {name: measure(step, options.rounds) for name, step in steps(predictor).items()}
    for name, figure in figures.items():
        print(f"{name:32} median {figure['median']:8.2f} ms   fastest {figure['fastest']:8.2f} ms")
    if options.json:
        record = {
            "benchmark": "explain",
            "unit": "milliseconds",
            "words": WORDS,
            "backend": predictor.backend,
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
