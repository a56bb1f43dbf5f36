"""What the networks of the `best` recipes weigh, and how long one sentence takes them.

    DCNN_DATA=... python benchmarks/best_size.py

Size and time do not depend on what a network has learned, so none is trained: the vocabulary is the
recipe's own, the weights are the initial ones. The sentence is the test sentence of median length,
from its ids to probabilities on one thread; the time is the median of many calls. The result is
``results/bench/best_size.json``.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.data.corpora.registry import data_folder
from dcnn.experiments import results as provenance
from dcnn.experiments.recipes import load_recipe
from dcnn.experiments.results import EXPERIMENTS
from dcnn.experiments.runs import ExperimentEnv
from dcnn.metrics import softmax
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import Sentences
from dcnn.training.fit import find_vectors, initialize, make_model

RESULT = Path(__file__).parent.parent / "results" / "bench" / "best_size.json"
CALLS = 2000


def best_network(experiment: str) -> tuple[Artifact, np.ndarray]:
    """The network with its initial weights, and the ids of a sentence of median length."""
    setting = ExperimentEnv(experiment, data_folder(None), RESULT.parent, "cpu", processes=2)
    recipe = load_recipe(experiment, "best", "dcnn")
    task, located = setting.load(recipe)
    vectors = find_vectors(task.encoder, located.config)
    words, classes = len(task.encoder.vocabulary), len(task.classes)
    model = make_model(located.config, words, classes, vectors)
    initialize(model, located.config, vectors)
    weights = {name: value.numpy() for name, value in model.merged(model.state_dict()).items()}
    test = task.test.sentences
    median = int(np.argsort(test.lengths, kind="stable")[len(test) // 2])
    ids = test.select(np.array([median])).ids
    return Artifact(recipe.config, task.classes, task.encoder, weights, {}), ids


def folder_size(artifact: Artifact) -> int:
    """Bytes of the model folder."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        model_folder.save(place, artifact)
        return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def microseconds(artifact: Artifact, ids: np.ndarray) -> float:
    """Median time from ids to probabilities."""
    predictor = Predictor(artifact)
    sentences = Sentences.from_flat(ids, np.array([len(ids)]))
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        softmax(predictor.logits(sentences))
        times.append(time.perf_counter() - started)
    return 1e6 * statistics.median(times)


def main() -> None:
    """Measure the four, print and write them."""
    rows = []
    for experiment in EXPERIMENTS:
        artifact, ids = best_network(experiment)
        rows.append(
            {
                "experiment": experiment,
                "megabytes": round(folder_size(artifact) / 1e6, 2),
                "microseconds": round(microseconds(artifact, ids), 1),
                "words_of_the_sentence": len(ids),
                "vocabulary": len(artifact.encoder.vocabulary),
                "backend": Predictor(artifact).backend,
            }
        )
        print(rows[-1], flush=True)
    report = {
        "networks": rows,
        "hardware": provenance.hardware("cpu"),
        "versions": provenance.versions(),
        "commit": provenance.commit(),
    }
    RESULT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
