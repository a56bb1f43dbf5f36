"""The three sentence models as ONNX operators, from ``ids`` and ``lengths`` to ``probabilities``.

The graph is the network of ``dcnn.ops.reference``, for batches of any size and width: each sentence
has its own k, found inside the graph from its length alone; among equal values k-max keeps the
leftmost (TopK promises the lower index); padding never competes and is zero again after tanh.

Folding costs nothing here. Rows i and i + d/2 are convolved and summed by one grouped convolution
whose groups take two rows each; the rows are put side by side once and for all, by the order of the
embeddings' columns in the file.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcnn.config import DCNNConfig, MaxTDNNConfig, ModelConfig, NBoWConfig
from dcnn.export.graph import Array, Graph
from dcnn.stored_weights import EMBEDDINGS, SCALES, Stored

IDS, LENGTHS, PROBABILITIES = "ids", "lengths", "probabilities"

Order = NDArray[np.intp]


@dataclass(frozen=True)
class Words:
    """What every network reads.

    Attributes:
        matrix: (B, d, s), zero past a sentence's end.
        lengths: (B,), from 1 to s.
        width: s, as a list of one.
    """

    matrix: str
    lengths: str
    width: str


def build_network(config: ModelConfig, stored: Stored, many: bool = False) -> Graph:
    """The whole graph, with weights as ``stored_weights.pack`` gives them.

    With ``many`` every label has a probability of its own.
    """
    graph = Graph()
    match config:
        case DCNNConfig():
            orders = row_orders(config)
            features = _dcnn(graph, config, stored, _read(graph, stored, orders[0]), orders)
            top = _in_order(stored["top.weight"], config, orders[-1])
        case MaxTDNNConfig():
            features = _max_tdnn(graph, config, stored, _read(graph, stored))
            top = stored["top.weight"]
        case NBoWConfig():
            words = _read(graph, stored)
            total = graph.add("ReduceSum", words.matrix, graph.integers(2), keepdims=0)
            features = graph.add("Tanh", total)
            top = stored["top.weight"]
    weight, bias = (
        graph.weights(value, name)
        for value, name in ((top, "top.weight"), (stored["top.bias"], "top.bias"))
    )
    logits = graph.add("Gemm", features, weight, bias, transB=1)
    if many:
        graph.add("Sigmoid", logits)
    else:
        graph.add("Softmax", logits, axis=-1)
    graph.nodes[-1].output[0] = PROBABILITIES
    return graph


def row_orders(config: DCNNConfig) -> list[Order]:
    """Which row stands where, below layer 1, 2, ... and at the top.

    Two rows that a layer folds into one stand side by side below it.
    """
    orders = [np.arange(config.rows(config.depth))]
    for layer in range(config.depth, 0, -1):
        above = orders[0]
        pairs = np.stack([above, above + config.rows(layer)], axis=1)
        orders.insert(0, pairs.reshape(-1) if config.fold else above)
    return orders


def _in_order(top: Array, config: DCNNConfig, order: Order) -> Array:
    """The fully connected weights for features in the order row, map, position."""
    classes, rows, maps = len(top), len(order), config.maps[-1]
    features = top.reshape(classes, maps, rows, config.k_top)[:, :, order]
    return features.transpose(0, 2, 1, 3).reshape(classes, -1)


def _read(graph: Graph, stored: Stored, order: Order | None = None) -> Words:
    """Word vectors of the ids, their rows in ``order``."""
    width = graph.width(IDS)
    # A graph cannot refuse its input. No words become one, as the encoder has it: an empty text is
    # one unknown word, whose id is that of the padding.
    at_least_one = graph.add("Max", LENGTHS, graph.integers(1))
    lengths = graph.add("Min", at_least_one, width)

    embeddings = stored[EMBEDDINGS] if order is None else stored[EMBEDDINGS][:, order]
    found = graph.add("Gather", graph.constant(embeddings, EMBEDDINGS), IDS)  # (B, s, d)
    words = graph.as_float32(found, embeddings.dtype)
    if SCALES in stored:
        scales = graph.add("Gather", graph.constant(stored[SCALES], SCALES), IDS)  # (B, s)
        scales = graph.as_float32(scales, stored[SCALES].dtype)
        words = graph.add("Mul", words, graph.add("Unsqueeze", scales, graph.integers(2)))
    matrix = graph.add("Transpose", words, perm=[0, 2, 1])  # (B, d, s)
    exists = graph.columns_below(width, lengths)
    matrix = graph.add("Where", exists, matrix, graph.number(0))
    return Words(matrix, lengths, width)


def _dcnn(
    graph: Graph, config: DCNNConfig, stored: Stored, words: Words, orders: list[Order]
) -> str:
    """-> (B, rows * maps * k_top)."""
    x, valid = words.matrix, words.lengths
    for layer in range(1, config.depth + 1):
        order = orders[layer]
        filters = _grouped(stored[f"layers.{layer - 1}.filters"], orders[layer - 1], len(order))
        x = _wide_convolution(graph, x, filters, f"layers.{layer - 1}.filters", len(order))
        margin = config.widths[layer - 1] - 1
        valid = graph.add("Add", valid, graph.integers(margin))
        columns = graph.width(x)
        exists = graph.columns_below(columns, valid)
        x = graph.add("Where", exists, x, graph.number(-np.inf))  # (B, rows * maps, columns)

        biases = stored[f"layers.{layer - 1}.bias"].T[order].reshape(-1, 1)  # (rows * maps, 1)
        bias = graph.weights(biases, f"layers.{layer - 1}.bias")
        if layer == config.depth:  # all sentences keep as many
            kept = _k_max(graph, x, graph.integers(config.k_top))
            x = graph.add("Tanh", graph.add("Add", kept, bias))
        else:
            valid = _dynamic_k(graph, config, words.lengths, layer)
            most = _dynamic_k(graph, config, words.width, layer)
            inside = graph.columns_below(most, valid)
            kept = _k_max(graph, x, most, inside, columns)
            x = graph.add("Tanh", graph.add("Add", kept, bias))
            x = graph.add("Where", inside, x, graph.number(0))
    return str(graph.add("Flatten", x))


def _grouped(filters: Array, below: Order, groups: int) -> Array:
    """(o, n, d, m) -> (groups * o, d / groups * n, m): the rows of a group one after another."""
    maps, maps_below, rows, width = filters.shape
    filters = filters[:, :, below].reshape(maps, maps_below, groups, rows // groups, width)
    grouped = filters.transpose(2, 0, 3, 1, 4)  # (groups, o, rows of a group, n, m)
    return grouped.reshape(groups * maps, rows // groups * maps_below, width)


def _wide_convolution(graph: Graph, x: str, filters: Array, name: str, groups: int) -> str:
    margin = filters.shape[-1] - 1
    weights = graph.weights(filters, name)
    return str(graph.add("Conv", x, weights, group=groups, pads=[margin, margin]))


def _dynamic_k(graph: Graph, config: DCNNConfig, lengths: str, layer: int) -> str:
    """Equation 4, its ceiling in whole numbers as in ``dynamic_k``."""
    depth = config.depth
    product = graph.add("Mul", lengths, graph.integers(depth - layer))
    raised = graph.add("Add", product, graph.integers(depth - 1))
    ceiling = graph.add("Div", raised, graph.integers(depth))
    return str(graph.add("Max", ceiling, graph.integers(config.k_top)))


def _k_max(graph: Graph, x: str, k: str, inside: str = "", columns: str = "") -> str:
    """The ``k`` largest values of each row, in their order.

    Where sentences keep fewer than ``k``, ``inside`` (B, 1, k) says how many; what is past them
    has some value of the row.
    """
    _, places = graph.add("TopK", x, k, outputs=2)  # from the largest value down
    if inside:
        places = graph.add("Where", inside, places, columns)  # the surplus goes last
    ascending, _ = graph.add("TopK", places, k, outputs=2, largest=0)
    if inside:
        last = graph.add("Sub", columns, graph.integers(1))
        ascending = graph.add("Min", ascending, last)
    return str(graph.add("GatherElements", x, ascending, axis=2))


def _max_tdnn(graph: Graph, config: MaxTDNNConfig, stored: Stored, words: Words) -> str:
    """-> (B, d): narrow convolution, maximum over time, tanh."""
    filters = stored["layers.0.filters"].reshape(config.dim, 1, config.width)
    c = _wide_convolution(graph, words.matrix, filters, "layers.0.filters", config.dim)
    # Narrow: the m-grams that end inside the sentence, or inside its padding up to m words.
    last = graph.add("Max", words.lengths, graph.integers(config.width))
    columns = graph.width(c)
    before = graph.columns_below(columns, graph.integers(config.width - 1))  # (1, 1, s + m - 1)
    inside = graph.add("And", graph.columns_below(columns, last), graph.add("Not", before))
    c = graph.add("Where", inside, c, graph.number(-np.inf))
    maxima = graph.add("ReduceMax", c, axes=[2], keepdims=0)
    bias = graph.weights(stored["layers.0.bias"], "layers.0.bias")
    return str(graph.add("Tanh", graph.add("Add", maxima, bias)))
