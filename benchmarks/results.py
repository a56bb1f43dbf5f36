"""What the benchmarks share: options, timing, random networks, and their results files."""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.artifact import Artifact
from dcnn.config import Config
from dcnn.experiments import results
from dcnn.experiments.tables import NOTHING, write_blocks
from dcnn.files import write_atomically
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import Vocabulary

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "bench"
CLASSES = ("negative", "positive")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


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


def is_current(source: Mapping[str, Any], settings: object, commit: str | None = None) -> bool:
    """Whether runs that say of themselves what ``source`` says need not be made again.

    Args:
        source: with ``settings``, if they are of a network, and ``commit``.
        settings: those of the network today; none for what has no settings of ours.
        commit: of a network, the commit that alone counts; none if settings decide.
    """
    if settings is None:
        return True
    return source.get("settings") == settings and commit in (None, source.get("commit"))


def commit_of_rerun(parser: argparse.ArgumentParser) -> str:
    """The commit whose runs ``--rerun`` need not make again, so that it can continue."""
    commit = results.commit()
    if commit == "unknown" or commit.endswith("-dirty"):
        parser.error(f"--rerun: the commit is {commit}; commit the files, or set DCNN_COMMIT")
    return commit


def percent(value: float | None, others: Iterable[float | None]) -> str:
    """A cell of a table; the best of its group is bold."""
    if value is None:
        return NOTHING
    best = max(round(100 * other, 1) for other in others if other is not None)
    shown = f"{100 * value:.1f}"
    return f"**{shown}**" if round(100 * value, 1) == best else shown


def difference(values: Mapping[str, float | None], ours: str, baselines: Iterable[str]) -> str:
    """In points, ``ours`` minus the best of the baselines."""
    found, own = [values[name] for name in baselines], values[ours]
    known = [value for value in found if value is not None]
    if own is None or not known:
        return NOTHING
    return f"{round(100 * (own - max(known)), 1) + 0.0:+.1f}"  # 0.0 makes -0.0 positive


def ensemble_title(title: str, runs: Iterable[Mapping[str, Any]]) -> str:
    """A model's name, with the size of the ensemble that its ``runs`` are."""
    sizes = sorted({run.get("n_ensemble", 1) for run in runs} or {1})
    shown = " to ".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))
    return title if shown == "1" else f"{title}, {shown} in one"
