"""Hostile input at random: texts, files of every format, model folders and requests.

    make fuzz FUZZ_SECONDS=1800

A case follows from the seed and its number alone. Each is expected to be used or to be refused with
one of ``dcnn.errors``; anything else is a finding: another exception, a crash, more than
``SECONDS`` or ``MEMORY``, an answer of status 500, or a backend that differs from the reference.
The input of a finding is written to tests/fuzz/cases, which later runs try first. The report,
results/fuzz.json, also has the number to go on from, and the cases and CPU time since a finding or
a change of the code.
"""

import argparse
import csv
import datetime
import hashlib
import io
import json
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # forked processes must not have threads

# ruff: noqa: E402
import numpy as np

from command_line import run_here
from dcnn import artifact as model_folder
from dcnn.config import TextConfig, load_toml
from dcnn.data.corpora.sentiment140 import read_sentiment140
from dcnn.data.corpora.sst import read_trees
from dcnn.data.corpora.trec import read_trec
from dcnn.data.readers import TableOptions, read_labelled, read_rows
from dcnn.errors import DcnnError
from dcnn.experiments.results import commit, hardware, versions
from dcnn.export.onnx import decided_by_rounding
from dcnn.files import write_atomically
from dcnn.ops import reference
from dcnn.predictor import Predictor
from dcnn.text.encoder import Encoder
from dcnn.text.vectors import load_vectors
from dcnn.text.vocabulary import Vocabulary
from untrained import VOCABULARY_TEXT, make_artifact

CASES = HERE / "cases"
ROOT = HERE.parents[1]
REPORT = ROOT / "results" / "fuzz.json"
SECONDS, MEMORY = 20.0, 4 << 30  # of a case; address space of the process that tries it
START = 60  # seconds until the process that tries cases has imported what they need
PER_PROCESS = 400  # cases; a fresh process has a fresh peak of memory

TEXT = "the plot is not dull , but good\u0301 \U0001f44d\U0001f3fd \u0e2a\u0e27\u0e31 \u4f60\u597d"
LABELLED = [(TEXT, "pos"), ('say "no", 3.14\r\n', "neg"), ("", "pos"), ("a" * 50, "neg")]
SIGNS = (
    *"\0\x1b\t\r\n\"',;|{}[]:\\ a0-.", "\ud83d", "\u202e", "\u0301", "\u200d", "\ufeff", "\u2028",
    "\U0001f1e6", "\U0010ffff", "\u0e33", "\uac00", "\u1112\u1161", "\ufb03", "\u0130",
)  # fmt: skip
TOKENS = [
    *(sign.encode("utf-8", "surrogatepass") for sign in SIGNS),
    *(b"\xff", b"\xfe\xff", b"NaN", b"Infinity", b"-1", b"1e999", b"9" * 30, b"null", b"true"),
    *(b'""', b"[[", b"{}", b"\\ud800", b"\\u0000", b"../", b"0" * 40, b"text", b"label"),
]
VALUES = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**30, 0.5, -0.0, float("nan"), float("inf"), 1e308),
    *("", "x", "\x1b[2J", "\ud83d", "a" * 2000, [], [[]], {}, {"a": 1}, ["x"] * 50, [4] * 300),
)


class Target(NamedTuple):
    """What is tried: how a case is made, and what it goes through."""

    make: Callable[[random.Random], bytes]
    use: Callable[[bytes, Path], None]
    share: int


def mutated(rng: random.Random, content: bytes) -> bytes:
    """A few random changes of ``content``."""
    parts = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(parts) + 1)
        size = min(rng.choice((1, 2, 8, 64, 1024)), len(parts) - at)
        match rng.randrange(7):
            case 0 if at < len(parts):
                parts[at] ^= 1 << rng.randrange(8)
            case 1:
                parts[at:at] = rng.choice(TOKENS)
            case 2:
                del parts[at : at + size]
            case 3:
                parts[at:at] = parts[at : at + size] * rng.choice((1, 3, 300))
            case 4:
                parts[at : at + size] = rng.randbytes(size)
            case 5:
                parts[at : at + 4] = rng.choice((0, 1, 2**31 - 1, 2**32 - 1)).to_bytes(4, "little")
            case _:
                if rng.random() < 0.2:
                    del parts[at:]
    return bytes(parts)


