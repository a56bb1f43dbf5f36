"""The size of the networks of the `best` recipes, and their time for one sentence.

    DCNN_DATA=... python benchmarks/best_size.py

Size and time do not depend on training, so none is trained: the vocabulary is the recipe's own, the
weights are the initial ones. The sentence is the test sentence of median length,
from its ids to probabilities on one thread; the time is the median of many calls. The result is
``results/bench/best_size.json``.
"""

import numpy as np

from dcnn.artifact import Artifact, folder_size
from dcnn.data.corpora.registry import data_folder
from dcnn.experiments.distilled import read_texts
from dcnn.experiments.recipes import corpus_of, load_recipe
from dcnn.experiments.results import EXPERIMENTS
from dcnn.experiments.runs import ExperimentEnv
from dcnn.ops.reference import softmax
from dcnn.predictor import Predictor
from dcnn.text.encoder import Encoder
from dcnn.text.vocabulary import Sentences
from dcnn.training.fit import find_vectors, initialize, make_model
from results import RESULTS, make_parser, median_microseconds, provenance, write_json

CALLS = 2000


def best_network(experiment: str) -> tuple[Artifact, np.ndarray]:
    """The network with its initial weights, and the ids of a sentence of median length."""
    env = ExperimentEnv(experiment, data_folder(None), RESULTS, "cpu", processes=2)
    recipe = load_recipe(experiment, "best", "dcnn")
    train, _, test, *others = read_texts(
        experiment, recipe, env.find(corpus_of(experiment)), env.find, with_dev=False
    )
    texts = [text for part in (train.texts, *others) for text in part]
    encoder, _ = Encoder.learn(list(dict.fromkeys(texts)), recipe.config.text, env.processes)
    vectors = find_vectors(encoder, recipe.config)
    model = make_model(recipe.config, encoder, len(train.classes), vectors)
    initialize(model, recipe.config, vectors)
    weights = {name: value.numpy() for name, value in model.merged(model.state_dict()).items()}
    sentences = encoder.encode_all(test.texts)
    median = int(np.argsort(sentences.lengths, kind="stable")[len(sentences) // 2])
    ids = sentences.select(np.array([median])).ids
    classes, dtype = tuple(map(str, train.classes)), recipe.storage.dtype
    return Artifact(recipe.config, classes, encoder, weights, {}, dtype=dtype), ids


def microseconds(artifact: Artifact, ids: np.ndarray) -> float:
    """Median time from ids to probabilities."""
    predictor = Predictor(artifact)
    sentences = Sentences.from_flat(ids, np.array([len(ids)]))
    return median_microseconds(lambda: softmax(predictor.logits(sentences)), CALLS)


def main() -> None:
    """Measure the four, print and write them."""
    options = make_parser(__doc__, RESULTS / "best_size.json").parse_args()
    rows = []
    for experiment in EXPERIMENTS:
        artifact, ids = best_network(experiment)
        rows.append(
            {
                "experiment": experiment,
                "megabytes": round(folder_size("model", artifact) / 1e6, 2),
                "microseconds": round(microseconds(artifact, ids), 1),
                "words_of_the_sentence": len(ids),
                "vocabulary": len(artifact.encoder.vocabulary),
                "backend": Predictor(artifact).backend,
            }
        )
        print(rows[-1], flush=True)
    write_json(options.out, {"networks": rows} | provenance())


if __name__ == "__main__":
    main()
