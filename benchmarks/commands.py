"""The time of the everyday commands on 10,000 rows, as whole processes.

    python benchmarks/commands.py
    python benchmarks/commands.py --write docs/how-to/know-your-data-and-model.md

The rows are the built-in corpus of opinions and pairs of its texts. Writes
``results/bench/commands.json``. All commands use one thread, so CPU time is what an idle machine
takes; the wall time, also noted, is longer on a busy one.
"""

import csv
import os
import shlex
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from dcnn.data.corpora.opinions import read_opinions
from results import (
    ONE_THREAD,
    RESULTS,
    make_parser,
    provenance,
    read_json,
    render_block,
    write_json,
)

BLOCK = "commands"
ROWS = 10_000
TRAIN = "train rows.csv --out model"
COMMANDS = (
    TRAIN,
    "predict model --input rows.csv --output out.csv --all",
    "predict model --input rows.csv --output out.parquet",
    "evaluate model rows.csv --errors errors.csv --confusion confusion.svg",
    "check rows.csv --folds 0",
    "check rows.csv --model model",
    "check rows.csv",
    "cv rows.csv --out-of-fold predictions.csv",
    "learning-curve rows.csv --plot curve.svg",
    "train more.csv --start-from model --replay rows.csv --out newer",
    "suggest model rows.csv --n 50 --out to-label.csv",
    "index model rows.csv",
    "explain model 'not a dull moment' --similar 5 --out graph.svg",
    "export model --out model.onnx",
    "export model --out model.html",
)
# What people would train instead, from the file to a model on disk.
BASELINE = "LinearSVC on TF-IDF of 1 to 5 characters, from the file to a pickle (scikit-learn)"
BASELINE_SCRIPT = """
import csv, pickle
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

with open("rows.csv", encoding="utf-8", newline="") as stream:
    rows = list(csv.DictReader(stream))
vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 5), sublinear_tf=True)
model = make_pipeline(vectorizer, LinearSVC())
model.fit([row["text"] for row in rows], [row["label"] for row in rows])
with open("model.pickle", "wb") as stream:
    pickle.dump(model, stream)
"""


def main() -> None:
    """Run all commands, or render their times into a page."""
    parser = make_parser(__doc__, RESULTS / "commands.json", BLOCK)
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args()
    if options.write:
        render_block(options.write, BLOCK, markdown(read_json(options.out)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / "rows.csv", 0, options.rows)
        write_rows(Path(folder) / "more.csv", options.rows, options.rows // 10)
        rows = [{"command": name, **run(name, folder)} for name in (*COMMANDS, BASELINE)]
    write_json(options.out, {"rows_of_the_file": options.rows, "rows": rows, **provenance("cpu")})


def write_rows(path: Path, start: int, count: int) -> None:
    """A file of so many different labelled texts, without the first ``start``."""
    opinions = [opinion for split in read_opinions().values() for opinion in split]
    more = [(f"{one.text} {next_one.text}", one.label) for one, next_one in pairwise(opinions)]
    rows = [*((opinion.text, opinion.label) for opinion in opinions), *more]
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("text", "label"), *rows[start : start + count]])


def run(command: str, folder: str) -> dict[str, float]:
    """Seconds of a command, of CPU time and of wall time; findings of ``check`` are no failure."""
    before, started = os.times(), time.perf_counter()
    words = [sys.executable, "-m", "dcnn", *shlex.split(command), "-q"]
    if command == BASELINE:
        words = [sys.executable, "-c", BASELINE_SCRIPT]
    done = subprocess.run(words, cwd=folder, env=os.environ | ONE_THREAD, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - started, os.times()
    if done.returncode not in ((0, 1) if command.startswith("check") else (0,)):
        raise SystemExit(f"{command} ended with {done.returncode}")
    cpu = sum(getattr(after, name) - getattr(before, name) for name in CHILDREN)
    print(f"{cpu:7.1f} s of CPU time, {wall:7.1f} s: {command}", flush=True)
    return {"cpu_seconds": round(cpu, 1), "wall_seconds": round(wall, 1)}


CHILDREN = ("children_user", "children_system")


def markdown(report: dict[str, Any]) -> str:
    """A row per command."""
    rows = [
        f"| {name if name == BASELINE else f'`dcnn {name}`'} | {row['cpu_seconds']:.1f} |"
        for row in report["rows"]
        for name in [row["command"]]
    ]
    head = [f"| command on {report['rows_of_the_file']:,} rows | seconds |", "|---|--:|"]
    return "\n".join([*head, *rows])


if __name__ == "__main__":
    main()
