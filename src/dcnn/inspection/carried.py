"""What a node carries of the logits, and what words bring to a node, in one sentence.

With gains (tanh(z)/z, see ``dcnn.inspection.relevance``) every node is linear in what it reads, so
both are one pass down through the layers: from the root to the node's layer, or from the node to
the words. The relevance of a word is the first, carried on down to the words.
"""

import numpy as np
from numpy.typing import NDArray

from dcnn.inspection.trace import Trace, TracedLayer

Doubles = NDArray[np.float64]


def carried_by_nodes(trace: Trace, layer: int) -> Doubles:
    """(o, d', k, classes): what a unit of each node's value is worth to each logit.

    A node's value times this is what it carries of the logits; over all nodes of a layer, with the
    biases above it, that adds up to the logits.
    """
    top = trace.layers[-1].values.shape
    carried = trace.top_weight.T.astype(np.float64).reshape(*top, -1)  # (o, d', k, classes)
    for number in range(len(trace.layers), layer, -1):
        below = trace.layers[number - 2].values
        carried = below_of(trace.layers[number - 1], carried, below.shape[-1])
    return carried


def brought_by_words(trace: Trace, layer: int, map_: int, row: int, place: int) -> Doubles:
    """(s,): what each word brings to a node's value; with what the biases bring, that is it.

    Args:
        trace: the sentence.
        layer: of the node, from 1.
        map_: of the node.
        row: of the node, after folding.
        place: of the node among the values that its row kept.
    """
    carried = np.zeros((*trace.layers[layer - 1].values.shape, 1))
    carried[map_, row, place] = 1
    for number in range(layer, 0, -1):
        below = trace.layers[number - 2].values if number > 1 else trace.matrix[None]
        carried = below_of(trace.layers[number - 1], carried, below.shape[-1])
    brought: Doubles = np.einsum("ds,ds->s", carried[0, :, :, 0], trace.matrix)
    return brought


def gains(layer: TracedLayer) -> Doubles:
    """(o, d', k): value over what tanh was taken of; tanh has slope 1 at the origin."""
    z = (layer.pooled + layer.bias[:, :, None]).astype(np.float64)
    return np.divide(layer.values, z, out=np.ones_like(z), where=z != 0)


def below_of(layer: TracedLayer, carried: Doubles, columns: int) -> Doubles:
    """(o, d', k, classes) of a layer's nodes -> (n, d, columns, classes) of what it reads."""
    through = carried * gains(layer)[..., None]
    maps, rows, width = layer.convolution.shape
    spread = np.zeros((maps, rows, width, carried.shape[-1]))
    np.put_along_axis(spread, layer.positions[..., None], through, axis=2)
    if layer.folded:  # both rows of a pair get what their sum carries
        spread = np.concatenate([spread, spread], axis=1)  # (o, d, w, classes)
    filters = layer.filters.astype(np.float64)
    m = filters.shape[-1]
    below = np.zeros((*filters.shape[1:3], columns, carried.shape[-1]))
    for i in range(m):  # weight i meets word t at column t + m - 1 - i
        start = m - 1 - i
        part = spread[:, :, start : start + columns]
        below += np.einsum("odsc,ond->ndsc", part, filters[..., i])
    return below
