"""Scoring on a real Ray on this machine, with workers and commands killed from outside.

``make test-scale`` runs these: Ray is not part of what `make setup` installs.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arrow_writing import write_columns
from dcnn import artifact as model_folder
from dcnn.cli.predict import predict
from untrained import VOCABULARY_TEXT, make_artifact

pytestmark = pytest.mark.scale

SHARDS, ROWS = 4, 40_000  # a shard takes a worker a second or more: time enough to kill it
WORDS = VOCABULARY_TEXT.split()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a model, shards, and what they are scored as without Ray."""
    pytest.importorskip("ray.data", reason="Ray is not installed: pip install 'dcnn[ray]'")
    folder = tmp_path_factory.mktemp("ray")
    model_folder.save(folder / "model", make_artifact(classes=("a", "b", "c")))
    (folder / "in").mkdir()
    draw = random.Random(0)
    for number in range(SHARDS):
        texts = [f"{' '.join(draw.choices(WORDS, k=8))} {number} {i}" for i in range(ROWS)]
        write_columns(folder / "in" / f"{number}.parquet", {"text": texts})
    local = folder / "local"
    predict(folder / "model", source=folder / "in", output=local, engine="local")
    return folder


@pytest.fixture
def started(place) -> Iterator[Callable[[str], subprocess.Popen]]:
    """Start the command, and end it after the test."""
    running: list[subprocess.Popen] = []

    def start(output: str, source: str = "in") -> subprocess.Popen:
        arguments = ("--input", source, "--output", output, "--engine", "ray", "--workers", "2")
        process = subprocess.Popen(
            [sys.executable, "-m", "dcnn", "predict", "model", *arguments],
            cwd=place,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"COLUMNS": "200"},
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def ended(process: subprocess.Popen) -> tuple[int, str]:
    _, err = process.communicate(timeout=240)
    assert "Traceback" not in err, err
    return process.returncode, err


def wait_for_a_worker(output: Path, besides: tuple[int, ...] = ()) -> int:
    """The process that is writing a shard into ``output`` right now."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
            process = int(descriptor.parts[2])
            try:
                written = descriptor.readlink()
            except OSError:  # it has just been closed
                continue
            if written.parent == output and written.suffix == ".tmp" and process not in besides:
                return process
        time.sleep(0.01)
    raise AssertionError("no worker has begun to write")


def test_ray_writes_what_one_process_writes_and_skips_finished_shards(place, started):
    code, err = ended(started("whole"))
    assert code == 0
    assert f"{SHARDS} of {SHARDS} shards scored, {SHARDS * ROWS:,} rows" in err
    assert contents(place / "whole") == contents(place / "local")
    (place / "whole" / "00002-2.parquet").unlink()
    code, err = ended(started("whole"))
    assert f"1 of {SHARDS} shards scored, {ROWS:,} rows" in err
    assert f"{SHARDS - 1} were scored already" in err
    assert contents(place / "whole") == contents(place / "local")


def test_killed_workers_lose_no_row_and_write_none_twice(place, started):
    process = started("killed")
    first = wait_for_a_worker(place / "killed")
    os.kill(first, signal.SIGKILL)
    os.kill(wait_for_a_worker(place / "killed", besides=(first,)), signal.SIGKILL)
    code, _ = ended(process)
    assert code == 0
    assert contents(place / "killed") == contents(place / "local")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_or_stopped_command_continues_when_repeated(place, started, number):
    output = place / f"stopped-{number}"
    process = started(output.name)
    while not list(output.glob("[0-9]*.parquet")):  # the first shards are done
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert ("the same command continues" in err) == (number == signal.SIGINT)
    done = contents(output)
    code, err = ended(started(output.name))
    assert code == 0
    assert "were scored already" in err
    assert contents(output) == contents(place / "local")
    assert [name for name in done if name.startswith("0")]


def test_a_corrupt_shard_is_named_and_all_others_are_scored(place, started):
    (place / "bad").mkdir()
    for number in range(SHARDS):
        content = (place / "in" / f"{number}.parquet").read_bytes()
        (place / "bad" / f"{number}.parquet").write_bytes(content[: None if number != 1 else -9])
    code, err = ended(started("rest", source="bad"))
    assert code == 1
    assert "bad/1.parquet: damaged, cut short or no .parquet file" in err
    assert "dcnn: bad: left out 1 file, reported above" in err
    whole = contents(place / "local")
    del whole["00001-1.parquet"]
    assert contents(place / "rest") == whole