def changed(rng: random.Random, value: Any) -> Any:
    """``value``, of JSON, with one node replaced."""
    if isinstance(value, dict | list) and value and rng.random() < 0.8:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = rng.choice(keys)
        copy: Any = dict(value) if isinstance(value, dict) else list(value)
        if rng.random() < 0.15:
            del copy[key]
        else:
            copy[key] = changed(rng, value[key])
        return copy
    return rng.choice(VALUES)


def some_text(rng: random.Random) -> str:
    """A text that no person wrote, and now and then a long one."""
    choices = [*SIGNS, *TEXT, *VOCABULARY_TEXT.split(), chr(rng.randrange(0x110000)), " "]
    count = rng.choice((0, 1, 5, 30, 200, 20_000))
    if rng.random() < 0.3:  # runs of few
        choices = rng.choices(choices, k=rng.choice((1, 2, 4)))
    return "".join(rng.choices(choices, k=count))


def _encoders() -> list[Encoder]:
    texts = [VOCABULARY_TEXT, TEXT] * 4
    settings = [{"tokenizer": name} for name in ("words", "tweet", "whitespace", "characters")]
    settings += [{"tokenizer": name, "n_subwords": 60} for name in ("bpe", "unigram")]
    settings += [{"char_ngrams": (3, 5), "n_buckets": 50}, {"lowercase": False}]
    return [Encoder.learn(texts, TextConfig(**one))[0] for one in settings]  # type: ignore[arg-type]


ENCODERS = _encoders()
ARTIFACTS = [
    make_artifact(),
    make_artifact(char_ngrams=(3, 5)),
    make_artifact(thresholds=(0.4, 0.5)),
]
PREDICTORS = [Predictor(one) for one in ARTIFACTS]


def use_text(content: bytes, _: Path) -> None:
    """Every tokenizer, native against Python, and the chosen backend against the reference."""
    text = content.decode("utf-8", "surrogatepass")
    for encoder in ENCODERS:
        sentences, tokens = encoder.encode_all([text]), encoder.tokenizer(text)
        assert len(sentences.ids)
        assert len(tokens) <= 4 * len(text) + 1
        in_python = encoder.encode_words([tokens])
        assert np.array_equal(sentences.ids, in_python.ids), encoder.tokenizer.preset
        assert sentences.new_words == in_python.new_words
    for predictor in PREDICTORS:
        sentences = predictor.artifact.encoder.encode_all([text])
        assert np.isfinite(predictor.probabilities([text])).all()
        if len(sentences.ids) > 500:
            continue
        x = predictor.artifact.embed(sentences.ids, sentences.new_words).T[None, None]
        config, layers = predictor.artifact.config.model, predictor.artifact.layers
        top = reference.forward(
            x, np.array([len(sentences.ids)]), layers, config.fold, config.k_top
        )
        weights = predictor.artifact.weights
        logits = top[-1].values.reshape(1, -1) @ weights["head.weight"].T + weights["head.bias"]
        if np.abs(logits - predictor.logits(sentences)).max() > 1e-4:
            assert decided_by_rounding(predictor.artifact, sentences)


