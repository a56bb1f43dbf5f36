"""Faults at random while the software works: killed processes, slow clients, full disks, signals.

    make soak SOAK_MINUTES=30

The server answers a mixed load on 127.0.0.1 while its workers are killed and its log has no room:
every answer equals the one that a quiet server gave, or is 503; a request may be lost only if a
worker is killed before its answer is complete; SIGTERM loses none; memory does not grow. Training
(also under torchrun), tuning and the scoring of shards are killed with SIGKILL, at any moment or
while they save, and repeated until they end: the weights are those of a run that was left alone, no
row is lost or doubled, and an old model stays until the new one is complete. Commands on a disk
that fills up end with exit code 1 and change nothing.

What is done follows from the seed; when exactly it happens, from the machine. The report,
results/soak.json, counts it all. A fault is also printed and makes the exit code 1.
"""

import argparse
import csv
import hashlib
import http.client
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from dcnn import artifact as model_folder
from dcnn.errors import DcnnError
from dcnn.experiments.results import commit, hardware, versions
from dcnn.files import write_atomically
from dcnn.serve.server import HEAD_SECONDS
from serve_process import Running, start_server
from untrained import VOCABULARY_TEXT, make_artifact

REPORT = Path(__file__).parents[2] / "results" / "soak.json"
CLIENTS = 4
PATIENCE = 120.0  # seconds for an answer or a command, on a machine that has other work
LEAK = 1.0  # megabytes per thousand requests that are no longer noise
SMALL = (
    "--set", "model.dim=8", "--set", "model.widths=[4,3]", "--set", "model.maps=[2,2]",
    "--set", "model.k_top=2", "--set", "training.patience=0",
)  # fmt: skip


@dataclass
class Soak:
    """What has been done and found."""

    rng: random.Random
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    figures: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def check(self, holds: bool, fault: str) -> None:
        """Record a fault unless ``holds``."""
        if not holds:
            self.faults.append(fault)
            print(fault, flush=True)


