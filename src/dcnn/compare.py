"""Several classifiers on one test set: trained, scored, timed and ranked.

The candidates are our networks with the default settings, linear models on n-grams, and fastText,
SetFit and model2vec where they are installed; given a pretrained encoder, also a linear model on
its vectors and the network distilled from that. The ranking marks what the test set cannot tell
from the best. It is shown as a table, in Markdown and as a plot. Timed calls are interleaved, so
that other load on the machine slows all candidates alike.
"""

import importlib.util
import io
import pickle
import random
import tempfile
import time
import timeit
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.config import DEFAULT, MODEL_KINDS, Config, NBoWConfig, default_of
from dcnn.data.labels import LabelledTexts, number_labels
from dcnn.data.split import split_dev
from dcnn.experiments import statistics
from dcnn.experiments.ngrams import NGRAM_MODELS, ngram_classifier
from dcnn.metrics import evaluate
from dcnn.plots import GREEN, RED, draw_svg
from dcnn.predictor import Predictor
from dcnn.text.tokenizer import Tokenizer
from dcnn.training import distillation
from dcnn.training.encoders import choose_teacher
from dcnn.training.fit import RunOptions, fit
from dcnn.training.resampling import logged_once

Probabilities = NDArray[Any]  # (texts, classes)

ONE_ROUNDS, ONE_CALLS = 10, 10  # of one text at a time
MANY_ROUNDS, MANY_TEXTS = 3, 1000
COLUMNS = ("model", "accuracy", "behind best", "F1", "train s", "MB", "us/text", "texts/s")
TIED = "="

# The settings of fastText's own tutorial. Each of ten threads of fastText 0.9.2 initializes a tenth
# of its vectors: fewer leave the rest uninitialized, and training may end with "Encountered NaN".
FASTTEXT_SETTINGS = {"lr": 1.0, "epoch": 25, "wordNgrams": 2, "dim": 50, "bucket": 200_000}
FASTTEXT_SETTINGS |= {"minCount": 1, "thread": 10, "verbose": 0}
FASTTEXT = "fasttext-numpy2-wheel"  # `fasttext` and `fasttext-wheel` fail with numpy 2
SETFIT_BASE = "sentence-transformers/paraphrase-MiniLM-L6-v2"
SETFIT_EXAMPLES = 16  # per class: SetFit is meant for few examples
SETFIT_ITERATIONS = 20  # pairs of each kind per example, as in its paper
SETFIT_STEPS = 1600  # about the most: batches have 16 pairs, or 64 or 256 if there are more
_LABEL = "__label__"