def _files() -> dict[str, bytes]:
    import bz2
    import gzip
    import lzma

    import pyarrow as pa
    import zstandard
    from pyarrow import feather, ipc, parquet

    made: dict[str, bytes] = {}
    for name, separator in ((".csv", ","), (".tsv", "\t")):
        buffer = io.StringIO(newline="")
        csv.writer(buffer, delimiter=separator).writerows([("text", "label"), *LABELLED])
        made[name] = buffer.getvalue().encode()
    rows = [{"text": text, "label": label} for text, label in LABELLED]
    made[".jsonl"] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    made[".txt"] = "\n".join(text for text, _ in LABELLED).encode()
    for suffix, pack in (
        *((".gz", gzip.compress), (".bz2", bz2.compress)),
        *((".xz", lzma.compress), (".zst", zstandard.compress)),
    ):
        made[f".csv{suffix}"] = pack(made[".csv"] * 30)
    table = pa.table(
        {
            "text": [text for text, _ in LABELLED] * 9,
            "label": pa.array([label for _, label in LABELLED] * 9).dictionary_encode(),
            "when": pa.array([datetime.datetime(2014, 6, 23)] * 36),
            "tags": [["a", "b"], [], None] * 12,
            "scores": [{"pos": 0.5}, None] * 18,
        }
    )
    for suffix, write in (
        (".parquet", parquet.write_table),
        (".feather", feather.write_feather),
    ):
        sink = io.BytesIO()
        write(table, sink)
        made[suffix] = sink.getvalue()
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    made[".arrow"] = sink.getvalue()
    made[".vectors"] = b"3 4\nplot 1 2 3 4\ngood 0.5 0 1 1\n, 1 1 1 1\n"
    made[".toml"] = b"[model]\ndim = 48\nwidths = [7, 5]\n[training]\nepochs = 3\nseed = 1\n"
    made[".trees"] = b"(3 (2 It) (4 (2 's) (4 good)))\n(1 (2 so) (0 bad))\n"
    made[".label"] = b"LOC:city Where is it ?\nNUM:count How many ?\n"
    made[".tweets"] = b'"0","1","d","q","u","a bad one"\n"4","2","d","q","u","good &lt;3"\n'
    return made


FILES = _files()


def make_file(rng: random.Random) -> bytes:
    """The suffix, a line end, and the content."""
    suffix = rng.choice(list(FILES))
    content = FILES[suffix]
    return (
        suffix.encode()
        + b"\n"
        + mutated(rng, content if rng.random() < 0.95 else rng.randbytes(99))
    )


def use_file(content: bytes, folder: Path) -> None:
    """The reader of the format, and now and then the commands that read it."""
    name, _, rest = content.partition(b"\n")
    suffix = name.decode()
    path = folder / f"data{suffix}"
    path.write_bytes(rest)
    readers: dict[str, Callable[[], Any]] = {
        ".vectors": lambda: load_vectors(path, Vocabulary(["plot", "good"])),
        ".toml": lambda: load_toml(path),
        ".trees": lambda: read_trees(path),
        ".label": lambda: read_trec(path),
        ".tweets": lambda: read_sentiment140(path),
    }
    if suffix in readers:
        with suppress(DcnnError):
            readers[suffix]()
        return
    for options in (TableOptions(), TableOptions(header=False), TableOptions(labels_separator="|")):
        with suppress(DcnnError):
            for _row in read_rows(path, options, labels=False, keep={}):
                pass
        with suppress(DcnnError):
            read_labelled(path, options)
    if len(rest) % 20 == 0:
        model_folder.save(folder / "m", ARTIFACTS[0])
        for command in (
            ("predict", "m", "--input", path, "--output", "out.csv"),
            ("evaluate", "m", path),
            ("detectors", "m", "--corpus", path),
            ("check", path, "--folds", 0),
        ):
            done = run_here(folder, list(map(str, command)), b"", {})
            assert done.code in (0, 1, 2), done.err
            assert "Traceback" not in done.err, done.err


def _folders() -> list[dict[str, bytes]]:
    return [model_folder._files("m", one) for one in ARTIFACTS]


FOLDERS = _folders()


def make_folder(rng: random.Random) -> bytes:
    """The number of a model, the file that replaces one of its own, and that one's name."""
    number = rng.randrange(len(FOLDERS))
    name = rng.choice((model_folder.CONFIG, model_folder.CONFIG, *model_folder.FILES))
    content = FOLDERS[number][name]
    if name.endswith(".json") and rng.random() < 0.8:
        value = json.loads(content)
        for _ in range(rng.choice((1, 1, 3))):
            value = changed(rng, value)
        content = json.dumps(value).encode("utf-8", "surrogatepass")
    else:
        content = mutated(rng, content)
    return f"{number} {name}\n".encode() + content


