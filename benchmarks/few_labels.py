"""Few labels and much unlabelled text: a distilled network and what people would take instead.

    python benchmarks/few_labels.py --teacher DIR --setfit-base DIR         # runs what is missing
    python benchmarks/few_labels.py --teacher DIR --setfit-base DIR --time  # times one text
    python benchmarks/few_labels.py --write docs/distillation.md            # renders the results
    python benchmarks/few_labels.py --methods dcnn tfidf-lr svm nb char-svm char-lr  # no encoder
    python benchmarks/few_labels.py --write docs/languages.md               # renders these

DCNN_DATA names the folder of the corpora: ``trec/`` and ``extra/``, as ``small_corpora.py`` says.
DIRs are encoders as ``transformers`` stores them. Of each training set 8, 32 or 128 texts per class
(all of a class that has fewer) keep their labels, the same for all methods and, of a draw, the
fewer among the more; the others are unlabelled. With all labels there is no other text, and the
student learns from augmented texts; what has no seed then runs once, and SetFit, whose pairs would
take hours, not at all. Nothing beyond the stated labels is used: the plain network and model2vec
hold out some of them, and the student is selected on unlabelled texts that the teacher labelled. It
also learns from texts made of all these texts where these are few, as by `dcnn distill`.

Every method has a file in ``results/few-labels/`` with a line for each run. Lines of networks that
had other settings than today's default are dropped and their runs made again, and with ``--rerun``
also those of another commit, as code may change what the same settings do. The teacher is frozen,
so its vectors are computed once per corpus, into ``--cache``. With ``--device cuda`` they and, in
``--gpu-workers`` processes, SetFit run on the GPU, and all else on the CPU, in ``--workers``
processes of one thread each.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import cycle
from multiprocessing import active_children, get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import small_corpora
from dcnn import compare
from dcnn.compare import ComparisonData, Fitted
from dcnn.config import DEFAULT
from dcnn.data.augment import augment
from dcnn.data.corpora.trec import read_trec
from dcnn.data.labels import LabelledTexts, number_labels
from dcnn.data.split import hold_out
from dcnn.experiments.tables import markdown_table, write_blocks
from dcnn.files import file_sha256, write_atomically
from dcnn.metrics import evaluate
from dcnn.plots import BLUE, GREEN, GREY, RED, draw_svg
from dcnn.predictor import Predictor
from dcnn.training import distillation
from dcnn.training.encoders import EncoderTeacher, encoder_name
from dcnn.training.fit import RunOptions, fit
from dcnn.training.teachers import FunctionTeacher, Teacher
from results import (
    ONE_THREAD,
    ROOT,
    commit_of_rerun,
    difference,
    ensemble_title,
    is_current,
    make_parser,
    percent,
    provenance,
    read_json,
    write_json,
)

RESULTS = ROOT / "results" / "few-labels"
PICTURE = ROOT / "docs" / "pictures" / "few-labels.svg"
SETS = ("banking77", "trec", "mr", "subj", "umsab-english", "umsab-spanish")
LABELS = (8, 32, 128, "all")
DRAWS = 5
METHODS = {  # in the order of the tables, and as these name them
    "distilled": "distilled DCNN",
    "teacher": "its teacher",
    "setfit": "SetFit, MiniLM",
    "model2vec": "model2vec",
    "tfidf-lr": "TF-IDF + LR",
    "svm": "word SVM",
    "nb": "naive Bayes",
    "char-svm": "character SVM",
    "char-lr": "character LR",
    "dcnn": "DCNN",
}
LINEAR = ("tfidf-lr", "svm", "nb", "char-svm", "char-lr")
FROM_TEACHER = ("distilled", "teacher", "model2vec")
FROM_ENCODERS = (*FROM_TEACHER, "setfit")
BESIDE_ENCODERS = tuple(  # in the tables of these
    method for method in METHODS if method in (*FROM_ENCODERS, "tfidf-lr", "char-svm", "dcnn")
)
UNSEEDED = ("teacher", *LINEAR)  # with all labels they run once


class Cell(NamedTuple):
    """A run to make."""

    method: str
    corpus: str
    labels: int | str  # per class, or all
    draw: int


@dataclass(frozen=True)
class Options:
    """What the runs share."""

    data: Path
    cache: Path  # of the teacher's vectors and of model2vec's
    teacher: str
    setfit_base: str
    device: str


@cache
def load(corpus: str, folder: Path) -> tuple[LabelledTexts, LabelledTexts]:
    """Training and test set; a published dev set is part of the former."""
    if corpus == "trec":
        names = ("train_5500.label", "TREC_10.label")
        train, test = (read_trec(folder / "trec" / name) for name in names)
        return train, test.with_classes(train.classes)
    return small_corpora.load_all(corpus, folder / "extra")


def draw_labels(
    train: LabelledTexts, labels: int | str, draw: int
) -> tuple[LabelledTexts, list[str]]:
    """The examples that keep their label, and the texts of the others."""
    if labels == "all":
        return train, []
    order = np.random.default_rng(draw).permutation(len(train))
    taken: dict[int, int] = defaultdict(int)
    kept, others = [], []
    for index in order.tolist():
        number = int(train.class_numbers[index])
        taken[number] += 1
        (kept if taken[number] <= int(labels) else others).append(index)
    return train.select(sorted(kept)), [train.texts[index] for index in sorted(others)]


class Vectors:
    """Unit vectors of texts, from files of the cache."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._blocks = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in names]
        self._places: dict[str, tuple[int, int]] = {}
        for block, name in enumerate(names):
            texts = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            for row, text in enumerate(texts):
                self._places.setdefault(text, (block, row))

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, hidden size)."""
        rows = [self._blocks[block][row] for block, row in map(self._places.__getitem__, texts)]
        return np.array(rows, np.float32)


def frozen_teacher(
    vectors: Vectors, train: LabelledTexts, dev: LabelledTexts | None
) -> FunctionTeacher:
    """As ``EncoderTeacher`` in its mode ``frozen``, on vectors that were computed before."""
    import torch

    from dcnn.metrics import target_distributions
    from dcnn.training.logistic import RegressionData, fit_head

    def data(part: LabelledTexts) -> RegressionData:
        targets = target_distributions(part.targets, len(part.classes))
        return torch.from_numpy(vectors(part.texts)), torch.from_numpy(targets), None

    weight, bias = fit_head(data(train), None if dev is None else data(dev), multi_label=False)

    def frozen_encoder(texts: Sequence[str]) -> NDArray[np.float32]:
        logits = torch.addmm(bias, torch.from_numpy(vectors(texts)), weight.T)
        return torch.softmax(logits, dim=1).numpy()

    return FunctionTeacher(frozen_encoder, train.classes)


def embed(options: Options, name: str, texts: Sequence[str], encoder: Any) -> None:
    """Compute the vectors of ``texts``, unless the cache has them."""
    path = options.cache / f"{name}.npy"
    if path.exists():
        return
    started, texts = time.monotonic(), list(dict.fromkeys(texts))
    found = encoder().embed(texts)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    with write_atomically(path.with_suffix(".json")) as stream:
        stream.write(json.dumps(texts).encode())
    with write_atomically(path) as stream:
        np.save(stream, found)
    print(f"{name}: {len(texts):,} vectors in {time.monotonic() - started:.1f} s", flush=True)


def fit_method(cell: Cell, data: ComparisonData, options: Options, folder: Path) -> Fitted:
    """Train a method on the labels of a cell."""
    match cell.method:
        case "setfit":
            base, device = options.setfit_base, options.device
            return compare.fit_setfit(base, data.train, cell.draw, folder, device)
        case "model2vec":
            return compare.fit_model2vec(static_model(options), data, cell.draw, folder)
        case "teacher":
            teacher, _ = teach(cell, data, options)
            return Fitted(partial(probabilities, teacher), size_on_disk_of(options))
        case "distilled":
            teacher, data = teach(cell, data, options)
            copies = None if cell.labels == "all" else 0  # then `teach` has added some
            labels = distillation.pseudo_label(
                teacher, data.train, data.dev, data.test, data.unlabelled, copies=copies
            )
            if copies == 0:
                labels = weigh_augmented(labels, set(more_texts(cell.corpus, options)))
            config = DEFAULT.with_training(seed=cell.draw)
            return compare.fit_student(labels, data.test, config, folder, "cpu")
    return compare.all_candidates()[cell.method].fit(data, cell.draw, folder)


def static_model(options: Options) -> Any:
    """The teacher's static vectors, from the cache if they are there."""
    from model2vec import StaticModel

    path = options.cache / "model2vec"
    if not path.exists():
        compare.static_model(options.teacher, options.device).save_pretrained(path)
        print("model2vec: the teacher's static vectors are ready", flush=True)
    return StaticModel.from_pretrained(path)


