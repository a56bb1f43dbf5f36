"""An ONNX graph as it grows: nodes, and the constants that they take.

The three sentence models as ONNX operators, from ``ids`` and ``lengths`` to ``probabilities``.

The graph is the network of ``dcnn.ops.reference``, for batches of any size and width: each sentence
has its own k, found inside the graph from its length alone; among equal values k-max keeps the
leftmost (TopK promises the lower index); padding never competes and is zero again after tanh.

Folding costs nothing here. Rows i and i + d/2 are convolved and summed by one grouped convolution
whose groups take two rows each; the rows are put side by side once and for all, by the order of the
embeddings' columns in the file.


Sentences on which k-max pooling is a matter of rounding.

Two programs that add the same numbers in another order get sums that differ in the last digit. That
moves a probability by as little, unless the sums are those of the last value that pooling keeps and
the first that it drops: then one keeps this word where the other keeps that one. Values that are
equal by right, as those of a repeated n-gram, are no such case: they are equal in every order.


An artifact as the bytes of an ONNX file, and whether such bytes say what the model says.

    ids (batch, length) int64, lengths (batch) int64  ->  probabilities (batch, classes) float32

Batch and length are free. Past a sentence's length its ids count for nothing, but must be ids.


One function that writes a model in another form, and says what it wrote.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from dcnn import __version__
from dcnn import artifact as model_folder
from dcnn.artifact import (
    EMBEDDINGS,
    SCALES,
    STORED_DTYPES,
    Artifact,
    Stored,
    StoredDtype,
    pack,
    unpack,
)
from dcnn.config import DCNNConfig, MaxTDNNConfig, ModelConfig, NBoWConfig
from dcnn.errors import DcnnError, MissingExtraError, UserError
from dcnn.files import check_place, write_atomically
from dcnn.ops import reference
from dcnn.ops.reference import dynamic_k
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import Ints, Sentences

Array = NDArray[Any]


class Graph:
    """Nodes in the order in which they are added, which is one in which they can be run."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; the name of its output, or the names where it has several."""
        number = len(self.nodes)
        names = [f"{operator}_{number}.{place}" for place in range(outputs)]
        node = helper.make_node(operator, inputs, names, f"{operator}_{number}", **attributes)
        self.nodes.append(node)
        return names[0] if outputs == 1 else names

    def constant(self, value: Array, name: str = "") -> str:
        """Add an array."""
        name = name or f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def number(self, value: float) -> str:
        """Add a single float32."""
        return self.constant(np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        """Add a list of whole numbers, as shapes, axes and counts are given."""
        return self.constant(np.array(values, np.int64))

    def weights(self, value: Array, name: str) -> str:
        """Add an array of weights, which are float32 in the graph however they are stored."""
        return self.as_float32(self.constant(value, name), value.dtype)

    def as_float32(self, name: str, dtype: np.dtype[Any]) -> str:
        """``name`` itself, or turned to float32 where it holds another ``dtype``."""
        if dtype == np.float32:
            return name
        return str(self.add("Cast", name, to=TensorProto.FLOAT))

    def width(self, name: str) -> str:
        """The size of a tensor's last axis, as a list of one."""
        return str(self.add("Shape", name, start=-1))

    def columns_below(self, width: str, counts: str) -> str:
        """(B,) -> (B, 1, width): whether a column's number is below its sentence's count."""
        zero, one = (self.constant(np.array(value, np.int64)) for value in (0, 1))
        end = self.add("Squeeze", width, self.integers(0))
        columns = self.add("Range", zero, end, one)
        return str(self.add("Less", columns, self.add("Unsqueeze", counts, self.integers(1, 2))))


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


def build_network(config: ModelConfig, stored: Stored, multi_label: bool = False) -> Graph:
    """The whole graph, with weights as ``stored_weights.pack`` gives them.

    With ``multi_label`` every label has a probability of its own.
    """
    graph = Graph()
    match config:
        case DCNNConfig():
            orders = row_orders(config)
            features = _dcnn(graph, config, stored, _read(graph, stored, orders[0]), orders)
            top = _in_order(stored["head.weight"], config, orders[-1])
        case MaxTDNNConfig():
            features = _max_tdnn(graph, config, stored, _read(graph, stored))
            top = stored["head.weight"]
        case NBoWConfig():
            words = _read(graph, stored)
            total = graph.add("ReduceSum", words.matrix, graph.integers(2), keepdims=0)
            features = graph.add("Tanh", total)
            top = stored["head.weight"]
    weight, bias = (
        graph.weights(value, name)
        for value, name in ((top, "head.weight"), (stored["head.bias"], "head.bias"))
    )
    logits = graph.add("Gemm", features, weight, bias, transB=1)
    if multi_label:
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


# Old enough for runtimes of 2022; the newest operator is of version 15.
OPSET, IR_VERSION = 17, 8
TOLERANCE = 1e-5
LONGEST = 64
EXCUSED = 8  # sentences, at most; rounding decides one in hundreds

Floats = NDArray[np.float32]


def onnx_bytes(artifact: Artifact) -> bytes:
    """The file's content, with weights of the artifact's ``dtype``."""
    stored = pack(artifact.weights, artifact.dtype)
    graph = build_network(artifact.config.model, stored, artifact.multi_label)
    whole = helper.make_graph(
        graph.nodes,
        f"dcnn {artifact.config.model.kind}",
        [
            helper.make_tensor_value_info(IDS, TensorProto.INT64, ["batch", "length"]),
            helper.make_tensor_value_info(LENGTHS, TensorProto.INT64, ["batch"]),
        ],
        [
            helper.make_tensor_value_info(
                PROBABILITIES, TensorProto.FLOAT, ["batch", len(artifact.classes)]
            )
        ],
        graph.constants,
    )
    model = helper.make_model(
        whole,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="dcnn",
        producer_version=__version__,
    )
    helper.set_model_props(model, metadata(artifact))
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def metadata(artifact: Artifact) -> dict[str, str]:
    """What a program needs to know beside the graph; the classes are in the order of the output."""
    tokenizer = artifact.encoder.to_json().encode()
    return {
        "classes": json.dumps(list(artifact.classes)),
        "tokenizer_sha256": hashlib.sha256(tokenizer).hexdigest(),  # of the folder's tokenizer.json
        "vocabulary_size": str(len(artifact.encoder.vocabulary)),
        "kind": artifact.config.model.kind,
        "dtype": artifact.dtype,
        "dcnn_version": __version__,
    } | ({"thresholds": json.dumps(artifact.thresholds)} if artifact.multi_label else {})


def check_against_model(content: bytes, artifact: Artifact, seed: int = 0) -> float:
    """Compare the file with the model on random sentences of every length, in one padded batch.

    Args:
        content: the file.
        artifact: the model, with weights as the file has them.
        seed: of the sentences.

    Returns:
        The largest difference of a probability, but for sentences that rounding decides.

    Raises:
        DcnnError: they differ by more than ``TOLERANCE``.
    """
    generator = np.random.default_rng(seed)
    lengths = generator.permutation(np.arange(1, LONGEST + 1))
    ids = generator.integers(0, len(artifact.encoder.vocabulary), lengths.sum(), np.int32)
    sentences = Sentences.from_flat(ids, lengths)
    predictor = Predictor(artifact)
    expected = predictor.head(predictor.logits(sentences))
    found = run_onnx(open_session(content), sentences)
    differences = np.abs(found - expected).max(axis=1)
    differences[~np.isfinite(differences)] = np.inf
    beyond = np.flatnonzero(differences > TOLERANCE)
    for index in beyond if len(beyond) <= EXCUSED else ():
        if decided_by_rounding(artifact, sentences.select(np.array([index])).ids):
            differences[index] = 0
    largest = float(differences.max())
    if largest > TOLERANCE:
        raise DcnnError(
            f"the ONNX graph differs from the model by {largest:.2g} where {TOLERANCE:.0e} is "
            "allowed, so nothing was written; please report it with the model's config.json"
        )
    return largest


def open_session(content: bytes, threads: int = 1) -> onnxruntime.InferenceSession:
    """The file in onnxruntime, on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run_onnx(session: onnxruntime.InferenceSession, sentences: Sentences) -> Floats:
    """(sentences, classes) probabilities, all sentences as one padded batch."""
    ids, lengths = sentences.padded(np.arange(len(sentences)))
    (probabilities,) = session.run([PROBABILITIES], {IDS: ids, LENGTHS: lengths})
    result: Floats = probabilities
    return result


Format = Literal["onnx", "folder"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        path: the file or folder.
        format: ``onnx`` or ``folder``.
        dtype: how it stores the weights.
        size: bytes, of all files together.
        difference: how far the ONNX file's probabilities are from the model's at most, as checked
            before it was written; none for a folder.
    """

    path: Path
    format: Format
    dtype: StoredDtype
    size: int
    difference: float | None = None


def format_of(path: Path) -> Format:
    """``onnx`` for a name that ends so, else ``folder``."""
    return "onnx" if path.suffix.lower() == ".onnx" else "folder"


def export(
    model: Predictor | Artifact | str | Path,
    out: str | Path,
    dtype: StoredDtype = "float32",
    format: Format | None = None,  # noqa: A002
    overwrite: bool = False,
) -> Exported:
    """Write ``model`` as an ONNX file or as a model folder.

    Examples:
        >>> export("my-model", "my-model.onnx")
        >>> export("my-model", "my-small-model", dtype="int8")

    Args:
        model: a model folder, or what was loaded from one.
        out: the place; for ``onnx`` a file, for ``folder`` a new folder.
        dtype: how the weights are stored: ``float32``, ``float16`` or ``int8``.
        format: ``onnx`` or ``folder``; by default the name of ``out`` says it.
        overwrite: whether a file or a model folder at ``out`` may be replaced.

    Raises:
        MissingExtraError: ONNX needs the extra of that name.
        UserError: the place is taken, or a weight is too large for ``dtype``.
        DcnnError: the ONNX graph does not say what the model says; nothing was written.
        StorageError: the disk refused; what was there is untouched.
    """
    out = Path(out)
    format = format or format_of(out)  # noqa: A001
    for name, value, known in (("format", format, FORMATS), ("dtype", dtype, STORED_DTYPES)):
        if value not in known:
            raise UserError(f"{name}={value!r} must be one of {', '.join(known)}")
    if format == "folder":
        model_folder.check_destination(out, overwrite)
    else:
        _check_file(out, overwrite)
        _require_onnx()
    stored = _rounded(_artifact(model), dtype)
    if format == "onnx":
        return _export_onnx(stored, out)
    model_folder.save(out, stored, overwrite)
    size = sum(file.stat().st_size for file in out.iterdir())
    return Exported(out, format, dtype, size)


def _artifact(model: Predictor | Artifact | str | Path) -> Artifact:
    match model:
        case Predictor():
            return model.artifact
        case Artifact():
            return model
        case _:
            return model_folder.load(Path(model))


def _rounded(artifact: Artifact, dtype: StoredDtype) -> Artifact:
    """The model that a reader of the export will have."""
    return replace(artifact, weights=unpack(pack(artifact.weights, dtype)), dtype=dtype)


def _export_onnx(artifact: Artifact, out: Path) -> Exported:

    content = onnx_bytes(artifact)
    difference = check_against_model(content, artifact)
    with write_atomically(out) as stream:
        stream.write(content)
    return Exported(out, "onnx", artifact.dtype, len(content), difference)


def _check_file(path: Path, overwrite: bool) -> None:
    check_place("--out", path)
    if path.exists() and not overwrite:
        raise UserError(
            f"{path} exists; pass --overwrite (in Python overwrite=True) to replace it, "
            "or choose another place"
        )


def _require_onnx() -> None:
    """Say before any work is done that it cannot be done."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        raise MissingExtraError("Writing an ONNX file", "onnx") from None
