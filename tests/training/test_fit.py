import numpy as np
import pytest
import torch

from dcnn.config import DEFAULT, MIN_UPDATES, Config, DCNNConfig, NBoWConfig, TextConfig
from dcnn.data.labels import number_labels
from dcnn.errors import ConfigError, TrainingStoppedError, UserError
from dcnn.metrics import evaluate
from dcnn.ops.select import for_training
from dcnn.predictor import Predictor
from dcnn.text.encoder import Encoder
from dcnn.training import fit as fit_module
from dcnn.training.callbacks import Callback
from dcnn.training.fit import RunOptions, fit, make_model

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
        artifact.embed(artifact.encoder.encode_all([word]).ids)[0] / scale
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


def test_the_backend_of_other_networks_is_torch(caplog):
    caplog.set_level("INFO", "dcnn")
    config = Config(model=NBoWConfig(dim=4)).with_training(epochs=1)
    artifact, _ = fit(DATA, None, config, RunOptions(device="cpu"))
    assert artifact.metadata["backend"] == "torch"
    assert "training on cpu with the torch backend" in caplog.text


def test_all_that_torch_computes_has_the_threads_of_the_run(monkeypatch):
    found, stored_logits = [], fit_module._stored_logits

    def watched(*given):
        found.append(torch.get_num_threads())
        return stored_logits(*given)

    monkeypatch.setattr(fit_module, "_stored_logits", watched)
    before = torch.get_num_threads()
    options = RunOptions(device="cpu", threads=before + 1, out_of_scope_texts=["no film"])
    config = Config(model=NBoWConfig(dim=4)).with_training(epochs=1)
    fit(DATA, DATA, config, options)
    assert found == [before + 1] * 2
    assert torch.get_num_threads() == before


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


SUBJECTS = ["film", "plot", "story", "cast", "music", "end", "scene", "idea"]
SIXTEEN = number_labels(
    [f"a {word} {subject}" for subject in SUBJECTS for word in ("good", "bad")], ["pos", "neg"] * 8
)
CPU = RunOptions(device="cpu")


def test_sixteen_examples_are_all_learned_and_cross_validated(caplog):
    caplog.set_level("INFO", "dcnn")
    artifact, summary = fit(SIXTEEN, None, DEFAULT, CPU)
    metadata, stored = artifact.metadata, artifact.config.training
    assert metadata["examples"] == {"train": 16, "dev": 0}
    assert metadata["cross_validation"] == {"folds": 5, "scored_folds": 5, "examples": 16}
    assert metadata["abstention"]["data"] == "5 folds of the training set"
    assert metadata["dev_accuracy"] == summary.dev_accuracy == 1
    assert summary.epochs == stored.epochs == MIN_UPDATES
    assert (stored.dev_fraction, stored.folds, stored.auto) == (0, 5, ())
    assert "settings for 16 examples: training.epochs=120, training.patience=40" in caplog.text
    assert metadata["calibration"]["temperature"] != 1
    predictor = Predictor(artifact)
    assert [one.label for one in predictor.predict(SIXTEEN.texts)] == SIXTEEN.labels
    again, _ = fit(SIXTEEN, None, DEFAULT, CPU)
    for name, value in artifact.weights.items():
        np.testing.assert_array_equal(value, again.weights[name])


def test_folds_are_cross_validated_until_enough_examples_are_scored(monkeypatch):
    monkeypatch.setattr("dcnn.training.fit.ENOUGH_SCORED", 7)
    artifact, summary = fit(SIXTEEN, None, DEFAULT, CPU)  # folds of 4, 3, 3, 3 and 3
    found = artifact.metadata["cross_validation"]
    assert found == {"folds": 5, "scored_folds": 2, "examples": 7}
    assert artifact.metadata["abstention"]["data"] == "2 of 5 folds of the training set"
    assert artifact.metadata["examples"]["train"] == 16
    assert summary.dev_accuracy == 1


def test_the_cross_validation_does_not_score_what_it_learned():
    """Labels that nothing predicts: networks that had seen them would know them by heart."""
    texts = [f"word{number} name{number} thing{number}" for number in range(24)]
    artifact, summary = fit(number_labels(texts, ["a", "b"] * 12), None, DEFAULT, CPU)
    assert summary.dev_accuracy < 0.8
    assert artifact.metadata["calibration"]["temperature"] > 2


def test_a_label_with_one_example_is_learned_and_not_scored():
    data = number_labels([*SIXTEEN.texts, "what a view"], [*SIXTEEN.labels, "other"])
    artifact, _ = fit(data, None, DEFAULT, CPU)
    assert artifact.metadata["cross_validation"]["examples"] == 16
    assert Predictor(artifact).predict(["what a view"])[0].label == "other"


def test_two_texts_are_enough_to_train_on():
    artifact, summary = fit(number_labels(["good", "bad"], ["pos", "neg"]), None, DEFAULT, CPU)
    assert summary.dev_accuracy is None
    assert "calibration" not in artifact.metadata
    assert Predictor(artifact).predict(["bad"])[0].label == "neg"


def test_thresholds_of_few_examples_come_from_the_folds():
    sets = [["pos", "film"] if "film" in text else ["pos"] for text in SIXTEEN.texts]
    data = number_labels(SIXTEEN.texts, sets, multi_label=True)
    artifact, summary = fit(data, None, DEFAULT, CPU)
    assert artifact.metadata["dev_micro_f1"] == summary.dev_micro_f1 > 0.5
    assert artifact.thresholds != (0.5, 0.5)


def test_a_dev_set_of_few_examples_is_used():
    artifact, summary = fit(SIXTEEN, SIXTEEN, DEFAULT, CPU)
    assert "cross_validation" not in artifact.metadata
    assert len(summary.history) == summary.epochs
    assert artifact.config.training.folds == 0


def test_a_cross_validation_stops_when_asked_to():
    class AfterTheRun(Callback):
        reports = 0

        def on_report(self, report):
            self.reports += 1
            self.stop = report.epoch == report.epochs

    callback = AfterTheRun()
    with pytest.raises(TrainingStoppedError):
        fit(SIXTEEN, None, DEFAULT, RunOptions(device="cpu", callback=callback))
    assert callback.reports == MIN_UPDATES  # none of a fold


def test_only_the_buckets_that_occur_count_as_weights():
    config = DEFAULT.with_settings(["model.dim=1000", "text.n_buckets=2000000"])
    encoder, _ = Encoder.learn(["good film", "bad film"], config.text)
    assert make_model(config, encoder, 2).ngrams.shape[0] < 100


def test_a_run_does_not_go_on_with_other_out_of_scope_texts(tmp_path):
    """Their n-grams are among those of the network."""

    def run(texts, resume):
        options = {"device": "cpu", "checkpoint_path": tmp_path / "checkpoint", "resume": resume}
        fit(SIXTEEN, None, DEFAULT, RunOptions(**options, out_of_scope_texts=texts))

    run(["elsewhere"], resume=False)
    run(["elsewhere"], resume=True)
    with pytest.raises(UserError, match="belongs to another run: data was"):
        run(["elsewise"], resume=True)