def probabilities(teacher: Teacher, texts: Sequence[str]) -> NDArray[np.float32]:
    """What a teacher says of all texts."""
    return np.concatenate(list(teacher.stream(texts)))


def teach(cell: Cell, data: ComparisonData, options: Options) -> tuple[Teacher, ComparisonData]:
    """The teacher, and the data of its student with a dev set.

    With all labels a tenth of them is dev, of every draw the same, so that one teacher and its
    augmented texts serve all draws. Few labels are too few to select on: all of them train the
    teacher, and a tenth of the unlabelled texts, which it labels, is dev.
    """
    if cell.labels == "all":
        train, dev = hold_out(data.train, DEFAULT.training.dev_fraction, 0)
        vectors = Vectors(options.cache, [cell.corpus, f"{cell.corpus}-augmented"])
        return frozen_teacher(vectors, train, dev), replace(data, train=train, dev=dev)
    names = [cell.corpus, f"{cell.corpus}-more"]
    teacher = frozen_teacher(Vectors(options.cache, names), data.train, None)
    pool = np.random.default_rng((cell.draw, 1)).permutation(list(dict.fromkeys(data.unlabelled)))
    held_out = pool[: round(DEFAULT.training.dev_fraction * len(pool))].tolist()
    targets = probabilities(teacher, held_out).argmax(axis=1)
    dev = replace(data.train, texts=held_out, targets=targets, places=None)
    unlabelled = [*pool[len(held_out) :].tolist(), *more_texts(cell.corpus, options)]
    return teacher, replace(data, dev=dev, unlabelled=unlabelled)


