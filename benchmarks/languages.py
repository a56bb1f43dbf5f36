"""Words, subwords and characters, linear models and fastText: twelve corpora, eight languages.

    python benchmarks/languages.py --corpora DIR --workers 4  # runs what is missing
    python benchmarks/languages.py --corpora DIR --time       # what each model costs
    python benchmarks/languages.py --write docs/languages.md  # the tables, from the results

DIR holds the corpora as ``benchmarks/small_corpora.py`` says. Every corpus has a file in
``results/languages/`` with a record for each model and seed. All models learn from the same texts:
the training set, and the dev set where one is published. A network has the default settings but for
its tokens, and holds out what these say. Logistic regression takes the better of two strengths of
its penalty on a stratified tenth, and is then fitted again on all texts. Nothing else is chosen,
and test is read once.

A network that was trained with other settings than today's default is trained again. So are, with
``--rerun``, those of another commit: code may change what the same settings do. Linear models are
kept, and so are the runs of fastText where it is not installed.

``--time`` trains each model once per corpus in one process. Times are of the processor, not of the
clock on the wall, so that a busy machine does not change them: for fastText, which trains in
several threads, they add up.
"""

import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

import small_corpora
from dcnn.compare import (
    ComparisonData,
    Fitted,
    all_candidates,
    character_ngrams,
    fit_network,
    warm_up,
)
from dcnn.config import DEFAULT, Config
from dcnn.data.labels import LabelledTexts
from dcnn.data.split import hold_out
from dcnn.experiments.tables import NOTHING, markdown_table, write_blocks
from dcnn.metrics import evaluate
from dcnn.text.tokenizer import Tokenizer
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
from timing import TimedCall, time_interleaved

RESULTS = ROOT / "results" / "languages"
COSTS = "costs.json"
TOKENS = ("words", "bpe", "unigram", "characters")
OURS = f"dcnn-{DEFAULT.text.tokenizer}"  # the default
SEEDS = 3
DEV_FRACTION = 0.1  # of the texts, to choose a penalty on
PENALTIES = (1.0, 10.0)  # C of logistic regression
Fit = Callable[[ComparisonData, int, Path], Fitted]


class Run(NamedTuple):
    """A model to train."""

    corpus: str
    model: str
    seed: int


def settings_of(model: str) -> Config | None:
    """The settings of a network, but for its seed."""
    kind, _, tokens = model.partition("-")
    return DEFAULT.with_settings([f"text.tokenizer={tokens}"]) if kind == "dcnn" else None


def network(model: str, data: ComparisonData, seed: int, folder: Path) -> Fitted:
    """A DCNN with the default settings."""
    config = settings_of(model).with_training(seed=seed)
    return fit_network(*data.split(config), config, folder)


def former_default(data: ComparisonData, seed: int, folder: Path) -> Fitted:
    """A DCNN as it was trained before."""
    config = DEFAULT.with_settings(FORMER_SETTINGS).with_training(seed=seed)
    return fit_network(*data.split(config), config, folder)


def logistic_regression(
    features: Callable[[], TfidfVectorizer],
    data: ComparisonData,
    seed: int,  # noqa: ARG001
    folder: Path,  # noqa: ARG001
) -> Fitted:
    """With the better of two penalties on a tenth of the texts."""
    train, dev = hold_out(data.train, DEV_FRACTION, 0)

    def fitted(penalty: float, part: LabelledTexts) -> Pipeline:
        model = make_pipeline(features(), LogisticRegression(C=penalty, max_iter=1000))
        return model.fit(part.texts, part.targets)

    scores = {c: fitted(c, train).score(dev.texts, dev.targets) for c in PENALTIES}
    best = fitted(max(scores, key=scores.__getitem__), data.train)
    # It has no format of its own; a pickle is what people keep such a model as.
    return Fitted(best.predict_proba, len(pickle.dumps(best)))


def word_ngrams() -> TfidfVectorizer:
    """TF-IDF of words and pairs of words."""
    return TfidfVectorizer(
        tokenizer=Tokenizer(), token_pattern=None, lowercase=False, ngram_range=(1, 2)
    )


BASELINES: dict[str, Fit] = {
    "tfidf-lr": partial(logistic_regression, word_ngrams),
    "svm": all_candidates()["svm"].fit,
    "char-lr": partial(logistic_regression, character_ngrams),
    "char-svm": all_candidates()["char-svm"].fit,
    "fasttext": all_candidates()["fasttext"].fit,
}
MODELS: dict[str, Fit] = {
    name: partial(network, name) for name in (f"dcnn-{tokens}" for tokens in TOKENS)
} | BASELINES
# What the default was before words had their spelling, to compare its costs with today's.
FORMER = "former default"
FORMER_SETTINGS = (
    *("text.char_ngrams=[]", "text.min_count=1", "model.dropout=0.5"),
    *("training.epochs=12", "training.schedule=constant", "training.keep=best"),
    *("training.word_dropout=0.1", "training.patience=5", "training.dev_fraction=0.1"),
)
SEEDED = [name for name in MODELS if settings_of(name) is not None or name == "fasttext"]


