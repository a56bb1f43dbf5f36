"""How good the default settings are: the built-in corpus and TREC, five seeds each.

    make default-recipe     # runs what is missing in results/; TREC where DCNN_DATA names it
    python benchmarks/default_recipe.py --table  # the table of the README, from results/

One JSON file per run in ``results/``, named by the results contract. Selection is on dev (the
corpus's own, or a tenth of TREC's training questions); test is evaluated once per run. Networks of
another default are trained again, and with ``--rerun`` those of another commit.
"""

import argparse
import datetime
import json
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from dcnn.config import DEFAULT, FEW_EXAMPLES, MODEL_KINDS, Config, default_of, renamed
from dcnn.data.corpora.opinions import read_opinions
from dcnn.data.corpora.trec import read_trec
from dcnn.data.labels import number_labels
from dcnn.data.split import stratified_split
from dcnn.experiments import results as provenance
from dcnn.experiments.ngrams import ngram_classifier
from dcnn.predictor import Predictor
from dcnn.training.fit import RunOptions, fit
from results import ONE_THREAD, commit_of_rerun, is_current

NETWORKS = tuple(MODEL_KINDS)
RESULTS = Path(__file__).parent.parent / "results"
Split = tuple[list[str], list[str]]  # texts and labels


def opinions(_: int) -> tuple[Split, Split, Split]:
    """The built-in corpus, always the same; the seed is the network's."""
    corpus = read_opinions()
    train, dev, test = (
        ([o.text for o in corpus[name]], [o.label for o in corpus[name]])
        for name in ("train", "dev", "test")
    )
    return train, dev, test


def trec(seed: int) -> tuple[Split, Split, Split]:
    """The TREC questions; a tenth of the training set is dev."""
    folder = Path(os.environ["DCNN_DATA"]) / "trec"
    train, test = read_trec(folder / "train_5500.label"), read_trec(folder / "TREC_10.label")
    kept, held_out = stratified_split(train.labels, DEFAULT.training.dev_fraction, seed)
    parts = (train.select(kept.tolist()), train.select(held_out.tolist()), test)
    first, second, third = ((part.texts, part.labels) for part in parts)
    return first, second, third


def settings_of(model: str, seed: int) -> Config:
    """The default recipe for a kind of network and as many examples as both corpora have."""
    config = default_of(model).with_training(seed=seed)
    return replace(config, training=config.training.for_examples(FEW_EXAMPLES))


def is_done(path: Path, model: str, seed: int, commit: str | None = None) -> bool:
    """Whether there is a run of the current default; a file may name no settings, or others."""
    settings = settings_of(model, seed).to_dict() if model in NETWORKS else None
    return path.exists() and is_current(json.loads(path.read_text()), settings, commit)


def run(experiment: str, model: str, seed: int) -> dict:
    """Train one model and score it on test."""
    train, dev, test = {"opinions": opinions, "trec": trec}[experiment](seed)
    classes = sorted(set(train[1]))
    metadata: dict[str, object] = {"dev_accuracy": None, "epochs": None, "backend": "scikit-learn"}
    started = datetime.datetime.now(datetime.UTC)
    if model in NETWORKS:
        train_set, dev_set = (number_labels(*part, classes=classes) for part in (train, dev))
        config = settings_of(model, seed)
        artifact, _ = fit(train_set, dev_set, config, RunOptions(device="cpu"))
        metadata = artifact.metadata
        predicted = [prediction.label for prediction in Predictor(artifact).predict(test[0])]
    else:
        predicted = list(ngram_classifier(model).fit(*train).predict(test[0]))
    ended = datetime.datetime.now(datetime.UTC)
    accuracy = float(np.mean([p == label for p, label in zip(predicted, test[1], strict=True)]))
    return {
        "experiment": experiment,
        "model": model,
        "recipe": "default",
        "seed": seed,
        **({"settings": settings_of(model, seed).to_dict()} if model in NETWORKS else {}),
        "dev_accuracy": metadata["dev_accuracy"],
        "test_accuracy": accuracy,
        "epochs": metadata["epochs"],
        "seconds": round((ended - started).total_seconds(), 1),
        "sentences_per_second": metadata.get("sentences_per_second"),
        "backend": metadata["backend"],
        "hardware": provenance.hardware("cpu"),
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "date": ended.date().isoformat(),
    }


def title_of(result: dict) -> str:
    """The model of a run, and of how many networks it is an ensemble."""
    size = Config.from_dict(renamed(result.get("settings", {}))).n_ensemble
    return f"{result['model']}, {size} in one" if size > 1 else result["model"]


def table() -> str:
    """Mean, standard deviation and number of runs of every model, as Markdown."""
    scores: dict[str, dict[str, list[float]]] = {}
    titles: dict[str, str] = {}
    for path in sorted(RESULTS.glob("*/*-default-seed*.json")):
        result = json.loads(path.read_text())
        models = scores.setdefault(result["experiment"], {})
        models.setdefault(result["model"], []).append(100 * result["test_accuracy"])
        titles[result["model"]] = title_of(result)
    order = [*NETWORKS, "binb"]
    head = " | ".join(titles[model] for model in order)
    lines = [f"| test accuracy, % | {head} |", "|---|" + "---|" * len(order)]
    for experiment, models in scores.items():
        cells = [
            f"{np.mean(models[model]):.1f} ± {np.std(models[model], ddof=1):.1f}"
            if len(models[model]) > 1
            else f"{models[model][0]:.1f}"
            for model in order
        ]
        lines.append(f"| {experiment} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing or was made by another default; other runs are left alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="print the table and run nothing")
    parser.add_argument("--experiments", nargs="+", default=["opinions", "trec"])
    parser.add_argument("--workers", type=int, default=1, help="processes of one thread each")
    parser.add_argument("--rerun", action="store_true", help="networks of other commits as well")
    options = parser.parse_args()
    if options.table:
        print(table())
        return
    commit = commit_of_rerun(parser) if options.rerun else None
    runs = {}
    for experiment in options.experiments:
        if experiment == "trec" and "DCNN_DATA" not in os.environ:
            print("trec is left out: DCNN_DATA does not name the folder of the corpora")
            continue
        for seed in range(options.seeds):
            for model in (*NETWORKS, *(("binb",) if seed == 0 else ())):
                path = RESULTS / experiment / f"{model}-default-seed{seed}.json"
                if not is_done(path, model, seed, commit):
                    runs[path] = (experiment, model, seed)
    os.environ |= ONE_THREAD  # of the processes that start from here
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        futures = {pool.submit(run, *arguments): path for path, arguments in runs.items()}
        for done in as_completed(futures):
            path, result = futures[done], done.result()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(result, indent=2) + "\n")
            print(path.relative_to(RESULTS), f"{100 * result['test_accuracy']:.2f}", flush=True)


if __name__ == "__main__":
    main()
