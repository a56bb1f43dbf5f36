"""The server under load, compared with the bare framework: rate, latency, memory.

    python benchmarks/serve.py                  # about two minutes, writes results/bench/serve.json
    python benchmarks/serve.py --minutes 5      # the memory over five minutes of load too

The load generator is wrk (Debian's package of that name): 32 connections, one thread; each sends
its next request as soon as it has an answer. It runs on the same cores as the server. A request is
one sentence of 20 words out of a hundred; the network is SST binary's (d=48, widths 7 and 5, maps 6
and 14, k_top 4) with random weights. The bare framework is a FastAPI application under the same
uvicorn that reads no body and answers a constant. Rounds alternate between the two; figures are
medians over the rounds.
"""

import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dcnn import artifact as model_folder
from results import RESULTS, make_parser, provenance, random_artifact, write_json

VOCABULARY, SENTENCES, WORDS = 15_000, 100, 20
CONNECTIONS = 32

BARE = """
from fastapi import FastAPI

app = FastAPI()


@app.post("/bare")
async def bare() -> dict[str, object]:
    return {"label": "positive", "probability": 0.9}
"""

# wrk runs this: a hundred sentences in turn.
SCRIPT = """
local bodies = {%s}
local next_body = 0
wrk.headers["Content-Type"] = "application/json"
request = function()
  next_body = next_body %% #bodies + 1
  return wrk.format("POST", nil, nil, bodies[next_body])
end
"""


def make_files(folder: Path) -> None:
    """The model, the bare application and wrk's script."""
    words = [f"word{i}" for i in range(VOCABULARY)]
    model_folder.save(folder / "model", random_artifact(words, scale=0.3))
    generator = np.random.default_rng(0)
    (folder / "bare.py").write_text(BARE)
    bodies = [
        json.dumps({"text": " ".join(generator.choice(words, WORDS))}) for _ in range(SENTENCES)
    ]
    (folder / "load.lua").write_text(SCRIPT % ", ".join(f"[[{body}]]" for body in bodies))


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(folder: Path, kind: str, workers: int) -> Iterator[tuple[str, int]]:
    """Our server or a bare one; its address and its process."""
    port = free_port()
    if kind == "ours":
        command = ["-m", "dcnn", "serve", "model", "--port", str(port), "--workers", str(workers)]
        path = "/v1/predict"
    else:
        command = ["-m", "uvicorn", "bare:app", "--port", str(port), "--workers", str(workers)]
        command += ["--no-access-log", "--log-level", "error"]
        path = "/bare"
    process = subprocess.Popen([sys.executable, *command], cwd=folder, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}{path}"
    try:
        wait_for(address)
        yield address, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=40)


def wait_for(address: str) -> None:
    """Send requests until one is answered."""
    for _ in range(300):
        try:
            urllib.request.urlopen(address, b'{"text": "x"}').read()  # noqa: S310
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{address} does not answer")


def load(folder: Path, address: str, seconds: float, connections: int) -> dict[str, float]:
    """Rate, latencies in milliseconds, and the number of errors."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency", "-s", "load.lua"]
    printed = subprocess.run(
        [*command, address], cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", printed)
    errors = re.search(r"Non-2xx or 3xx responses: (\d+)", printed)
    if rate is None:
        raise SystemExit(f"wrk printed no rate:\n{printed}")
    return {
        "requests_per_second": float(rate[1]),
        "p50_ms": latency(printed, "50"),
        "p99_ms": latency(printed, "99"),
        "errors": int(errors[1]) if errors else 0,
    }


def latency(printed: str, share: str) -> float:
    """A line such as ``99%   12.72ms`` in milliseconds."""
    found = re.search(rf"^\s+{share}%\s+([\d.]+)(us|ms|s)\s*$", printed, re.MULTILINE)
    if found is None:
        raise SystemExit(f"wrk printed no latency:\n{printed}")
    return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found[2]]


def memory(process: int) -> float:
    """Megabytes of a process and its children; shared memory is counted once."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    total = 0
    for one in (process, *map(int, children)):
        rollup = Path(f"/proc/{one}/smaps_rollup").read_text()
        found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
        total += int(found[1]) if found else 0
    return round(total / 1024, 1)


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of every figure, and the slowest round's rate."""
    found = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    return {name: round(value, 3) for name, value in found.items()} | {
        "slowest_round": min(one["requests_per_second"] for one in rounds),
        "rounds": len(rounds),
    }


def throughput(folder: Path, workers: int, rounds: int, seconds: float) -> dict[str, object]:
    """Ours and the bare framework, with ``workers`` each."""
    measured: dict[str, list[dict[str, float]]] = {"ours": [], "bare": []}
    for _ in range(rounds):
        for kind, found in measured.items():
            with server(folder, kind, workers) as (address, _process):
                load(folder, address, 1, CONNECTIONS)  # warm
                found.append(load(folder, address, seconds, CONNECTIONS))
    return {kind: medians(found) for kind, found in measured.items()}


def explanations(folder: Path, seconds: float) -> dict[str, object]:
    """A client that explains without a pause, and its effect on concurrent predictions."""
    with server(folder, "ours", 1) as (address, _process):
        explain = address.replace("/v1/predict", "/v1/explain")
        load(folder, explain, 1, 1)
        alone = load(folder, explain, seconds, 1)
        beside = subprocess.Popen(
            ["wrk", "-t1", "-c1", f"-d{seconds + 2:g}s", "-s", "load.lua", explain],
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
        time.sleep(0.5)
        predictions = load(folder, address, seconds, CONNECTIONS)
        beside.wait()
    return {"explain": alone, "predictions_beside_it": predictions}


def over_time(folder: Path, workers: int, minutes: float) -> list[dict[str, float]]:
    """Memory under continuous load, one line every few seconds."""
    found = []
    with server(folder, "ours", workers) as (address, process):
        load(folder, address, 2, CONNECTIONS)
        step = min(15.0, 60 * minutes / 4)
        start = time.monotonic()
        while (passed := time.monotonic() - start) < 60 * minutes:
            rates = load(folder, address, step, CONNECTIONS)
            line = {"seconds": round(passed + step), "megabytes": memory(process), **rates}
            print(line, flush=True)
            found.append(line)
    return found


def main() -> None:
    """Measure, print, write."""
    parser = make_parser(__doc__, RESULTS / "serve.json")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="per round")
    parser.add_argument("--minutes", type=float, default=0.0, help="of load to watch the memory")
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is missing; install it with: apt-get install wrk")
    before = os.getloadavg()[0]
    report: dict[str, object] = {"connections": CONNECTIONS, "words": WORDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder)
        for workers in (1, 2):
            key = f"workers_{workers}"
            report[key] = throughput(folder, workers, given.rounds, given.seconds)
            print(key, json.dumps(report[key]), flush=True)
        report["explanations"] = explanations(folder, given.seconds)
        print("explanations", json.dumps(report["explanations"]), flush=True)
        if given.minutes:
            report["memory"] = over_time(folder, 2, given.minutes)
    write_json(given.out, report | {"load": round(before, 2)} | provenance())


if __name__ == "__main__":
    main()
