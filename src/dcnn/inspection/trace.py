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
    parameters = [
        (weights[f"layers.{i}.filters"], weights[f"layers.{i}.bias"]) for i in range(config.depth)
    ]
    passes = reference.forward(
        matrix[None, None], np.array([len(words)]), parameters, config.fold, config.k_top
    )
    layers = [
        _traced_layer(*of_layer, result)
        for of_layer, result in zip(parameters, passes, strict=True)
    ]
    top = layers[-1].values  # (o, d', k_top)
    logits = weights["head.weight"] @ top.ravel() + weights["head.bias"]
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


def _traced_layer(filters: Floats, bias: Floats, result: reference.LayerPass) -> TracedLayer:
    """The layer of one sentence, with the best value that each row dropped."""
    values, positions, pooled, convolution = (part[0] for part in result)
    if pooled.shape[-1] == convolution.shape[-1]:
        rivals = np.full(bias.shape, -1)
        margins = np.full_like(pooled, np.inf)
    else:
        dropped = convolution.copy()
        np.put_along_axis(dropped, positions, -np.inf, axis=-1)
        rivals = dropped.argmax(axis=-1)
        margins = pooled - np.take_along_axis(dropped, rivals[..., None], axis=-1)
    return TracedLayer(filters, bias, convolution, positions, pooled, values, rivals, margins)
