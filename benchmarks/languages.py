"""Words, subwords and characters, linear models and fastText: twelve corpora, eight languages.

    python benchmarks/languages.py --corpora DIR              # runs what is missing
    python benchmarks/languages.py --write docs/languages.md  # the tables, from the results

DIR holds the corpora as ``benchmarks/small_corpora.py`` says. Every corpus has a file in
``results/languages/`` with a record for each model and seed. A network has the default settings but
for its tokens, and is stopped by dev; logistic regression takes the better of two strengths of its
penalty on dev; nothing else is chosen, and test is read once. Dev is a stratified tenth of the
training set where none is published.

Times are of the processor, not of the clock on the wall, so that a busy machine does not change
them: for fastText, which trains in several threads, they add up.
"""

import pickle
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import small_corpora
from dcnn import artifact as model_folder
from dcnn.compare import (
    ComparisonData,
    Fitted,
    all_candidates,
    size_on_disk,
    warm_up,
)
from dcnn.config import DEFAULT
from dcnn.data.split import hold_out
from dcnn.experiments.tables import write_blocks
from dcnn.metrics import evaluate
from dcnn.predictor import Predictor
from dcnn.text.tokenizer import Tokenizer
from dcnn.training.fit import RunOptions as TrainingOptions
from dcnn.training.fit import fit
from results import ROOT, make_parser, provenance, read_json, write_json
from timing import TimedCall, time_interleaved

RESULTS = ROOT / "results" / "languages"
TOKENS = ("words", "bpe", "unigram", "characters")
SEEDS = 3
PENALTIES = (1.0, 10.0)  # C of logistic regression
Fit = Callable[[ComparisonData, int, Path], Fitted]


def network(tokens: str) -> Fit:
    """A DCNN with the default settings."""

    def train(data: ComparisonData, seed: int, folder: Path) -> Fitted:
        config = DEFAULT.with_settings([f"text.tokenizer={tokens}"]).with_training(seed=seed)
        options = TrainingOptions(device="cpu")
        artifact, _ = fit(data.train, data.dev, config, options)
        model_folder.save(folder, artifact)
        return Fitted(Predictor.load(folder).probabilities, size_on_disk(folder))

    return train


def logistic_regression(data: ComparisonData, seed: int, folder: Path) -> Fitted:  # noqa: ARG001
    """TF-IDF of words and pairs of words."""
    found = []
    for penalty in PENALTIES:
        model = make_pipeline(
            TfidfVectorizer(
                tokenizer=Tokenizer(), token_pattern=None, lowercase=False, ngram_range=(1, 2)
            ),
            LogisticRegression(C=penalty, max_iter=1000),
        )
        model.fit(data.train.texts, data.train.targets)
        found.append(
            (
                model.score(data.dev.texts, data.dev.targets),
                model,
            )
        )
    best = max(found, key=lambda pair: pair[0])[1]
    # It has no format of its own; a pickle is what people keep such a model as.
    return Fitted(best.predict_proba, len(pickle.dumps(best)))


MODELS: dict[str, Fit] = {
    **{f"dcnn-{tokens}": network(tokens) for tokens in TOKENS},
    "tfidf-lr": logistic_regression,
    "svm": all_candidates()["svm"].fit,
    "fasttext": all_candidates()["fasttext"].fit,
}
SEEDED = [name for name in MODELS if name not in ("tfidf-lr", "svm")]


def one_run(data: ComparisonData, model: str, seed: int) -> dict[str, object]:
    """Train and evaluate a model."""
    with tempfile.TemporaryDirectory() as place:
        started = time.process_time()
        fitted = MODELS[model](data, seed, Path(place) / "model")
        seconds = time.process_time() - started
        scores = {
            name: evaluate(
                part.targets,
                fitted.probabilities(part.texts),
                data.classes,
            )
            for name, part in (("dev", data.dev), ("test", data.test))
        }
        turn = cycle(data.dev.texts)  # another one each time: no cache may remember the answer
        latency = time_interleaved(
            [TimedCall(model, lambda: fitted.probabilities([next(turn)]))],
            5,
            40,
            clock=time.process_time,
        )[model]
    return {
        "model": model,
        "seed": seed,
        **{f"{name}_accuracy": score.accuracy for name, score in scores.items()},
        **{f"{name}_macro_f1": score.macro_f1 for name, score in scores.items()},
        "train_cpu_seconds": round(seconds, 2),
        "bytes": fitted.size,
        "latency_cpu_us": round(1e6 * latency.median, 1),
    }


