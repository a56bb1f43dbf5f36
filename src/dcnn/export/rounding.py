"""Sentences on which k-max pooling is a matter of rounding.

Two programs that add the same numbers in another order get sums that differ in the last digit. That
moves a probability by as little, unless the sums are those of the last value that pooling keeps and
the first that it drops: then one keeps this word where the other keeps that one. Values that are
equal by right, as those of a repeated n-gram, are no such case: they are equal in every order.
"""

import numpy as np

from dcnn.artifact import Artifact
from dcnn.config import DCNNConfig
from dcnn.ops import reference
from dcnn.ops.k_schedule import dynamic_k
from dcnn.text.sentences import Ints

# Of the largest value of its row: some tens of float32's roundings.
NARROW = 1e-5


def decided_by_rounding(artifact: Artifact, ids: Ints) -> bool:
    """Whether a row of some layer keeps a value that hardly differs from one that it drops."""
    config = artifact.config.model
    if not isinstance(config, DCNNConfig):
        return False  # a maximum or a sum moves by no more than its parts
    weights = {name: value.astype(np.float64) for name, value in artifact.weights.items()}
    x = weights["embeddings"][ids].T[None, None]  # (1, 1, d, s)
    for number in range(1, config.depth + 1):
        filters, bias = (weights[f"layers.{number - 1}.{part}"] for part in ("filters", "bias"))
        k = np.array([dynamic_k(len(ids), number, config.depth, config.k_top)])
        c = reference.wide_convolution(x, filters)
        c = reference.fold(c) if config.fold else c
        width = c.shape[-1]
        if k[0] < width:
            descending = -np.sort(-c, axis=-1)
            gaps = descending[..., k[0] - 1] - descending[..., k[0]]
            narrow = NARROW * np.abs(c).max(axis=-1)
            if np.any((gaps > 0) & (gaps < narrow)):
                return True
        values, _ = reference.k_max(c, np.array([width]), k)
        x = np.tanh(values + bias[:, :, None])
    return False
