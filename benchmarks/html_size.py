"""Size of the HTML page of the default network, and what its rounded weights change.

    DCNN_DATA=... python benchmarks/html_size.py [--out FILE]

The network is trained on the sentences of SST-2 and on TREC. Labels and accuracy are those of the
test sentences, with the weights of the page and with those of the model folder, which are float32
but for the n-grams. The result is ``results/bench/html-size.json``.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from calibration import splits
from dcnn.artifact import unpack
from dcnn.config import DEFAULT
from dcnn.data.labels import number_labels
from dcnn.export import export
from dcnn.export.html import stored_weights
from dcnn.predictor import Predictor
from dcnn.training.fit import RunOptions, fit
from results import RESULTS, make_parser, provenance, write_json


def measure(corpus: str) -> dict[str, object]:
    """Train, export and compare."""
    train, dev, test = splits(corpus, None, seed=0)
    classes = sorted(set(train[1]))
    sets = [number_labels(*part, classes=classes) for part in (train, dev, test)]
    artifact, _ = fit(*sets[:2], DEFAULT, RunOptions(device="cpu"))
    with tempfile.TemporaryDirectory() as folder:
        size = export(artifact, Path(folder) / "page.html").size
    page = replace(artifact, weights=unpack(stored_weights(replace(artifact, dtype="int8"))))
    before, after = (Predictor(one).probabilities(test[0]) for one in (artifact, page))
    right = [float((one.argmax(axis=1) == sets[2].targets).mean()) for one in (before, after)]
    return {
        "corpus": corpus,
        "vocabulary": len(artifact.encoder.vocabulary),
        "buckets": int(artifact.weights["ngrams"].any(axis=1).sum()),
        "bytes": size,
        "test_sentences": len(test[0]),
        "labels_changed": int((before.argmax(axis=1) != after.argmax(axis=1)).sum()),
        "accuracy": {"folder": right[0], "page": right[1]},
        "largest_difference": float(np.abs(before - after).max()),
    }


def main() -> None:
    """Measure, print and write."""
    options = make_parser(__doc__, RESULTS / "html-size.json").parse_args()
    rows = [measure(corpus) for corpus in ("sst2", "trec")]
    for row in rows:
        print(row)
    write_json(options.out, {"benchmark": "html-size", "corpora": rows} | provenance())


if __name__ == "__main__":
    main()
