"""An artifact as the bytes of an ONNX file, and whether such bytes say what the model says.

    ids (batch, length) int64, lengths (batch) int64  ->  probabilities (batch, classes) float32

Batch and length are free. Past a sentence's length its ids count for nothing, but must be ids.
"""

import hashlib
import json

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

from dcnn import __version__
from dcnn.artifact import Artifact
from dcnn.errors import DcnnError
from dcnn.export.networks import IDS, LENGTHS, PROBABILITIES, build_network
from dcnn.export.rounding import decided_by_rounding
from dcnn.predictor import Predictor
from dcnn.stored_weights import pack
from dcnn.text.sentences import Sentences

# Old enough for runtimes of 2022; the newest operator is of version 15.
OPSET, IR_VERSION = 17, 8
TOLERANCE = 1e-5
LONGEST = 64
EXCUSED = 8  # sentences, at most; rounding decides one in hundreds

Floats = NDArray[np.float32]


def onnx_bytes(artifact: Artifact) -> bytes:
    """The file's content, with weights of the artifact's ``dtype``."""
    stored = pack(artifact.weights, artifact.dtype)
    graph = build_network(artifact.config.model, stored, artifact.many)
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
    } | ({"thresholds": json.dumps(artifact.thresholds)} if artifact.many else {})


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