def start(folder: Path, arguments: Sequence[object], **options: Any) -> subprocess.Popen[str]:
    """``dcnn ARGUMENTS`` in a folder, with both of its streams in one pipe."""
    launcher = ["-m", "dcnn"]
    if arguments[0] == "torchrun":
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        launcher += ["--max-restarts", "3", "-m", "dcnn"]
        arguments = arguments[1:]
    environment = {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "DCNN_CACHE": str(folder / "cache")}
    return subprocess.Popen(
        [sys.executable, *launcher, *map(str, arguments)],
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def children(process: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    found: list[int] = []
    with suppress(OSError):  # it has just ended
        for listing in Path(f"/proc/{process}/task").glob("*/children"):
            found += map(int, listing.read_text().split())
    return found + [below for child in found for below in children(child)]


def kill(processes: Sequence[int]) -> None:
    """End processes that this one has started, without a chance to clean up."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of all files below a folder, except hidden ones."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "/." not in f"/{path.relative_to(folder)}"
    }


def write_examples(path: Path, rng: random.Random, rows: int) -> Path:
    """A table of labelled texts."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("text", "label"))
        for number in range(rows):
            words = " ".join(rng.choices(VOCABULARY_TEXT.split(), k=rng.randrange(1, 12)))
            good = rng.random() < 0.5
            writer.writerow((f"{words} {'good' if good else 'bad'} {number}", "np"[good]))
    return path


def requests(rng: random.Random) -> dict[str, tuple[str, str, bytes, dict[str, str]]]:
    """Method, path, body and headers of what clients ask, by name."""
    words = VOCABULARY_TEXT.split()
    texts = [" ".join(rng.choices(words, k=rng.randrange(1, 30))) for _ in range(200)]
    table = "text,label\n" + "".join(f"{text.replace(',', ' ')},pos\n" for text in texts * 3)
    post = {
        "predict": ("/v1/predict", {"text": texts[0]}),
        "predict many": ("/v1/predict", {"texts": texts, "top": 2}),
        "explain": ("/v1/explain", {"text": texts[1]}),
        "compare": ("/v1/compare", {"texts": texts[2:4]}),
        "wrong": ("/v1/predict", {"text": 1}),
    }
    found = {
        name: ("POST", path, json.dumps(body).encode(), {}) for name, (path, body) in post.items()
    }
    found["file"] = ("POST", "/v1/predict-file?name=a.csv", table.encode(), {})
    found["models"] = ("GET", "/v1/models", b"", {})
    found["missing"] = ("GET", "/v1/nothing", b"", {})
    found["headers"] = ("GET", "/v1/models", b"", {f"x-{i}": "a" for i in range(200)})
    found["broken"] = ("POST", "/v1/predict", b'{"text": "a', {})
    return found


def ask(
    port: int, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, bytes]:
    """The status and the content of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def is_lost_with_a_worker(kills: Sequence[float], sent: float, failed: float) -> bool:
    """Whether a worker was killed while a request was on its way."""
    return any(sent <= at <= failed for at in kills)


class Load:
    """Clients that ask until they are stopped, and slow ones that hold connections meanwhile."""

    def __init__(
        self, soak: Soak, port: int, truth: dict[str, tuple[int, bytes]], asked: Any
    ) -> None:
        self.soak, self.port, self.truth, self.asked = soak, port, truth, asked
        self.kills: list[float] = []
        self.seconds: list[float] = []
        self.stopped = threading.Event()
        seeds = [soak.rng.random() for _ in range(CLIENTS + 2)]
        self.threads = [
            threading.Thread(target=self._ask if i < CLIENTS else self._dawdle, args=(seed,))
            for i, seed in enumerate(seeds)
        ]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Wait until every client has its last answer."""
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def _ask(self, seed: float) -> None:
        rng = random.Random(seed)
        names = [*self.asked, *["predict"] * 20]
        while not self.stopped.is_set():
            name, sent = rng.choice(names), time.monotonic()
            try:
                status, content = ask(self.port, *self.asked[name])
            except (OSError, http.client.HTTPException) as error:
                self.soak.check(
                    is_lost_with_a_worker(self.kills, sent, time.monotonic()),
                    f"server: {name} failed and no worker was killed: {error!r}",
                )
                self.soak.counts["requests lost with a killed worker"] += 1
                continue
            self.seconds.append(time.monotonic() - sent)
            self.soak.counts["requests"] += 1
            if status == 503:
                self.soak.counts["requests refused with 503"] += 1
            elif (status, content) != self.truth[name]:
                self.soak.check(False, f"server: {name} gave {status} {content[:200]!r}")

    def _dawdle(self, seed: float) -> None:
        """Open connections that send or read slowly, or not at all."""
        rng = random.Random(seed)
        method, path, body, _ = self.asked["file"]
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        whole = head.encode() + body
        while not self.stopped.is_set():
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), timeout=HEAD_SECONDS * 4) as one,
            ):
                self.soak.counts["slow connections"] += 1
                one.sendall(
                    whole[: rng.choice((0, 10, len(head) - 2, len(head) + 100, len(whole)))]
                )
                since = time.monotonic()
                for _ in range(rng.choice((1, 10, 1000))):
                    if self.stopped.wait(0.05) or not one.recv(64):
                        break
                    self.soak.check(
                        time.monotonic() - since < 150, "server: a slow client was never closed"
                    )


def resident(server: Running) -> float:
    """Megabytes of memory of the server's processes, shared pages in proportion."""
    total = 0
    for process in (server.process.pid, *children(server.process.pid)):
        with suppress(OSError):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1000


