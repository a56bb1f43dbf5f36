"""``dcnn demo``: train on the built-in corpus, beside three baselines."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.cli.console import make_console, make_table
from dcnn.config import DEFAULT, Config
from dcnn.data.corpora.opinions import Opinion, generate
from dcnn.data.labels import LabelledTexts, number_labels
from dcnn.errors import MissingExtraError
from dcnn.predictor import Predictor

Corpus = dict[str, list[Opinion]]

CLASSES = ("negative", "positive")
BASELINES = {"Max-TDNN": "max-tdnn", "NBoW": "nbow"}
SAMPLE = (
    "The plot is not dull.",
    "The plot is dull, but the acting is superb.",
    "The acting is superb, but the plot is dull.",
    "Nobody would call the ending brilliant.",
    "The book is far better than the film.",
)


@dataclass(frozen=True)
class Result:
    """Which test examples a model predicts correctly, and its training time in seconds."""

    name: str
    hits: NDArray[np.bool_]
    seconds: float


def demo(
    out: Annotated[Path, typer.Option(help="Model folder of the DCNN.")] = Path("demo-model"),
    seed: Annotated[int, typer.Option(help="The same seed gives the same models.")] = 0,
) -> None:
    """Train on a built-in corpus, compare with three baselines, and predict.

    Takes less than a minute, needs no data, and leaves a model folder to try the other commands
    with.

    Example: dcnn demo --out demo-model
    """
    console = make_console()
    model_folder.check_destination(out, overwrite=True)
    corpus = generate(seed)
    sizes = ", ".join(f"{len(part):,} {name}" for name, part in corpus.items())
    console.print(
        f"Built-in corpus: generated opinion sentences ({sizes}).\n"
        "Templates and word combinations of the test set do not occur in training.\n"
    )
    dcnn, result = _run_network(console, "DCNN", DEFAULT, corpus, seed)
    results = [result]
    for name, kind in BASELINES.items():
        config = DEFAULT.with_settings([f"model.kind={kind}"])
        results.append(_run_network(console, name, config, corpus, seed)[1])
    results.append(_run_naive_bayes(corpus))

    _print_accuracies(console, results, corpus["test"])
    _print_sample(console, dcnn)
    metadata = dcnn.metadata | {
        "data": "the built-in corpus of generated opinion sentences",
        "test_accuracy": float(result.hits.mean()),
    }
    model_folder.save(out, replace(dcnn, metadata=metadata), overwrite=True)
    console.print(
        f"The DCNN is in {out} and knows {len(dcnn.encoder.vocabulary) - 1} words; try:"
        f'\n  {_program()} predict {out} "The story is dull, but the ending is a delight."',
        soft_wrap=True,  # a command that is to be copied
    )


def _program() -> str:
    """How to call this program here: ``make demo`` does not activate the environment."""
    return "dcnn" if shutil.which("dcnn") else os.path.relpath(Path(sys.executable).parent / "dcnn")


def _run_network(
    console: Console, name: str, config: Config, corpus: Corpus, seed: int
) -> tuple[Artifact, Result]:
    try:
        from dcnn.training.callbacks import TrainingBar
        from dcnn.training.fit import RunOptions, fit
    except ImportError:
        raise MissingExtraError("The demo", "train") from None

    started = time.perf_counter()
    with TrainingBar(console, f"{name:<9}", quiet=True) as bar:
        artifact, summary = fit(
            _labelled(corpus["train"]),
            _labelled(corpus["dev"]),
            config.with_training(seed=seed),
            RunOptions(device="cpu", callback=bar),
        )
    seconds = time.perf_counter() - started
    console.print(
        f"{name:<9} {summary.epochs} epochs, {summary.sentences_per_second:,.0f} sentences/s, "
        f"dev accuracy {100 * (summary.dev_accuracy or 0):.1f} %"
    )
    predictions = Predictor(artifact).predict([opinion.text for opinion in corpus["test"]])
    labels = [prediction.label for prediction in predictions]
    return artifact, Result(name, _hits(labels, corpus["test"]), seconds)


def _run_naive_bayes(corpus: Corpus) -> Result:
    from dcnn.experiments.ngrams import ngram_classifier

    started = time.perf_counter()
    train = corpus["train"]
    model = ngram_classifier("binb").fit([o.text for o in train], [o.label for o in train])
    seconds = time.perf_counter() - started
    labels = model.predict([opinion.text for opinion in corpus["test"]])
    return Result("Bigram NB", _hits(labels, corpus["test"]), seconds)


def _labelled(opinions: Sequence[Opinion]) -> LabelledTexts:
    texts, labels = [o.text for o in opinions], [o.label for o in opinions]
    return number_labels(texts, labels, classes=CLASSES)


def _hits(labels: Sequence[Any], opinions: Sequence[Opinion]) -> NDArray[np.bool_]:
    hits: NDArray[np.bool_] = np.array([o.label for o in opinions]) == np.array(labels)
    return hits


def _print_accuracies(console: Console, results: Sequence[Result], test: Sequence[Opinion]) -> None:
    """Accuracy on the test set, overall and per construct, one column per model."""
    constructs = np.array([opinion.construct for opinion in test])
    table = make_table("test accuracy, %", *(result.name for result in results))
    for construct in sorted(set(constructs.tolist())):
        chosen = constructs == construct
        accuracies = [100 * result.hits[chosen].mean() for result in results]
        table.add_row(f"{construct} ({chosen.sum()})", *(f"{value:.1f}" for value in accuracies))
    table.add_section()
    table.add_row(f"all ({len(test)})", *(f"{100 * result.hits.mean():.1f}" for result in results))
    table.add_row("training time, s", *(f"{result.seconds:.1f}" for result in results))
    console.print(table)


def _print_sample(console: Console, artifact: Artifact) -> None:
    table = make_table("text", "label", "probability", left=3)
    for prediction in Predictor(artifact).predict(SAMPLE):
        table.add_row(prediction.text, str(prediction.label), f"{prediction.probability:.3f}")
    console.print(table)
