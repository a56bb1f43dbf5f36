"""How fast ``dcnn train`` itself trains: the rate of its own report, on real texts.

    python benchmarks/train_command.py --device cuda --data DIR

Two corpora: TREC with the default recipe, and the phrases of SST with the paper's network for SST-2
at batch 256. Every batch of an epoch is another one. ``DIR`` is the data folder of ``dcnn data``.
Writes ``results/bench/train-command.json``. The rate leaves out reading, encoding, and on a GPU the
compilation and recording of the kernels; the wall time of the whole command, also noted, does not.
Each command runs twice: the first compiles its kernels into an empty cache, the second finds them.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dcnn.data.corpora.registry import data_folder
from dcnn.data.corpora.sst import read_trees
from dcnn.data.corpora.trec import read_trec
from results import RESULTS, make_parser, provenance, write_json

SST2 = {
    "model.dim": 48,
    "model.widths": [7, 5],
    "model.maps": [6, 14],
    "model.k_top": 4,
    "training.n_ensemble": 1,
    "training.batch_size": 256,
}
CASES: dict[str, dict[str, Any]] = {"TREC, default recipe": {}, "SST phrases, SST-2 network": SST2}


def main() -> None:
    """Train on both corpora and write the rates."""
    parser = make_parser(__doc__, RESULTS / "train-command.json")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/kernels"
        for case, file in zip(CASES, write_corpora(data_folder(options.data), folder), strict=True):
            rows += [
                {"case": case, "kernels": kernels, **train(case, file, options.device)}
                for kernels in ("compiled", "cached")
            ]
    write_json(options.out, {"rows": rows, **provenance(rows[-1]["device"])})


def write_corpora(data: Path, folder: str) -> list[Path]:
    """Both corpora as files that a user would have."""
    trec = read_trec(data / "trec" / "train_5500.label")
    questions = [(text, trec.classes[y]) for text, y in zip(trec.texts, trec.targets, strict=True)]
    phrases = {
        " ".join(phrase.words): str(phrase.label)
        for tree in read_trees(data / "sst" / "train.txt")
        for phrase in tree
    }
    files = [Path(folder) / name for name in ("trec.jsonl", "sst.jsonl")]
    for file, examples in zip(files, (questions, list(phrases.items())), strict=True):
        lines = [json.dumps({"text": text, "label": label}) for text, label in examples]
        file.write_text("\n".join(lines), encoding="utf-8")
    return files


def train(case: str, file: Path, device: str) -> dict[str, Any]:
    """The metadata of a training by the command, and its wall time."""
    out = file.with_suffix(".model")
    settings = [f"{name}={json.dumps(value)}" for name, value in CASES[case].items()]
    options = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "dcnn", "train", str(file), "--out", str(out), "--overwrite"]
    started = time.perf_counter()
    subprocess.run([*command, "--device", device, *options], check=True)
    seconds = time.perf_counter() - started
    metadata = json.loads((out / "config.json").read_text(encoding="utf-8"))["metadata"]
    names = ("sentences_per_second", "epochs", "seconds", "dev_accuracy", "backend", "device")
    return {**{name: metadata[name] for name in names}, "wall_seconds": round(seconds, 1)}


if __name__ == "__main__":
    main()
