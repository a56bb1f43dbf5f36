"""``dcnn demo``: the whole way of the data on the built-in corpus, beside three baselines."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.config import Config, DCNNConfig, MaxTDNNConfig, ModelConfig, NBoWConfig
from dcnn.data.opinions import Opinion, generate
from dcnn.errors import MissingExtraError
from dcnn.predictor import Predictor

try:
    from dcnn.ngram import ngram_classifier
    from dcnn.terminal import training_bar
    from dcnn.training.fit import TextSet, fit
except ImportError:
    raise MissingExtraError("The demo", "train") from None

CLASSES = ("negative", "positive")
NETWORKS: dict[str, ModelConfig] = {
    "DCNN": DCNNConfig(),
    "Max-TDNN": MaxTDNNConfig(),
    "NBoW": NBoWConfig(),
}
SAMPLE = (
    "The plot is not dull.",
    "The plot is dull, but the acting is superb.",
    "The acting is superb, but the plot is dull.",
    "Nobody would call the ending brilliant.",
    "The book is far better than the film.",
)


def run_demo(out: Path, seed: int) -> None:
    """Train four models, print how they compare, and leave the DCNN at ``out``."""
    console = Console()
    model_folder.check_destination(out, overwrite=True)
    corpus = generate(seed)
    sizes = ", ".join(f"{len(part):,} {name}" for name, part in corpus.items())
    console.print(
        f"Built-in corpus: generated opinion sentences ({sizes}).\n"
        "Test templates and word combinations do not occur in training.\n",
        highlight=False,
    )
    rows: list[tuple[str, np.ndarray, float]] = []
    trained: dict[str, Artifact] = {}
    for name, network in NETWORKS.items():
        started = time.perf_counter()
        trained[name] = _train(console, name, network, corpus, seed)
        seconds = time.perf_counter() - started
        predictions = Predictor(trained[name]).predict([o.text for o in corpus["test"]])
        rows.append((name, _hits([p.label for p in predictions], corpus["test"]), seconds))
    started = time.perf_counter()
    bayes = ngram_classifier("binb").fit(*_texts_and_labels(corpus["train"]))
    seconds = time.perf_counter() - started
    labels = bayes.predict([opinion.text for opinion in corpus["test"]])
    rows.append(("naive Bayes, bigrams", _hits(labels, corpus["test"]), seconds))

    _print_accuracies(console, rows, corpus["test"])
    dcnn = trained["DCNN"]
    _print_sample(console, dcnn)
    facts = dcnn.facts | {
        "data": "the built-in corpus of generated opinion sentences",
        "test_accuracy": float(rows[0][1].mean()),
    }
    model_folder.save(out, replace(dcnn, facts=facts))
    console.print(f"The DCNN is in {out}; try: dcnn predict {out} 'the ending is not bad at all'")


def _texts_and_labels(opinions: Sequence[Opinion]) -> tuple[list[str], list[str]]:
    return [opinion.text for opinion in opinions], [opinion.label for opinion in opinions]


def _text_set(opinions: Sequence[Opinion]) -> TextSet:
    texts, labels = _texts_and_labels(opinions)
    return TextSet(texts, np.array([CLASSES.index(label) for label in labels]))


def _train(
    console: Console,
    name: str,
    network: ModelConfig,
    corpus: dict[str, list[Opinion]],
    seed: int,
) -> Artifact:
    config = Config(model=network).with_training(seed=seed)
    with training_bar(console, f"{name:<9}", quiet=True) as bar:
        artifact, summary = fit(
            _text_set(corpus["train"]),
            _text_set(corpus["dev"]),
            CLASSES,
            config,
            device="cpu",
            listener=bar,
        )
    console.print(
        f"{name:<9} {summary.epochs} epochs, {summary.sentences_per_second:,.0f} sentences/s, "
        f"dev accuracy {100 * (summary.dev_accuracy or 0):.1f} %",
        highlight=False,
    )
    return artifact


def _hits(labels: Sequence[object], opinions: Sequence[Opinion]) -> np.ndarray:
    return np.array(
        [label == opinion.label for label, opinion in zip(labels, opinions, strict=True)]
    )


def _print_accuracies(
    console: Console, rows: list[tuple[str, np.ndarray, float]], test: Sequence[Opinion]
) -> None:
    """Accuracy on the test set, over all and by construct."""
    constructs = sorted({opinion.construct for opinion in test})
    table = Table("test accuracy, %", box=box.SIMPLE)
    for heading in ("all", *constructs, "seconds"):
        table.add_column(heading, justify="right")
    for name, hits, seconds in rows:
        shares = [hits.mean()] + [
            hits[[opinion.construct == construct for opinion in test]].mean()
            for construct in constructs
        ]
        table.add_row(name, *(f"{100 * share:.1f}" for share in shares), f"{seconds:.1f}")
    console.print(table)


def _print_sample(console: Console, artifact: Artifact) -> None:
    table = Table("text", "label", "probability", box=box.SIMPLE)
    for prediction in Predictor(artifact).predict(SAMPLE):
        table.add_row(prediction.text, str(prediction.label), f"{prediction.probability:.3f}")
    console.print(table)
