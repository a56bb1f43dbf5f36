"""Sentences per second of scoring a folder of shards, in one process and by workers on Ray.

    python benchmarks/ray_scoring.py                         # 2 million sentences; some minutes
    python benchmarks/ray_scoring.py --sentences 400000      # sooner
    python benchmarks/ray_scoring.py --write docs/ray.md     # renders the table

The network has the paper's sizes for SST binary and random weights, which do not change its speed.
Sentences have 5 to 35 words of its vocabulary and are read from and
written to Parquet on disk. The time is that of the whole command, Ray's start and end included. The
result is ``results/bench/ray.json``.
"""

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
from results import (
    RESULTS,
    make_parser,
    provenance,
    random_artifact,
    read_json,
    render_block,
    write_json,
)

RESULT = RESULTS / "ray.json"
BLOCK = "ray-scoring"
VOCABULARY, SHORTEST, LONGEST = 15_448, 5, 35
CASES = (("local", None), ("ray", 1), ("ray", 2))


def write_inputs(folder: Path, sentences: int, shards: int) -> None:
    """A model folder, and shards of random sentences."""
    words = [f"w{number}" for number in range(VOCABULARY - 1)]
    model_folder.save(folder / "model", random_artifact(words, scale=0.1))
    generator = np.random.default_rng(0)
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
    """Whether all runs wrote the same files."""
    outputs = [folder / f"{engine}-{workers}" for engine, workers in CASES]
    found = [{p.name: p.read_bytes() for p in output.iterdir()} for output in outputs]
    return all(files == found[0] for files in found)


def table(report: dict[str, Any]) -> str:
    """A sentence on the runs, and their table in Markdown."""
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
    parser = make_parser(__doc__, RESULT, BLOCK)
    parser.add_argument("--sentences", type=int, default=2_000_000)
    parser.add_argument("--shards", type=int, default=20)
    options = parser.parse_args()
    if options.write is not None:
        render_block(options.write, BLOCK, table(read_json(options.out)))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_inputs(folder, options.sentences, options.shards)
        runs = []
        for engine, workers in CASES:
            runs.append(measure(folder, engine, workers))
            print(runs[-1], flush=True)
        report = {"runs": runs, "shards": options.shards, "same_bytes": same(folder)}
    report |= provenance()
    report["versions"]["ray"] = version("ray")
    print(table(report))
    write_json(options.out, report)


if __name__ == "__main__":
    main()
