"""The model folder: what is written is read back, and whatever is wrong is named."""

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn import artifact as model_folder
from dcnn.artifact import unpack
from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig
from dcnn.errors import ModelFolderError, UserError
from dcnn.text.tokenizer import UNPRINTABLE
from untrained import make_artifact


@pytest.fixture
def folder(tmp_path, artifact):
    path = tmp_path / "model"
    model_folder.save(path, artifact)
    return path


def assert_equal(first, second):
    assert (first.config, first.classes, first.encoder) == (
        second.config,
        second.classes,
        second.encoder,
    )
    assert (first.metadata, first.dtype) == (second.metadata, second.dtype)
    assert first.weights.keys() == second.weights.keys()
    for name in first.weights:
        np.testing.assert_array_equal(first.weights[name], second.weights[name])


configs = st.one_of(
    st.builds(
        DCNNConfig,
        dim=st.sampled_from([4, 8]),
        widths=st.tuples(st.integers(3, 6), st.integers(1, 4)),
        maps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        k_top=st.integers(1, 3),
        fold=st.booleans(),
    ),
    st.builds(MaxTDNNConfig, dim=st.integers(1, 6), width=st.integers(1, 6)),
    st.builds(NBoWConfig, dim=st.integers(1, 6)),
)
printable = st.text().filter(lambda label: not UNPRINTABLE.search(label))
labels = st.one_of(
    st.lists(printable, min_size=2, max_size=5, unique=True),
    st.lists(st.integers(), min_size=2, max_size=5, unique=True),
    st.just([False, True]),
)


@settings(max_examples=40)
@given(configs, labels)
def test_saving_and_loading_is_the_identity(tmp_path_factory, config, classes):
    original = make_artifact(config, classes=classes)
    path = tmp_path_factory.mktemp("identity") / "model"
    model_folder.save(path, original)
    assert_equal(model_folder.load(path), original)


def test_a_folder_holds_four_files_and_no_pickle(folder):
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["README.md", "config.json", "model.safetensors", "tokenizer.json"]
    card = (folder / "README.md").read_text()
    assert "`neg`, `pos`" in card
    assert "| dev_accuracy | 0.5 |" in card
    assert "| model.widths | [4, 3] |" in card


def test_the_path_of_the_vectors_is_not_stored(tmp_path, artifact):
    import dataclasses

    text = dataclasses.replace(artifact.config.text, vectors="/some/where/glove.txt")
    config = dataclasses.replace(artifact.config, text=text)
    model_folder.save(tmp_path / "model", dataclasses.replace(artifact, config=config))
    for name in ("config.json", "README.md"):
        assert "some/where" not in (tmp_path / "model" / name).read_text()
    assert model_folder.load(tmp_path / "model").config.text.vectors == "glove.txt"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ModelFolderError, match=f"not a complete model folder: {name} is missing"):
        model_folder.load(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("keep", [0, 0.3, 0.9])
def test_a_truncated_file_is_named(folder, name, keep):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(keep * len(content))])
    with pytest.raises(ModelFolderError, match=f"{name} is damaged"):
        model_folder.load(folder)


def edit(folder, **changes):
    path = folder / "config.json"
    values = json.loads(path.read_text())
    for key, value in changes.items():
        section, _, name = key.rpartition("__")
        (values[section] if section else values)[name] = value
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 5}, "format_version=5 is newer than 4"),
        ({"dtype": None}, "dtype=None must be one of float32, float16, int8"),
        ({"format_version": "1"}, "format_version='1' must be a whole number"),
        ({"model__dim": 16}, "'embeddings' has shape"),
        ({"model__maps": [2, 4]}, "'layers.1.filters' has shape"),
        ({"model__kind": "nbow"}, "unknown setting"),
        ({"model__dim": 7}, "dim=7 cannot be folded"),
        ({"classes": ["a"]}, "classes must be a list of two or more distinct labels"),
        ({"classes": ["a", "a"]}, "classes must be a list of two or more distinct labels"),
        ({"classes": [1, "1"]}, "classes must be a list of two or more distinct labels"),
        ({"classes": [1.5, math.nan]}, "finite numbers or booleans"),
        ({"classes": ["a", math.inf]}, "finite numbers or booleans"),
        ({"classes": ["a", "\ud83d"]}, "strings without control characters"),
        ({"classes": ["a", "\x1b[31mb"]}, "strings without control characters"),
        ({"classes": ["a", "b\u202e"]}, "strings without control characters"),
        ({"model__widths": [4] * 20_000}, "widths has 20000 values, and a network has at most 32"),
        ({"classes": ["a", "b", "c"]}, "'head.weight' has shape"),
        ({"vocabulary_size": 99}, "has 16 ids where config.json says 99"),
        ({"vocabulary_size": None}, "vocabulary_size=None must be 1 or more"),
        ({"metadata": 3}, "metadata must be an object"),
        ({"surprise": {}}, "unknown setting 'surprise'"),
    ],
)
def test_a_config_that_does_not_fit_is_explained(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(ModelFolderError) as error:
        model_folder.load(folder)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("head.bias"), "the weights 'head.bias' are missing"),
        (lambda w: w.update(extra=np.zeros(3, np.float32)), "unknown weights extra"),
        (lambda w: w.update({"head.bias": np.zeros(5, np.float32)}), "'head.bias' has shape (5,)"),
        (lambda w: w.update({"head.bias": np.zeros(2)}), "dtype F64"),
        (
            lambda w: w.update({"head.bias": np.array([0, -2e15], np.float32)}),
            "'head.bias' holds values that are not finite or beyond 1e+15",
        ),
        (
            lambda w: w.update({"head.bias": np.float32([0, np.nan])}),
            "'head.bias' holds values that",
        ),
    ],
)
def test_weights_that_do_not_fit_are_explained(folder, artifact, change, message):
    weights = dict(artifact.weights)
    change(weights)
    (folder / "model.safetensors").write_bytes(safetensors.numpy.save(weights))
    with pytest.raises(ModelFolderError) as error:
        model_folder.load(folder)
    assert message in str(error.value)


