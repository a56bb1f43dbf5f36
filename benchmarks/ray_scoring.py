"""How many sentences a second a folder of shards is scored at, here and by workers on Ray.

    python benchmarks/ray_scoring.py                         # 2 million sentences; some minutes
    python benchmarks/ray_scoring.py --sentences 400000      # sooner
    python benchmarks/ray_scoring.py --write docs/ray.md     # only renders the table anew

The network is an untrained one with the paper's sizes for SST binary: what it predicts does not
change how long it takes. Sentences have 5 to 35 words of its vocabulary and are read from and
written to Parquet on disk. The time is that of the whole command, Ray's start and end included. The
result is ``results/bench/ray.json``.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.config import Config, DCNNConfig
from dcnn.experiments import results as provenance
from dcnn.experiments.tables import write_blocks
from dcnn.text.encoder import Encoder

RESULT = Path(__file__).parent.parent / "results" / "bench" / "ray.json"
BLOCK = "ray-scoring"
VOCABULARY, SHORTEST, LONGEST = 15_448, 5, 35
CASES = (("local", None), ("ray", 1), ("ray", 2))


def write_inputs(folder: Path, sentences: int, shards: int) -> None:
    """A model folder, and shards of random sentences."""
    config = Config(model=DCNNConfig(dim=48, widths=(7, 5), maps=(6, 14), k_top=4))
    words = [f"w{number}" for number in range(VOCABULARY - 1)]
    encoder = Encoder.learn([" ".join(words)], config.text)[0]
    generator = np.random.default_rng(0)
    shapes = config.model.parameter_shapes(len(encoder.vocabulary), 2)
    weights = {n: generator.normal(0, 0.1, s).astype(np.float32) for n, s in shapes.items()}
    model_folder.save(folder / "model", Artifact(config, ("neg", "pos"), encoder, weights))
    (folder / "in").mkdir()
    for shard in range(shards):
        lengths = generator.integers(SHORTEST, LONGEST + 1, sentences // shards)
        drawn = iter(generator.integers(0, len(words), lengths.sum()).tolist())
        texts = [" ".join(words[next(drawn)] for _ in range(length)) for length in lengths]
        parquet.write_table(pa.table({"text": texts}), folder / "in" / f"{shard:03}.parquet")


def measure(folder: Path, engine: str, workers: int | None) -> dict[str, Any]:
    """One run of the command."""
    output = f"{engine}-{workers}"
    command = ["predict", "model", "--input", "in", "--output", output, "--engine", engine]
    if workers is not None:
        command += ["--workers", str(workers)]
    load = os.getloadavg()[0]
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "dcnn", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - started
    (rows,) = re.findall(r"shards scored, ([\d,]+) rows", done.stderr)
    rows = int(rows.replace(",", ""))
    return {
        "engine": engine,
        "workers": workers or 1,
        "rows": rows,
        "seconds": round(seconds, 1),
        "sentences_per_second": round(rows / seconds),
        "load_before": round(load, 1),
    }


def same(folder: Path) -> bool:
    """Whether all runs have left the same files."""
    outputs = [folder / f"{engine}-{workers}" for engine, workers in CASES]
    found = [{p.name: p.read_bytes() for p in output.iterdir()} for output in outputs]
    return all(files == found[0] for files in found)


def table(report: dict[str, Any]) -> str:
    """The rows in Markdown, and what they are rows of."""
    lines = ["| engine | workers | whole command | sentences/s |", "|---|---|---|---|"]
    lines += [
        f"| {run['engine']} | {run['workers']} | {run['seconds']:.1f} s "
        f"| {run['sentences_per_second']:,} |"
        for run in report["runs"]
    ]
    load = max(run["load_before"] for run in report["runs"])
    about = (
        f"{report['runs'][0]['rows']:,} sentences of {SHORTEST} to {LONGEST} words in "
        f"{report['shards']} shards, a network of the size of SST binary, "
        f"{report['hardware']}; load of other work up to {load}. "
        "Starting and ending Ray is part of the time. "
        "[results/bench/ray.json](../results/bench/ray.json), made by "
        "`python benchmarks/ray_scoring.py`."
    )
    return "\n".join([about, "", *lines])


def main() -> None:
    """Measure, print and write; or render what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sentences", type=int, default=2_000_000)
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--write", type=Path, help="only put the table into this Markdown file")
    options = parser.parse_args()
    if options.write is not None:
        rendered = table(json.loads(RESULT.read_text(encoding="utf-8")))
        write_blocks([options.write], {BLOCK: rendered})
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_inputs(folder, options.sentences, options.shards)
        runs = []
        for engine, workers in CASES:
            runs.append(measure(folder, engine, workers))
            print(runs[-1], flush=True)
        report = {
            "runs": runs,
            "shards": options.shards,
            "same_bytes": same(folder),
            "hardware": provenance.hardware("cpu"),
            "versions": provenance.versions() | {"ray": version("ray")},
            "commit": provenance.commit(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }
    print(table(report))
    RESULT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
