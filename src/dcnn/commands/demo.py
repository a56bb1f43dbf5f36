"""``dcnn demo``: the whole way of the data on the built-in corpus, beside three baselines."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.config import DEFAULT, Config
from dcnn.data.corpora.opinions import Opinion, generate
from dcnn.data.labels import LabelledTexts, number_labels
from dcnn.errors import MissingExtraError
from dcnn.predictor import Predictor

try:
    from dcnn.experiments.ngrams import ngram_classifier
    from dcnn.terminal import TrainingBar, make_console
    from dcnn.training.fit import RunOptions, fit
except ImportError:
    raise MissingExtraError("The demo", "train") from None

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
    """A model's answers on the test set: whether each is right, and the time training took."""

    name: str
    hits: NDArray[np.bool_]
    seconds: float


def run_demo(out: Path, seed: int) -> None:
    """Train four models, print how they compare, and leave the DCNN at ``out``."""
    console = make_console()
    model_folder.check_destination(out, overwrite=True)
    corpus = generate(seed)
    sizes = ", ".join(f"{len(part):,} {name}" for name, part in corpus.items())
    console.print(
        f"Built-in corpus: generated opinion sentences ({sizes}).\n"
        "Templates and word combinations of the test set do not occur in training.\n",
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
        f'\n  {_own_name()} predict {out} "The story is dull, but the ending is a delight."',
        soft_wrap=True,  # a command that is to be copied
    )


def _own_name() -> str:
    """How this program is called from here: ``make demo`` has not activated the environment."""
    return "dcnn" if shutil.which("dcnn") else os.path.relpath(Path(sys.executable).parent / "dcnn")


def _run_network(
    console: Console, name: str, config: Config, corpus: Corpus, seed: int
) -> tuple[Artifact, Result]:
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
        f"dev accuracy {100 * (summary.dev_accuracy or 0):.1f} %",
    )
    predictions = Predictor(artifact).predict([opinion.text for opinion in corpus["test"]])
    labels = [prediction.label for prediction in predictions]
    return artifact, Result(name, _hits(labels, corpus["test"]), seconds)


def _run_naive_bayes(corpus: Corpus) -> Result:
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
    """Accuracy on the test set, over all and by construct, a column a model."""
    constructs = np.array([opinion.construct for opinion in test])
    table = Table("test accuracy, %", box=box.SIMPLE)
    for result in results:
        table.add_column(result.name, justify="right")
    for construct in sorted(set(constructs.tolist())):
        chosen = constructs == construct
        shares = [100 * result.hits[chosen].mean() for result in results]
        table.add_row(f"{construct} ({chosen.sum()})", *(f"{share:.1f}" for share in shares))
    table.add_section()
    table.add_row(f"all ({len(test)})", *(f"{100 * result.hits.mean():.1f}" for result in results))
    table.add_row("seconds of training", *(f"{result.seconds:.1f}" for result in results))
    console.print(table)


def _print_sample(console: Console, artifact: Artifact) -> None:
    table = Table("text", "label", "probability", box=box.SIMPLE)
    for prediction in Predictor(artifact).predict(SAMPLE):
        table.add_row(prediction.text, str(prediction.label), f"{prediction.probability:.3f}")
    console.print(table)