def slope(samples: Sequence[tuple[int, float]]) -> float:
    """Megabytes per thousand requests over the second half of (requests, megabytes)."""
    late = np.array(samples[len(samples) // 2 :], float)
    if len(late) < 3 or np.ptp(late[:, 0]) == 0:
        return 0.0
    return float(np.polyfit(late[:, 0] / 1000, late[:, 1], 1)[0])


def stop_server(soak: Soak, server: Running, body: bytes) -> None:
    """SIGTERM while a request is in flight, which is answered."""
    head = f"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(head.encode() + body[:5])
        time.sleep(1)  # until it has begun
        server.process.terminate()
        time.sleep(0.2)
        connection.sendall(body[5:])
        answer = http.client.HTTPResponse(connection)
        try:
            answer.begin()
            soak.check(answer.status == 200, f"server: status {answer.status} after SIGTERM")
        except (OSError, http.client.HTTPException) as error:
            soak.check(False, f"server: a request in flight was lost after SIGTERM: {error!r}")
    server.process.communicate(timeout=PATIENCE)
    code = server.process.returncode
    soak.check(code == 0, f"server: exit code {code} after SIGTERM")
    soak.counts["stops by SIGTERM"] += 1


def serve(soak: Soak, until: float) -> None:
    """One server after the other; the workers of all but the first are killed."""
    model_folder.save(soak.folder / "m", make_artifact())
    asked = requests(random.Random(0))
    truth: dict[str, tuple[int, bytes]] = {}
    latency: dict[str, list[float]] = {"alone": [], "workers killed": []}
    peak = 0.0
    for life in count():
        left = until - time.monotonic()
        if life > 1 and left < 10:
            break
        full = Path("/dev/full").open("w") if life % 2 else None  # noqa: SIM115
        log = {"stderr": full} if full else {}
        server = start_server(soak.folder, "m", "--workers", 2, "--log-requests", **log)
        if full is None:  # nobody else would read its log
            threading.Thread(target=lambda s=server: [*s.process.stderr], daemon=True).start()  # type: ignore[misc]
        truth = truth or {name: ask(server.port, *one) for name, one in asked.items()}
        load = Load(soak, server.port, truth, asked)
        end = time.monotonic() + max(5.0, left / 2 if life == 0 else min(left, 60))
        samples = []
        while time.monotonic() < end:
            time.sleep(soak.rng.uniform(0.5, 3) if life else 0.25)
            samples.append((len(load.seconds), resident(server)))
            if life:
                # The server ends when its workers are killed again and again before any is ready.
                with suppress(OSError, http.client.HTTPException):
                    ask(server.port, "GET", "/healthz", b"", {})
                time.sleep(soak.rng.uniform(0, 0.5))
                workers = children(server.process.pid)
                load.kills.append(time.monotonic())
                kill(soak.rng.sample(workers, min(len(workers), soak.rng.choice((1, 1, 2)))))
                soak.counts["kills"] += 1
            if (code := server.process.poll()) is not None:
                soak.check(False, f"server: it ended by itself with exit code {code}")
                load.stop()
                return
        load.stop()
        peak = max(peak, *(megabytes for _, megabytes in samples))
        latency["workers killed" if life else "alone"] += load.seconds
        if not life:
            grown = slope(samples)
            soak.check(grown < LEAK, f"server: {grown:.2f} MB more per 1,000 requests")
            soak.figures["memory"] = {"megabytes_per_1000_requests": round(grown, 3)}
        time.sleep(3)  # until killed workers are replaced
        stop_server(soak, server, asked["predict"][2])
        if full:
            full.close()
    soak.figures["memory"]["peak_megabytes"] = round(peak)
    soak.figures["latency"] = {
        name: {
            "requests": len(seconds),
            "median_seconds": round(float(np.median(seconds)), 4),
            "worst_seconds": round(max(seconds), 2),
        }
        for name, seconds in latency.items()
    }


@dataclass
class Killable:
    """A command that goes on where it was killed, and what says that it saves."""

    first: Sequence[object]
    again: Sequence[object]
    saves: Callable[[], bool]
    result: Callable[[], dict[str, str]]
    is_whole: Callable[[], bool] = lambda: (
        True
    )  # whether what was there before is there, or the new


def until_it_ends(soak: Soak, name: str, command: Killable, seconds: float, number: int) -> None:
    """Kill a command up to three times, every other time while it saves, then let it end."""
    arguments = command.first
    for attempt in count():
        process = start(soak.folder, arguments)
        waits = soak.rng.uniform(0, seconds)
        aimed, started = (attempt + number) % 2 == 0, time.monotonic()
        while attempt < 3 and process.poll() is None:
            if command.saves() if aimed else time.monotonic() - started > waits:
                found = [process.pid, *children(process.pid)]
                # One process of torchrun alone is started again with the others.
                alone = arguments[0] == "torchrun" and attempt > 0 and len(found) > 2
                alone = alone and soak.rng.random() < 0.5
                kill(found[1:][:1] if alone else found)
                soak.counts["kills"] += 1
                soak.counts["kills while it saved"] += aimed
                soak.counts["kills of a resumed run"] += attempt > 0
                break
            time.sleep(0.001)
        out, _ = process.communicate(timeout=PATIENCE * 2)
        if process.returncode == 0:
            return
        if process.returncode != -signal.SIGKILL:
            is_reported = arguments[0] == "torchrun"  # by torchrun, with the trace of its own code
            soak.check(is_reported or "Traceback" not in out, f"{name}: {out[-2000:]}")
            soak.check(attempt < 4, f"{name}: exit code {process.returncode}: {out[-1000:]}")
            if attempt == 4:
                return
        soak.check(command.is_whole(), f"{name}: neither the old output nor the new one is there")
        arguments = command.again
        soak.counts["resumed"] += 1


def kill_and_compare(
    name: str, make: Callable[[Soak, str], Killable]
) -> Callable[[Soak, float], None]:
    """A part of the soak: ``make`` gives the command that writes to a name."""

    def run(soak: Soak, until: float) -> None:
        whole = make(soak, "whole")
        started = time.monotonic()
        process = start(soak.folder, whole.first)
        out, _ = process.communicate(timeout=PATIENCE * 4)
        if process.returncode:
            soak.check(False, f"{name}: {out[-2000:]}")
            return
        truth, seconds = whole.result(), time.monotonic() - started
        for number in count():
            command = make(soak, f"killed{number}")
            until_it_ends(soak, name, command, seconds, number)
            found = command.result()
            soak.check(found == truth, f"{name}: run {number} ended with another result: {found}")
            soak.counts["runs"] += 1
            if time.monotonic() + 2 * seconds > until:
                return

    return run


def weights(out: Path) -> dict[str, str]:
    """The digests of what a model folder predicts with."""
    names = (model_folder.WEIGHTS, model_folder.TOKENIZER)
    return {name: digest for name, digest in digests(out).items() if name in names}


def _train(launcher: Sequence[str]) -> Callable[[Soak, str], Killable]:
    def make(soak: Soak, name: str) -> Killable:
        out = soak.folder / name
        data = soak.folder / "train.csv"
        if not data.exists():
            write_examples(data, random.Random(0), 400)
        old = make_artifact(seed=5)
        model_folder.save(out, old)  # which the new one replaces
        before = weights(out)
        command = [*launcher, "train", data, "--out", name, "--epochs", 12, *SMALL]
        command += ["--checkpoint-seconds", 0.02, "--overwrite"]
        temporary = [out.with_name(f".{name}{end}.tmp") for end in (".checkpoint", "")]
        choice = soak.rng.choice(temporary)

        def is_whole() -> bool:
            if weights(out) == before:
                return True
            replaced = out.with_name(f".{name}.old")  # for a moment, until the next run at most
            with suppress(DcnnError):
                return bool(model_folder.load(out if out.exists() else replaced).weights)
            return False

        return Killable(
            command, [*command, "--resume"], choice.exists, lambda: weights(out), is_whole
        )

    return make


def _tune(soak: Soak, name: str) -> Killable:
    data = soak.folder / "tune.csv"
    if not data.exists():
        write_examples(data, random.Random(1), 60)
    command = [
        "tune",
        data,
        "--out",
        name,
        "--trials",
        3,
        "--folds",
        2,
        "--set",
        "training.epochs=2",
    ]
    journal = soak.folder / f"{name}-tune" / "study.journal"
    least = soak.rng.choice((1, 2000, 6000))

    def saves() -> bool:  # trials are appended to the journal
        return journal.exists() and journal.stat().st_size > least

    return Killable(
        command,
        [*command, "--resume"],
        saves,
        lambda: (
            weights(soak.folder / name)
            | {"best.toml": hashlib.sha256(_settings(soak.folder / f"{name}-tune")).hexdigest()}
        ),
    )


def _settings(report: Path) -> bytes:
    """The best settings without comments, which have names and times."""
    lines = (report / "best.toml").read_bytes().splitlines()
    return b"\n".join(line for line in lines if not line.startswith(b"#"))


def _shards(soak: Soak, name: str) -> Killable:
    if not (soak.folder / "in").exists():
        model_folder.save(soak.folder / "m", make_artifact())
        for number in range(6):
            write_examples(soak.folder / "in" / f"{number}.csv", random.Random(number), 20_000)
    command = ["predict", "m", "--input", "in", "--output", name, "--engine", "local"]

    def saves() -> bool:
        return any((soak.folder / name).glob(".*.tmp"))

    def result() -> dict[str, str]:
        left = [path.name for path in (soak.folder / name).glob(".*")]
        soak.check(not left, f"shards: {left} was left")
        return digests(soak.folder / name)

    return Killable(command, command, saves, result)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[bool]:
    """Mount a file system of ``size`` bytes where that is possible; yields whether it is."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = not subprocess.run(command, capture_output=True).returncode
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill_disks(soak: Soak, until: float) -> None:
    """Commands that replace their outputs while the disk, or the size of a file, has an end."""
    data = write_examples(soak.folder / "data" / "a.csv", random.Random(2), 3000)
    disk = soak.folder / "disk"
    disk.mkdir()
    with small_disk(disk, 8 << 20) as mounted:
        soak.figures["limits"] = ["RLIMIT_FSIZE", *["tmpfs"] * mounted]
        model_folder.save(disk / "m", make_artifact())
        train = ["train", data, "--out", "m", "--overwrite", "--epochs", 2, *SMALL]
        predict = ["predict", "m", "--input", data, "--output"]
        commands = [
            [*train, "--checkpoint-seconds", 0],
            *([*predict, f"out.{suffix}"] for suffix in ("csv", "jsonl", "parquet", "feather")),
            [*predict, "shards", "--engine", "local"],
            ["export", "m", "--out", "m.html", "--overwrite"],
            ["export", "m", "--out", "m.onnx", "--overwrite"],
            ["evaluate", "m", data, "--errors", "errors.csv"],
        ]
        ballast = disk / ".ballast"
        for number in count():
            arguments = commands[number % len(commands)]
            first = number < len(commands)
            before = digests(disk)
            limit = soak.rng.choice((0, 100, 1000, 10_000, 50_000, 200_000))
            options: dict[str, Any] = {}
            if not first and mounted and soak.rng.random() < 0.5:
                room = os.statvfs(disk)
                ballast.write_bytes(b"\0" * max(0, room.f_bavail * room.f_frsize - limit))
            elif not first:
                most = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
                options = {"preexec_fn": most}
            process = start(disk, arguments, **options)
            out, _ = process.communicate(timeout=PATIENCE)
            ballast.unlink(missing_ok=True)
            shown = f"disk: {' '.join(map(str, arguments))} with {limit:,} bytes: "
            if process.returncode == 0:
                soak.counts["commands that had room"] += 1
            else:
                soak.counts["commands without room"] += 1
                soak.check(not first, shown + out[-1000:])
                soak.check(process.returncode == 1, f"{shown}exit code {process.returncode}: {out}")
                soak.check("Traceback" not in out, shown + out[-2000:])
                after = digests(disk)
                lost = {name for name, digest in before.items() if after.get(name) != digest}
                soak.check(not lost, f"{shown}changed {sorted(lost)}")
                left = [path.name for path in disk.rglob(".*.tmp")]
                soak.check(not left, f"{shown}left {left}")
                (disk / "m.checkpoint").unlink(missing_ok=True)
            if number >= len(commands) + 2 and time.monotonic() > until:
                return


PARTS: dict[str, tuple[float, Callable[[Soak, float], None]]] = {  # share of the time
    "server": (0.35, serve),
    "train": (0.15, kill_and_compare("train", _train([]))),
    "torchrun": (0.15, kill_and_compare("torchrun", _train(["torchrun"]))),
    "tune": (0.15, kill_and_compare("tune", _tune)),
    "shards": (0.1, kill_and_compare("shards", _shards)),
    "disk": (0.1, fill_disks),
}


def main() -> int:
    """Run all parts; 1 if there is a fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--out", type=Path, default=REPORT)
    options = parser.parse_args()
    started, parts, faults = time.monotonic(), {}, []
    all_shares = sum(PARTS[name][0] for name in options.parts)
    for name in options.parts:
        share, run = PARTS[name]
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            soak = Soak(random.Random(f"{options.seed} {name}"), Path(folder))
            run(soak, begun + 60 * options.minutes * share / all_shares)
        seconds = round(time.monotonic() - begun, 1)
        parts[name] = {"seconds": seconds, **dict(sorted(soak.counts.items())), **soak.figures}
        faults += soak.faults
        print(name, json.dumps(parts[name]), flush=True)
    kills = sum(part.get("kills", 0) for part in parts.values())
    report = {
        "seed": options.seed,
        "seconds": round(time.monotonic() - started, 1),
        "kills": kills,
        "parts": parts,
        "faults": faults,
        "hardware": hardware("cpu"),
        "versions": versions(),
        "commit": commit(),
    }
    with write_atomically(options.out) as stream:
        stream.write((json.dumps(report, indent=1) + "\n").encode())
    print(f"{kills} kills in {report['seconds']:.0f} s, {len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
