"""The weights that training starts from: drawn from the seed, or pretrained word vectors."""

import math
from pathlib import Path

import numpy as np
import torch

from dcnn.config import Config
from dcnn.errors import ConfigError
from dcnn.models import SentenceModel, build_model
from dcnn.text.encoder import Encoder
from dcnn.text.vectors import WordVectors, load_vectors

LARGEST_MODEL = 2**30  # weights; with the optimiser's state and the best weights, 16 GB


def find_vectors(encoder: Encoder, config: Config) -> WordVectors | None:
    """The pretrained vectors that the settings name, if they name any."""
    if not config.text.vectors:
        return None
    return load_vectors(Path(config.text.vectors), encoder.vocabulary)


def make_model(config: Config, vocabulary: int, classes: int) -> SentenceModel:
    """The network, without values.

    Raises:
        ConfigError: it would not fit any sensible memory.
    """
    shapes = config.model.parameter_shapes(vocabulary, classes)
    parameters = sum(math.prod(shape) for shape in shapes.values())
    if parameters > LARGEST_MODEL:
        raise ConfigError(
            f"this network would have {parameters:,} weights, above {LARGEST_MODEL:,}; "
            "lower model.dim, model.maps, model.widths or text.max_size"
        )
    return build_model(config.model, vocabulary, classes)


def initialize(model: SentenceModel, config: Config, vectors: WordVectors | None) -> None:
    """Give ``model`` its starting values, which follow from the seed alone."""
    model.initialize(torch.Generator().manual_seed(config.training.seed))
    if vectors is not None:
        generator = np.random.default_rng(config.training.seed)
        values = config.text.vectors_scale * vectors.in_dimensions(config.model.dim, generator)
        with torch.no_grad():
            model.embeddings[torch.from_numpy(vectors.ids)] = torch.from_numpy(values)
