"""A network with one detector that is known, and a corpus that shows it."""

import numpy as np

from dcnn.inspection.detector_ranking import Detector
from untrained import VOCABULARY_TEXT, make_artifact

NOT_DETECTOR = Detector(1, 1, 3)


def artifact_with_a_not_detector():
    """Map 1, row 3 sees nothing but "not" as the second of four words, and that strongly."""
    artifact = make_artifact()
    row, word = NOT_DETECTOR.row, artifact.encoder.vocabulary.ids(["not"])[0]
    artifact.weights["embeddings"][:, row] = 0
    artifact.weights["embeddings"][word, row] = 5
    artifact.weights["layers.0.filters"][NOT_DETECTOR.map, 0, row] = [0, 3, 0, 0]
    return artifact


def corpus_with_not(sentences=200):
    """Random words, and "not" in every fourth sentence."""
    generator = np.random.default_rng(0)
    words = [word for word in VOCABULARY_TEXT.split() if word != "not"]
    chosen = [generator.choice(words, 9).tolist() for _ in range(sentences)]
    for sentence in chosen[::4]:
        sentence[generator.integers(9)] = "not"
    return [" ".join(sentence) for sentence in chosen]