def use_folder(content: bytes, folder: Path) -> None:
    """Loading, predicting, explaining, the card and saving again."""
    from dcnn.inspection import explain

    head, _, rest = content.partition(b"\n")
    number, name = head.decode().split(" ")
    for file, own in FOLDERS[int(number)].items():
        (folder / file).write_bytes(rest if file == name else own)
    try:
        predictor = Predictor.load(folder)
    except DcnnError:
        return
    predictor.predict([TEXT, "", "plot"])
    with suppress(DcnnError):  # a damaged record of distillation
        model_folder.save(folder / "again", predictor.artifact)
        json.loads((folder / "again" / "config.json").read_bytes())
        Predictor.load(folder / "again")
    with suppress(DcnnError):
        explain(predictor, "not good").to_dict()


REQUESTS = [
    ("POST", "/v1/predict", {"text": TEXT, "top": 1}),
    ("POST", "/v1/predict", {"texts": ["plot", "good"], "abstain_below": 0.5, "model": "m0"}),
    ("POST", "/v1/explain", {"text": "not good", "class": "pos", "nodes": 5, "edges": 2}),
    ("POST", "/v1/compare", {"texts": ["not good", "good"]}),
    ("POST", "/v1/predict-file?name=a.csv&top=1", None),
    ("GET", "/v1/models", None),
    ("GET", "/v1/detectors?word=good&limit=3", None),
    ("GET", "/metrics", None),
]


def make_request(rng: random.Random) -> bytes:
    """Method, path, headers and body, as JSON with the body in latin-1."""
    method, path, body = rng.choice(REQUESTS)
    if rng.random() < 0.1:
        method = rng.choice(("PUT", "OPTIONS", "HEAD", "GET", "POST", "X"))
    if rng.random() < 0.3:
        path = "/" + mutated(rng, path[1:].encode()).decode("latin-1")
    content = FILES[".csv"] if body is None else json.dumps(body).encode()
    if body is not None and rng.random() < 0.6:
        content = json.dumps(changed(rng, body)).encode()
    elif rng.random() < 0.8:
        content = mutated(rng, content)
    headers = {}
    if rng.random() < 0.3:
        name = rng.choice(
            ("content-type", "host", "origin", "content-length", "x-api-key", "range")
        )
        headers[name] = mutated(rng, b"application/json").decode("latin-1")
    request = {
        "method": method,
        "path": path,
        "headers": headers,
        "body": content.decode("latin-1"),
    }
    return json.dumps(request).encode()


def _client() -> Any:
    from fastapi.testclient import TestClient

    from dcnn.serve import Limits
    from dcnn.serve.app import make_app
    from dcnn.serve.models import ServedModel

    models = [ServedModel(f"m{number}", one) for number, one in enumerate(PREDICTORS)]
    return TestClient(make_app(models, Limits()), "http://127.0.0.1")


_clients: list[Any] = []


def use_request(content: bytes, _: Path) -> None:
    """An answer of any status but 500."""
    if not _clients:
        _clients.append(_client())
    request = json.loads(content)
    try:
        answer = _clients[0].request(
            request["method"],
            request["path"],
            content=request["body"].encode("latin-1"),
            headers=request["headers"],
        )
    except Exception as error:
        if isinstance(error, UnicodeError) or type(error).__module__.startswith("httpx"):
            return  # the client refuses to send it
        raise
    assert answer.status_code != 500, (answer.status_code, answer.text[:200])
    is_error = answer.status_code >= 400 and request["method"] != "HEAD"
    if is_error and "json" in answer.headers.get("content-type", ""):
        assert answer.json()["error"]


TARGETS = {
    "text": Target(lambda rng: some_text(rng).encode("utf-8", "surrogatepass"), use_text, 2),
    "file": Target(make_file, use_file, 4),
    "folder": Target(make_folder, use_folder, 3),
    "request": Target(make_request, use_request, 3),
}
ORDER = [name for name, target in TARGETS.items() for _ in range(target.share)]


def case_of(seed: int, number: int) -> tuple[str, bytes]:
    """The target and the content of a case."""
    name = ORDER[number % len(ORDER)]
    return name, TARGETS[name].make(random.Random(f"{seed} {number}"))


