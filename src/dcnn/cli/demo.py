"""``dcnn demo``: train on the built-in corpus, beside three baselines."""

import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from dcnn import artifact as model_folder
from dcnn.cli.console import make_console, make_table
from dcnn.cli.train import count_labels
from dcnn.config import default_of
from dcnn.data.corpora.opinions import read_opinions
from dcnn.data.labels import number_labels
from dcnn.errors import needs_extra
from dcnn.predictor import Predictor

EXAMPLES = 6  # texts for the page
NETWORKS = {"DCNN": "dcnn", "Max-TDNN": "max-tdnn", "NBoW": "nbow"}
SAMPLE = (
    "The plot is not dull.",
    "The plot is dull, but the acting is superb.",
    "The acting is superb, but the plot is dull.",
    "Nobody would call the ending brilliant.",
    "The book is far better than the film.",
)


def demo(out: Path = Path("demo-model"), seed: int = 0) -> None:
    """Train on a built-in corpus, compare with three baselines, and predict.

    Takes less than a minute, needs no data, and leaves a model folder to try the other commands
    with.
    """
    console = make_console()
    model_folder.check_destination(out, overwrite=True)
    corpus = read_opinions()
    sizes = ", ".join(f"{len(part):,} {name}" for name, part in corpus.items())
    console.print(
        f"Built-in corpus: generated opinion sentences ({sizes}).\n"
        "Templates and word combinations of the test set do not occur in training.\n"
    )
    texts = {name: [opinion.text for opinion in part] for name, part in corpus.items()}
    labels = {name: [opinion.label for opinion in part] for name, part in corpus.items()}
    train, dev = (
        number_labels(texts[name], labels[name], classes=("negative", "positive"))
        for name in ("train", "dev")
    )
    with needs_extra("The demo", "train"):
        from dcnn.experiments.ngrams import ngram_classifier
        from dcnn.training.callbacks import TrainingBar
        from dcnn.training.fit import RunOptions, fit
        from dcnn.training.warm_start import choose_examples

    predicted, seconds, models = {}, {}, {}
    for name, kind in NETWORKS.items():
        config = default_of(kind).with_training(seed=seed)
        started = time.perf_counter()
        with TrainingBar(console, f"{name:<9}", quiet=True) as bar:
            models[name], summary = fit(train, dev, config, RunOptions("cpu", callback=bar))
        seconds[name] = time.perf_counter() - started
        console.print(
            f"{name:<9} {summary.epochs} epochs, {summary.sentences_per_second:,.0f} sentences/s, "
            f"dev accuracy {100 * (summary.dev_accuracy or 0):.1f} %"
        )
        found = Predictor(models[name]).predict(texts["test"])
        predicted[name] = [prediction.label for prediction in found]
    started = time.perf_counter()
    bayes = ngram_classifier("binb").fit(texts["train"], labels["train"])
    seconds["Bigram NB"] = time.perf_counter() - started
    predicted["Bigram NB"] = bayes.predict(texts["test"])

    truth = np.array(labels["test"])
    correct = {name: np.array(answers) == truth for name, answers in predicted.items()}
    constructs = np.array([opinion.construct for opinion in corpus["test"]])
    sizes_of = {name: model.metadata.get("n_ensemble", 1) for name, model in models.items()}
    titles = [
        f"{name}\n{n} in one" if (n := sizes_of.get(name, 1)) > 1 else name for name in correct
    ]
    table = make_table("test accuracy, %", *titles)
    for construct in sorted(set(constructs.tolist())):
        chosen = constructs == construct
        accuracies = (f"{100 * of_model[chosen].mean():.1f}" for of_model in correct.values())
        table.add_row(f"{construct} ({chosen.sum()})", *accuracies)
    table.add_section()
    overall = (f"{100 * of_model.mean():.1f}" for of_model in correct.values())
    table.add_row(f"all ({len(truth)})", *overall)
    table.add_row("training time, s", *(f"{time:.1f}" for time in seconds.values()))
    console.print(table)
    console.print('"N in one": an ensemble of N networks, saved as one network.\n')

    table = make_table("text", "label", "probability", left=3)
    for prediction in Predictor(models["DCNN"]).predict(SAMPLE):
        table.add_row(prediction.text, str(prediction.label), f"{prediction.probability:.3f}")
    console.print(table)
    metadata = models["DCNN"].metadata | {
        "data": "the built-in corpus of generated opinion sentences",
        "test_accuracy": float(correct["DCNN"].mean()),
        "label_counts": count_labels(train),
    }
    examples = choose_examples(dev, EXAMPLES, seed)  # of a corpus that everyone has
    kept = replace(models["DCNN"], metadata=metadata, examples=examples)
    model_folder.save(out, kept, overwrite=True)
    # `make demo` does not activate the environment.
    here = os.path.relpath(Path(sys.executable).parent / "dcnn")
    console.print(
        f"The DCNN is in {out} and knows {len(models['DCNN'].encoder.vocabulary) - 1} words; try:"
        f"\n  {'dcnn' if shutil.which('dcnn') else here} predict {out} "
        '"The story is dull, but the ending is a delight."'
    )
