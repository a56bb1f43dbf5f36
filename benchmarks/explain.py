"""Explaining one sentence: trace, graph, attributions, and the formats it is written in.

    python benchmarks/explain.py [--out FILE]

The networks are the default one and SST binary's (d=48, widths 7 and 5, maps 6 and 14, k_top 4),
with random weights; the sentence has 20 words, and there is one thread. Figures are milliseconds:
the median and, for busy machines, the minimum. The result is ``results/bench/explain.json``.
"""

import os
import statistics
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from dcnn.config import DEFAULT, Config
from dcnn.inspection import build_graph, explain, to_networkx, trace_sentence
from dcnn.inspection.attribution import ngram_table, word_attributions
from dcnn.inspection.explanation import deletions, replacements
from dcnn.inspection.feature_graph import to_json
from dcnn.inspection.picture import ngram_picture
from dcnn.inspection.render import to_svg
from dcnn.predictor import Predictor
from results import RESULTS, make_parser, provenance, random_artifact, seconds_per_call, write_json

WORDS = 20


NETWORKS = {"default": DEFAULT, "SST binary": Config()}


def make_predictor(config: Config) -> Predictor:
    """A network with weights large enough for its nodes to differ."""
    return Predictor(random_artifact([f"w{i}" for i in range(1000)], scale=0.3, config=config))


def steps(predictor: Predictor) -> dict[str, Callable[[], object]]:
    """What is measured."""
    words = [f"w{i}" for i in np.random.default_rng(1).integers(0, 1000, WORDS)]
    trace = trace_sentence(predictor.artifact, words)
    graph = build_graph(trace)

    def all_parts() -> None:
        found = explain(predictor, " ".join(words))
        _ = found.table, found.deletions, found.replacements

    return {
        "trace": lambda: trace_sentence(predictor.artifact, words),
        "graph": lambda: build_graph(trace),
        "words": lambda: word_attributions(trace, 0),
        "n-grams": lambda: ngram_table(trace, 0),
        "deletions": lambda: deletions(predictor, words),
        "replacements": lambda: replacements(predictor, trace, 0),
        "explain()": lambda: explain(predictor, " ".join(words)),
        "explain(), graph": lambda: explain(predictor, " ".join(words)).graph,
        "explain(), n-grams, deletions, replacements": all_parts,
        "SVG": lambda: to_svg(ngram_picture(trace, 0)),
        "JSON": lambda: to_json(graph),
        "networkx": lambda: to_networkx(graph),
    }


def measure(step: Callable[[], object], rounds: int) -> dict[str, float]:
    """Milliseconds per call, after a warm-up."""
    step()
    times = [1e3 * seconds for seconds in seconds_per_call(step, rounds)]
    return {"median": round(statistics.median(times), 2), "fastest": round(min(times), 2)}


def main() -> None:
    """Measure, print and write."""
    parser = make_parser(__doc__, RESULTS / "explain.json")
    parser.add_argument("--rounds", type=int, default=50, help="calls per step (default 50)")
    options = parser.parse_args()
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for network, config in NETWORKS.items():
        predictor, figures[network] = make_predictor(config), {}
        for name, step in steps(predictor).items():
            figures[network][name] = figure = measure(step, options.rounds)
            times = f"median {figure['median']:8.2f} ms   fastest {figure['fastest']:8.2f} ms"
            print(f"{network:10}  {name:45} {times}")
    report = {
        "benchmark": "explain",
        "unit": "milliseconds",
        "words": WORDS,
        "backend": predictor.backend,
        "figures": figures,
        "threads": 1,
    }
    write_json(options.out, report | provenance())


if __name__ == "__main__":
    main()
