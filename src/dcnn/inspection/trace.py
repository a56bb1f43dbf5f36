"""The forward pass of one sentence, with everything kept that the network itself throws away.

The same operators as in prediction without the native backend, called one by one. k-max pooling is
a hard choice (Sect. 3.2): a trace says what was chosen, what came next, and by how much.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcnn.artifact import Artifact, Label
from dcnn.config import DCNNConfig
from dcnn.errors import UserError
from dcnn.ops import reference
from dcnn.ops.reference import dynamic_k
from dcnn.text.vocabulary import Ints

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class TracedLayer:
    """What one layer did with a sentence: o maps of d' rows, w columns of which k were kept.

    Attributes:
        filters: (o, n, d, m), the layer's own.
        bias: (o, d'), the layer's own.
        convolution: (o, d', w), after folding where the layer folds.
        positions: (o, d', k) columns that were kept, ascending.
        pooled: (o, d', k) their values in the convolution.
        values: (o, d', k) tanh of the pooled values plus the bias: what the layer above reads.
        rivals: (o, d') column of the best value that was dropped; -1 where none was.
        margins: (o, d', k) by how much a pooled value is above its row's rival; infinite where
            none was dropped.
    """

    filters: Floats
    bias: Floats
    convolution: Floats
    positions: Ints
    pooled: Floats
    values: Floats
    rivals: Ints
    margins: Floats

    @property
    def folded(self) -> bool:
        """Whether the layer sums its rows in pairs."""
        return bool(self.filters.shape[2] != self.bias.shape[1])


@dataclass(frozen=True)
class Trace:
    """The forward pass of one sentence.

    Attributes:
        words: the sentence.
        classes: the labels.
        matrix: (d, s) the sentence matrix (Eq. 2).
        layers: from the lowest to the topmost.
        top_weight: (classes, features), the fully connected layer's own.
        top_bias: (classes,), its own too.
        logits: (classes,).
        multi_label: whether a text may have several labels.
        unit: what a reader calls one of ``words``: ``word``, ``subword`` or ``character``.
    """

    words: tuple[str, ...]
    classes: tuple[Label, ...]
    matrix: Floats
    layers: tuple[TracedLayer, ...]
    top_weight: Floats
    top_bias: Floats
    logits: Floats
    multi_label: bool = False
    unit: str = "word"


def trace_sentence(artifact: Artifact, words: Sequence[str]) -> Trace:
    """Run the network on one sentence and keep everything.

    Args:
        artifact: a DCNN.
        words: the tokens of the sentence, one or more.

    Raises:
        UserError: the model is of another kind, or there is no word.
    """
    config, weights = artifact.config.model, artifact.weights
    if not isinstance(config, DCNNConfig):
        raise UserError(
            f"the model is of the kind {config.kind}, which has no feature graph; only dcnn has one"
        )
    if not words:
        raise UserError("the text has no words, so there is nothing to explain; give at least one")
    matrix = weights["embeddings"][artifact.encoder.vocabulary.ids(words)].T  # (d, s)
    below = matrix[None]  # (1, d, s)
    layers = []
    for number in range(1, config.depth + 1):
        k = dynamic_k(len(words), number, config.depth, config.k_top)
        filters, bias = (weights[f"layers.{number - 1}.{part}"] for part in ("filters", "bias"))
        layers.append(_trace_layer(below, filters, bias, k, config.fold))
        below = layers[-1].values  # (o, d', k)
    logits = weights["head.weight"] @ below.ravel() + weights["head.bias"]
    return Trace(
        words=tuple(words),
        classes=artifact.classes,
        matrix=matrix,
        layers=tuple(layers),
        top_weight=weights["head.weight"],
        top_bias=weights["head.bias"],
        logits=logits,
        multi_label=artifact.multi_label,
        unit=artifact.encoder.unit,
    )


def _trace_layer(x: Floats, filters: Floats, bias: Floats, k: int, fold_rows: bool) -> TracedLayer:
    """(n, d, s) -> o maps of d' rows and k columns."""
    c = reference.wide_convolution(x[None], filters)  # (1, o, d, w)
    c = reference.fold(c) if fold_rows else c  # (1, o, d', w)
    columns = c.shape[-1]
    kept, positions = reference.k_max(c, np.array([columns]), np.array([k]))
    convolution, positions, pooled = c[0], positions[0], kept[0]
    if k == columns:
        rivals = np.full(bias.shape, -1)
        margins = np.full_like(pooled, np.inf)
    else:
        dropped = convolution.copy()
        np.put_along_axis(dropped, positions, -np.inf, axis=-1)
        rivals = dropped.argmax(axis=-1)
        margins = pooled - np.take_along_axis(dropped, rivals[..., None], axis=-1)
    values = np.tanh(pooled + bias[:, :, None])
    return TracedLayer(filters, bias, convolution, positions, pooled, values, rivals, margins)