def weigh_augmented(
    labels: distillation.TeacherLabels, augmented: Collection[str]
) -> distillation.TeacherLabels:
    """Give those of the unlabelled texts that are ``augmented`` the weights of such texts."""
    examples, labelled = labels.examples, labels.labelled
    n_augmented = sum(text in augmented for text in examples.texts[labelled:])
    counts = labelled, labels.unlabelled - n_augmented, n_augmented
    weights = distillation.text_weights(None, *counts)
    return replace(labels, examples=replace(examples, weights=weights))


@cache
def more_texts(corpus: str, options: Options) -> list[str]:
    """Texts made of those of the training set, whose labels are not used."""
    texts = load(corpus, options.data)[0].texts
    copies = max(0, min(distillation.COPIES, distillation.STUDENT_TEXTS // len(texts) - 1))
    return augment(texts, copies, 0) if copies else []


def augmented_texts(corpus: str, options: Options) -> list[str]:
    """What ``pseudo_label`` makes of all labelled texts but those of dev."""
    train, _ = hold_out(load(corpus, options.data)[0], DEFAULT.training.dev_fraction, 0)
    return augment(train.texts, distillation.COPIES, 0)


def size_on_disk_of(options: Options) -> int:
    """Bytes of the teacher's weights and tokenizer; those of its head are a few thousand."""
    names = ("model.safetensors", "tokenizer.json", "config.json")
    return sum((Path(options.teacher) / name).stat().st_size for name in names)


def run_cell(cell: Cell, options: Options) -> dict[str, object]:
    """Train and evaluate, in a process of the pool."""
    import torch

    torch.set_num_threads(1)
    train, test = load(cell.corpus, options.data)
    labelled, pool = draw_labels(train, cell.labels, cell.draw)
    data = ComparisonData(labelled, None, test, pool)
    with TemporaryDirectory() as folder:
        started = time.monotonic()
        fitted = fit_method(cell, data, options, Path(folder) / "model")
        seconds = time.monotonic() - started
        scores = evaluate(test.targets, fitted.probabilities(list(test.texts)), data.classes)
    return {
        **cell._asdict(),
        "accuracy": round(scores.accuracy, 5),
        "macro_f1": round(scores.macro_f1, 5),
        "examples": {"labelled": len(labelled), "unlabelled": len(pool), "test": len(test)},
        "train_seconds": round(seconds, 1),
        "bytes": fitted.size,
        "n_ensemble": fitted.n_ensemble,
    }


def pool_of(cell: Cell, options: Options) -> int:
    """Which processes make a run: those of the CPU, or of SetFit on the GPU."""
    return int(options.device == "cuda" and cell.method == "setfit")


def cells_of(
    methods: Sequence[str],
    corpora: Sequence[str],
    labels: Sequence[int | str],
    draws: int,
    complete: str = "draw",
) -> list[Cell]:
    """All runs, in the order in which they start.

    A ``draw`` is complete before the next one, or a number of ``labels``, the fewest first.
    """
    cells = [
        Cell(method, corpus, number, draw)
        for draw in range(draws)
        for number in sorted(labels, key=LABELS.index, reverse=True)  # the longest first
        for corpus in corpora
        for method in methods
        if not (number == "all" and (method == "setfit" or (draw and method in UNSEEDED)))
    ]
    if complete == "labels":
        cells.sort(key=lambda cell: LABELS.index(cell.labels))
    return cells


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """All runs so far; a line that a kill left half-written is of none."""
    runs = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                runs.append(json.loads(line))
    return runs


def settings_of(method: str) -> dict[str, Any] | None:
    """The settings of our networks, but for the seed."""
    return DEFAULT.to_dict() if method in ("dcnn", "distilled") else None


def cell_of(run: dict[str, Any]) -> Cell:
    """The run that a line is of."""
    return Cell(*(run[name] for name in Cell._fields))


def missing(cells: Sequence[Cell], folder: Path, commit: str | None = None) -> list[Cell]:
    """The runs that no line of ``folder`` has, or only one of another default or commit."""
    runs = read_runs(folder)
    done = {cell_of(run) for run in runs if is_current(run, settings_of(run["method"]), commit)}
    return [cell for cell in cells if cell not in done]


def drop(cells: Sequence[Cell], folder: Path) -> None:
    """Remove the lines of ``cells``, which are made again."""
    runs = read_runs(folder)
    for method in {cell.method for cell in cells}:
        kept = [run for run in runs if run["method"] == method and cell_of(run) not in cells]
        with write_atomically(folder / f"{method}.jsonl") as stream:
            stream.write("".join(json.dumps(run) + "\n" for run in kept).encode())


def describe(device: str) -> dict[str, Any]:
    """What every line of the results says of where it was made."""
    libraries = {}
    for name in ("transformers", "sentence-transformers", "setfit", "model2vec"):
        with suppress(PackageNotFoundError):
            libraries[name] = version(name)
    found = provenance(device)
    return found | {"versions": found["versions"] | libraries}


def encoder_of(method: str, options: Options) -> dict[str, Any]:
    """The pretrained encoder that a method starts from, for the line of its results."""
    if method not in FROM_ENCODERS:
        return {}
    role, folder = (
        ("base", options.setfit_base) if method == "setfit" else ("teacher", options.teacher)
    )
    return {role: {"name": encoder_name(folder), "weights_sha256": sha256_of(folder)}}


@cache
def sha256_of(encoder: str) -> str:
    """Of the file of an encoder's weights."""
    return file_sha256(Path(encoder) / "model.safetensors")


def prepare(cells: Sequence[Cell], options: Options) -> Iterator[list[Cell]]:
    """Compute what runs share, and yield them as soon as they can start."""
    of_vectors = [cell for cell in cells if cell.method in ("distilled", "teacher")]
    static = [cell for cell in cells if cell.method == "model2vec"]
    yield [cell for cell in cells if cell not in of_vectors and cell not in static]
    encoder = cache(partial(make_encoder, options))
    for corpus in dict.fromkeys(cell.corpus for cell in of_vectors):
        train, test = load(corpus, options.data)
        embed(options, corpus, [*train.texts, *test.texts], encoder)
        embed(options, f"{corpus}-more", more_texts(corpus, options), encoder)
    yield [cell for cell in of_vectors if cell.labels != "all"]
    of_all = [cell for cell in of_vectors if cell.labels == "all"]
    if static:
        static_model(options)
    yield static
    for corpus in dict.fromkeys(cell.corpus for cell in of_all):
        embed(options, f"{corpus}-augmented", augmented_texts(corpus, options), encoder)
        yield [cell for cell in of_all if cell.corpus == corpus]


def make_encoder(options: Options) -> Any:
    """The teacher's encoder."""
    any_texts = number_labels(["a", "b"], ["a", "b"])
    teacher = EncoderTeacher(options.teacher, any_texts, None, mode="frozen", device=options.device)
    teacher.prepare()  # loads it; its head is not used
    return teacher


def start_worker() -> None:
    """Set up a process of the pool, which has one core."""
    import logging

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    logging.disable(logging.INFO)


def run_all(
    cells: Sequence[Cell], options: Options, out: Path, workers: Sequence[int], minutes: float
) -> bool:
    """Make the runs, in so many ``workers`` of each pool; whether all succeeded.

    A line is written as soon as its run is done, and after ``minutes`` the others are given up.
    """
    ends = time.monotonic() + 60 * minutes
    records = [describe(device) for device in ("cpu", options.device)]
    os.environ |= ONE_THREAD  # of the processes that start from here
    pools = [ProcessPoolExecutor(n, get_context("spawn"), start_worker) for n in workers]
    lock, futures, failed = Lock(), [], []

    def finish(cell: Cell, done: "Future[dict[str, Any]]") -> None:
        if done.cancelled():
            return
        name = " ".join(map(str, cell))
        if error := done.exception():
            failed.append(cell)
            print(f"{name} FAILED: {error!r}", flush=True)
            return
        run = done.result()
        settings = settings_of(cell.method)
        run |= {} if settings is None else {"settings": settings}
        with lock, (out / f"{cell.method}.jsonl").open("a", encoding="utf-8") as stream:
            source = records[pool_of(cell, options)] | encoder_of(cell.method, options)
            stream.write(json.dumps(run | source) + "\n")
        print(f"{name}: {100 * run['accuracy']:.2f} % in {run['train_seconds']} s", flush=True)

    for group in prepare(cells, options):
        for cell in group:
            future = pools[pool_of(cell, options)].submit(run_cell, cell, options)
            future.add_done_callback(partial(finish, cell))
            futures.append(future)
    _, unfinished = wait(futures, max(0.0, ends - time.monotonic()))
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)
    if unfinished:
        print(f"{len(unfinished)} runs were stopped; the same command makes them", flush=True)
        for process in active_children():
            process.kill()
    return not failed


def time_methods(corpus: str, options: Options, folder: Path) -> dict[str, float]:
    """Median microseconds of each method for one text, one core, in interleaved rounds.

    What a method learned does not change its time, so encoders are trained as little as possible.
    The student is the network of ``dcnn`` with the vocabulary of all texts.
    """
    train, test = load(corpus, options.data)
    data = ComparisonData(train, None, test)
    few = ComparisonData(draw_labels(train, 8, 0)[0], None, test)
    config = DEFAULT.with_training(epochs=1)
    network, _ = fit(*hold_out(train, 0.1, 0), config, RunOptions(device="cpu"))
    encoder = make_encoder(options)
    pairs = draw_labels(train, 2, 0)[0]
    cell = Cell("model2vec", corpus, 8, 0)
    calls = {
        "dcnn": Predictor(network).probabilities,
        "teacher": partial(probabilities, encoder),
        "setfit": compare.fit_setfit(
            options.setfit_base, pairs, 0, folder / "setfit", iterations=1
        ).probabilities,
        "model2vec": fit_method(cell, few, options, folder / "model2vec").probabilities,
    }
    for name in ("tfidf-lr", "char-svm"):
        calls[name] = compare.all_candidates()[name].fit(data, 0, folder / name).probabilities
    one_text = {
        name: partial(lambda call, texts: call([next(texts)]), call, cycle(test.texts))
        for name, call in calls.items()
    }
    seconds = compare.time_interleaved(one_text, compare.ONE_ROUNDS, compare.ONE_CALLS)
    return {name: round(1e6 * value, 1) for name, value in seconds.items()}


def time_all(corpora: Sequence[str], options: Options, out: Path) -> None:
    """Time the methods on each corpus, into ``time.json``, which keeps those of other corpora."""
    path = out / "time.json"
    found = read_json(path) if path.exists() else {}
    start_worker()
    for corpus in corpora:
        with TemporaryDirectory() as folder, threadpool_limits(1), distillation.one_core():
            times = time_methods(corpus, options, Path(folder))
        print(corpus, times, flush=True)
        found[corpus] = {"us_per_text": times, **describe("cpu")}
        write_json(path, found)


class Report:
    """The tables and the plot of the results."""

    def __init__(self, folder: Path) -> None:
        self._values: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
        for run in read_runs(folder):
            self._values[run["method"], run["corpus"], run["labels"]].append(run)
        timed = folder / "time.json"
        found = read_json(timed) if timed.exists() else {}
        self._times = {corpus: one["us_per_text"] for corpus, one in found.items()}

    def title(self, method: str) -> str:
        """Of its row or column."""
        runs = [run for key, found in self._values.items() if key[0] == method for run in found]
        return ensemble_title(METHODS[method], runs)

    def values(self, method: str, corpus: str, labels: int | str, key: str) -> list[float]:
        """Of all draws."""
        return [run[key] for run in self._values[method, corpus, labels]]

    def mean(
        self, method: str, labels: int | str, key: str = "accuracy", corpora: Sequence[str] = SETS
    ) -> float | None:
        """Over the draws and then over the corpora, if none lacks a run."""
        found = [self.values(method, corpus, labels, key) for corpus in corpora]
        return float(np.mean([np.mean(one) for one in found])) if all(found) else None

    def microseconds(self, method: str) -> float | None:
        """For one text, the mean over the corpora that were timed."""
        timed = "dcnn" if method == "distilled" else method
        found = [times[timed] for times in self._times.values() if timed in times]
        return float(np.mean(found)) if found else None

    def by_method(self, key: str) -> str:
        """A row per method: means over the corpora, and what it costs."""
        methods = {method: self.title(method) for method in BESIDE_ENCODERS}
        columns = [[self.mean(method, labels, key) for method in methods] for labels in LABELS]
        rows = [("", *(f"{n} per class" if n != "all" else "all labels" for n in LABELS))]
        for place, title in enumerate(methods.values()):
            rows.append((title, *(percent(column[place], column) for column in columns)))
        if key == "accuracy":
            rows[0] += ("time per text", "size")
            for place, method in enumerate(methods, start=1):
                time, size = self.microseconds(method), self.mean(method, 128, "bytes")
                shown = "-" if time is None else f"{float(f'{time:.2g}'):,.0f} us"
                rows[place] += (shown, "-" if size is None else f"{size / 1e6:,.1f} MB")
        return markdown_table(rows[0], rows[1:])

    def by_corpus(self) -> str:
        """A row per corpus and number of labels: mean and deviation over the draws."""
        rows = []
        for corpus in SETS:
            for labels in LABELS:
                found = [
                    self.values(method, corpus, labels, "accuracy") for method in BESIDE_ENCODERS
                ]
                means = [float(np.mean(one)) if one else None for one in found]
                cells = [
                    percent(mean, means) + deviation(one)
                    for mean, one in zip(means, found, strict=True)
                ]
                rows.append((corpus, str(labels), *cells))
        titles = map(self.title, BESIDE_ENCODERS)
        return markdown_table(("corpus", "labels per class", *titles), rows)

    def fewer_draws(self) -> str:
        """Which means are of fewer draws than the others."""
        cells = cells_of(BESIDE_ENCODERS, SETS, LABELS, DRAWS)
        expected = Counter((cell.method, cell.labels, cell.corpus) for cell in cells)
        found: dict[tuple[str, int | str], list[str]] = defaultdict(list)
        for (method, labels, corpus), draws in expected.items():
            done = len(self._values[method, corpus, labels])
            if done < draws:
                found[method, labels].append(f"{corpus} {done}")
        if not found:
            return f"All means are of {DRAWS} draws; with all labels, what has no seed ran once."
        parts = [
            f"{self.title(method)}, {'all labels' if labels == 'all' else f'{labels} per class'}: "
            + ", ".join(corpora)
            for (method, labels), corpora in found.items()
        ]
        return f"Means of fewer than {DRAWS} draws: {'; '.join(parts)}."

    def without_encoders(self, key: str) -> str:
        """A row per corpus and number of labels, the means, and differences to the best model."""
        methods, few = ("dcnn", *LINEAR), LABELS[:-1]
        rows = []
        for corpus in (*SETS, "mean"):
            for labels in few:
                values = {
                    method: self.mean(method, labels, key, SETS if corpus == "mean" else [corpus])
                    for method in methods
                }
                cells = [percent(value, values.values()) for value in values.values()]
                rows.append((corpus, str(labels), *cells, difference(values, "dcnn", LINEAR)))
        titles = map(self.title, methods)
        head = ("corpus", "labels per class", *titles, "DCNN minus the best baseline")
        return markdown_table(head, rows)

    def blocks(self) -> dict[str, str]:
        """The tables of the pages, by name."""
        return {
            "few-labels-mean": self.by_method("accuracy"),
            "few-labels-f1": self.by_method("macro_f1"),
            "few-labels-corpora": self.by_corpus(),
            "few-labels-draws": self.fewer_draws(),
            "few-examples-accuracy": self.without_encoders("accuracy"),
            "few-examples-f1": self.without_encoders("macro_f1"),
        }

    def plot(self) -> str:
        """Mean accuracy with 32 labels per class against time; a line from 8 to 128."""

        def draw(axes: Any) -> None:
            for method in BESIDE_ENCODERS:
                time = self.microseconds(method)
                low, middle, high = (self.mean(method, labels) for labels in (8, 32, 128))
                if time is None or low is None or middle is None or high is None:
                    continue
                color = {"distilled": GREEN, "dcnn": BLUE, "teacher": GREY}.get(method, RED)
                axes.vlines(time, 100 * low, 100 * high, color=color, linewidth=1, alpha=0.5)
                axes.plot(time, 100 * middle, "o", color=color)
                below = {"tfidf-lr": -12, "setfit": -12, "model2vec": -24}  # clear of others
                offset = (6, below.get(method, 3))
                axes.annotate(
                    METHODS[method], (time, 100 * middle), offset, textcoords="offset points"
                )
            axes.set_xscale("log")
            axes.margins(x=0.22)
            axes.set(xlabel="one text on one core, microseconds", ylabel="test accuracy, %")

        return draw_svg(draw, height=4.0)


def deviation(values: Sequence[float]) -> str:
    """Over the draws, if there are several."""
    return f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""


def render(page: Path, folder: Path) -> None:
    """Write the tables that ``page`` has into it, and draw the plot where it shows that."""
    report = Report(folder)
    write_blocks([page], report.blocks())
    if PICTURE.name in page.read_text(encoding="utf-8"):
        with write_atomically(PICTURE) as stream:
            stream.write(report.plot().encode() + b"\n")


def parse() -> argparse.Namespace:
    """The options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--labels", nargs="+", default=list(map(str, LABELS)))
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument(
        "--complete",
        choices=("draw", "labels"),
        default="draw",
        help="what is complete before the next one starts: a draw, or a number of labels",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--teacher", help="the folder of an encoder")
    parser.add_argument("--setfit-base", help="the folder of the encoder that SetFit fine-tunes")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "few-labels")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the results")
    parser.add_argument("--workers", type=int, default=1, help="processes on the CPU")
    parser.add_argument("--gpu-workers", type=int, default=1, help="processes that share the GPU")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="after them it stops")
    parser.add_argument("--rerun", action="store_true", help="networks of other commits as well")
    parser.add_argument("--time", action="store_true", help="time the methods")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="render the tables into it")
    found = parser.parse_args()
    methods = list(FROM_ENCODERS) if found.time else found.methods
    if found.write is None and not found.setfit_base and "setfit" in methods:
        parser.error("give --setfit-base DIR to run setfit, or --write PAGE to render")
    if found.write is None and not found.teacher and set(methods) & set(FROM_TEACHER):
        parser.error("give --teacher DIR to run what it teaches, or --write PAGE to render")
    if found.write is None and "DCNN_DATA" not in os.environ:
        parser.error("DCNN_DATA must name the folder of the corpora")
    if unknown := set(found.labels) - set(map(str, LABELS)):
        parser.error(f"--labels {min(unknown)}: choose from {', '.join(map(str, LABELS))}")
    found.commit = commit_of_rerun(parser) if found.rerun else None
    return found


def main() -> None:
    """Run what is missing, time, or render."""
    given = parse()
    if given.write is not None:
        render(given.write, given.out)
        return
    labels = [number for number in LABELS if str(number) in given.labels]
    given.out.mkdir(parents=True, exist_ok=True)
    cells = cells_of(given.methods, given.sets, labels, given.draws, given.complete)
    cells = missing(cells, given.out, given.commit)
    # Vectors and static model of another teacher are others.
    folder = given.cache / (sha256_of(given.teacher)[:16] if given.teacher else "no-teacher")
    folder.mkdir(parents=True, exist_ok=True)
    data = Path(os.environ["DCNN_DATA"])
    bases = (given.teacher or "", given.setfit_base or "")
    options = Options(data, folder, *bases, given.device)
    if given.time:
        time_all(given.sets, options, given.out)
        return
    drop(cells, given.out)
    if not run_all(cells, options, given.out, (given.workers, given.gpu_workers), given.minutes):
        sys.exit(1)


if __name__ == "__main__":
    main()
