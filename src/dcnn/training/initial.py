"""The weights that training starts from: drawn from the seed, or pretrained word vectors."""

import math
from pathlib import Path

import numpy as np
import torch

from dcnn.config import Config
from dcnn.errors import ConfigError, DataError
from dcnn.models import SentenceModel, build_model
from dcnn.text.encoder import Encoder
from dcnn.text.vectors import Floats, WordVectors, load_vectors

LARGEST_MODEL = 2**30  # weights; with the optimiser's state and the best weights, 16 GB


def find_vectors(encoder: Encoder, config: Config) -> WordVectors | None:
    """The pretrained vectors that the settings name, if they name any."""
    if not config.text.vectors:
        return None
    return load_vectors(Path(config.text.vectors), encoder.vocabulary)


def make_model(
    config: Config, vocabulary: int, classes: int, vectors: WordVectors | None = None
) -> SentenceModel:
    """The network, without values; with a projection of ``vectors`` if the settings ask for one.

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
    model = build_model(config.model, vocabulary, classes)
    model.divide(config.members)
    if vectors is not None and config.text.vectors_projection:
        table = torch.zeros(vocabulary, vectors.values.shape[1])
        table[torch.from_numpy(vectors.ids)] = torch.from_numpy(_projected_vectors(config, vectors))
        model.project(table)
    return model


def initialize(model: SentenceModel, config: Config, vectors: WordVectors | None) -> None:
    """Give ``model`` its starting values, which follow from the seed alone."""
    model.initialize(torch.Generator().manual_seed(config.training.seed))
    if vectors is None:
        return
    generator = np.random.default_rng(config.training.seed)
    dim, scale, known = config.model.dim, config.text.vectors_scale, torch.from_numpy(vectors.ids)
    with torch.no_grad():
        if model.projection is None:
            values = scale * vectors.in_dimensions(dim, generator)
            model.embeddings[known] = torch.from_numpy(values)
        else:
            factor = scale * _deviation(vectors) / config.text.vectors_projection
            reduction = factor * vectors.reduction(dim, generator)
            model.projection.copy_(torch.from_numpy(reduction))
            model.embeddings[known] = 0


def _projected_vectors(config: Config, vectors: WordVectors) -> Floats:
    """The vectors that a projection is learned of, in the scale that makes it learn as told.

    Adagrad's steps do not depend on the size of a gradient: the smaller the vectors, the larger the
    projection and the less a step of the same size changes what comes out.
    """
    return config.text.vectors_projection * vectors.centred / _deviation(vectors)


def _deviation(vectors: WordVectors) -> float:
    deviation = float(vectors.values.std())
    if deviation == 0:
        raise DataError(f"{vectors.source}: all numbers are the same, so there is nothing to learn")
    return deviation
