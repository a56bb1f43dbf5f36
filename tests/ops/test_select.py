"""Which backend computes: the best there is, or the one that is forced."""

import pytest
import torch

from dcnn.errors import ConfigError
from dcnn.ops import native, torch_backend
from dcnn.ops import select as backends
from dcnn.ops.select import choose_layer
from dcnn.predictor import Predictor
from untrained import make_artifact

CPU = torch.device("cpu")
X = torch.zeros(1, 1, 2, 3)


@pytest.fixture
def compiled(monkeypatch):
    monkeypatch.delenv("DCNN_BACKEND", raising=False)
    if not native.available():
        pytest.skip(native.reason())


@pytest.fixture
def not_compiled(monkeypatch, tmp_path):
    monkeypatch.delenv("DCNN_BACKEND", raising=False)
    monkeypatch.setattr(native, "library_path", lambda: tmp_path / "_native.so")
    native._load.cache_clear()
    yield
    native._load.cache_clear()


def test_native_is_taken_for_float32_on_a_cpu(compiled):
    from dcnn.ops import native_torch as native_backend

    assert choose_layer(X) is native_backend.layer
    assert choose_layer(X.double()) is torch_backend.layer
    assert backends.for_training("cpu") == "native"
    assert backends.for_prediction() == "native"
    assert backends.why_not_native("cpu") == ""
    assert Predictor(make_artifact()).backend == "native"


def test_without_it_torch_trains_and_numpy_predicts(not_compiled):
    assert choose_layer(X) is torch_backend.layer
    assert backends.for_training("cpu") == "torch"
    assert "the native one is not available, it was not compiled" in backends.why_not_native("cpu")
    predictor = Predictor(make_artifact())
    assert predictor.backend == "reference"
    assert predictor.predict(["not good"])[0].label in ("neg", "pos")


def test_torch_and_the_reference_can_be_forced(compiled, monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", "torch")
    assert choose_layer(X) is torch_backend.layer
    assert Predictor(make_artifact()).backend == "reference"
    monkeypatch.setenv("DCNN_BACKEND", "reference")
    assert Predictor(make_artifact()).backend == "reference"
    with pytest.raises(ValueError, match="DCNN_BACKEND=reference has no gradients"):
        choose_layer(X)


def test_a_forced_backend_that_is_missing_is_an_error(not_compiled, monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", "native")
    message = "DCNN_BACKEND=native is forced, but it is not available: it was not compiled"
    with pytest.raises(RuntimeError, match=message):
        choose_layer(X)
    with pytest.raises(ConfigError, match=message):
        Predictor(make_artifact())


@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        ("triton", "cpu", "DCNN_BACKEND=triton computes on cuda; the device is cpu"),
        ("native", "cuda", "DCNN_BACKEND=native computes on cpu; the device is cuda"),
        ("fast", "cpu", "DCNN_BACKEND='fast' must be one of auto, reference, torch, native"),
    ],
)
def test_a_forced_backend_of_no_use_is_an_error(monkeypatch, name, device, message):
    monkeypatch.setenv("DCNN_BACKEND", name)
    with pytest.raises(ValueError, match=message):
        backends.for_training(device)


def test_the_command_line_names_a_backend_that_is_not_there(dcnn, tmp_path, monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", "fast")
    (tmp_path / "train.csv").write_text("text,label\ngood,pos\nbad,neg\n" * 5)
    for arguments in (["train", "train.csv", "--out", "model"], ["demo"]):
        finished = dcnn(*arguments)
        assert finished.code == 2
        assert "DCNN_BACKEND='fast' must be one of" in finished.err
