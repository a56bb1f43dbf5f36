"""Exporting: what is written, what is refused, and that nothing half-done is left."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest

from dcnn import __version__
from dcnn import artifact as model_folder
from dcnn.artifact import pack, unpack
from dcnn.config import DCNNConfig, NBoWConfig
from dcnn.errors import DcnnError, UserError
from dcnn.export import check_against_model, decided_by_rounding, export, format_of, onnx_bytes
from dcnn.predictor import Predictor
from untrained import make_artifact


@pytest.fixture
def model(tmp_path, artifact):
    model_folder.save(tmp_path / "model", artifact)
    return tmp_path / "model"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_name_says_the_format(tmp_path, model):
    assert format_of(tmp_path / "a.ONNX") == "onnx"
    assert format_of(tmp_path / "a") == "folder"
    assert export(model, tmp_path / "a.onnx").format == "onnx"
    assert export(model, tmp_path / "b", format="onnx").path.is_file()
    assert export(model, tmp_path / "c.onnx", format="folder").path.is_dir()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_folder_of_any_dtype_predicts_what_its_onnx_file_says(tmp_path, model, dtype):
    folder = export(str(model), str(tmp_path / "small"), dtype)
    file = export(Predictor.load(model), tmp_path / "small.onnx", dtype)
    assert (folder.dtype, file.dtype) == (dtype, dtype)
    assert file.difference is not None
    assert file.difference <= 1e-5
    assert folder.size == sum(path.stat().st_size for path in folder.path.iterdir())
    check_against_model(file.path.read_bytes(), model_folder.load(folder.path))


def test_the_file_says_what_the_model_is(tmp_path, model, artifact):
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


def test_what_is_there_is_replaced_only_when_asked(tmp_path, model):
    for out in (tmp_path / "m.onnx", tmp_path / "small"):
        export(model, out)
        with pytest.raises(UserError, match="exists; pass --overwrite"):
            export(model, out, "int8")
        assert export(model, out, "int8", overwrite=True).dtype == "int8"
    assert names(tmp_path) == ["m.onnx", "model", "small"]
    assert model_folder.load(tmp_path / "small").dtype == "int8"


def test_a_folder_may_take_its_own_place(model, artifact):
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


def test_rounding_excuses_a_few_sentences_and_not_all(artifact, monkeypatch):
    monkeypatch.setattr("dcnn.export.decided_by_rounding", lambda *_: True)
    with pytest.raises(DcnnError, match="differs from the model"):
        check_against_model(onnx_bytes(make_artifact(seed=1)), artifact)


def test_a_graph_whose_answer_is_no_number_is_not_the_model(artifact):
    broken = replace(
        artifact, weights=artifact.weights | {"head.bias": np.array([np.nan, 0], np.float32)}
    )
    with pytest.raises(DcnnError, match="differs from the model by inf"):
        check_against_model(onnx_bytes(broken), artifact)


@pytest.mark.parametrize("out", ["m.onnx", "small"])
def test_a_value_too_large_for_half_precision_is_named(tmp_path, artifact, out):
    weights = artifact.weights | {"head.bias": np.array([7e4, 0], np.float32)}
    for dtype in ("float16", "int8"):
        with pytest.raises(UserError, match=r"'head.bias' holds values up to 7e\+04"):
            export(replace(artifact, weights=weights), tmp_path / out, dtype)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"out": "a.onnx", "dtype": "int4"}, "dtype='int4' must be one of float32, float16, int8"),
        ({"out": "a.onnx", "format": "tflite"}, "format='tflite' must be one of onnx, folder"),
        ({"out": "no/a.onnx"}, "there is no folder no; make it"),
        ({"out": "model", "format": "onnx"}, "model is a folder; name a file"),
        ({"out": "file"}, "file exists and is not just a model folder"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_model_is_read(
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


def test_the_paper_s_network_of_sst_weighs_less_than_a_megabyte(tmp_path):
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


def test_rounding_decides_where_a_kept_value_hardly_differs_from_a_dropped_one():
    config = DCNNConfig(dim=1, widths=(1,), maps=(1,), k_top=1, fold=False)
    artifact = make_artifact(config)
    embeddings = artifact.weights["embeddings"].copy()
    embeddings[:4, 0] = [1, 1 + 3e-7, 2, 1]
    weights = artifact.weights | {
        "embeddings": embeddings,
        "layers.0.filters": np.ones((1, 1, 1, 1), np.float32),
    }
    artifact = replace(artifact, weights=weights)
    assert decided_by_rounding(artifact, np.array([0, 1]))
    assert not decided_by_rounding(artifact, np.array([0, 1, 2]))
    assert not decided_by_rounding(artifact, np.array([0, 3]))  # equal: the leftmost, by rule
    assert not decided_by_rounding(artifact, np.array([0]))
    assert not decided_by_rounding(make_artifact(NBoWConfig(dim=2)), np.array([0, 1]))


def test_what_was_loaded_is_stored_the_same_again(tmp_path, artifact):
    first = export(artifact, tmp_path / "first", "int8").path
    second = export(first, tmp_path / "second", "int8").path
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    expected = unpack(pack(artifact.weights, "int8"))
    for name, values in model_folder.load(second).weights.items():
        np.testing.assert_array_equal(values, expected[name])
