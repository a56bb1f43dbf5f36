"""Models with random weights: enough for every test that does not care what was learned."""

import numpy as np

from dcnn.artifact import Artifact
from dcnn.config import Config, DCNNConfig, ModelConfig
from dcnn.text.encoder import Encoder

VOCABULARY_TEXT = "the plot is not dull but acting was good and ending bad very , ."


def make_artifact(
    model: ModelConfig | None = None, seed: int = 0, classes=("neg", "pos"), thresholds=None
):
    """An untrained model with random weights, large enough to make its predictions differ."""
    model = model or DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=3)
    config = Config(model=model)
    encoder = Encoder.learn([VOCABULARY_TEXT], config.text)[0]
    generator = np.random.default_rng(seed)
    shapes = model.parameter_shapes(len(encoder.vocabulary), len(classes))
    weights = {
        name: generator.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()
    }
    metadata = {"dev_accuracy": 0.5}
    return Artifact(config, tuple(classes), encoder, weights, metadata, thresholds=thresholds)
