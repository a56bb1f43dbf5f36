"""Size, accuracy and time per sentence of every format of the SST-2 network.

    DCNN_DATA=... python benchmarks/export_cost.py              # trains for some minutes on a CPU
    DCNN_DATA=... python benchmarks/export_cost.py --epochs 1   # sooner
    python benchmarks/export_cost.py --write docs/guide.md      # renders the table

The network is the paper's for SST binary (15,448 words, d=48), trained by the tuned recipe
without teachers. Accuracy is on dev; test is never read. ONNX runs in onnxruntime on one thread,
the folders on the backend of ``dcnn predict``. The native backend, torch and onnxruntime are also
compared on random sentences of 1 to 200 words. The result is ``results/bench/export.json``.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dcnn.artifact import STORED_DTYPES, Artifact
from dcnn.data.batching import Examples
from dcnn.data.corpora.registry import data_folder
from dcnn.experiments.recipes import load_recipe
from dcnn.experiments.runs import ExperimentEnv, Job, NetworkTrainer
from dcnn.export import Exported, export
from dcnn.export.onnx import decided_by_rounding, open_session, run_onnx
from dcnn.models import MODELS
from dcnn.ops import select as backends
from dcnn.ops.reference import softmax
from dcnn.predictor import Predictor
from dcnn.text.encoder import Encoder
from dcnn.text.vocabulary import Sentences
from results import (
    RESULTS,
    make_parser,
    median_microseconds,
    provenance,
    read_json,
    render_block,
    write_json,
)

RESULT = RESULTS / "export.json"
BLOCK = "export-cost"
ROUNDS, CALLS = 7, 400
LONGEST, OF_EACH_LENGTH = 200, 5

Probabilities = Callable[[Sentences], np.ndarray]


def trained(epochs: int) -> tuple[Artifact, Examples]:
    """The network, and the dev set."""
    setting = ExperimentEnv("sst2", data_folder(None), RESULTS, "cpu", processes=2)
    recipe = load_recipe("sst2", "tuned", "dcnn")
    recipe = replace(
        recipe,
        distillation=replace(recipe.distillation, teachers=0),
        config=recipe.config.with_training(epochs=epochs),
    )
    torch.set_num_threads(1)
    task, recipe = setting.load(recipe)
    trainer = NetworkTrainer(
        task, recipe, "cpu", lambda name, at: print(f"{name}, epoch {at.epoch}", flush=True)
    )
    ((_, trained),) = trainer.train([Job(recipe.config)], "training")
    weights = trained.weights_of(0)
    metadata = {"data": "sst2", "epochs": epochs}
    return Artifact(recipe.config, task.classes, task.encoder, weights, metadata), task.dev


def opened(exported: Exported, encoder: Encoder) -> Probabilities:
    """A function from sentences to probabilities that uses the written files only."""
    if exported.format == "onnx":
        session = open_session(exported.path.read_bytes())
        return lambda sentences: run_onnx(session, encoder, sentences)
    predictor = Predictor.load(exported.path)
    return lambda sentences: softmax(predictor.logits(sentences))


def microseconds(forms: list[Probabilities], sentence: Sentences) -> list[float]:
    """From ids to probabilities of one sentence: the median of a round, the fastest of several.

    The calls of all forms are interleaved, so that other work on the machine affects all of them.
    """
    medians = [
        [median_microseconds(partial(compute, sentence), CALLS) for compute in forms]
        for _ in range(ROUNDS)
    ]
    return np.min(medians, axis=0).round(1).tolist()


def measure(artifact: Artifact, dev: Examples, folder: Path) -> list[dict[str, Any]]:
    """One row per form; differences are from the float32 folder."""
    kinds = [(form, dtype) for form in ("folder", "onnx") for dtype in STORED_DTYPES]
    written = [export(artifact, folder / f"{d}-{form}", d, form) for form, d in kinds]
    forms = [opened(exported, artifact.encoder) for exported in written]
    order = np.argsort(dev.sentences.lengths, kind="stable")
    sentence = dev.sentences.select(order[[len(order) // 2]])
    found = [compute(dev.sentences) for compute in forms]
    labels = [probabilities.argmax(axis=1) for probabilities in found]
    times = microseconds(forms, sentence)
    return [
        {
            "form": exported.format,
            "dtype": exported.dtype,
            "bytes": exported.size,
            "dev_accuracy": float((labels[i] == np.asarray(dev.targets)).mean()),
            "labels_changed": int((labels[i] != labels[0]).sum()),
            "largest_difference": float(np.abs(found[i] - found[0]).max()),
            "microseconds": times[i],
            "words_of_the_sentence": len(sentence.ids),
        }
        for i, exported in enumerate(written)
    ]


def agreement(artifact: Artifact, folder: Path) -> dict[str, Any]:
    """The same sentences in onnxruntime, torch and the native backend."""
    generator = np.random.default_rng(0)
    lengths = generator.permutation(np.repeat(np.arange(1, LONGEST + 1), OF_EACH_LENGTH))
    vocabulary = len(artifact.encoder.vocabulary)
    sentences = Sentences.from_flat(generator.integers(0, vocabulary, lengths.sum()), lengths)
    predictor = Predictor(artifact)
    model = MODELS[artifact.config.model.kind](
        artifact.config.model, vocabulary, len(artifact.classes)
    ).eval()
    model.load_state_dict({name: torch.tensor(v) for name, v in artifact.weights.items()})
    ids, lengths = sentences.padded(np.arange(len(sentences)))
    os.environ[backends.VARIABLE] = "torch"
    with torch.no_grad():
        logits = model(torch.tensor(ids), torch.tensor(lengths))
    del os.environ[backends.VARIABLE]
    exported = export(artifact, folder / "agreement.onnx")
    computed = {
        predictor.backend: softmax(predictor.logits(sentences)),
        "torch": softmax(logits.numpy()),
        "onnx": opened(exported, artifact.encoder)(sentences),
    }
    values = np.stack(list(computed.values()))
    spread = (values.max(axis=0) - values.min(axis=0)).max(axis=1)  # of each sentence
    apart = np.flatnonzero(spread > 1e-5)
    rounding = [decided_by_rounding(artifact, sentences.select(np.array([i]))) for i in apart]
    return {
        "programs": list(computed),
        "sentences": len(sentences),
        "words": [1, LONGEST],
        "within_1e-5": len(sentences) - len(apart),
        "beyond_by_rounding": sum(rounding),
        "beyond_otherwise": len(apart) - sum(rounding),
        "largest_difference_within": float(spread[spread <= 1e-5].max()),
    }


def table(report: dict[str, Any]) -> str:
    """The rows in Markdown."""
    lines = [
        "| form | weights | size | accuracy on dev | labels that differ | one sentence |",
        "|---|---|---|---|---|---|",
    ]
    rows = [
        f"| {row['form']} | {row['dtype']} | {row['bytes'] / 1e6:.2f} MB "
        f"| {row['dev_accuracy']:.2%} | {row['labels_changed']} | {row['microseconds']:.0f} us |"
        for row in report["forms"]
    ]
    return "\n".join(lines + rows)


def main() -> None:
    """Measure, print and write; or render what was measured."""
    parser = make_parser(__doc__, RESULT, BLOCK)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    if options.write is not None:
        render_block(options.write, BLOCK, table(read_json(options.out)))
        return
    artifact, dev = trained(options.epochs)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        report = {
            "forms": measure(artifact, dev, folder),
            "agreement": agreement(artifact, folder),
            "vocabulary": len(artifact.encoder.vocabulary),
            "epochs": options.epochs,
            "dev_sentences": len(dev),
            "load": round(os.getloadavg()[0], 1),
        }
    report |= provenance()
    report["versions"]["onnxruntime"] = version("onnxruntime")
    print(report["agreement"])
    print(table(report))
    write_json(options.out, report)


if __name__ == "__main__":
    main()
