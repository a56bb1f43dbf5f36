"""The ONNX graph is the network: the same probabilities for any size, length, padding and tie."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn.artifact import STORED_DTYPES, pack, unpack
from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig
from dcnn.export import decided_by_rounding, onnx_bytes, open_session, row_orders, run_onnx
from dcnn.metrics import softmax
from dcnn.models import build_model
from dcnn.ops import select as backends
from dcnn.predictor import Predictor
from dcnn.serve.app import make_app
from dcnn.serve.limits import Limits
from dcnn.serve.registry import Registry, ServedModel
from dcnn.text.vocabulary import Sentences
from untrained import VOCABULARY_TEXT, make_artifact

CLASSES = ("a", "b", "c")
VOCABULARY = 16


@st.composite
def networks(draw, most_layers=3):
    fold = draw(st.booleans())
    widths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=most_layers))
    dim = 2 ** len(widths) * draw(st.integers(1, 3)) if fold else draw(st.integers(1, 5))
    config = DCNNConfig(
        dim=dim,
        widths=tuple(widths),
        maps=tuple(draw(st.integers(1, 4)) for _ in widths),
        k_top=draw(st.integers(1, widths[0])),
        fold=fold,
    )
    return make_artifact(config, draw(st.integers(0, 999)), CLASSES)


others = st.one_of(
    st.builds(MaxTDNNConfig, dim=st.integers(1, 6), width=st.integers(1, 8)),
    st.builds(NBoWConfig, dim=st.integers(1, 6)),
).map(lambda config: make_artifact(config, 3, CLASSES))
lengths_of_batches = st.lists(st.integers(1, 200), min_size=1, max_size=8)


def sentences_of(lengths, words=VOCABULARY, seed=0):
    ids = np.random.default_rng(seed).integers(0, words, sum(lengths), np.int32)
    return Sentences.from_flat(ids, np.array(lengths))


def whole_numbers(artifact):
    """The same network with weights from -1 to 1: sums are exact, and many are equal."""
    rounded = {name: np.rint(value).clip(-1, 1) for name, value in artifact.weights.items()}
    return replace(artifact, weights=rounded)


def by_onnx(artifact, sentences):
    return run_onnx(open_session(onnx_bytes(artifact)), sentences)


def assert_same(artifact, sentences):
    expected = softmax(Predictor(artifact).logits(sentences))
    differences = np.abs(by_onnx(artifact, sentences) - expected).max(axis=1)
    for index in np.flatnonzero(~(differences <= 1e-5)):
        ids = sentences.select(np.array([index])).ids
        assert decided_by_rounding(artifact, ids), (len(ids), differences[index])


@settings(max_examples=60)
@given(networks(), lengths_of_batches, st.integers(0, 99))
def test_onnx_is_the_model(artifact, lengths, seed):
    assert_same(artifact, sentences_of(lengths, seed=seed))


@settings(max_examples=20)
@given(others, lengths_of_batches)
def test_onnx_is_the_model_for_the_other_kinds(artifact, lengths):
    assert_same(artifact, sentences_of(lengths))


@settings(max_examples=30)
@given(networks(most_layers=1), lengths_of_batches)  # above it sums of tanh are rounded
def test_among_equal_values_the_leftmost_is_kept(artifact, lengths):
    exact = whole_numbers(artifact)
    sentences = sentences_of(lengths, words=4)
    expected = softmax(Predictor(exact).logits(sentences))
    np.testing.assert_allclose(by_onnx(exact, sentences), expected, atol=1e-5)


def texts_from_1_to_200_words():
    words = [*VOCABULARY_TEXT.split(), "xyzzy"]
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(words, length)) for length in range(1, 201)]


def over_http(artifact, texts):
    app = make_app(Registry([ServedModel("model", Predictor(artifact))]), Limits())
    answer = TestClient(app).post("/v1/predict", json={"texts": texts}).json()
    return [[found["probabilities"][name] for name in CLASSES] for found in answer["predictions"]]


@pytest.mark.parametrize("fold", [True, False])
def test_onnx_torch_native_and_the_server_agree_from_1_to_200_words(monkeypatch, fold):
    config = DCNNConfig(dim=12, widths=(7, 5), maps=(3, 4), k_top=4, fold=fold)
    artifact = make_artifact(config, classes=CLASSES)
    texts = texts_from_1_to_200_words()
    sentences = artifact.encoder.encode_all(texts)
    assert sentences.lengths.tolist() == list(range(1, 201))
    ids, lengths = sentences.padded(np.arange(200))
    computed = {"onnx": by_onnx(artifact, sentences)}
    for backend in ("reference", "native"):
        monkeypatch.setenv(backends.VARIABLE, backend)
        computed[backend] = softmax(Predictor(artifact).logits(sentences))
        computed[f"HTTP, {backend}"] = over_http(artifact, texts)
    monkeypatch.setenv(backends.VARIABLE, "torch")
    model = build_model(config, VOCABULARY, len(CLASSES)).eval()
    model.load_state_dict({name: torch.tensor(v) for name, v in artifact.weights.items()})
    with torch.no_grad():
        computed["torch"] = model(torch.tensor(ids), torch.tensor(lengths)).softmax(-1).numpy()
    for program, probabilities in computed.items():
        np.testing.assert_allclose(probabilities, computed["onnx"], atol=1e-5, err_msg=program)


@settings(max_examples=25)
@given(st.one_of(networks(), others), lengths_of_batches, st.integers(1, 70), st.data())
def test_padding_batch_mates_and_order_change_nothing(artifact, lengths, extra, data):
    sentences = sentences_of(lengths)
    session = open_session(onnx_bytes(artifact))
    ids, counts = sentences.padded(np.arange(len(sentences)))
    padding = data.draw(st.integers(0, VOCABULARY - 1))
    padded = np.pad(ids, [(0, 0), (0, extra)], constant_values=padding)
    together = run_onnx(session, sentences)
    (wider,) = session.run(None, {"ids": padded[::-1], "lengths": counts[::-1]})
    alone = [run_onnx(session, sentences.select(np.array([i]))) for i in range(len(sentences))]
    np.testing.assert_allclose(wider[::-1], together, atol=1e-6)
    np.testing.assert_allclose(np.concatenate(alone), together, atol=1e-6)


@pytest.mark.parametrize("dtype", STORED_DTYPES)
@settings(max_examples=15)
@given(st.one_of(networks(), others), lengths_of_batches)
def test_smaller_weights_are_those_of_a_folder_of_that_dtype(dtype, artifact, lengths):
    weights = unpack(pack(artifact.weights, dtype))
    assert_same(replace(artifact, weights=weights, dtype=dtype), sentences_of(lengths))


@pytest.mark.parametrize("config", [DCNNConfig(dim=8, k_top=3), MaxTDNNConfig(dim=5), NBoWConfig()])
def test_an_empty_batch_has_no_probabilities(config):
    session = open_session(onnx_bytes(make_artifact(config, classes=CLASSES)))
    for words in (1, 9):
        inputs = {"ids": np.zeros((0, words), np.int64), "lengths": np.zeros(0, np.int64)}
        (probabilities,) = session.run(["probabilities"], inputs)
        assert probabilities.shape == (0, 3)


def test_no_words_are_one_unknown_word_as_an_empty_text_is():
    artifact = make_artifact()
    session = open_session(onnx_bytes(artifact))
    ids, lengths = np.zeros((2, 3), np.int64), np.array([0, 1])
    (empty, unknown) = session.run(None, {"ids": ids, "lengths": lengths})[0]
    np.testing.assert_array_equal(empty, unknown)
    np.testing.assert_allclose(empty, Predictor(artifact).probabilities([""])[0], atol=1e-6)


def test_rows_that_are_folded_stand_side_by_side():
    config = DCNNConfig(dim=8, widths=(4, 3), maps=(1, 1), k_top=2)
    below, middle, top = (order.tolist() for order in row_orders(config))
    assert (below, middle, top) == ([0, 4, 2, 6, 1, 5, 3, 7], [0, 2, 1, 3], [0, 1])
