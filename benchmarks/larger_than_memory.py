"""Training on a corpus larger than memory: the resident memory over time.

    python benchmarks/larger_than_memory.py                             # 20 million, about an hour
    python benchmarks/larger_than_memory.py --sentences 200000 --out memory.json

The sentences are tweets of Sentiment140 (``DCNN_DATA``) and copies of them with random words left
out, in Parquet shards. A plain ``dcnn train`` encodes and trains on them; every second the resident
memory of its process and all its children, file pages included, is read. Writes the curve to
``results/bench/memory.json`` and draws it.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from dcnn.data.corpora.registry import data_folder
from dcnn.data.corpora.sentiment140 import iterate_sentiment140
from dcnn.plots import GREEN, GREY, RED, draw_svg
from results import RESULTS, ROOT, make_parser, provenance, write_json

PICTURE = ROOT / "docs" / "pictures" / "memory.svg"
SOURCE = "twitter/sentiment140.train.csv.xz"
SHARD_ROWS = 500_000
LIMIT = 2_000_000_000
SETTINGS = (
    "text.tokenizer=tweet",
    "text.max_size=30000",
    "model.dim=24",
    "model.widths=[5,3]",
    "model.maps=[4,6]",
    "model.k_top=3",
    "training.batch_size=256",
    "training.l2_embeddings=0",  # with L2 every step updates the whole table
    "training.evaluations_per_epoch=4",
)


def tweets(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """``count`` texts and labels: the corpus, then copies without an eighth of the words."""
    generator = random.Random(seed)  # noqa: S311
    source = list(iterate_sentiment140(data_folder() / SOURCE))
    generator.shuffle(source)
    names = ("negative", "positive")
    for number in range(count):
        copy, place = divmod(number, len(source))
        text, target = source[place]
        if copy:
            words = text.split()
            bits = generator.getrandbits
            lost = bits(len(words) + 1) & bits(len(words) + 1) & bits(len(words) + 1)
            text = " ".join(word for at, word in enumerate(words) if not lost >> at & 1)
        yield text, names[target]


def write_shards(folder: Path, count: int, seed: int = 0) -> None:
    """Write Parquet files of ``SHARD_ROWS`` rows, unless they are complete already."""
    import pyarrow
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    complete = folder / "_complete"
    if complete.exists() and complete.read_text() == f"{count} {seed}":
        return
    rows = tweets(count, seed)
    for number in range(-(-count // SHARD_ROWS)):
        texts, labels = zip(*islice(rows, SHARD_ROWS), strict=True)
        table = pyarrow.table({"text": texts, "label": labels})
        parquet.write_table(table, folder / f"{number:05}.parquet", compression="zstd")
    complete.write_text(f"{count} {seed}")


def resident(process: int) -> int:
    """Resident bytes of a process and all its children, file pages included."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it has ended
        return 0
    own = next((line for line in status.splitlines() if line.startswith("VmRSS:")), "VmRSS: 0 kB")
    return int(own.split()[1]) * 1024 + sum(resident(int(child)) for child in children)


def measure(shards: Path, work: Path, epochs: int) -> dict[str, Any]:
    """Train on ``shards``, and read the resident memory every second."""
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    command = [sys.executable, "-m", "dcnn", "train", str(shards), "--out", str(work / "model")]
    command += ["--epochs", str(epochs), "--device", "cpu", "--stream", *settings]
    environment = os.environ | {"DCNN_CACHE": str(work / "cache")}
    log, curve, started, encoded = work / "log", [], time.monotonic(), None
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env=environment, stderr=stream)
        while process.poll() is None:
            seconds = round(time.monotonic() - started, 1)
            curve.append((seconds, resident(process.pid)))
            if encoded is None and "dev examples" in log.read_text():
                encoded = seconds
            time.sleep(1)
    print(log.read_text())
    if process.returncode:
        sys.exit(f"training ended with the exit code {process.returncode}")
    card = json.loads((work / "model" / "config.json").read_text())
    return {
        "command": " ".join(["dcnn", *command[3:4], "SHARDS", *command[7:]]),
        "metadata": card["metadata"],
        "cores": len(os.sched_getaffinity(0)),
        "bytes_of_shards": sum(path.stat().st_size for path in shards.glob("*.parquet")),
        "bytes_of_store": sum(p.stat().st_size for p in (work / "cache").rglob("*") if p.is_file()),
        "seconds_until_encoded": encoded,
        "seconds": curve[-1][0],
        "peak_bytes": max(bytes_ for _, bytes_ in curve),
        "peak_bytes_while_training": max(bytes_ for at, bytes_ in curve if at >= (encoded or 0)),
        "curve": thinned(curve),
    }


def thinned(curve: list[tuple[float, int]], points: int = 400) -> list[tuple[float, float]]:
    """The curve with fewer points, each the maximum of its interval, in MB."""
    step = -(-len(curve) // points)
    parts = [curve[at : at + step] for at in range(0, len(curve), step)]
    return [(part[0][0], round(max(bytes_ for _, bytes_ in part) / 1e6, 1)) for part in parts]


def draw(report: dict[str, Any]) -> str:
    """The curve as SVG."""

    def on(axes: Any) -> None:
        minutes = [at / 60 for at, _ in report["curve"]]
        axes.plot(minutes, [size / 1000 for _, size in report["curve"]], color=GREEN)
        axes.axhline(LIMIT / 1e9, color=RED, linestyle="--")
        axes.axvline(report["seconds_until_encoded"] / 60, color=GREY, linestyle=":")
        axes.set(xlabel="minutes; dotted: all is encoded", ylabel="GB resident", ylim=(0, 2.2))

    return draw_svg(on)


def main() -> None:
    """Make the corpus, train, and write."""
    parser = make_parser(__doc__, RESULTS / "memory.json")
    parser.add_argument("--sentences", type=int, default=20_000_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--work", type=Path, help="keep shards and store in this folder")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        write_shards(work / "shards", options.sentences)
        report = {"sentences": options.sentences} | measure(work / "shards", work, options.epochs)
    write_json(options.out, report | provenance())
    options.picture.write_text(draw(report) + "\n")
    peak = report["peak_bytes"]
    print(f"{options.sentences:,} sentences, {peak / 1e9:.2f} GB at most")
    if peak > LIMIT:
        sys.exit(f"that is above {LIMIT / 1e9:.0f} GB")


if __name__ == "__main__":
    main()