def installed(models: Sequence[str]) -> list[str]:
    """Those that can be trained here."""
    if "fasttext" in models and not all_candidates()["fasttext"].is_installed:
        print("fasttext is not installed: its earlier runs are kept, and none is made")
        return [model for model in models if model != "fasttext"]
    return list(models)


@cache
def load(corpus: str, folder: Path) -> ComparisonData:
    """A corpus; its dev set, where it has one, is part of the training set."""
    train, test = small_corpora.load_all(corpus, folder)
    return ComparisonData(train, None, test)


def make_run(run: Run, folder: Path) -> dict[str, Any]:
    """Train and evaluate, in a process of the pool."""
    data = load(run.corpus, folder)
    with tempfile.TemporaryDirectory() as place:
        started = time.process_time()
        fitted = MODELS[run.model](data, run.seed, Path(place) / "model")
        seconds = time.process_time() - started
        found = evaluate(data.test.targets, fitted.probabilities(data.test.texts), data.classes)
    return {
        "model": run.model,
        "seed": run.seed,
        "test_accuracy": found.accuracy,
        "test_macro_f1": found.macro_f1,
        "train_cpu_seconds": round(seconds, 2),
        "bytes": fitted.size,
        "n_ensemble": fitted.n_ensemble,
    }


class Report:
    """The results file of a corpus.

    ``sources`` has the settings, machine, versions and commit of each model's runs.
    """

    def __init__(self, corpus: str) -> None:
        self.path = RESULTS / f"{corpus}.json"
        found = read_json(self.path) if self.path.exists() else {}
        self.corpus = corpus
        self.sources: dict[str, dict[str, Any]] = found.get("sources", {})
        self.runs: list[dict[str, Any]] = found.get("runs", [])
        self._sizes = {name: found[name] for name in ("examples", "classes") if name in found}

    def drop_outdated(self, models: Sequence[str], commit: str | None) -> None:
        """Forget the runs of ``models`` that were of another default, or of another commit."""
        for model in models:
            config = settings_of(model)
            settings = None if config is None else config.to_dict()
            if not is_current(self.sources.get(model, {}), settings, commit):
                self.sources.pop(model, None)
                self.runs = [run for run in self.runs if run["model"] != model]

    def missing(self, models: Sequence[str], seeds: int) -> list[Run]:
        """The runs to make."""
        done = {(run["model"], run["seed"]) for run in self.runs}
        return [
            Run(self.corpus, model, seed)
            for model in models
            for seed in range(seeds if model in SEEDED else 1)
            if (model, seed) not in done
        ]

    def add(self, run: dict[str, Any], data: ComparisonData, source: Mapping[str, Any]) -> None:
        """Add a run and write the file."""
        config = settings_of(run["model"])
        settings = {} if config is None else {"settings": config.to_dict()}
        self.sources[run["model"]] = settings | source
        self.runs.append(run)
        order = list(MODELS)
        self.runs.sort(key=lambda one: (order.index(one["model"]), one["seed"]))
        self._sizes["examples"] = {"train": len(data.train), "test": len(data.test)}
        self._sizes["classes"] = len(data.classes)
        rest = {"sources": {model: self.sources[model] for model in order if model in self.sources}}
        write_json(self.path, {"corpus": self.corpus} | self._sizes | rest | {"runs": self.runs})

    def mean(self, model: str, key: str) -> float | None:
        """Over the seeds of a model."""
        found = [run[key] for run in self.runs if run["model"] == model]
        return float(np.mean(found)) if found else None

    def few_seeds(self, model: str) -> str:
        """A remark where a mean is of fewer seeds than the page says."""
        seeds = sum(run["model"] == model for run in self.runs)
        return f" (of {seeds})" if model in SEEDED and 0 < seeds < SEEDS else ""


def start_worker() -> None:
    """Set up a process of the pool."""
    warm_up()


def run_missing(
    reports: Sequence[Report], folder: Path, models: Sequence[str], seeds: int, workers: int
) -> bool:
    """Make the runs that are missing, a thread each; whether all succeeded."""
    os.environ |= ONE_THREAD  # of the processes that start from here
    source, by_corpus, failed = provenance(), {one.corpus: one for one in reports}, False
    runs = [run for report in reversed(reports) for run in report.missing(models, seeds)]
    with ProcessPoolExecutor(workers, get_context("spawn"), start_worker) as pool:
        futures = {pool.submit(make_run, run, folder): run for run in runs}
        for done in as_completed(futures):
            run = futures[done]
            if error := done.exception():
                failed = True
                print(*run, f"FAILED: {error!r}", flush=True)
                continue
            record = done.result()
            by_corpus[run.corpus].add(record, load(run.corpus, folder), source)
            print(*run, f"{record['train_cpu_seconds']:.1f} s", flush=True)
    return not failed


