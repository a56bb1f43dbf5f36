"""CPU time and memory of whole commands against the number of labels and of texts.

A text has eight words: two that say its label, and six of 3,000 that say nothing. Training is one
epoch of the default recipe, on one thread.
"""

import csv
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from curves import Curve
from report import MEGABYTE, MILLISECONDS
from startup import run

LABELS = (10, 100, 1000, 10_000)
TEXTS = (1000, 10_000, 100_000, 300_000)
LABELLED_TEXTS = 20_000  # of every number of labels: two each of the most
FEW_LABELS = 10
FILLERS = 3000
# As ``startup.PEAK_MEMORY``, with the time.
COST = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
unit = 1 if sys.platform == "darwin" else 1024
print(used.ru_utime + used.ru_stime, used.ru_maxrss * unit)
"""


def write_texts(path: Path, texts: int, labels: int) -> None:
    """A file of ``texts`` texts, of which every label has as many."""
    generator = random.Random(0)  # noqa: S311
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(("text", "label"))
        for number in range(texts):
            label = number % labels
            words = [f"filler{generator.randrange(FILLERS)}" for _ in range(6)]
            words += [f"first{label % 100}", f"second{label // 100}"]
            generator.shuffle(words)
            writer.writerow((" ".join(words), f"label {label}"))


def cost(*arguments: object) -> tuple[float, float]:
    """Milliseconds of CPU time and megabytes of a command of dcnn."""
    command = [sys.executable, "-m", "dcnn", *map(str, arguments)]
    seconds, n_bytes = map(float, run([sys.executable, "-c", COST, *command]).split())
    return seconds * MILLISECONDS, n_bytes / MEGABYTE


def command_curves(
    labels: Sequence[int] = LABELS,
    texts: Sequence[int] = TEXTS,
    labelled_texts: int = LABELLED_TEXTS,
) -> Iterator[Curve]:
    """Every curve of a command, time before memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, model = folder / "texts.csv", folder / "model"
        train = ("train", data, "--out", model, "--epochs", 1, "--overwrite")
        points: dict[str, list[tuple[float, float]]] = {
            axis: [] for axis in ("labels", "corpus", "file")
        }
        for count in labels:
            write_texts(data, labelled_texts, count)
            points["labels"].append(cost(*train))
        for count in texts:
            write_texts(data, count, FEW_LABELS)
            points["corpus"].append(cost(*train))
            predict = ("predict", model, "--input", data, "--output", folder / "out.csv")
            points["file"].append(cost(*predict))
    for axis, found in points.items():
        sizes = tuple(labels if axis == "labels" else texts)
        for quantity, values in zip(("time", "memory"), zip(*found, strict=True), strict=True):
            yield Curve(axis, quantity, sizes, tuple(float(f"{value:.4g}") for value in values))
