"""A model as an ONNX graph.

    ids (batch, length) int64, lengths (batch) int64  ->  probabilities (batch, classes) float32

Batch and length are free. Ids beyond a sentence's length are ignored, but must be valid: below the
size of the vocabulary, or any where tokens are subwords (see ``dcnn.export.tokenizer``). Where
words have character n-grams there is a third input, ``ngrams`` (batch, length, n-grams) int64: the
buckets of the n-grams of words that are not in the vocabulary, whose id is 0, and the number of
buckets wherever there is no n-gram. The graph computes what ``dcnn.ops.reference`` computes: each
sentence has its own k, from its length alone; among equal values k-max keeps the leftmost (TopK
returns the lower index first); padding never competes and is zero again after tanh. Folding is
free: rows i and i + d/2 are convolved and summed by one grouped convolution with two rows per
group, because the embedding columns in the file are permuted so that such rows are neighbours.

Every file is compared with the model on random sentences before it is written.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn import __version__
from dcnn import artifact as model_folder
from dcnn.artifact import EMBEDDINGS, NGRAM_SCALES, NGRAMS, NGRAMS_USED, SCALES, Artifact
from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig
from dcnn.errors import DcnnError
from dcnn.ops import reference
from dcnn.predictor import Floats, Predictor
from dcnn.text.encoder import Encoder
from dcnn.text.vocabulary import UNKNOWN, CharNgrams, Ints, Sentences

OPSET, IR_VERSION = 17, 8  # of 2022; the newest operator used is of opset 16
IDS, LENGTHS, PROBABILITIES = "ids", "lengths", "probabilities"

TOLERANCE = 1e-5  # of a probability
LONGEST = 64  # words of the sentences that are compared
MAX_EXCUSED = 8  # sentences that rounding may decide; it decides about one in hundreds
NEW_WORDS = 16  # in the sentences that are compared, where words have n-grams
NARROW_GAP = 1e-5  # relative to the largest value of a row: some tens of float32 roundings

Order = NDArray[np.intp]


def onnx_bytes(artifact: Artifact) -> bytes:
    """The content of the ONNX file, with weights of the artifact's ``dtype``."""
    import onnx
    from onnx import TensorProto, helper

    kind, graph = artifact.config.model.kind, _Graph(artifact)
    graph.add("Sigmoid" if artifact.multi_label else "Softmax", graph.logits(artifact.config.model))
    graph.nodes[-1].output[0] = PROBABILITIES
    value = helper.make_tensor_value_info
    ids = value(IDS, TensorProto.INT64, ["batch", "length"])
    lengths = value(LENGTHS, TensorProto.INT64, ["batch"])
    inputs = [ids, lengths]
    if artifact.encoder.char_ngrams is not None:
        inputs.append(value(NGRAMS, TensorProto.INT64, ["batch", "length", "ngrams"]))
    output = value(PROBABILITIES, TensorProto.FLOAT, ["batch", len(artifact.classes)])
    model = helper.make_model(
        helper.make_graph(graph.nodes, f"dcnn {kind}", inputs, [output], graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="dcnn",
        producer_version=__version__,
    )
    # What a program needs besides the graph; the classes are in the order of the output.
    tokenizer = artifact.encoder.to_json().encode()  # as in the folder's tokenizer.json
    metadata = {
        "classes": json.dumps(list(artifact.classes)),
        "tokenizer_sha256": hashlib.sha256(tokenizer).hexdigest(),
        "vocabulary_size": str(len(artifact.encoder.vocabulary)),
        "kind": kind,
        "dtype": artifact.dtype,
        "dcnn_version": __version__,
    }
    if artifact.encoder.char_ngrams is not None:
        metadata["char_ngrams"] = json.dumps(artifact.encoder.char_ngrams._asdict())
    if artifact.multi_label:
        metadata["thresholds"] = json.dumps(artifact.thresholds)
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


class _Graph:
    """The nodes of a sentence model, in an order in which they can run, and its constants."""

    def __init__(self, artifact: Artifact) -> None:
        self.nodes: list[Any] = []  # onnx.NodeProto
        self.constants: list[Any] = []  # onnx.TensorProto
        self.stored = model_folder.pack(artifact.weights, artifact.dtype)
        self.width, self.ids = self._width_of(IDS), IDS
        if artifact.encoder.unit == "subword":  # those outside the vocabulary may have ids beyond
            known = self.add("Less", IDS, [len(artifact.encoder.vocabulary)])
            self.ids = self.add("Where", known, IDS, [UNKNOWN])
        # A graph cannot refuse its input. Length 0 becomes 1, as in the encoder: an empty text is
        # one unknown word, whose id is that of the padding.
        self.lengths = self.add("Min", self.add("Max", LENGTHS, [1]), self.width)  # (B,), 1 to s

    def add(
        self, operator: str, *inputs: str | float | list[int], outputs: int = 1, **attributes: Any
    ) -> Any:
        """Add a node; the name of its output, or a list of names if it has several.

        An input is a name or a constant: float32, or int64 as shapes, axes and counts are given.
        """
        from onnx import helper

        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        node = f"{operator}_{len(self.nodes)}"
        results = [f"{node}.{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, names, results, node, **attributes))
        return results[0] if outputs == 1 else results

    def _constant(self, value: NDArray[Any] | float | list[int], name: str = "") -> str:
        from onnx import numpy_helper

        name = name or f"constant_{len(self.constants)}"
        if not isinstance(value, np.ndarray):
            value = np.array(value, np.float32 if isinstance(value, float) else np.int64)
        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def _float32(self, name: str, dtype: np.dtype[Any]) -> str:
        """Cast ``name``, which holds ``dtype``, to float32 if it is not."""
        if dtype == np.float32:
            return name
        return str(self.add("Cast", name, to=1))  # TensorProto.FLOAT

    def _weights(self, value: NDArray[Any], name: str) -> str:
        """Add weights, which are float32 in the graph however they are stored."""
        return self._float32(self._constant(value, name), value.dtype)

    def _rows(self, value: NDArray[Any], name: str, indices: str) -> str:
        """The rows at some indices of a table of weights."""
        return self._float32(self.add("Gather", self._constant(value, name), indices), value.dtype)

    def _width_of(self, name: str) -> str:
        """The size of a tensor's last axis, as a list of one."""
        return str(self.add("Shape", name, start=-1))

    def _columns_below(self, width: str, counts: str | list[int]) -> str:
        """(B,) -> (B, 1, width): whether a column's index is below its sentence's count."""
        columns = self.add("Range", 0, self.add("Squeeze", width, [0]), 1)
        return str(self.add("Less", columns, self.add("Unsqueeze", counts, [1, 2])))

    def logits(self, config: object) -> str:
        """(B, classes)."""
        head = self.stored["head.weight"]
        match config:
            case DCNNConfig():
                orders = row_orders(config)
                features = self._dcnn(config, self._words(orders[0]), orders)
                # Features come in the order row, map, position.
                shape = (len(head), config.maps[-1], len(orders[-1]), config.k_top)
                head = head.reshape(shape)[:, :, orders[-1]].swapaxes(1, 2).reshape(len(head), -1)
            case MaxTDNNConfig():
                features = self._max_tdnn(config, self._words())
            case NBoWConfig():
                features = self.add("Tanh", self.add("ReduceSum", self._words(), [2], keepdims=0))
        weight = self._weights(head, "head.weight")
        bias = self._weights(self.stored["head.bias"], "head.bias")
        return str(self.add("Gemm", features, weight, bias, transB=1))

    def _words(self, order: Order | None = None) -> str:
        """(B, d, s) word vectors with their rows in ``order``, zero past a sentence's end."""
        stored = self.stored
        embeddings = stored[EMBEDDINGS] if order is None else stored[EMBEDDINGS][:, order]
        words = self._rows(embeddings, EMBEDDINGS, self.ids)  # (B, s, d)
        if SCALES in stored:
            scales = self._rows(stored[SCALES], SCALES, self.ids)  # (B, s)
            words = self.add("Mul", words, self.add("Unsqueeze", scales, [2]))
        if NGRAMS in stored:
            words = self._add_ngrams(words, order)
        matrix = self.add("Transpose", words, perm=[0, 2, 1])  # (B, d, s)
        valid = self._columns_below(self.width, self.lengths)
        return str(self.add("Where", valid, matrix, 0.0))

    def _add_ngrams(self, words: str, order: Order | None) -> str:
        """Words (B, s, d) plus the sum of their character n-grams over the root of their number.

        Most words have none here: only those that do are looked up.
        """
        used = self.stored[NGRAMS_USED]
        rows = np.where(used, np.cumsum(used) - 1, np.count_nonzero(used))  # the last is of zeros
        no_ngram, zeros = len(used), ((0, 1), (0, 0))
        vectors = np.pad(self.stored[NGRAMS], zeros)
        vectors = vectors if order is None else vectors[:, order]
        scales = np.pad(self.stored[NGRAM_SCALES], (0, 1))
        row_of_bucket = self._constant(np.append(rows, len(vectors) - 1), "ngrams.rows")
        there = self.add("Cast", self.add("Less", NGRAMS, [no_ngram]), to=1)
        numbers = self.add("ReduceSum", there, [2], keepdims=0)  # (B, s)
        new = self.add("Transpose", self.add("NonZero", numbers), perm=[1, 0])  # (N, 2) places
        # (N, n-grams)
        found = self.add("Gather", row_of_bucket, self.add("GatherND", NGRAMS, new))
        values = self._rows(vectors, NGRAMS + ".vectors", found)
        factors = self._rows(scales, NGRAM_SCALES, found)
        values = self.add("Mul", values, self.add("Unsqueeze", factors, [2]))
        total = self.add("ReduceSum", values, [1], keepdims=0)  # (N, d)
        roots = self.add("Unsqueeze", self.add("Sqrt", self.add("GatherND", numbers, new)), [1])
        return str(
            self.add("ScatterND", words, new, self.add("Div", total, roots), reduction="add")
        )

    def _dcnn(self, config: DCNNConfig, x: str, orders: list[Order]) -> str:
        """(B, d, s) -> (B, rows * maps * k_top); the network of Fig. 3."""
        valid = self.lengths
        for layer in range(1, config.depth + 1):
            below, order = orders[layer - 1 : layer + 1]
            x = self._wide_convolution(x, layer, below, groups=len(order))
            valid = self.add("Add", valid, [config.widths[layer - 1] - 1])
            columns = self._width_of(x)
            # (B, rows * maps, columns)
            x = self.add("Where", self._columns_below(columns, valid), x, -np.inf)
            name = f"layers.{layer - 1}.bias"
            bias = self._weights(self.stored[name].T[order].reshape(-1, 1), name)
            k, inside = [config.k_top], ""  # of the last layer, for all sentences
            if layer < config.depth:
                valid = self._dynamic_k(config, self.lengths, layer)
                k = self._dynamic_k(config, self.width, layer)
                inside = self._columns_below(k, valid)
            x = self.add("Tanh", self.add("Add", self._k_max(x, k, inside, columns), bias))
            if inside:
                x = self.add("Where", inside, x, 0.0)
        return str(self.add("Flatten", x))

    def _wide_convolution(self, x: str, layer: int, below: Order, groups: int) -> str:
        """Filters (o, n, d, m) become (groups * o, d / groups * n, m), rows of a group adjacent."""
        name = f"layers.{layer - 1}.filters"
        filters = self.stored[name]
        maps, maps_below, rows, m = filters.shape
        filters = filters[:, :, below].reshape(maps, maps_below, groups, rows // groups, m)
        grouped = filters.transpose(2, 0, 3, 1, 4)  # (groups, o, rows per group, n, m)
        weights = self._weights(grouped.reshape(groups * maps, -1, m), name)
        return str(self.add("Conv", x, weights, group=groups, pads=[m - 1, m - 1]))

    def _dynamic_k(self, config: DCNNConfig, lengths: str, layer: int) -> Any:
        """Equation 4, with an integer ceiling as in ``reference.dynamic_k``."""
        product = self.add("Mul", lengths, [config.depth - layer])
        ceiling = self.add("Div", self.add("Add", product, [config.depth - 1]), [config.depth])
        return self.add("Max", ceiling, [config.k_top])

    def _k_max(self, x: str, k: str | list[int], inside: str = "", columns: str = "") -> str:
        """The ``k`` largest values of each row, in their original order.

        If sentences keep fewer than ``k``, ``inside`` (B, 1, k) marks how many; the values beyond
        are arbitrary.
        """
        _, places = self.add("TopK", x, k, outputs=2)  # from the largest value down
        if inside:
            places = self.add("Where", inside, places, columns)  # the surplus goes last
        ascending, _ = self.add("TopK", places, k, outputs=2, largest=0)
        if inside:
            ascending = self.add("Min", ascending, self.add("Sub", columns, [1]))
        return str(self.add("GatherElements", x, ascending, axis=2))

    def _max_tdnn(self, config: MaxTDNNConfig, words: str) -> str:
        """(B, d, s) -> (B, d): narrow convolution, maximum over time, tanh."""
        c = self._wide_convolution(words, 1, np.arange(config.dim), groups=config.dim)
        # Narrow: the m-grams that end inside the sentence, or inside its padding up to m words.
        last = self.add("Max", self.lengths, [config.width])
        columns = self._width_of(c)
        before = self._columns_below(columns, [config.width - 1])  # (1, 1, s + m - 1)
        inside = self.add("And", self._columns_below(columns, last), self.add("Not", before))
        c = self.add("Where", inside, c, -np.inf)
        maxima = self.add("ReduceMax", c, axes=[2], keepdims=0)
        bias = self._weights(self.stored["layers.0.bias"], "layers.0.bias")
        return str(self.add("Tanh", self.add("Add", maxima, bias)))


def row_orders(config: DCNNConfig) -> list[Order]:
    """The order of the rows below layer 1, 2, ... and below the output layer.

    Two rows that a layer folds into one are neighbours below it.
    """
    orders = [np.arange(config.rows(config.depth))]
    for layer in range(config.depth, 0, -1):
        above = orders[0]
        pairs = np.stack([above, above + config.rows(layer)], axis=1)
        orders.insert(0, pairs.reshape(-1) if config.fold else above)
    return orders


def check_against_model(content: bytes, artifact: Artifact) -> float:
    """Compare the file with the model on random sentences of every length, in one padded batch.

    Returns the largest difference of a probability, except for sentences that rounding decides;
    raises DcnnError if it is more than ``TOLERANCE``.
    """
    generator = np.random.default_rng(0)
    lengths = generator.permutation(np.arange(1, LONGEST + 1))
    words, new_words = artifact.encoder.vocabulary.words, []
    if artifact.encoder.char_ngrams is not None:
        pairs = generator.choice(np.array(["", *words], object), (NEW_WORDS, 2))
        new_words = [f"{first}{second[::-1]}x" for first, second in pairs]
    choices = len(words) + 1 + len(new_words)
    ids = generator.integers(0, choices, lengths.sum(), np.int32)
    sentences = Sentences.from_flat(ids, lengths, new_words)
    predictor = Predictor(artifact)
    expected = predictor.head(predictor.logits(sentences))
    found = run_onnx(open_session(content), artifact.encoder, sentences)
    differences = np.abs(found - expected).max(axis=1)
    differences[~np.isfinite(differences)] = np.inf
    beyond = np.flatnonzero(differences > TOLERANCE)
    for index in beyond if len(beyond) <= MAX_EXCUSED else ():
        if decided_by_rounding(artifact, sentences.select(np.array([index]))):
            differences[index] = 0
    largest = float(differences.max())
    if largest > TOLERANCE:
        raise DcnnError(
            f"the ONNX graph differs from the model by {largest:.2g} where {TOLERANCE:.0e} is "
            "allowed, so nothing was written; please report it with the model's config.json"
        )
    return largest


def decided_by_rounding(artifact: Artifact, sentence: Sentences) -> bool:
    """Whether rounding decides what k-max pooling keeps somewhere in this sentence.

    Sums in another order differ in the last digit. If the last value that is kept and the first
    that is dropped differ by no more, another program may keep another word. Exactly equal values,
    as of a repeated n-gram, are no such case: they are equal in every order.
    """
    config = artifact.config.model
    if not isinstance(config, DCNNConfig):
        return False  # a maximum or a sum changes by no more than its parts
    words = artifact.embed(sentence.ids, sentence.new_words).astype(np.float64)
    x = words.T[None, None]  # (1, 1, d, s)
    layers = [(f.astype(np.float64), bias.astype(np.float64)) for f, bias in artifact.layers]
    for step in reference.forward(x, np.array([len(words)]), layers, config.fold, config.k_top):
        c, k = step.convolution, step.positions.shape[-1]
        if k < c.shape[-1]:
            descending = -np.sort(-c, axis=-1)
            gaps = descending[..., k - 1] - descending[..., k]
            if np.any((gaps > 0) & (gaps < NARROW_GAP * np.abs(c).max(axis=-1))):
                return True
    return False


def open_session(content: bytes) -> Any:
    """The file in onnxruntime, on one thread of the CPU: an InferenceSession."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run_onnx(session: Any, encoder: Encoder, sentences: Sentences) -> Floats:
    """(sentences, classes) probabilities, all sentences as one padded batch."""
    ids, lengths = sentences.padded(np.arange(len(sentences)))
    inputs = {IDS: ids, LENGTHS: lengths}
    if encoder.char_ngrams is not None:
        known = len(encoder.vocabulary)
        inputs[IDS] = np.where(ids < known, ids, UNKNOWN)
        inputs[NGRAMS] = _ngram_input(encoder.char_ngrams, ids - known, sentences.new_words)
    outputs: list[Floats] = session.run([PROBABILITIES], inputs)
    return outputs[0]


def _ngram_input(ngrams: CharNgrams, places: Ints, new_words: Sequence[str]) -> Ints:
    """(B, s, n-grams) buckets for (B, s) places among ``new_words``; below 0 a word has none."""
    bags = model_folder.find_bags(ngrams, [*new_words, ""])  # the last one, of place -1, has none
    counts = np.diff(bags.offsets)
    columns = np.arange(counts.max(initial=0))
    buckets = np.full((len(counts), len(columns)), ngrams.n_buckets, np.int64)
    buckets[columns < counts[:, None]] = bags.buckets
    return buckets[np.maximum(places, -1)]