def stored(folder):
    return safetensors.numpy.load((folder / "model.safetensors").read_bytes())


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@settings(max_examples=15)
@given(configs)
def test_smaller_weights_are_loaded_as_they_were_stored(tmp_path_factory, dtype, config):
    original = replace(make_artifact(config), dtype=dtype)
    path = tmp_path_factory.mktemp("small") / "model"
    model_folder.save(path, original)
    loaded = model_folder.load(path)
    assert_equal(loaded, replace(original, weights=unpack(stored(path))))
    model_folder.save(path, loaded, overwrite=True)
    assert_equal(model_folder.load(path), loaded)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("embeddings.scale"), "the weights 'embeddings.scale' are missing"),
        (
            lambda w: w.update({"embeddings.scale": w["embeddings.scale"][1:]}),
            "'embeddings.scale' has shape (15,)",
        ),
        (
            lambda w: w.update({"embeddings": w["embeddings"].astype(np.float16)}),
            "dtype F16 where config.json asks for (16, 8) and I8:",
        ),
        (
            lambda w: w.update({"embeddings.scale": w["embeddings.scale"].astype(np.float32)}),
            "dtype F32 where config.json asks for (16,) and F16",
        ),
        (lambda w: w["embeddings.scale"].fill(np.inf), "must hold finite numbers of 0 or more"),
        (lambda w: w["embeddings.scale"].fill(-1), "must hold finite numbers of 0 or more"),
        (lambda w: w["embeddings"].fill(-128), "'embeddings' must hold whole numbers from -127"),
        (lambda w: w["head.bias"].fill(np.nan), "'head.bias' holds values that are not finite"),
    ],
)
def test_small_weights_that_do_not_fit_are_explained(tmp_path, artifact, change, message):
    folder = tmp_path / "model"
    model_folder.save(folder, replace(artifact, dtype="int8"))
    weights = stored(folder)
    change(weights)
    (folder / "model.safetensors").write_bytes(safetensors.numpy.save(weights))
    with pytest.raises(ModelFolderError) as error:
        model_folder.load(folder)
    assert message in str(error.value)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", ["int8"]])
def test_a_dtype_that_is_not_that_of_the_weights_is_explained(tmp_path, artifact, dtype):
    model_folder.save(tmp_path / "model", replace(artifact, dtype="int8"))
    edit(tmp_path / "model", dtype=dtype)
    with pytest.raises(ModelFolderError, match=r"asks for \(16, 8\) and F|dtype=.* must be one of"):
        model_folder.load(tmp_path / "model")


def test_config_json_has_version_and_dtype(tmp_path, artifact):
    for dtype in ("float32", "float16", "int8"):
        model_folder.save(tmp_path / dtype, replace(artifact, dtype=dtype))
        values = json.loads((tmp_path / dtype / "config.json").read_text())
        assert (values["format_version"], values["dtype"]) == (4, dtype)
        card = (tmp_path / dtype / "README.md").read_text()
        assert (f"Weights: {dtype}" in card) == (dtype != "float32")


def test_a_header_with_huge_shapes_allocates_nothing(folder):
    header = {"embeddings": {"dtype": "F32", "shape": [2**40, 8], "data_offsets": [0, 2**45]}}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(ModelFolderError, match=r"model\.safetensors is damaged"):
        model_folder.load(folder)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ModelFolderError, match="gone: no such model folder"):
        model_folder.load(tmp_path / "gone")


def test_saving_replaces_a_model_as_a_whole(folder):
    other = make_artifact(NBoWConfig(dim=3), seed=1)
    with pytest.raises(UserError, match="exists; pass --overwrite"):
        model_folder.save(folder, other)
    model_folder.save(folder, other, overwrite=True)
    assert_equal(model_folder.load(folder), other)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_failed_write_leaves_the_old_model_and_no_temporary_files(folder, artifact):
    # The limit on the size of a file makes a real write fail half-way, as a full disk does.
    script = (
        "import resource, sys; from pathlib import Path; from dcnn import artifact, errors\n"
        "path = Path(sys.argv[1]); model = artifact.load(path)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: artifact.save(path, model, overwrite=True)\n"
        "except errors.StorageError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("COV")},  # it writes too
    )
    assert "could not be written (File too large); nothing was changed" in done.stdout
    assert_equal(model_folder.load(folder), artifact)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_only_a_model_folder_is_ever_replaced(tmp_path, folder):
    model_folder.check_destination(tmp_path / "new", overwrite=False)
    model_folder.check_destination(folder, overwrite=True)
    with pytest.raises(UserError, match="exists; pass --overwrite"):
        model_folder.check_destination(folder, overwrite=False)
    precious = tmp_path / "precious"
    precious.mkdir()
    model_folder.check_destination(precious, overwrite=True)
    (precious / "thesis.txt").write_text("years of work")
    shutil.copy(precious / "thesis.txt", tmp_path / "file")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.json").write_text('{"model_type": "bert"}')
    (folder / "thesis.txt").write_text("years of work")
    for place in (precious, tmp_path / "file", foreign, folder):
        with pytest.raises(UserError, match="is not just a model folder, so it is left alone"):
            model_folder.save(place, make_artifact(), overwrite=True)
    with pytest.raises(UserError, match="is no place for a model folder"):
        model_folder.check_destination(Path("/"), overwrite=True)
