"""What the benchmarks share: options, timing, random networks, and their results files."""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.artifact import Artifact
from dcnn.config import Config
from dcnn.experiments import results
from dcnn.experiments.tables import write_blocks
from dcnn.files import write_atomically
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import Vocabulary

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "bench"
CLASSES = ("negative", "positive")


def make_parser(
    description: str | None, out: Path | None = None, block: str = ""
) -> argparse.ArgumentParser:
    """A parser whose help is ``description`` as it is.

    Args:
        description: the docstring of the benchmark.
        out: the default of ``--out``, which is left out without one.
        block: the name of the block that ``--write`` renders, which is left out without one.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if out is not None:
        parser.add_argument("--out", type=Path, default=out, help="the results file")
    if block:
        text = f"only render the block {block} of this page from the results file"
        parser.add_argument("--write", type=Path, metavar="PAGE", help=text)
    return parser


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Hardware, versions, commit and date, as every results file has them."""
    return {
        "hardware": results.hardware(device),
        "versions": results.versions(),
        "commit": results.commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def read_json(path: Path) -> Any:
    """The content of a results file."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, report: dict[str, Any]) -> None:
    """Write a results file atomically; its folder is created if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as stream:
        stream.write(json.dumps(report, indent=1).encode() + b"\n")
    print(path)


def render_block(page: Path, block: str, markdown: str) -> None:
    """Replace a block of a page."""
    write_blocks([page], {block: markdown})


def random_artifact(words: Sequence[str], scale: float, config: Config | None = None) -> Artifact:
    """A network with random weights, by default that of SST binary.

    Args:
        words: its vocabulary.
        scale: standard deviation of the weights.
        config: its settings.
    """
    config = config or Config()
    encoder = Encoder(Tokenizer(), Vocabulary(words))
    generator = np.random.default_rng(0)
    shapes = config.model.parameter_shapes(len(encoder.vocabulary), len(CLASSES))
    weights = {
        name: generator.normal(0, scale, shape).astype(np.float32) for name, shape in shapes.items()
    }
    return Artifact(config, CLASSES, encoder, weights)


def seconds_per_call(call: Callable[[], object], calls: int) -> list[float]:
    """The duration of each of ``calls`` calls."""
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return times


def median_microseconds(call: Callable[[], object], calls: int) -> float:
    """The median duration of a call."""
    return 1e6 * statistics.median(seconds_per_call(call, calls))
