"""Which settings are a good default: several settings on many small corpora, without test sets.

    python benchmarks/default_settings.py benchmarks/sweeps/default-members.toml --corpora DIR
    python benchmarks/default_settings.py benchmarks/sweeps/default-members.toml --write PAGE

A TOML file names the settings, each a list of ``section.key=value`` strings on top of the network
that the paper has for SST (``Config()``), so that what they mean does not change with the
default. Every corpus's training part is split again for each seed: eight tenths to train on, one
for early stopping, one to score. Of a corpus named ``trec@8``, 8 examples of every class (all of a
class that has fewer) of the nine tenths are trained on; the settings say whether some of these are
held out. The score of every corpus, setting and seed, accuracy or what ``measure`` names, goes to a
JSON file of the same name in ``results/sweeps/``, with linear models on n-grams for comparison.
``--write`` renders that file into a page, if the TOML file has names for its settings.

DIR holds the corpora as ``benchmarks/small_corpora.py`` says. TREC, SST and the tweets are found as
everywhere (``DCNN_DATA``), and the built-in opinions need no file.
"""

import multiprocessing
import os
import time
import tomllib
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

import small_corpora
from dcnn.compare import TFIDF_MODELS
from dcnn.config import Config
from dcnn.data.corpora.opinions import read_opinions
from dcnn.data.corpora.registry import data_folder, find_corpus
from dcnn.data.corpora.sentiment140 import read_sentiment140
from dcnn.data.corpora.sst import NEUTRAL, read_trees
from dcnn.data.corpora.trec import read_trec
from dcnn.data.labels import number_labels
from dcnn.data.split import split_dev, stratified_split
from dcnn.experiments.ngrams import ngram_classifier
from dcnn.predictor import Predictor
from dcnn.training.fit import RunOptions, fit
from results import ROOT, make_parser, provenance, read_json, render_block, write_json

RESULTS = ROOT / "results" / "sweeps"
LINEAR = ("svm", "maxent")
Corpus = tuple[list[str], list[str]]  # texts and labels


def load(name: str, corpora: Path) -> Corpus:
    """The training part of a corpus."""
    match name:
        case "opinions":
            train = read_opinions()["train"]
            return [one.text for one in train], [one.label for one in train]
        case "trec":
            questions = read_trec(Path(os.environ["DCNN_DATA"]) / "trec" / "train_5500.label")
            return questions.texts, questions.labels
        case "sst2":  # whole sentences that are not neutral
            roots = [
                tree[0] for tree in read_trees(find_corpus("sst", data_folder())["train"].path)
            ]
            kept = [root for root in roots if root.label != NEUTRAL]
            return [" ".join(root.words) for root in kept], [str(r.label > NEUTRAL) for r in kept]
        case "twitter":
            tweets = read_sentiment140(*find_corpus("twitter", data_folder())["train"])
            return tweets.texts, tweets.labels
    train = small_corpora.load(name, corpora).train
    return train.texts, train.labels


def judge(job: tuple[str, Path, tuple[str, ...] | str, int, str]) -> float:
    """The score of one setting, or linear model, on the scored tenth of one split."""
    name, corpora, setting, seed, measure = job
    name, _, per_class = name.partition("@")
    texts, labels = load(name, corpora)
    rest, judged = stratified_split(labels, 0.1, 100 + seed)
    classes = sorted(set(labels))
    if per_class:
        shuffled = np.random.default_rng((seed, int(per_class))).permutation(rest)
        own = [[i for i in shuffled if labels[i] == label] for label in classes]
        rest = np.concatenate([indices[: int(per_class)] for indices in own])

    def part(indices: np.ndarray) -> tuple[list[str], list[str]]:
        return [texts[i] for i in indices], [labels[i] for i in indices]

    if isinstance(setting, str):
        known = setting in TFIDF_MODELS
        model = TFIDF_MODELS[setting][1]() if known else ngram_classifier(setting)
        predicted = model.fit(*part(rest)).predict(part(judged)[0])
    else:
        config = Config().with_settings(setting).with_training(seed=seed)
        if not per_class:
            config = config.with_training(dev_fraction=1 / 9)
        sets = split_dev(number_labels(*part(rest), classes=classes), config.training)
        artifact, _ = fit(*sets, config, RunOptions(device="cpu"))
        predicted = [one.label for one in Predictor(artifact).predict(part(judged)[0])]
    if measure == "macro F1":
        return float(f1_score(part(judged)[1], list(predicted), average="macro"))
    return float(np.mean([a == b for a, b in zip(predicted, part(judged)[1], strict=True)]))


def table(names: list[str], report: dict[str, Any]) -> str:
    """The score of every setting on every corpus, as Markdown."""
    corpora = list(report["settings"][0]["corpora"])
    titles = [*names, *(row["setting"] for row in report["settings"][len(names) :])]
    lines = [f"| | {' | '.join(corpora)} | mean |", "|---|" + "---|" * (len(corpora) + 1)]
    for title, row in zip(titles, report["settings"], strict=True):
        cells = [f"{100 * np.mean(row['corpora'][name]):.1f}" for name in corpora]
        lines.append(f"| {title} | {' | '.join(cells)} | {100 * row['mean']:.1f} |")
    return "\n".join(lines)


def run(spec: dict[str, Any], corpora: Path, at_once: int, path: Path) -> None:
    """Train and score all settings, and write ``path``."""
    settings = [*map(tuple, spec["settings"]), *spec.get("linear", LINEAR)]
    measure = spec.get("measure", "accuracy")
    jobs = list(product(spec["corpora"], [corpora], settings, range(spec["seeds"]), [measure]))
    started = time.monotonic()
    scores: dict[tuple[str, tuple[str, ...] | str], list[float]] = {}
    # Spawned, not forked: torch's threads do not survive a fork.
    with ProcessPoolExecutor(at_once, multiprocessing.get_context("spawn")) as pool:
        for job, score in zip(jobs, pool.map(judge, jobs), strict=True):
            name, _, setting, seed, _ = job
            scores.setdefault((name, setting), []).append(score)
            print(name, seed, f"{100 * score:.1f}", setting, flush=True)
    rows = [
        {
            "setting": setting if isinstance(setting, str) else list(setting),
            "mean": round(float(np.mean([scores[name, setting] for name in spec["corpora"]])), 5),
            "corpora": {name: scores[name, setting] for name in spec["corpora"]},
        }
        for setting in settings
    ]
    report = {
        "seeds": spec["seeds"],
        "measure": measure,
        "default": Config().to_dict(),
        "seconds": round(time.monotonic() - started, 1),
        **provenance(),
        "settings": rows,
    }
    write_json(path, report)
    for row in sorted(rows, key=lambda row: -row["mean"]):
        each = " ".join(f"{100 * np.mean(values):5.1f}" for values in row["corpora"].values())
        print(f"{100 * row['mean']:.2f}  {each}  {row['setting']}")


def main() -> None:
    """Run all, write and print the table; or render it."""
    parser = make_parser(__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--corpora", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", type=Path, help="render the result into this page")
    options = parser.parse_args()
    spec = tomllib.loads(options.file.read_text())
    path = RESULTS / f"{options.file.stem}.json"
    if options.corpora is not None:
        run(spec, options.corpora, options.jobs, path)
    if options.write is not None:
        markdown = table(spec["names"], read_json(path))
        render_block(options.write, options.file.stem, markdown)


if __name__ == "__main__":
    main()