def try_case(name: str, content: bytes) -> str:
    """What is wrong with a case; nothing if it was used or refused as it should be."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            TARGETS[name].use(content, Path(folder))
    except DcnnError:
        return ""
    except Exception:
        return traceback.format_exc(limit=-3)
    return ""


def _work(pipe: Any, cases: Iterator[tuple[str, bytes]]) -> None:
    # Beyond what the parent has mapped: without room for its stack, a thread never starts.
    limit = MEMORY + int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout = sys.stderr = io.StringIO()
    use_request(b'{"method": "GET", "path": "/v1/models", "headers": {}, "body": ""}', HERE)  # warm
    for name, content in cases:
        pipe.send((name, content))
        started = time.perf_counter()
        fault = try_case(name, content)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        pipe.send((fault, time.perf_counter() - started, peak))
    pipe.send(None)


def run_cases(cases: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes, str, float, float]]:
    """Name, content, fault, seconds and peak of memory (MB) of each case, until one ends all."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    process = fork.Process(target=_work, args=(theirs, cases), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START):
            raise TimeoutError(f"the process that tries cases did not start within {START} s")
        while (case := ours.recv()) is not None:
            if not ours.poll(SECONDS):
                yield (*case, f"no end within {SECONDS:g} s", SECONDS, 0.0)
                return
            try:
                yield (*case, *ours.recv())
            except EOFError:
                process.join(5)
                yield (*case, f"the process died ({process.exitcode})", 0.0, 0.0)
                return
    finally:
        process.kill()
        process.join()


def known_cases() -> list[tuple[str, bytes]]:
    """The findings of former runs."""
    return [(path.name.partition("-")[0], path.read_bytes()) for path in sorted(CASES.glob("*-*"))]


def code_hash() -> str:
    """SHA-256 of the code that is tried and of this file."""
    digest = hashlib.sha256()
    for path in sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("native/*.[ch]*"), Path(__file__)]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def main() -> int:
    """Try cases until the time is over; 1 if there is a finding."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, help="number of the first case; else goes on")
    parser.add_argument("--out", type=Path, default=REPORT)
    options = parser.parse_args()
    before: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        before = json.loads(options.out.read_text(encoding="utf-8"))
    goes_on = before.get("seed") == options.seed and options.start is None and "clean" in before
    first = number = before["next"] if goes_on else options.start or 0
    worst = {name: {"seconds": 0.0, "megabytes": 0.0} for name in TARGETS}
    counts: Counter[str] = Counter()
    findings: list[dict[str, str]] = []
    started = time.monotonic()
    known: list[tuple[str, bytes]] = known_cases()
    while known or time.monotonic() - started < options.seconds:
        cases = known or (case_of(options.seed, one) for one in range(number, number + PER_PROCESS))
        tried = 0
        for name, content, fault, seconds, peak in run_cases(iter(cases)):
            tried += 1
            counts[name] += 1
            worst[name]["seconds"] = max(worst[name]["seconds"], round(seconds, 3))
            worst[name]["megabytes"] = max(worst[name]["megabytes"], round(peak))
            if fault:
                path = CASES / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"
                CASES.mkdir(exist_ok=True)
                path.write_bytes(content)
                findings.append({"case": path.name, "fault": fault})
                print(f"{path}\n{fault}", flush=True)
            if not known and time.monotonic() - started > options.seconds:
                break
        if known:
            known = known[tried:]
        else:
            number += tried
    seconds = time.monotonic() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    clean = {"cases": sum(counts.values()), "cpu_seconds": used.ru_utime + used.ru_stime}
    code = code_hash()
    if goes_on and not findings and before.get("code") == code:
        clean = {name: value + before["clean"][name] for name, value in clean.items()}
    report = {
        "seed": options.seed,
        "next": number,
        "cases": dict(counts),
        "cases_before": first,
        "seconds": round(seconds, 1),
        "cases_per_second": round(sum(counts.values()) / seconds, 1),
        "clean": {name: round(value) * (not findings) for name, value in clean.items()},
        "worst": worst,
        "findings": findings,
        "limits": {"seconds": SECONDS, "address_space_bytes": MEMORY},
        "hardware": hardware("cpu"),
        "versions": versions(),
        "commit": commit(),
        "code": code,
    }
    with write_atomically(options.out) as stream:
        stream.write((json.dumps(report, indent=1) + "\n").encode())
    print(f"{sum(counts.values()):,} cases in {seconds:.0f} s, {len(findings)} findings")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
