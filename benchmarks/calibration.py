"""The calibration error with and without temperature scaling, on dev and on test.

    DCNN_DATA=... python benchmarks/calibration.py --corpora DIR   # some minutes on a CPU
    python benchmarks/calibration.py --write docs/labels.md        # renders the table

The default recipe on TREC and SST-2 (whole sentences), and on banking77 where DIR holds
``banking77/train.csv`` and ``test.csv``; three seeds each. The temperature is fitted on dev,
which also chose the epoch; test is evaluated once. Without temperature scaling the logits are
those of the same network, times the temperature. The result is
``results/bench/calibration.json``.
"""

import json
import os
import statistics
from pathlib import Path

import numpy as np

from dcnn.config import DEFAULT
from dcnn.data.corpora.sst import NEUTRAL, read_trees
from dcnn.data.corpora.trec import read_trec
from dcnn.data.labels import number_labels
from dcnn.data.readers import TableOptions, read_labelled
from dcnn.data.split import stratified_split
from dcnn.metrics import evaluate
from dcnn.ops.reference import softmax
from dcnn.predictor import Predictor
from dcnn.training.fit import RunOptions, fit
from results import RESULTS, make_parser, provenance, read_json, render_block, write_json

RESULT = RESULTS / "calibration.json"
BLOCK = "calibration"
SEEDS = 3
Split = tuple[list[str], list[str]]  # texts and labels


def with_dev(train: Split, test: Split, seed: int) -> tuple[Split, Split, Split]:
    """A tenth of ``train`` is dev."""
    kept, held_out = stratified_split(train[1], DEFAULT.training.dev_fraction, seed)
    first, second = (
        ([train[0][i] for i in part], [train[1][i] for i in part]) for part in (kept, held_out)
    )
    return first, second, test


def sentences(path: Path) -> Split:
    """The whole sentences of a file of trees that are not neutral."""
    roots = [tree[0] for tree in read_trees(path)]
    roots = [root for root in roots if root.label != NEUTRAL]
    labels = ["positive" if root.label > NEUTRAL else "negative" for root in roots]
    return [" ".join(root.words) for root in roots], labels


def splits(name: str, corpora: Path | None, seed: int) -> tuple[Split, Split, Split]:
    """Train, dev and test of a corpus."""
    data = Path(os.environ["DCNN_DATA"])
    if name == "sst2":
        first, second, third = (
            sentences(data / "sst" / f"{part}.txt") for part in ("train", "dev", "test")
        )
        return first, second, third
    if name == "trec":
        files = [read_trec(data / "trec" / n) for n in ("train_5500.label", "TREC_10.label")]
    else:
        assert corpora is not None  # noqa: S101
        files = [
            read_labelled(corpora / name / f"{part}.csv", TableOptions())
            for part in ("train", "test")
        ]
    train, test = ((part.texts, part.labels) for part in files)
    return with_dev(train, test, seed)


def run(name: str, corpora: Path | None, seed: int) -> dict[str, object]:
    """Train once; measure with the temperature and without."""
    parts = splits(name, corpora, seed)
    classes = sorted(set(parts[0][1]))
    sets = [number_labels(*part, classes=classes) for part in parts]
    options = RunOptions(device="cpu")
    artifact, _ = fit(*sets[:2], DEFAULT.with_training(seed=seed), options)
    temperature = artifact.metadata["calibration"]["temperature"]
    predictor = Predictor(artifact)
    found: dict[str, object] = {"corpus": name, "seed": seed, "temperature": temperature}
    for part, examples in zip(("dev", "test"), sets[1:], strict=True):
        logits = predictor.logits(artifact.encoder.encode_all(examples.texts))
        for when, factor in (("before", temperature), ("after", 1.0)):
            probabilities = softmax(logits * np.float32(factor))
            scores = evaluate(examples.targets, probabilities, classes)
            right = probabilities[np.arange(len(examples.targets)), examples.targets]
            found[f"{part}_{when}"] = {
                "accuracy": scores.accuracy,
                "calibration_error": scores.calibration_error,
                "loss": float(-np.log(right).mean()),
            }
    return found


def table(runs: list[dict]) -> str:
    """Means over the seeds, as Markdown."""
    head = "temperature | dev before | dev after | test before | test after | test loss"
    lines = [f"| corpus | {head} |", "|---" * 7 + "|"]
    for name in dict.fromkeys(one["corpus"] for one in runs):
        chosen = [one for one in runs if one["corpus"] == name]

        def mean(part: str, score: str, of: list[dict] = chosen) -> float:
            return statistics.mean(one[part][score] for one in of)

        parts = ("dev_before", "dev_after", "test_before", "test_after")
        errors = [f"{100 * mean(part, 'calibration_error'):.1f}" for part in parts]
        losses = " to ".join(f"{mean(part, 'loss'):.3f}" for part in parts[2:])
        temperature = statistics.mean(one["temperature"] for one in chosen)
        lines.append(f"| {name} | {temperature:.2f} | {' | '.join(errors)} | {losses} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write; or render what was measured."""
    parser = make_parser(__doc__, RESULT, BLOCK)
    parser.add_argument("--corpora", type=Path, help="the folder that holds banking77")
    options = parser.parse_args()
    if options.write is not None:
        render_block(options.write, BLOCK, table(read_json(options.out)["runs"]))
        return
    runs = []
    for name in ["trec", "sst2", *(["banking77"] if options.corpora else [])]:
        for seed in range(SEEDS):
            runs.append(run(name, options.corpora, seed))
            print(json.dumps(runs[-1]))
    print(table(runs))
    write_json(options.out, {"runs": runs} | provenance())


if __name__ == "__main__":
    main()
