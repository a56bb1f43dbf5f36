"""Another commit of this repository against the working tree, in one run.

    python benchmarks/against_commit.py REV [--repeats 5] [--out results/bench/against-commit.json]

Each case is the same work on both sides: a training by ``dcnn train``, a prediction of many texts
and of one text by ``Predictor``, and the whole process of ``dcnn predict MODEL TEXT``. The runs of
both sides are interleaved, and the ratio is that of the medians, other over ours: above 1.0 the
working tree is faster. Both run in this environment, each from its own source tree with the native
library compiled there.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import opinions
from results import RESULTS, ROOT, make_parser, provenance, write_json

# ``--set`` of the paper's SST-2 network; the rest is the default recipe on both sides.
SST2 = ["model.dim=48", "model.widths=[7,5]", "model.maps=[6,14]", "model.k_top=4"]
PREDICT = """
import sys, time
from dcnn import Predictor
model = Predictor.load(sys.argv[1])
texts = open(sys.argv[2], encoding="utf-8").read().splitlines()
model.predict(texts[:64])
start = time.perf_counter()
model.predict(texts)
many = time.perf_counter() - start
start = time.perf_counter()
for text in texts[:2000]:
    model.predict([text])
print(many, (time.perf_counter() - start) / 2000)
"""


def run(tree: Path, *arguments: str) -> str:
    """The output of Python in ``tree``'s source."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, check=True, capture_output=True, text=True
    ).stdout


def train(tree: Path, folder: Path, data: Path, *settings: str) -> Path:
    """Train a model of ``settings`` with the command of ``tree``."""
    out = folder / f"{tree.name}-{len(settings)}"
    options = [word for setting in settings for word in ("--set", setting)]
    run(tree, "-m", "dcnn", "train", str(data), "--out", str(out), "--overwrite", "--device", "cpu",
        "--epochs", "4", *options)  # fmt: skip
    return out


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Measure all cases and print a table."""
    parser = make_parser(__doc__, RESULTS / "against-commit.json")
    parser.add_argument("revision")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        other = folder / "other"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(other), arguments.revision], check=True)
        try:
            subprocess.run([sys.executable, str(other / "native" / "build.py")], check=True)
            rows = measure(folder, other, arguments.repeats)
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=True)
    for row in rows:
        print(f"{row['case']:48} {row['other']:10.4f} {row['ours']:10.4f} {row['ratio']:6.2f}")
    report = {"other": arguments.revision, "repeats": arguments.repeats, "cases": rows}
    write_json(arguments.out, report | provenance())


def measure(folder: Path, other: Path, repeats: int) -> list[dict[str, object]]:
    """One row per case: median seconds of both sides and their ratio."""
    examples = [(one.text, one.label) for part in opinions.generate(1).values() for one in part]
    examples = (examples * 10)[:10_000]
    data, texts = folder / "train.jsonl", folder / "texts.txt"
    data.write_text("".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in examples))
    texts.write_text("\n".join(text for text, _ in examples))
    cases: dict[str, dict[Path, list[float]]] = {}

    def note(case: str, tree: Path, seconds: float) -> None:
        cases.setdefault(case, {}).setdefault(tree, []).append(seconds)

    trees = [other, ROOT]
    models = {tree: train(tree, folder, data) for tree in trees}
    for number in range(repeats):
        for tree in trees if number % 2 else trees[::-1]:
            note("train, default recipe, 10,000 texts, 4 epochs (s)", tree,
                 timed(lambda tree=tree: train(tree, folder, data)))  # fmt: skip
            note("train, SST-2 network, 10,000 texts, 4 epochs (s)", tree,
                 timed(lambda tree=tree: train(tree, folder, data, *SST2)))  # fmt: skip
            many, one = run(tree, "-c", PREDICT, str(models[tree]), str(texts)).split()
            note("predict 10,000 texts (s)", tree, float(many))
            note("predict one text (s)", tree, float(one))
            command = ["-m", "dcnn", "predict", str(models[tree]), "not a dull moment"]
            note("dcnn predict MODEL TEXT, whole process (s)", tree,
                 timed(lambda tree=tree, command=command: run(tree, *command)))  # fmt: skip
    rows: list[dict[str, object]] = []
    for case, sides in cases.items():
        theirs, ours = (statistics.median(sides[tree]) for tree in trees)
        rows.append({"case": case, "other": theirs, "ours": ours, "ratio": theirs / ours})
    return rows


if __name__ == "__main__":
    main()
