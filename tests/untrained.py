"""Models with random weights: enough for every test that does not care what was learned."""

import numpy as np

from dcnn.artifact import NGRAMS, Artifact, pack, unpack
from dcnn.config import Config, DCNNConfig, ModelConfig, TextConfig
from dcnn.text.encoder import Encoder

VOCABULARY_TEXT = "the plot is not dull but acting was good and ending bad very , ."


def make_artifact(
    model: ModelConfig | None = None,
    seed: int = 0,
    classes=("neg", "pos"),
    thresholds=None,
    char_ngrams=(),
):
    """An untrained model with random weights, large enough to make its predictions differ."""
    model = model or DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=3)
    config = Config(model=model, text=TextConfig(char_ngrams=char_ngrams, n_buckets=100))
    encoder = Encoder.learn([VOCABULARY_TEXT], config.text)[0]
    generator = np.random.default_rng(seed)
    shapes = model.parameter_shapes(len(encoder.vocabulary), len(classes))
    weights = {
        name: generator.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()
    }
    if char_ngrams:
        ngrams = generator.normal(0, 0.5, (100, model.dim)).astype(np.float32)
        ngrams[::3] = 0  # as of buckets that training did not reach
        weights |= unpack(pack({NGRAMS: ngrams}, "float32"))
    metadata = {"dev_accuracy": 0.5}
    return Artifact(config, tuple(classes), encoder, weights, metadata, thresholds=thresholds)