def run_corpus(name: str, folder: Path, models: Sequence[str], seeds: int) -> None:
    """Make the runs of ``models`` with up to ``seeds`` seeds that the corpus's file lacks.

    Networks of another default than today's are no runs of these models.
    """
    path = RESULTS / f"{name}.json"
    there = read_json(path) if path.exists() else {"runs": []}
    same = there.get("settings") == DEFAULT.to_dict()
    runs = [run for run in there["runs"] if same or not run["model"].startswith("dcnn-")]
    done = {(run["model"], run["seed"]) for run in runs}
    train, dev, test = small_corpora.load(name, folder)
    if dev is None:
        train, dev = hold_out(train, DEFAULT.training.dev_fraction, DEFAULT.training.seed)
    data = ComparisonData(train, dev.with_classes(train.classes), test.with_classes(train.classes))
    for model in models:
        for seed in range(seeds if model in SEEDED else 1):
            if (model, seed) in done:
                continue
            runs.append(one_run(data, model, seed))
            report = {
                "corpus": name,
                "examples": {"train": len(train.texts), "dev": len(dev.texts)}
                | {"test": len(test.texts)},
                "classes": len(data.classes),
                "settings": DEFAULT.to_dict(),
                **provenance(),
                "runs": runs,
            }
            write_json(path, report)
            last = runs[-1]
            print(name, model, seed, f"{100 * last['dev_accuracy']:.1f}", last, flush=True)


def mean(runs: Sequence[dict], model: str, key: str) -> float:
    """Over the seeds of a model."""
    return float(np.mean([run[key] for run in runs if run["model"] == model]))


def few_seeds(runs: Sequence[dict], model: str) -> str:
    """A remark where a mean is of fewer seeds than the page says."""
    seeds = sum(run["model"] == model for run in runs)
    return f" (of {seeds})" if model in SEEDED and seeds < SEEDS else ""


def tables() -> dict[str, str]:
    """The blocks of the page: accuracy, and what it costs."""
    reports = [read_json(RESULTS / f"{name}.json") for name in small_corpora.CORPORA]
    head = "| test | " + " | ".join(MODELS) + " |\n|---|" + "---|" * len(MODELS)
    accuracy, cost = [head], [head.replace("| test |", "| |", 1)]
    for report in reports:
        runs = report["runs"]
        rows = [(report["corpus"], "test_accuracy")]
        if report["corpus"] == "sms":
            rows.append(("sms, macro F1", "test_macro_f1"))
        for title, key in rows:
            values = [100 * mean(runs, model, key) for model in MODELS]
            best = max(round(value, 1) for value in values)
            cells = (
                (f"**{value:.1f}**" if round(value, 1) == best else f"{value:.1f}")
                + few_seeds(runs, model)
                for model, value in zip(MODELS, values, strict=True)
            )
            accuracy.append(f"| {title} | {' | '.join(cells)} |")
    means = [
        np.mean([100 * mean(report["runs"], model, "test_accuracy") for report in reports])
        for model in MODELS
    ]
    accuracy.append(f"| mean | {' | '.join(f'{value:.1f}' for value in means)} |")
    for title, key, shown in (
        ("training, seconds", "train_cpu_seconds", lambda value: f"{value:.1f}"),
        ("size, MB", "bytes", lambda value: f"{value / 1e6:.2f}"),
        ("latency of a text, us", "latency_cpu_us", lambda value: f"{value:.0f}"),
    ):
        cells = (
            shown(np.mean([mean(report["runs"], model, key) for report in reports]))
            for model in MODELS
        )
        cost.append(f"| {title} | {' | '.join(cells)} |")
    return {"languages-accuracy": "\n".join(accuracy), "languages-cost": "\n".join(cost)}


def main() -> None:
    """Run what is missing, or render."""
    parser = make_parser(__doc__)
    parser.add_argument("names", nargs="*", default=small_corpora.CORPORA, help="all by default")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of the models that have one")
    parser.add_argument("--corpora", type=Path, help="the folder of the corpora")
    parser.add_argument("--write", type=Path, help="render the tables into this page")
    options = parser.parse_args()
    if options.corpora is None and options.write is None:
        parser.error("give --corpora DIR to run, or --write PAGE to render")
    if options.corpora is not None:
        warm_up()
        for name in options.names:
            run_corpus(name, options.corpora, options.models, options.seeds)
    if options.write is not None:
        write_blocks([options.write], tables())


if __name__ == "__main__":
    main()