def measure_costs(corpora: Sequence[str], folder: Path, models: Sequence[str]) -> None:
    """Seconds to train, bytes and latency: means over the corpora, into the file of the costs."""
    path = RESULTS / COSTS
    costs = read_json(path) if path.exists() else {}
    fits = MODELS | {FORMER: former_default}
    found: dict[str, list[tuple[float, ...]]] = {model: [] for model in (*models, FORMER)}
    warm_up()
    for corpus in corpora:
        data = load(corpus, folder)
        with tempfile.TemporaryDirectory() as place:
            for model in found:
                started = time.process_time()
                fitted = fits[model](data, 0, Path(place) / model)
                seconds = time.process_time() - started
                upcoming = cycle(data.test.texts)  # another one each time, so that no cache helps
                call = TimedCall(model, partial(_one_text, fitted, upcoming))
                latency = time_interleaved([call], 5, 40, clock=time.process_time)[model]
                found[model].append((seconds, fitted.size, 1e6 * latency.median))
                print(corpus, model, found[model][-1], flush=True)
    for model, values in found.items():
        seconds, size, microseconds = np.mean(values, axis=0).tolist()
        costs[model] = {
            "train_cpu_seconds": round(seconds, 2),
            "bytes": round(size),
            "latency_cpu_us": round(microseconds, 1),
            "corpora": len(corpora),
            **provenance(),
        }
    write_json(path, {model: costs[model] for model in (*MODELS, FORMER) if model in costs})


def _one_text(fitted: Fitted, texts: "cycle[str]") -> object:
    return fitted.probabilities([next(texts)])


def titles(reports: Sequence[Report]) -> list[str]:
    """The models, and of how many networks each is an ensemble."""
    runs = [run for report in reports for run in report.runs]
    return [
        ensemble_title(model, (run for run in runs if run["model"] == model)) for model in MODELS
    ]


def score_table(reports: Sequence[Report], key: str) -> str:
    """A row per corpus, and the mean over all; the last column is the default's difference."""
    rows, columns = [], {model: [report.mean(model, key) for report in reports] for model in MODELS}
    for place, report in enumerate(reports):
        values = {model: column[place] for model, column in columns.items()}
        cells = [
            percent(value, values.values()) + report.few_seeds(model)
            for model, value in values.items()
        ]
        rows.append((report.corpus, *cells, difference(values, OURS, BASELINES)))
    means = {
        model: float(np.mean([value for value in column if value is not None]))
        if None not in column
        else None
        for model, column in columns.items()
    }
    cells = [percent(value, means.values()) for value in means.values()]
    rows.append(("mean", *cells, difference(means, OURS, BASELINES)))
    head = ("test", *titles(reports), f"{OURS} minus the best baseline")
    return markdown_table(head, rows)


def cost_table(costs: Mapping[str, Mapping[str, Any]]) -> str:
    """What each model costs, and on which machine that was measured."""
    rows, columns = [], (*MODELS, FORMER)
    for title, key, shown in (
        ("training, seconds", "train_cpu_seconds", lambda value: f"{value:.1f}"),
        ("size, MB", "bytes", lambda value: f"{value / 1e6:.2f}"),
        ("latency of a text, us", "latency_cpu_us", lambda value: f"{value:.0f}"),
    ):
        cells = (shown(costs[model][key]) if model in costs else NOTHING for model in columns)
        rows.append((title, *cells))
    machines: dict[str, list[str]] = {}
    for model, cost in costs.items():
        machines.setdefault(cost["hardware"], []).append(model)
    measured = "\n".join(f"{', '.join(models)}: {place}." for place, models in machines.items())
    return f"{markdown_table(('', *columns), rows)}\n\n{measured}"


def tables() -> dict[str, str]:
    """The blocks of the page: accuracy, macro F1, and what they cost."""
    reports = [Report(name) for name in small_corpora.CORPORA]
    return {
        "languages-accuracy": score_table(reports, "test_accuracy"),
        "languages-f1": score_table(reports, "test_macro_f1"),
        "languages-cost": cost_table(read_json(RESULTS / COSTS)),
    }


def main() -> None:
    """Run what is missing, time, or render."""
    parser = make_parser(__doc__)
    parser.add_argument("names", nargs="*", default=small_corpora.CORPORA, help="all by default")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of the models that have one")
    parser.add_argument("--corpora", type=Path, help="the folder of the corpora")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--rerun", action="store_true", help="networks of other commits as well")
    parser.add_argument("--time", action="store_true", help="measure the costs instead")
    parser.add_argument("--write", type=Path, help="render the tables into this page")
    options = parser.parse_args()
    if options.corpora is None and options.write is None:
        parser.error("give --corpora DIR to run, or --write PAGE to render")
    if options.corpora is not None:
        models = installed(options.models)
        if options.time:
            measure_costs(options.names, options.corpora, models)
        else:
            commit = commit_of_rerun(parser) if options.rerun else None
            reports = [Report(name) for name in options.names]
            for report in reports:
                report.drop_outdated(models, commit)
            if not run_missing(reports, options.corpora, models, options.seeds, options.workers):
                sys.exit(1)
    if options.write is not None:
        write_blocks([options.write], tables())


if __name__ == "__main__":
    main()