def time_interleaved(
    calls: Mapping[str, Callable[[], object]], rounds: int, repeats: int = 1
) -> dict[str, float]:
    """Median seconds of each call; in every round, an untimed call precedes the timed ones."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()  # the calls of others have filled the caches
            times[name] += timeit.repeat(call, repeat=repeats, number=1)
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


@dataclass(frozen=True)
class ComparisonData:
    """What every candidate is trained and scored on; without ``dev``, a network holds some out."""

    train: LabelledTexts
    dev: LabelledTexts | None
    test: LabelledTexts
    unlabelled: Sequence[str] = ()  # for a teacher to label

    @property
    def classes(self) -> list[str]:
        """The labels, by class number."""
        return [str(label) for label in self.train.classes]

    def split(self, config: Config) -> tuple[LabelledTexts, LabelledTexts | None]:
        """Train and dev as `dcnn train` would: the same for the same seed."""
        if self.dev is not None:
            return self.train, self.dev
        return split_dev(self.train, config.training)


@dataclass(frozen=True)
class Fitted:
    """A trained candidate: its probabilities for texts, and its bytes on disk."""

    probabilities: Callable[[Sequence[str]], Probabilities]
    size: int
    n_ensemble: int = 1  # networks that its folder holds as one


Fit = Callable[[ComparisonData, int, Path], Fitted]


@dataclass(frozen=True)
class Candidate:
    """A model that can be trained."""

    name: str  # as in ``--models``
    recipe: str  # how it is trained, in a few words
    fit: Fit  # with a seed; its files go to a folder that it makes
    seeded: bool = True  # whether another seed gives another model
    install: str = ""  # the command that installs it, where it is not part of ``dcnn[train]``
    modules: tuple[str, ...] = ()  # that must be installed
    needs_teacher: bool = False  # whether it starts from a pretrained encoder

    @property
    def is_installed(self) -> bool:
        """Whether it can be trained here."""
        return all(importlib.util.find_spec(module) is not None for module in self.modules)


def all_candidates(teacher: str = "", setfit_base: str = SETFIT_BASE) -> dict[str, Candidate]:
    """All that can be compared, installed or not, by name.

    Args:
        teacher: a pretrained encoder, by folder or name, of those that need one.
        setfit_base: the encoder that SetFit fine-tunes.
    """
    found = [Candidate(kind, "default settings", partial(_network, kind)) for kind in MODEL_KINDS]
    linear: dict[str, tuple[str, Callable[[], Pipeline]]] = {}
    for name, model in NGRAM_MODELS.items():
        recipe = "unigrams" if model.longest == 1 else "uni- and bigrams"
        linear[name] = recipe, partial(ngram_classifier, name)
    for name, (recipe, make) in (linear | TFIDF_MODELS).items():
        found.append(Candidate(name, recipe, partial(fit_pipeline, make), seeded=False))
    recipe, install = "bigrams, 25 epochs, as its tutorial", f"pip install {FASTTEXT}"
    found.append(Candidate("fasttext", recipe, _fasttext, True, install, ("fasttext",)))
    recipe, install = f"{SETFIT_EXAMPLES} examples per class", "pip install setfit"
    tuned = partial(_setfit, setfit_base)
    found.append(Candidate("setfit", recipe, tuned, True, install, ("setfit",)))
    model2vec = "pip install 'model2vec[distill,train]'", ("model2vec", "skeletoken", "datasets")
    own = "pip install 'dcnn[distill]'", ("transformers",)
    for name, recipe, learn, (install, modules) in (
        ("model2vec", "distilled from the teacher", _model2vec, model2vec),
        ("teacher", "frozen encoder, logistic regression", _teacher, own),
        ("distilled", "dcnn taught by the teacher", _distilled, own),
    ):
        start = partial(learn, teacher)
        found.append(Candidate(name, recipe, start, True, install, modules, True))
    return {candidate.name: candidate for candidate in found}


def warm_up() -> None:
    """Train on two texts: torch loads some of itself at its first step."""
    two = number_labels(["a", "b"], ["a", "b"])
    config = Config(model=NBoWConfig(dim=2)).with_training(epochs=1)
    fit(two, two, config, RunOptions(device="cpu"))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the bars and figures of other libraries, which no argument switches off."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


def size_on_disk(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def _network(kind: str, data: ComparisonData, seed: int, folder: Path) -> Fitted:
    config = default_of(kind).with_training(seed=seed)
    train_set, dev = data.split(config)
    return fit_network(train_set, dev, config, folder)


def fit_network(
    train: LabelledTexts, dev: LabelledTexts | None, config: Config, folder: Path
) -> Fitted:
    """Train one of our networks, and predict with the folder it is saved to."""
    artifact, _ = fit(train, dev, config, RunOptions(device="cpu"))
    return _saved(artifact, folder)


def _saved(artifact: Artifact, folder: Path) -> Fitted:
    model_folder.save(folder, artifact)
    n_ensemble = artifact.metadata.get("n_ensemble", 1)
    return Fitted(Predictor.load(folder).probabilities, size_on_disk(folder), n_ensemble)


def character_ngrams() -> TfidfVectorizer:
    """TF-IDF of characters inside words."""
    return TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 5), sublinear_tf=True)


def _tfidf(features: Callable[[], TfidfVectorizer], model: Callable[[], Any]) -> Pipeline:
    return make_pipeline(features(), model())


_WORDS = partial(TfidfVectorizer, ngram_range=(1, 2), sublinear_tf=True)
_LOGISTIC = partial(LogisticRegression, C=10.0, max_iter=1000)
TFIDF_MODELS = {
    "tfidf-lr": (
        "TF-IDF of uni- and bigrams, logistic regression",
        partial(_tfidf, _WORDS, _LOGISTIC),
    ),
    "char-svm": (
        "TF-IDF of 1 to 5 characters, linear SVM",
        partial(_tfidf, character_ngrams, LinearSVC),
    ),
    "char-lr": (
        "TF-IDF of 1 to 5 characters, logistic regression",
        partial(_tfidf, character_ngrams, _LOGISTIC),
    ),
}


def fit_pipeline(
    make: Callable[[], Pipeline],
    data: ComparisonData,
    seed: int,  # noqa: ARG001
    folder: Path,  # noqa: ARG001
) -> Fitted:
    """Train a model of scikit-learn on all of TRAIN."""
    model = make().fit(data.train.texts, data.train.class_numbers)
    certain = np.eye(len(data.classes))  # an SVM predicts a class and no probabilities
    # It has no file format of its own; people store such a model as a pickle.
    return Fitted(lambda texts: certain[model.predict(texts)], len(pickle.dumps(model)))


def _fasttext(data: ComparisonData, seed: int, folder: Path) -> Fitted:
    import fasttext

    tokenizer = Tokenizer()

    def line(text: str) -> str:
        return " ".join(tokenizer(text))

    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "train.txt"
        pairs = zip(data.train.targets, data.train.texts, strict=True)
        lines = (f"{_LABEL}{number} {line(text)}\n" for number, text in pairs)
        file.write_text("".join(lines), encoding="utf-8")
        model = fasttext.train_supervised(str(file), seed=seed, **FASTTEXT_SETTINGS)
    saved = folder / "model.bin"
    model.save_model(str(saved))

    def probabilities(texts: Sequence[str]) -> Probabilities:
        found = np.zeros((len(texts), len(data.classes)))
        # The inner object: the wrapper's `predict` fails with numpy 2 in some of its builds.
        for row, text in zip(found, texts, strict=True):
            for share, label in model.f.predict(line(text) + "\n", len(row), 0.0, "strict"):
                row[int(label.removeprefix(_LABEL))] = share
        return found

    return Fitted(probabilities, size_on_disk(saved))


def _setfit(base: str, data: ComparisonData, seed: int, folder: Path) -> Fitted:
    by_class: dict[int, list[int]] = defaultdict(list)
    for index, number in enumerate(data.train.class_numbers.tolist()):
        by_class[number].append(index)
    draw = random.Random(seed)  # noqa: S311
    chosen = [
        index
        for _, examples in sorted(by_class.items())
        for index in draw.sample(examples, min(SETFIT_EXAMPLES, len(examples)))
    ]
    return fit_setfit(base, data.train.select(chosen), seed, folder)


def fit_setfit(
    base: str,
    train: LabelledTexts,
    seed: int,
    folder: Path,
    device: str = "cpu",
    iterations: int = SETFIT_ITERATIONS,
) -> Fitted:
    """Fine-tune SetFit on all of ``train``, in one epoch over its pairs."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments
    from setfit import logging as setfit_logging

    setfit_logging.set_verbosity_error()

    pairs = 2 * iterations * len(train)
    batch_size = next(size for size in (16, 64, 256) if size == 256 or pairs / size <= SETFIT_STEPS)
    arguments = TrainingArguments(
        output_dir=str(folder),  # nothing is written there, as no step is saved
        batch_size=batch_size,
        num_epochs=1,
        num_iterations=iterations,
        # As many as an epoch has; without it all pairs are listed, 15 GB of 10,000 texts.
        max_steps=-(-pairs // batch_size),
        seed=seed,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        show_progress_bar=False,
    )
    numbers = train.class_numbers.tolist()
    examples = Dataset.from_dict({"text": list(train.texts), "label": numbers})
    with _quiet():
        model = SetFitModel.from_pretrained(base, device=device)
        Trainer(model=model, args=arguments, train_dataset=examples).train()
        model.save_pretrained(str(folder))

    def probabilities(texts: Sequence[str]) -> Probabilities:
        return np.asarray(model.predict_proba(list(texts), as_numpy=True))

    return Fitted(probabilities, size_on_disk(folder))


def _model2vec(encoder: str, data: ComparisonData, seed: int, folder: Path) -> Fitted:
    return fit_model2vec(static_model(encoder), data, seed, folder)


@cache
def static_model(encoder: str, device: str = "cpu") -> Any:
    """model2vec's static vectors of an encoder, with its usual settings; it takes minutes."""
    from model2vec.distill import distill

    with _quiet():
        return distill(encoder, device=device)


def fit_model2vec(
    static: Any, data: ComparisonData, seed: int, folder: Path, device: str = "cpu"
) -> Fitted:
    """Train model2vec's own classifier; it holds out a tenth where there is no dev set."""
    from model2vec.train import StaticModelForClassification

    model = StaticModelForClassification.from_static_model(model=static)
    dev: dict[str, Any] = {}
    if data.dev is not None:
        dev = {"X_val": list(data.dev.texts), "y_val": data.dev.class_numbers.tolist()}
    numbers = data.train.class_numbers.tolist()
    with _quiet():
        model.fit(list(data.train.texts), numbers, device=device, random_seed=seed, **dev)
    saved = model.to_pipeline()
    saved.save_pretrained(str(folder))
    return Fitted(lambda texts: np.asarray(saved.predict_proba(list(texts))), size_on_disk(folder))


def _split_for_teacher(
    data: ComparisonData, config: Config
) -> tuple[LabelledTexts, LabelledTexts | None]:
    if data.dev is not None:
        return data.train, data.dev
    return distillation.hold_out_dev(data.train, data.test, data.unlabelled, config.training)


def _teacher(name: str, data: ComparisonData, seed: int, folder: Path) -> Fitted:  # noqa: ARG001
    train, dev = _split_for_teacher(data, DEFAULT.with_training(seed=seed))
    teacher = choose_teacher([name], train, dev, mode="frozen")
    teacher.prepare()
    return Fitted(lambda texts: np.concatenate(list(teacher.stream(texts))), teacher.bytes or 0)


def _distilled(name: str, data: ComparisonData, seed: int, folder: Path) -> Fitted:
    config = DEFAULT.with_training(seed=seed)
    train, dev = _split_for_teacher(data, config)
    teacher = choose_teacher([name], train, dev, mode="frozen")
    # Without a cache, so that the time is that of all labels.
    labels = distillation.pseudo_label(teacher, train, dev, data.test, data.unlabelled, seed=seed)
    return fit_student(labels, data.test, config, folder)


def fit_student(
    labels: distillation.TeacherLabels,
    test: LabelledTexts,
    config: Config,
    folder: Path,
    device: str = "cpu",
) -> Fitted:
    """Train a network on what a teacher says, as `dcnn distill` does."""
    config = labels.student_config(config)
    artifact, _ = fit(labels.examples, labels.dev_set, config, RunOptions(device=device))
    record = distillation.compare(artifact, labels, test)
    return _saved(record.added_to(artifact), folder)


@dataclass(frozen=True)
class Score:
    """The measurements of one candidate, and its place in the ranking."""

    name: str
    recipe: str  # how it was trained
    correct: statistics.Correct  # (runs, test examples), right or wrong
    macro_f1: float  # mean over the runs
    train_seconds: float  # mean over the runs
    size: int  # bytes on disk, of the first run
    n_ensemble: int  # networks that this is, of the first run
    latency: float  # seconds for one text
    texts_per_second: float  # of many texts at a time
    behind: statistics.Interval | None = None  # of the best's accuracy minus its own

    @cached_property
    def accuracy(self) -> statistics.Summary:
        """Over its runs."""
        return statistics.summarize([float(run.mean()) for run in self.correct])

    @cached_property
    def interval(self) -> statistics.Interval:
        """Of its mean accuracy."""
        return statistics.bootstrap_mean(self.correct)

    @property
    def is_tied(self) -> bool:
        """Whether the test set cannot tell it from the best."""
        return self.behind is not None and self.behind.low <= 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "model": self.name,
            "recipe": self.recipe,
            "accuracy": self.accuracy._asdict() | {"interval": self.interval._asdict()},
            "macro_f1": self.macro_f1,
            "behind_best": None if self.behind is None else self.behind._asdict(),
            "tied_with_best": self.is_tied,
            "train_seconds": self.train_seconds,
            "bytes": self.size,
            "n_ensemble": self.n_ensemble,
            "latency_us": 1e6 * self.latency,
            "texts_per_second": self.texts_per_second,
        }

    def cells(self, separator: str = ", ") -> tuple[str, ...]:
        """Its row of the table; ``separator`` is put before the size of an ensemble."""
        networks = f"{separator}{self.n_ensemble} in one" if self.n_ensemble > 1 else ""
        behind = "" if self.behind is None else self.behind.percent()
        return (
            self.name + networks,
            self.accuracy.percent(2),
            f"{behind} {TIED}" if self.is_tied else behind,
            f"{100 * self.macro_f1:.2f}",
            f"{self.train_seconds:.1f}",
            f"{self.size / 1e6:.{2 if self.size < 1e7 else 1}f}",
            f"{1e6 * self.latency:,.0f}",
            f"{self.texts_per_second:,.0f}",
        )


