"""Exporting: ONNX computes what the model computes, and what is written, refused and left alone."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn import __version__
from dcnn import artifact as model_folder
from dcnn.artifact import STORED_DTYPES, pack, unpack
from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig
from dcnn.errors import DcnnError, UserError
from dcnn.export import export, format_of
from dcnn.export.onnx import (
    check_against_model,
    decided_by_rounding,
    onnx_bytes,
    open_session,
    row_orders,
    run_onnx,
)
from dcnn.ops import select as backends
from dcnn.ops.reference import softmax
from dcnn.predictor import Predictor
from dcnn.serve import Limits
from dcnn.serve.app import make_app
from dcnn.serve.models import ServedModel
from dcnn.text.vocabulary import Sentences
from networks import build_model
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


def with_integer_weights(artifact):
    """The same network with weights from -1 to 1: sums are exact, and many are equal."""
    rounded = {name: np.rint(value).clip(-1, 1) for name, value in artifact.weights.items()}
    return replace(artifact, weights=rounded)


def onnx_probabilities(artifact, sentences):
    return run_onnx(open_session(onnx_bytes(artifact)), artifact.encoder, sentences)


def assert_same(artifact, sentences):
    expected = softmax(Predictor(artifact).logits(sentences))
    differences = np.abs(onnx_probabilities(artifact, sentences) - expected).max(axis=1)
    for index in np.flatnonzero(~(differences <= 1e-5)):
        ids = sentences.select(np.array([index])).ids
        assert decided_by_rounding(artifact, Sentences.from_lists([ids.tolist()])), (
            len(ids),
            differences[index],
        )


@settings(max_examples=60)
@given(networks(), lengths_of_batches, st.integers(0, 99))
def test_onnx_equals_the_model(artifact, lengths, seed):
    assert_same(artifact, sentences_of(lengths, seed=seed))


@settings(max_examples=20)
@given(others, lengths_of_batches)
def test_onnx_equals_the_model_for_max_tdnn_and_nbow(artifact, lengths):
    assert_same(artifact, sentences_of(lengths))


@settings(max_examples=30)
@given(networks(most_layers=1), lengths_of_batches)  # above it sums of tanh are rounded
def test_onnx_keeps_the_leftmost_of_equal_values(artifact, lengths):
    exact = with_integer_weights(artifact)
    sentences = sentences_of(lengths, words=4)
    expected = softmax(Predictor(exact).logits(sentences))
    np.testing.assert_allclose(onnx_probabilities(exact, sentences), expected, atol=1e-5)


def texts_from_1_to_200_words():
    words = [*VOCABULARY_TEXT.split(), "xyzzy"]
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(words, length)) for length in range(1, 201)]


def over_http(artifact, texts):
    app = make_app([ServedModel("model", Predictor(artifact))], Limits())
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
    computed = {"onnx": onnx_probabilities(artifact, sentences)}
    for name in ("reference", "native"):
        monkeypatch.setenv(backends.VARIABLE, name)
        computed[name] = softmax(Predictor(artifact).logits(sentences))
        computed[f"HTTP, {name}"] = over_http(artifact, texts)
    monkeypatch.setenv(backends.VARIABLE, "torch")
    model = build_model(config, VOCABULARY, len(CLASSES)).eval()
    model.load_state_dict({name: torch.tensor(v) for name, v in artifact.weights.items()})
    with torch.no_grad():
        computed["torch"] = model(torch.tensor(ids), torch.tensor(lengths)).softmax(-1).numpy()
    for backend, probabilities in computed.items():
        np.testing.assert_allclose(probabilities, computed["onnx"], atol=1e-5, err_msg=backend)


@settings(max_examples=25)
@given(st.one_of(networks(), others), lengths_of_batches, st.integers(1, 70), st.data())
def test_onnx_ignores_padding_batch_and_order(artifact, lengths, extra, data):
    sentences = sentences_of(lengths)
    session = open_session(onnx_bytes(artifact))
    ids, counts = sentences.padded(np.arange(len(sentences)))
    padding = data.draw(st.integers(0, VOCABULARY - 1))
    padded = np.pad(ids, [(0, 0), (0, extra)], constant_values=padding)
    together = run_onnx(session, artifact.encoder, sentences)
    (wider,) = session.run(None, {"ids": padded[::-1], "lengths": counts[::-1]})
    alone = [
        run_onnx(session, artifact.encoder, sentences.select(np.array([i])))
        for i in range(len(sentences))
    ]
    np.testing.assert_allclose(wider[::-1], together, atol=1e-6)
    np.testing.assert_allclose(np.concatenate(alone), together, atol=1e-6)


@pytest.mark.parametrize("dtype", STORED_DTYPES)
@settings(max_examples=15)
@given(st.one_of(networks(), others), lengths_of_batches)
def test_onnx_of_a_smaller_dtype_equals_the_folder_of_that_dtype(dtype, artifact, lengths):
    weights = unpack(pack(artifact.weights, dtype))
    assert_same(replace(artifact, weights=weights, dtype=dtype), sentences_of(lengths))


@pytest.mark.parametrize("config", [DCNNConfig(dim=8, k_top=3), MaxTDNNConfig(dim=5), NBoWConfig()])
def test_onnx_takes_an_empty_batch(config):
    session = open_session(onnx_bytes(make_artifact(config, classes=CLASSES)))
    for words in (1, 9):
        inputs = {"ids": np.zeros((0, words), np.int64), "lengths": np.zeros(0, np.int64)}
        (probabilities,) = session.run(["probabilities"], inputs)
        assert probabilities.shape == (0, 3)


def test_length_0_is_one_unknown_word_as_an_empty_text():
    artifact = make_artifact()
    session = open_session(onnx_bytes(artifact))
    ids, lengths = np.zeros((2, 3), np.int64), np.array([0, 1])
    (empty, unknown) = session.run(None, {"ids": ids, "lengths": lengths})[0]
    np.testing.assert_array_equal(empty, unknown)
    np.testing.assert_allclose(empty, Predictor(artifact).probabilities([""])[0], atol=1e-6)


def test_rows_that_are_folded_are_neighbours():
    config = DCNNConfig(dim=8, widths=(4, 3), maps=(1, 1), k_top=2)
    below, middle, top = (order.tolist() for order in row_orders(config))
    assert (below, middle, top) == ([0, 4, 2, 6, 1, 5, 3, 7], [0, 2, 1, 3], [0, 1])


@pytest.fixture
def model(tmp_path, artifact):
    model_folder.save(tmp_path / "model", artifact)
    return tmp_path / "model"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_suffix_decides_the_format(tmp_path, model):
    assert format_of(tmp_path / "a.ONNX") == "onnx"
    assert format_of(tmp_path / "a.html") == "html"
    assert format_of(tmp_path / "a") == "folder"
    assert export(model, tmp_path / "a.onnx").format == "onnx"
    assert export(model, tmp_path / "b", format="onnx").path.is_file()
    assert export(model, tmp_path / "c.onnx", format="folder").path.is_dir()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_folder_of_any_dtype_predicts_what_its_onnx_file_predicts(tmp_path, model, dtype):
    folder = export(str(model), str(tmp_path / "small"), dtype)
    file = export(Predictor.load(model), tmp_path / "small.onnx", dtype)
    assert (folder.dtype, file.dtype) == (dtype, dtype)
    assert file.difference is not None
    assert file.difference <= 1e-5
    assert folder.size == sum(path.stat().st_size for path in folder.path.iterdir())
    check_against_model(file.path.read_bytes(), model_folder.load(folder.path))


def test_the_file_has_metadata_and_free_axes(tmp_path, model, artifact):
    file = onnx.load(export(artifact, tmp_path / "m.onnx", "int8").path)
    props = {prop.key: prop.value for prop in file.metadata_props}
    assert json.loads(props["classes"]) == ["neg", "pos"]
    assert props["dcnn_version"] == __version__
    assert (props["dtype"], props["kind"], props["vocabulary_size"]) == ("int8", "dcnn", "16")
    tokenizer = (model / "tokenizer.json").read_bytes()
    assert props["tokenizer_sha256"] == hashlib.sha256(tokenizer).hexdigest()
    inputs = {value.name: value.type.tensor_type for value in file.graph.input}
    assert [inputs.keys(), file.graph.output[0].name] == [{"ids", "lengths"}, "probabilities"]
    free = [dim.dim_param for dim in inputs["ids"].shape.dim]
    assert free == ["batch", "length"]
    assert file.producer_name == "dcnn"


def test_an_existing_export_is_replaced_only_with_overwrite(tmp_path, model):
    for out in (tmp_path / "m.onnx", tmp_path / "small"):
        export(model, out)
        with pytest.raises(UserError, match="exists; pass --overwrite"):
            export(model, out, "int8")
        assert export(model, out, "int8", overwrite=True).dtype == "int8"
    assert names(tmp_path) == ["m.onnx", "model", "small", "tokenize_text.py", "tokenizer.json"]
    assert model_folder.load(tmp_path / "small").dtype == "int8"


def test_a_folder_can_be_replaced_by_its_own_export(model, artifact):
    export(model, model, "float16", overwrite=True)
    loaded = model_folder.load(model)
    assert loaded.dtype == "float16"
    np.testing.assert_array_equal(
        loaded.weights["embeddings"], artifact.weights["embeddings"].astype(np.float16)
    )


def test_a_graph_that_differs_from_the_model_is_not_written(tmp_path, artifact, monkeypatch):
    other = onnx_bytes(make_artifact(seed=1))
    monkeypatch.setattr("dcnn.export.onnx_bytes", lambda _: other)
    with pytest.raises(DcnnError, match=r"differs from the model by .* so nothing was written"):
        export(artifact, tmp_path / "m.onnx")
    assert names(tmp_path) == []
    (tmp_path / "m.onnx").write_text("older")
    with pytest.raises(DcnnError, match="differs"):
        export(artifact, tmp_path / "m.onnx", overwrite=True)
    assert (tmp_path / "m.onnx").read_text() == "older"


def test_rounding_excuses_only_a_few_sentences(artifact, monkeypatch):
    monkeypatch.setattr("dcnn.export.onnx.decided_by_rounding", lambda *_: True)
    with pytest.raises(DcnnError, match="differs from the model"):
        check_against_model(onnx_bytes(make_artifact(seed=1)), artifact)


def test_a_graph_that_gives_nan_is_refused(artifact):
    broken = replace(
        artifact, weights=artifact.weights | {"head.bias": np.array([np.nan, 0], np.float32)}
    )
    with pytest.raises(DcnnError, match="differs from the model by inf"):
        check_against_model(onnx_bytes(broken), artifact)


@pytest.mark.parametrize("out", ["m.onnx", "small"])
def test_a_value_too_large_for_float16_is_named(tmp_path, artifact, out):
    weights = artifact.weights | {"head.bias": np.array([7e4, 0], np.float32)}
    for dtype in ("float16", "int8"):
        with pytest.raises(UserError, match=r"'head.bias' holds values up to 7e\+04"):
            export(replace(artifact, weights=weights), tmp_path / out, dtype)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"out": "a.onnx", "dtype": "int4"}, "dtype='int4' must be one of float32, float16, int8"),
        (
            {"out": "a.onnx", "format": "tflite"},
            "format='tflite' must be one of onnx, html, folder",
        ),
        ({"out": "no/a.onnx"}, "there is no folder no; create it"),
        ({"out": "model", "format": "onnx"}, "model is a folder; name a file"),
        ({"out": "file"}, "file exists and is not just a model folder"),
    ],
)
def test_mistakes_are_found_before_the_model_is_read(
    tmp_path, model, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("years of work")
    with pytest.raises(UserError) as error:
        export("gone", **arguments)
    assert message in str(error.value)
    assert names(tmp_path) == ["file", "model"]


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_a_missing_extra_is_named_with_its_install_command(tmp_path, model, missing):
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from dcnn.__main__ import main\n"
        "sys.argv = ['dcnn', 'export', 'model', '--out', sys.argv[1]]; main()"
    )

    def run(out):
        command = [sys.executable, "-c", script, out]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    done = run("m.onnx")
    assert done.returncode == 2
    assert "needs the extra 'onnx': pip install 'dcnn[onnx]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert names(tmp_path) == ["model"]
    assert run("folder").returncode == 0  # a folder needs neither


def test_the_sst_network_in_int8_is_below_a_megabyte(tmp_path):
    small = make_artifact(DCNNConfig())
    words = [f"w{number:07}" for number in range(15_447)]  # longer than those of SST on average
    encoder = type(small.encoder)(small.encoder.tokenizer, type(small.encoder.vocabulary)(words))
    shape = (len(encoder.vocabulary), 48)
    weights = small.weights | {
        "embeddings": np.random.default_rng(0).normal(0, 0.1, shape).astype(np.float32)
    }
    artifact = replace(small, encoder=encoder, weights=weights)
    sizes = [export(artifact, tmp_path / d, d).size for d in ("float32", "float16", "int8")]
    assert sizes[2] < 1e6 < sizes[1] < sizes[0]


def test_rounding_decides_between_almost_equal_values():
    config = DCNNConfig(dim=1, widths=(1,), maps=(1,), k_top=1, fold=False)
    artifact = make_artifact(config)
    embeddings = artifact.weights["embeddings"].copy()
    embeddings[:4, 0] = [1, 1 + 3e-7, 2, 1]
    weights = artifact.weights | {
        "embeddings": embeddings,
        "layers.0.filters": np.ones((1, 1, 1, 1), np.float32),
    }
    artifact = replace(artifact, weights=weights)
    assert decided_by_rounding(artifact, Sentences.from_lists([[0, 1]]))
    assert not decided_by_rounding(artifact, Sentences.from_lists([[0, 1, 2]]))
    assert not decided_by_rounding(
        artifact, Sentences.from_lists([[0, 3]])
    )  # equal: the leftmost, by rule
    assert not decided_by_rounding(artifact, Sentences.from_lists([[0]]))
    assert not decided_by_rounding(make_artifact(NBoWConfig(dim=2)), Sentences.from_lists([[0, 1]]))


def test_exporting_an_export_changes_nothing(tmp_path, artifact):
    first = export(artifact, tmp_path / "first", "int8").path
    second = export(first, tmp_path / "second", "int8").path
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    expected = unpack(pack(artifact.weights, "int8"))
    for name, values in model_folder.load(second).weights.items():
        np.testing.assert_array_equal(values, expected[name])
