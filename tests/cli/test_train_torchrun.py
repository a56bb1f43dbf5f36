"""``dcnn train`` under ``torchrun``: two real processes give what one gives.

The tolerance is for the order of sums: float32 rounds to 6e-8 of a value, and a few dozen steps of
Adagrad, which divides by the size of the gradient, carry that on.
"""

import csv
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from dcnn import __version__
from dcnn.artifact import load
from dcnn.cli import app

TOLERANCE = 1e-4
SMALL = (
    "--set", "model.dim=8", "--set", "model.widths=[4,3]", "--set", "model.maps=[2,2]",
    "--set", "model.k_top=2", "--set", "training.batch_size=9", "--set", "training.ema=0.9",
    "--set", "training.class_weights=balanced", "--set", "training.patience=0",
)  # fmt: skip
long_one = pytest.mark.scale


@pytest.fixture
def shards(tmp_path):
    generator = random.Random(0)
    folder = tmp_path / "shards"
    folder.mkdir()
    words = ["plot", "cast", "end", "score", "joke"]
    for number in range(3):
        with (folder / f"{number}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("text", "label"))
            for _ in range(50):
                good = generator.random() < 0.4
                some = generator.choices(words, k=generator.randrange(1, 9))
                text = " ".join([*some, "is", "good" if good else "bad"])
                writer.writerow((text, "pos" if good else "neg"))
    return folder


class Torchrun:
    """Starts ``torchrun -m dcnn ARGUMENTS`` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, *arguments: object, restarts: int = 0) -> subprocess.Popen:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        launcher += ["--nproc-per-node", "2", "--max-restarts", str(restarts), "-m", "dcnn"]
        environment = {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "DCNN_CACHE": "cache"}
        return subprocess.Popen(
            [*launcher, *map(str, arguments)],
            cwd=self.folder,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: object) -> str:
        process = self.start(*arguments)
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, out
        return out


@pytest.fixture
def torchrun(tmp_path):
    return Torchrun(tmp_path)


def difference(first, second):
    one, two = (load_file(folder / "model.safetensors") for folder in (first, second))
    assert one.keys() == two.keys()
    return max(float(np.abs(one[name].astype(float) - two[name]).max()) for name in one)


def test_two_processes_give_the_weights_of_one(torchrun, shards, tmp_path, monkeypatch):
    monkeypatch.setenv("DCNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    command = ("train", str(shards), "--epochs", "2", *SMALL, "--stream")
    app([*command, "--out", "one"], standalone_mode=False)
    out = torchrun.run(*command, "--out", "two")
    assert out.count("135 training and 15 dev examples, 2 labels") == 1
    assert out.count("The model is in two") == 1
    assert 0 < difference(tmp_path / "one", tmp_path / "two") < TOLERANCE
    one, two = (load(tmp_path / name) for name in ("one", "two"))
    assert two.metadata["processes"] == 2
    assert one.metadata["dev_accuracy"] == two.metadata["dev_accuracy"]
    assert not (tmp_path / "two.checkpoint").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [("--version", 0, __version__), ("no-such-command", 2, "no-such")],
)
def test_its_processes_end_without_taking_themselves_apart(arguments, code, said):
    program = (
        "import atexit, sys; atexit.register(print, 'apart'); "
        f"sys.argv = ['dcnn', {arguments!r}]; from dcnn.__main__ import main; main()"
    )
    for environment, apart in (({"TORCHELASTIC_RUN_ID": "run"}, False), ({}, True)):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={name: value for name, value in os.environ.items() if "TORCHELASTIC" not in name}
            | environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code
        assert said in done.stdout + done.stderr  # nothing that was said is lost
        assert ("apart" in done.stdout) == apart


def names(checkpoint):
    return list(load_file(checkpoint))


def children(process):
    listing = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(number) for number in listing.read_text().split()]


def wait_until(holds, seconds=120):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


class TestLong:
    pytestmark = long_one

    @pytest.mark.parametrize("backend", ["native", "torch"])  # a sparse gradient, a dense one
    def test_a_corpus_in_memory_too(self, dcnn, torchrun, shards, tmp_path, backend, monkeypatch):
        monkeypatch.setenv("DCNN_BACKEND", backend)
        command = ("train", shards, "--epochs", 2, *SMALL)
        assert dcnn(*command, "--out", "one").code == 0
        torchrun.run(*command, "--out", "two")
        assert 0 < difference(tmp_path / "one", tmp_path / "two") < TOLERANCE

    @pytest.mark.parametrize("victim", [0, 1])
    def test_a_killed_worker_is_started_again_and_the_run_ends_right(
        self, torchrun, shards, tmp_path, victim
    ):
        command = ("train", shards, "--epochs", 40, *SMALL, "--stream")
        torchrun.run(*command, "--out", "whole")
        process = torchrun.start(
            *command, "--out", "killed", "--checkpoint-seconds", 0.1, restarts=1
        )
        checkpoint = tmp_path / "killed.checkpoint"
        wait_until(checkpoint.exists)
        first = checkpoint.stat().st_mtime_ns
        wait_until(lambda: checkpoint.exists() and checkpoint.stat().st_mtime_ns != first)
        os.kill(children(process)[victim], signal.SIGKILL)
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, out
        assert "Resumed in epoch" in out
        assert difference(tmp_path / "whole", tmp_path / "killed") == 0

    def test_ctrl_c_stops_all_at_one_step_and_resume_continues(self, torchrun, shards, tmp_path):
        command = ("train", shards, "--epochs", 40, *SMALL, "--stream")
        torchrun.run(*command, "--out", "whole")
        process = torchrun.start(*command, "--out", "stopped")
        wait_until((tmp_path / "stopped.checkpoint").exists)
        for number in [process.pid, *children(process)]:  # as a terminal does
            os.kill(number, signal.SIGINT)
        out, _ = process.communicate(timeout=300)
        assert process.returncode != 0
        assert out.count("the same command with --resume continues from there") == 1, out
        torchrun.run(*command, "--out", "stopped", "--resume")
        assert difference(tmp_path / "whole", tmp_path / "stopped") == 0

    @pytest.mark.parametrize("first", ["two", "one"])
    def test_another_number_of_processes_goes_on(self, torchrun, shards, tmp_path, first):
        command = ("train", shards, "--epochs", 150, *SMALL, "--stream", "--out", "m")
        alone = [sys.executable, "-m", "dcnn", *map(str, command)]
        environment = os.environ | {"COLUMNS": "200", "DCNN_CACHE": "cache"}
        options = {"cwd": tmp_path, "env": environment, "text": True}
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        saving = ("--checkpoint-seconds", "0.05")
        if first == "two":
            process = torchrun.start(*command, *saving)
        else:
            process = subprocess.Popen([*alone, *saving], **options, **piped)
        checkpoint = tmp_path / "m.checkpoint"
        wait_until(
            lambda: checkpoint.exists() and any("best/" in name for name in names(checkpoint))
        )
        for number in [process.pid, *children(process)]:
            os.kill(number, signal.SIGINT)
        process.communicate(timeout=300)
        if first == "two":
            out = subprocess.run([*alone, "--resume"], **options, **piped, check=True).stdout
        else:
            out = torchrun.run(*command, "--resume")
        assert "Resumed in epoch" in out
        assert load(tmp_path / "m").metadata["dev_accuracy"] > 0.8

    def test_what_is_wrong_is_said_and_nobody_waits(self, torchrun, shards):
        started = time.monotonic()
        process = torchrun.start("train", shards, "--out", "m", "--label-column", "lable")
        out, _ = process.communicate(timeout=300)
        assert process.returncode != 0
        assert out.count("--label-column 'lable' is no column") == 1, out
        # What follows is torchrun's own report.
        assert "Traceback" not in out.partition("torch/distributed/elastic")[0]
        assert time.monotonic() - started < 60

    def test_many_runs_end_without_an_abort(self, torchrun, shards):
        for number in range(10):
            torchrun.run("train", shards, "--out", f"m{number}", "--epochs", 1, *SMALL)
