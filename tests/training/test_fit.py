import numpy as np
import pytest
import torch

from dcnn.config import Config, DCNNConfig, TextConfig
from dcnn.data.labels import number_labels
from dcnn.errors import ConfigError
from dcnn.metrics import evaluate
from dcnn.ops.select import for_training
from dcnn.predictor import Predictor
from dcnn.training.fit import RunOptions, fit

NETWORK = DCNNConfig(dim=4, widths=(4, 3), maps=(2, 2), k_top=2)
DATA = number_labels(["good film", "bad film"] * 4, ["pos", "neg"] * 4)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_pretrained_vectors_are_where_the_embeddings_start(tmp_path, scale):
    path = tmp_path / "vectors.txt"
    path.write_text("good 1 2 3 4\nbad -1 -2 -3 -4\nunseen 5 6 7 8\n")
    config = Config(TextConfig(vectors=str(path), vectors_scale=scale, vectors_words=10), NETWORK)
    # So small a rate that the vectors are still there after training.
    config = config.with_training(epochs=1, learning_rate=1e-9)
    artifact, _ = fit(DATA, None, config, RunOptions(device="cpu"))
    good, film, bad, unseen = (
        artifact.weights["embeddings"][artifact.encoder.encode(word)[0]] / scale
        for word in ("good", "film", "bad", "unseen")
    )
    np.testing.assert_allclose(good, [1, 2, 3, 4], atol=1e-5)
    np.testing.assert_allclose(bad, [-1, -2, -3, -4], atol=1e-5)
    np.testing.assert_allclose(unseen, [5, 6, 7, 8], atol=1e-5)
    assert np.abs(film).max() < 0.9  # no vector: the initial values


def test_a_network_beyond_all_memory_is_refused():
    config = Config(model=DCNNConfig(dim=2**29))
    with pytest.raises(ConfigError, match=r"this network would have .* weights"):
        fit(DATA, None, config, RunOptions(device="cpu"))


def test_a_gpu_that_is_not_there_is_said_so():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match="no GPU can be used; take auto or cpu"):
        fit(DATA, None, Config(model=NETWORK), RunOptions(device="cuda"))


def test_the_facts_say_what_was_used():
    artifact, summary = fit(
        DATA, DATA, Config(model=NETWORK).with_training(epochs=2), RunOptions(device="cpu")
    )
    assert artifact.metadata["examples"] == {"train": 8, "dev": 8}
    assert artifact.metadata["backend"] == for_training("cpu")
    assert artifact.metadata["device"] == "cpu"
    assert artifact.metadata["dev_accuracy"] == summary.dev_accuracy


def test_the_temperature_is_in_the_weights_and_changes_no_label():
    config = Config(model=NETWORK).with_training(epochs=3)
    classes, texts = ["neg", "pos"], ["good film", "bad film", "film", "good", "bad bad film"]
    plain, _ = fit(DATA, DATA, config.with_training(calibrate=False), RunOptions(device="cpu"))
    fitted, _ = fit(DATA, DATA, config, RunOptions(device="cpu"))
    found = fitted.metadata["calibration"]
    assert "calibration" not in plain.metadata
    assert found["temperature"] != 1
    sentences = plain.encoder.encode_all(texts)
    np.testing.assert_allclose(
        Predictor(fitted).logits(sentences) * found["temperature"],
        Predictor(plain).logits(sentences),
        rtol=1e-4,
        atol=1e-5,
    )
    scores = [evaluate(DATA.targets, Predictor(one).probabilities(DATA.texts), classes)
              for one in (plain, fitted)]  # fmt: skip
    assert [one.calibration_error for one in scores] == pytest.approx(
        [found["error_before"], found["error_after"]], abs=1e-5
    )


def test_without_a_dev_set_there_is_no_temperature():
    artifact, _ = fit(DATA, None, Config(model=NETWORK), RunOptions(device="cpu"))
    assert "calibration" not in artifact.metadata
