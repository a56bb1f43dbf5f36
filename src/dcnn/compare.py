"""Timing what takes turns, so that a busy machine slows every contestant alike.

The outcome of a comparison as values, best first, honest about what cannot be told apart.

Who takes part: our networks with their default settings, and the n-gram models.

Other people's classifiers, where they are installed.

Training, scoring and timing the contenders.

The ranking as a table, in Markdown, and as a plot.
"""

import importlib.util
import logging
import pickle
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn import artifact as model_folder
from dcnn.config import DEFAULT, MODEL_KINDS, Config, NBoWConfig
from dcnn.data.labels import LabelledTexts, number_labels
from dcnn.data.split import hold_out
from dcnn.experiments.ngrams import NGRAM_MODELS, ngram_classifier
from dcnn.experiments.statistics import (
    Correct,
    Interval,
    Summary,
    bootstrap_difference,
    bootstrap_mean,
    summarize,
)
from dcnn.metrics import Evaluation, evaluate
from dcnn.plots import GREEN, RED, draw_svg
from dcnn.predictor import Predictor
from dcnn.text.tokenizer import Tokenizer
from dcnn.training.fit import RunOptions as TrainingOptions
from dcnn.training.fit import fit

Clock = Callable[[], float]


@dataclass(frozen=True)
class Measure:
    """What was measured several times: the median and, as spread, the quartiles."""

    median: float
    low: float
    high: float
    repetitions: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measure":
        """Sum up ``values``, of which there is at least one."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))

    def times(self, factor: float) -> "Measure":
        """The same in another unit."""
        return Measure(
            self.median * factor, self.low * factor, self.high * factor, self.repetitions
        )

    def rate(self, count: int) -> "Measure":
        """Seconds for ``count`` things, as things a second: the slowest is the lowest."""
        return Measure(count / self.median, count / self.high, count / self.low, self.repetitions)


@dataclass(frozen=True)
class Contestant:
    """What is timed: a call, and what holds around each of its turns, such as a backend."""

    name: str
    call: Callable[[], object]
    condition: Callable[[], AbstractContextManager[object]] = nullcontext


def take_turns(
    contestants: Sequence[Contestant],
    rounds: int,
    calls: int = 1,
    *,
    warm_up: bool = True,
    clock: Clock = time.perf_counter,
) -> dict[str, Measure]:
    """Seconds a call of each: ``rounds`` turns of ``calls`` calls.

    Args:
        contestants: what is timed, in the order of their turns.
        rounds: turns of each.
        calls: calls that are timed in a turn.
        warm_up: whether a turn begins with a call that does not count, since another's turn has
            left the caches full of other things.
        clock: seconds, from any start.
    """
    times: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for _ in range(rounds):
        for contestant in contestants:
            with contestant.condition():
                if warm_up:
                    contestant.call()
                for _ in range(calls):
                    started = clock()
                    contestant.call()
                    times[contestant.name].append(clock() - started)
    return {name: Measure.of(values) for name, values in times.items()}


@dataclass(frozen=True)
class Score:
    """What was measured of one contender.

    Attributes:
        name: the model.
        recipe: how it was trained.
        correct: (runs, test examples), right or wrong.
        macro_f1: mean over the runs.
        train_seconds: mean over the runs.
        size: bytes on disk, of the first run.
        latency: seconds for one text.
        texts_per_second: of many texts at a time.
    """

    name: str
    recipe: str
    correct: Correct
    macro_f1: float
    train_seconds: float
    size: int
    latency: Measure
    texts_per_second: float


@dataclass(frozen=True)
class Place:
    """A contender in the ranking.

    Attributes:
        score: what was measured.
        accuracy: over its runs.
        interval: of its mean accuracy.
        behind: interval of the best's accuracy minus its own; none for the best.
    """

    score: Score
    accuracy: Summary
    interval: Interval
    behind: Interval | None

    @property
    def is_tied(self) -> bool:
        """Whether the test set does not tell it from the best."""
        return self.behind is not None and self.behind.low <= 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "model": self.score.name,
            "recipe": self.score.recipe,
            "accuracy": asdict(self.accuracy) | {"interval": asdict(self.interval)},
            "macro_f1": self.score.macro_f1,
            "behind_best": None if self.behind is None else asdict(self.behind),
            "tied_with_best": self.is_tied,
            "train_seconds": self.score.train_seconds,
            "bytes": self.score.size,
            "latency_us": 1e6 * self.score.latency.median,
            "texts_per_second": self.score.texts_per_second,
        }


def ranked(scores: Sequence[Score]) -> list[Place]:
    """Best first by mean accuracy; of equals, the quicker."""
    order = sorted(scores, key=lambda one: (-float(np.mean(one.correct)), one.latency.median))
    return [
        Place(
            score=score,
            accuracy=summarize([float(run.mean()) for run in score.correct]),
            interval=bootstrap_mean(score.correct),
            behind=bootstrap_difference(order[0].correct, score.correct)[0] if number else None,
        )
        for number, score in enumerate(order)
    ]


Probabilities = NDArray[Any]  # (texts, classes)


@dataclass(frozen=True)
class RunOptions:
    """What every contender is given.

    Attributes:
        train: all of the training file.
        dev: a dev set of the user's own, or none.
        test: what they are scored on.
    """

    train: LabelledTexts
    dev: LabelledTexts | None
    test: LabelledTexts

    @property
    def classes(self) -> list[str]:
        """The labels, by class number."""
        return [str(label) for label in self.train.classes]


@dataclass(frozen=True)
class Fitted:
    """A trained contender: what it says to texts, and its bytes on disk."""

    probabilities: Callable[[Sequence[str]], Probabilities]
    size: int


@dataclass(frozen=True)
class Contender:
    """A model that can be trained.

    Attributes:
        name: as in ``--models``.
        recipe: how it is trained, in a few words.
        seeded: whether another seed gives another model.
        fit: trains it with a seed; what it keeps on disk goes to the folder, which it makes.
    """

    name: str
    recipe: str
    seeded: bool
    fit: Callable[[RunOptions, int, Path], Fitted]


def our_contenders() -> dict[str, Contender]:
    """The networks and the n-gram models, by name."""
    networks = [
        Contender(name, "default settings, stopped by dev", True, _network(name))
        for name in MODEL_KINDS
    ]
    grams = [
        Contender(
            name, f"{'unigrams' if name == 'nb' else 'uni- and bigrams'}", False, _grams(name)
        )
        for name in NGRAM_MODELS
    ]
    return {contender.name: contender for contender in (*networks, *grams)}


def warm_up() -> None:
    """Train a network of two texts: torch loads some of itself at its first step only.

    It also says which backend computes, once and not for every run.
    """
    two = number_labels(["a", "b"], ["a", "b"])
    config = Config(model=NBoWConfig(dim=2)).with_training(epochs=1)
    fit(two, two, config, TrainingOptions(device="cpu"))
    logging.getLogger("dcnn").setLevel(logging.WARNING)


def size_on_disk(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def one_hot(numbers: NDArray[Any], classes: int) -> Probabilities:
    """Certainty, for a model that gives a class and no probabilities."""
    certain: Probabilities = np.eye(classes)[numbers]
    return certain


def _network(kind: str) -> Callable[[RunOptions, int, Path], Fitted]:
    def train(run_options: RunOptions, seed: int, folder: Path) -> Fitted:
        config = DEFAULT.with_settings([f"model.kind={kind}"]).with_training(seed=seed)
        # As `dcnn train` would: the same split for the same seed, hence the same model.
        learned, dev = run_options.train, run_options.dev
        if dev is None:
            learned, dev = hold_out(learned, config.training.dev_fraction, seed)
        artifact, _ = fit(learned, dev, config, TrainingOptions(device="cpu"))
        model_folder.save(folder, artifact)
        return Fitted(Predictor.load(folder).probabilities, size_on_disk(folder))

    return train


def _grams(name: str) -> Callable[[RunOptions, int, Path], Fitted]:
    def train(run_options: RunOptions, seed: int, folder: Path) -> Fitted:  # noqa: ARG001
        truth = run_options.train.targets
        model = ngram_classifier(name).fit(run_options.train.texts, truth)

        def probabilities(texts: Sequence[str]) -> Probabilities:
            return one_hot(model.predict(texts), len(run_options.classes))

        # It has no format of its own; a pickle is what people keep such a model as.
        return Fitted(probabilities, len(pickle.dumps(model)))

    return train


FASTTEXT = "fasttext-numpy2-wheel"  # `fasttext` and `fasttext-wheel` fail with numpy 2
# The settings of fastText's own tutorial. Each of ten threads of fastText 0.9.2 initialises a tenth
# of its vectors: fewer leave the rest uninitialised, and training may end with "Encountered NaN".
FASTTEXT_SETTINGS = {"lr": 1.0, "epoch": 25, "wordNgrams": 2, "dim": 50, "bucket": 200_000}
FASTTEXT_THREADS = 10
SETFIT_BASE = "sentence-transformers/paraphrase-MiniLM-L6-v2"
SETFIT_EXAMPLES = 16  # a class: more than that is not what it is for
_LABEL = "__label__"


def rival_contenders() -> dict[str, Contender]:
    """All that we know how to train, installed or not."""
    return {
        "fasttext": Contender(
            "fasttext", "bigrams, 25 epochs, as its tutorial", True, _fasttext_rivals
        ),
        "setfit": Contender("setfit", f"{SETFIT_EXAMPLES} examples a class", True, _setfit),
    }


INSTALL = {"fasttext": f"pip install {FASTTEXT}", "setfit": "pip install setfit"}


def is_installed(name: str) -> bool:
    """Whether a rival can be imported."""
    return importlib.util.find_spec(name) is not None


def _fasttext_rivals(run_options: RunOptions, seed: int, folder: Path) -> Fitted:
    import fasttext

    tokenizer = Tokenizer()

    def line(text: str) -> str:
        return " ".join(tokenizer(text))

    numbers = run_options.train.targets
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "train.txt"
        pairs = zip(numbers, run_options.train.texts, strict=True)
        lines = (f"{_LABEL}{number} {line(text)}\n" for number, text in pairs)
        data.write_text("".join(lines), encoding="utf-8")
        model = fasttext.train_supervised(
            str(data), minCount=1, thread=FASTTEXT_THREADS, verbose=0, seed=seed,
            **FASTTEXT_SETTINGS,
        )  # fmt: skip
    kept = folder / "model.bin"
    model.save_model(str(kept))

    def probabilities(texts: Sequence[str]) -> Probabilities:
        found = np.zeros((len(texts), len(run_options.classes)))
        # The inner object: the wrapper's `predict` fails with numpy 2 in some of its builds.
        for row, text in zip(found, texts, strict=True):
            for share, label in model.f.predict(line(text) + "\n", len(row), 0.0, "strict"):
                row[int(label.removeprefix(_LABEL))] = share
        return found

    return Fitted(probabilities, size_on_disk(kept))


def _setfit(run_options: RunOptions, seed: int, folder: Path) -> Fitted:
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    places: dict[int, list[int]] = defaultdict(list)
    for place, number in enumerate(run_options.train.targets.tolist()):
        places[number].append(place)
    draw = random.Random(seed)  # noqa: S311
    chosen = [
        (place, number)
        for number, those in sorted(places.items())
        for place in draw.sample(those, min(SETFIT_EXAMPLES, len(those)))
    ]
    examples = Dataset.from_dict(
        {
            "text": [run_options.train.texts[place] for place, _ in chosen],
            "label": [number for _, number in chosen],
        }
    )
    model = SetFitModel.from_pretrained(SETFIT_BASE)
    arguments = TrainingArguments(batch_size=16, num_epochs=1, seed=seed, report_to="none")
    Trainer(model=model, args=arguments, train_dataset=examples).train()
    model.save_pretrained(str(folder))

    def probabilities(texts: Sequence[str]) -> Probabilities:
        return np.asarray(model.predict_proba(list(texts), as_numpy=True))

    return Fitted(probabilities, size_on_disk(folder))


ONE_ROUNDS, ONE_CALLS = 10, 10
MANY_ROUNDS, MANY_TEXTS = 3, 1000


@dataclass(frozen=True)
class Run:
    """One training: the model, its scores on test, and whether each answer is right."""

    fitted: Fitted
    evaluation: Evaluation
    correct: list[bool]
    seconds: float


def measure(
    contenders: Sequence[Contender],
    run_options: RunOptions,
    seeds: int,
    folder: Path,
    report: Callable[[str], None],
) -> list[Score]:
    """Train all, then let them take turns at the clock; models are left in ``folder``."""
    runs: dict[str, list[Run]] = {}
    warm_up()
    for contender in contenders:
        runs[contender.name] = []
        for seed in range(seeds if contender.seeded else 1):
            run = _run(contender, run_options, seed, folder / f"{contender.name}-seed{seed}")
            runs[contender.name].append(run)
            which = f" seed {seed}" if contender.seeded else ""
            accuracy = 100 * run.evaluation.accuracy
            report(f"{contender.name}{which}: {accuracy:.2f} % on test, {run.seconds:.1f} s")
    fitted = {name: those[0].fitted for name, those in runs.items()}
    texts = list(run_options.test.texts)
    one = take_turns([_one_text(*pair, texts) for pair in fitted.items()], ONE_ROUNDS, ONE_CALLS)
    some = (texts * (MANY_TEXTS // len(texts) + 1))[:MANY_TEXTS]
    multi_label = take_turns([_all_texts(*pair, some) for pair in fitted.items()], MANY_ROUNDS)
    return [
        Score(
            name=contender.name,
            recipe=contender.recipe,
            correct=np.array([run.correct for run in those]),
            macro_f1=float(np.mean([run.evaluation.macro_f1 for run in those])),
            train_seconds=float(np.mean([run.seconds for run in those])),
            size=those[0].fitted.size,
            latency=one[contender.name],
            texts_per_second=multi_label[contender.name].rate(len(some)).median,
        )
        for contender, those in ((contender, runs[contender.name]) for contender in contenders)
    ]


def _run(contender: Contender, run_options: RunOptions, seed: int, folder: Path) -> Run:
    started = time.perf_counter()
    fitted = contender.fit(run_options, seed, folder)
    seconds = time.perf_counter() - started
    truth = run_options.test.targets
    probabilities = fitted.probabilities(run_options.test.texts)
    correct = (probabilities.argmax(axis=1) == truth).tolist()
    return Run(fitted, evaluate(truth, probabilities, run_options.classes), correct, seconds)


def _one_text(name: str, fitted: Fitted, texts: Sequence[str]) -> Contestant:
    turn = cycle(texts)  # another one each time: no cache may remember the answer
    return Contestant(name, lambda: fitted.probabilities([next(turn)]))


def _all_texts(name: str, fitted: Fitted, texts: Sequence[str]) -> Contestant:
    return Contestant(name, lambda: fitted.probabilities(texts))


COLUMNS = ("model", "accuracy", "behind best", "F1", "train s", "MB", "us/text", "texts/s")
OURS = ("dcnn", "max-tdnn", "nbow")
TIED = "="


def cells(place: Place) -> tuple[str, ...]:
    """A row of the table."""
    score, accuracy = place.score, place.accuracy
    spread = f" ± {100 * accuracy.deviation:.2f}" if accuracy.deviation is not None else ""
    return (
        score.name,
        f"{100 * accuracy.mean:.2f}{spread}",
        _behind(place),
        f"{100 * score.macro_f1:.2f}",
        f"{score.train_seconds:.1f}",
        f"{score.size / 1e6:.{2 if score.size < 1e7 else 1}f}",
        f"{1e6 * score.latency.median:,.0f}",
        f"{score.texts_per_second:,.0f}",
    )


def _behind(place: Place) -> str:
    if place.behind is None:
        return ""
    low, high = 100 * place.behind.low, 100 * place.behind.high
    return f"{low:.1f} to {high:.1f}{f' {TIED}' if place.is_tied else ''}"


def remarks(places: Sequence[Place], examples: int, seeds: int) -> list[str]:
    """What the table does not say by itself."""
    tied = [place.score.name for place in places if place.is_tied]
    runs = f"the mean of {seeds} seeds where there are any" if seeds > 1 else "one seed each"
    lines = [
        f"Accuracy and macro F1 on {examples:,} test examples, %, {runs}; behind the best: 95 % "
        "bootstrap interval of the difference, in points."
    ]
    if tied:
        lines.append(
            f"{TIED} the test set does not tell {', '.join(tied)} from {places[0].score.name}."
        )
    return lines


def markdown(places: Sequence[Place], lines: Sequence[str]) -> str:
    """The table as a document."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(cells, places)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return "\n\n".join([table, *lines]) + "\n"


def plot(places: Sequence[Place]) -> str:
    """Accuracy, with its interval, against the time for one text, as SVG.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """

    def draw(axes: Any) -> None:
        for place in places:
            time, mean = 1e6 * place.score.latency.median, 100 * place.accuracy.mean
            ends = [[mean - 100 * place.interval.low], [100 * place.interval.high - mean]]
            color = GREEN if place.score.name in OURS else RED
            axes.errorbar(time, mean, yerr=ends, fmt="o", color=color, capsize=3, linewidth=1)
            axes.annotate(
                place.score.name, (time, mean), (6, 4), textcoords="offset points", fontsize=9
            )
        axes.set_xscale("log")
        axes.margins(x=0.15)
        axes.set(xlabel="one text, microseconds", ylabel="test accuracy, %")

    return draw_svg(draw, height=4.0)
