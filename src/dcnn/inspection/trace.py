"""The forward pass of one sentence, with every intermediate value.

k-max pooling is a hard choice (Sect. 3.2): a trace holds what was pooled, the largest value that
was dropped, and the margin between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dcnn.artifact import Artifact
from dcnn.config import DCNNConfig
from dcnn.data.labels import Label
from dcnn.errors import UserError
from dcnn.ops import reference
from dcnn.text.vocabulary import Ints

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class TracedLayer:
    """One layer on a sentence: o maps of d' rows, w columns of which k were pooled."""

    filters: Floats  # (o, n, d, m)
    bias: Floats  # (o, d')
    convolution: Floats  # (o, d', w), after folding if the layer folds
    positions: Ints  # (o, d', k) columns that were pooled, ascending
    pooled: Floats  # (o, d', k) their values in the convolution
    values: Floats  # (o, d', k) tanh of pooled plus bias: the input of the next layer
    rivals: Ints  # (o, d') column of the largest value that was dropped; -1 if none was
    margins: Floats  # (o, d', k) pooled less its row's rival; infinite if none was dropped

    @cached_property
    def gains(self) -> Doubles:
        """(o, d', k) tanh(z)/z: the slope of the line from the origin; 1 at the origin."""
        z = (self.pooled + self.bias[:, :, None]).astype(np.float64)
        return np.divide(self.values, z, out=np.ones_like(z), where=z != 0)


@dataclass(frozen=True)
class Trace:
    """The forward pass of one sentence.

    A node is a value of a layer, numbered as in its flattened array (o, d', k). Layer 0 is the
    sentence matrix.
    """

    words: tuple[str, ...]  # the tokens
    classes: tuple[Label, ...]
    matrix: Floats  # (d, s) the sentence matrix (Eq. 2)
    layers: tuple[TracedLayer, ...]  # from the first to the topmost
    head_weight: Floats  # (classes, features) of the fully connected layer
    head_bias: Floats  # (classes,)
    logits: Floats  # (classes,)
    multi_label: bool
    unit: str  # what a token is: ``word``, ``subword`` or ``character``
    char_ngrams: bool  # whether words outside the vocabulary have vectors, from their spelling

    @property
    def depth(self) -> int:
        """Number of convolutional layers."""
        return len(self.layers)

    def values(self, layer: int) -> Floats:
        """(maps, rows, columns) of a layer; of layer 0 the sentence matrix as one map."""
        return self.layers[layer - 1].values if layer else self.matrix[None]

    @property
    def contributions(self) -> Floats:
        """(classes, features) what each topmost node adds to each logit: value times weight."""
        return self.head_weight * self.values(self.depth).ravel()


def trace_sentence(artifact: Artifact, words: Sequence[str]) -> Trace:
    """Run a DCNN on one sentence of one or more tokens.

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
    encoded = artifact.encoder.encode_words([words])
    matrix = artifact.embed(encoded.ids, encoded.new_words).T  # (d, s)
    passes = reference.forward(
        matrix[None, None], np.array([len(words)]), artifact.layers, config.fold, config.k_top
    )
    layers = tuple(map(_traced_layer, artifact.layers, passes))
    top = layers[-1].values.ravel()  # (o, d', k_top)
    return Trace(
        words=tuple(words),
        classes=artifact.classes,
        matrix=matrix,
        layers=layers,
        head_weight=weights["head.weight"],
        head_bias=weights["head.bias"],
        logits=weights["head.weight"] @ top + weights["head.bias"],
        multi_label=artifact.multi_label,
        unit=artifact.encoder.unit,
        char_ngrams=artifact.encoder.char_ngrams is not None,
    )


def _traced_layer(parameters: tuple[Floats, Floats], result: reference.LayerPass) -> TracedLayer:
    """The layer of one sentence, with the best value that each row dropped."""
    filters, bias = parameters
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