@logged_once()
def measure(
    candidates: Sequence[Candidate],
    data: ComparisonData,
    seeds: int,
    folder: Path,
    report: Callable[[str], None],
) -> list[Score]:
    """Train and score all, then time them; models are left in ``folder``."""
    warm_up()
    first: dict[str, Fitted] = {}
    runs: dict[str, list[tuple[statistics.Correct, float, float]]] = defaultdict(list)
    truth, texts = data.test.targets, list(data.test.texts)
    for one in candidates:
        for seed in range(seeds if one.seeded else 1):
            started = time.perf_counter()
            fitted = one.fit(data, seed, folder / f"{one.name}-seed{seed}")
            seconds = time.perf_counter() - started
            probabilities = fitted.probabilities(texts)
            scores = evaluate(truth, probabilities, data.classes)
            correct = probabilities.argmax(axis=1) == truth
            runs[one.name].append((correct, scores.macro_f1, seconds))
            first.setdefault(one.name, fitted)
            which = f" seed {seed}" if one.seeded else ""
            report(f"{one.name}{which}: {100 * scores.accuracy:.2f} % on test, {seconds:.1f} s")
    many = (texts * (MANY_TEXTS // len(texts) + 1))[:MANY_TEXTS]
    one_text = {name: _one_text(fitted, texts) for name, fitted in first.items()}
    many_texts = {name: partial(one.probabilities, many) for name, one in first.items()}
    with distillation.one_core():
        latency = time_interleaved(one_text, ONE_ROUNDS, ONE_CALLS)
        seconds_of_many = time_interleaved(many_texts, MANY_ROUNDS)
    found = []
    for one in candidates:
        marks, f1, times = zip(*runs[one.name], strict=True)
        found.append(
            Score(
                name=one.name,
                recipe=one.recipe,
                correct=np.array(marks),
                macro_f1=statistics.summarize(f1).mean,
                train_seconds=statistics.summarize(times).mean,
                size=first[one.name].size,
                n_ensemble=first[one.name].n_ensemble,
                latency=latency[one.name],
                texts_per_second=len(many) / seconds_of_many[one.name],
            )
        )
    return found


def _one_text(fitted: Fitted, texts: Sequence[str]) -> Callable[[], object]:
    upcoming = cycle(texts)  # another one each time, so that no cache helps
    return lambda: fitted.probabilities([next(upcoming)])


def rank(scores: Sequence[Score]) -> list[Score]:
    """Best first by mean accuracy; of equals, the faster."""
    best, *others = sorted(scores, key=lambda one: (-float(np.mean(one.correct)), one.latency))
    return [best] + [
        replace(one, behind=statistics.bootstrap_difference(best.correct, one.correct)[0])
        for one in others
    ]


def remarks(ranking: Sequence[Score], examples: int, seeds: int) -> list[str]:
    """Notes below the table."""
    tied = [one.name for one in ranking if one.is_tied]
    runs = f"the mean of {seeds} seeds where there are any" if seeds > 1 else "one seed each"
    lines = [
        f"Accuracy and macro F1 on {examples:,} test examples, %, {runs}; behind the best: 95 % "
        "bootstrap interval of the difference, in points. us/text: one text at a time; texts/s: "
        f"{MANY_TEXTS:,} at a time; both on one CPU core."
    ]
    if any(one.n_ensemble > 1 for one in ranking):
        lines.append('"N in one": an ensemble of N networks, saved as one network.')
    if tied:
        lines.append(f"{TIED} the test set cannot tell {', '.join(tied)} from {ranking[0].name}.")
    return lines


def markdown(ranking: Sequence[Score], lines: Sequence[str]) -> str:
    """The table as a document."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(one.cells() for one in ranking)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return "\n\n".join([table, *lines]) + "\n"


def plot(ranking: Sequence[Score]) -> str:
    """Accuracy, with its interval, against the time for one text, as SVG."""

    def draw(axes: Any) -> None:
        for one in ranking:
            time, mean = 1e6 * one.latency, 100 * one.accuracy.mean
            ends = [[mean - 100 * one.interval.low], [100 * one.interval.high - mean]]
            color = GREEN if one.name in (*MODEL_KINDS, "distilled") else RED
            axes.errorbar(time, mean, yerr=ends, fmt="o", color=color, capsize=3, linewidth=1)
            axes.annotate(one.name, (time, mean), (6, 4), textcoords="offset points", fontsize=9)
        axes.set_xscale("log")
        axes.margins(x=0.15)
        axes.set(xlabel="one text, microseconds", ylabel="test accuracy, %")

    return draw_svg(draw, height=4.0)
