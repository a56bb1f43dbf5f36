"""A projection of pretrained vectors that all words learn together, and the table it ends as."""

import numpy as np
import pytest
import torch
from torch.func import functional_call

from dcnn import artifact as model_folder
from dcnn.config import Config, DCNNConfig, MaxTDNNConfig, NBoWConfig, TextConfig
from dcnn.data.batching import Examples
from dcnn.data.labels import number_labels
from dcnn.errors import ConfigError, DataError, UserError
from dcnn.predictor import Predictor
from dcnn.text.vectors import WordVectors
from dcnn.text.vocabulary import Sentences
from dcnn.training.batches import RunSpec
from dcnn.training.fit import RunOptions, fit, initialize, make_model
from dcnn.training.trainer import Trainer
from networks import encoder_of, train

NETWORK = DCNNConfig(dim=4, widths=(4, 3), maps=(2, 2), k_top=2, dropout=0.0)
VOCABULARY, CLASSES = 9, 2
VECTORS = WordVectors(
    "vectors", np.array([1, 2, 5, 7]), np.random.default_rng(3).normal(1, 2, (4, 6)).astype("f4")
)
ENCODER = encoder_of(VOCABULARY)
EXAMPLES = Examples(
    Sentences.from_lists([[1, 3, 2], [5, 3], [3, 5, 4, 1], [2, 2, 6]]), np.array([0, 1, 1, 0])
)


def projecting(model=NETWORK, **training) -> Config:
    text = TextConfig(vectors="vectors", vectors_scale=0.5, vectors_projection=0.1)
    return Config(text, model).with_training(word_dropout=0.0, **training)


def started(config: Config):
    model = make_model(config, ENCODER, CLASSES, VECTORS)
    initialize(model, config, VECTORS)
    return model


def table_of(model) -> np.ndarray:
    return model.merged(model.state_dict())["embeddings"].numpy()


def test_it_starts_from_the_values_that_plain_embeddings_start_from():
    config = projecting()
    plain = Config(TextConfig(vectors="vectors", vectors_scale=0.5), NETWORK)
    np.testing.assert_allclose(table_of(started(config)), table_of(started(plain)), atol=1e-6)


@pytest.mark.parametrize("network", [NETWORK, MaxTDNNConfig(dim=4, width=3), NBoWConfig(dim=4)])
def test_merged_weights_are_the_same_function_in_a_plain_network(network):
    config = projecting(network, epochs=2)
    model = started(config)
    train(model, EXAMPLES, None, config.training)
    ids, lengths = torch.tensor([[1, 3, 7, 8], [5, 2, 0, 0]]), torch.tensor([4, 2])
    plain = make_model(Config(model=network), ENCODER, CLASSES)
    weights = model.merged(model.state_dict())
    assert weights.keys() == dict(plain.named_parameters()).keys()
    with torch.no_grad():
        expected = model(ids, lengths)
        torch.testing.assert_close(functional_call(plain, weights, (ids, lengths)), expected)


def test_words_that_training_never_shows_come_along():
    config = projecting(epochs=3, l2_embeddings=0.0, l2_projection=0.0)
    model = started(config)
    before = table_of(model)
    train(model, EXAMPLES, None, config.training)
    moved = np.abs(table_of(model) - before).max(axis=1)
    assert moved[7] > 1e-3  # has a vector
    assert moved[8] == 0  # has none


def test_a_larger_share_of_the_rate_moves_the_projection_further():
    def way(share: float) -> float:
        text = TextConfig(vectors="vectors", vectors_projection=share)
        config = Config(text, NETWORK).with_training(
            epochs=1, batch_size=4, eps=1e-12, l2_embeddings=0.0, l2_projection=0.0
        )
        model = started(config)
        before = table_of(model)
        train(model, EXAMPLES, None, config.training)
        return float(np.abs(table_of(model) - before)[7].mean())

    # One step of Adagrad goes as far as the rate says, whatever the gradient's size.
    assert way(0.1) / way(0.01) == pytest.approx(10, rel=0.02)


def test_l2_of_the_projection_shrinks_it():
    def size(l2: float) -> float:
        config = projecting(epochs=4, l2_projection=l2)
        model = started(config)
        train(model, EXAMPLES, None, config.training)
        return float(model.projection.detach().square().sum())

    assert size(1.0) < 0.95 * size(0.0)


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_a_run_beside_others_trains_it_as_a_single_run_does(backend, monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", backend)
    config = projecting(epochs=2, batch_size=4)
    model = started(config)
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    train(model, EXAMPLES, None, config.training)
    specs = [RunSpec(config.training, weights)] * 2
    trainer = Trainer(started(config), EXAMPLES, specs)
    trainer.train()
    for name, value in trainer.weights_of(1).items():
        alone = model.merged(model.state_dict())[name]
        np.testing.assert_allclose(value, alone, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_resumed_run_continues_with_the_projection_it_had():
    config = projecting(epochs=2, batch_size=2)
    trainers = [Trainer(started(config), EXAMPLES, [RunSpec(config.training)]) for _ in range(2)]
    trainers[0].step()
    arrays, progress = trainers[0].snapshot()
    trainers[1].restore({name: value.copy() for name, value in arrays.items()}, progress)
    for trainer in trainers:
        trainer.step()
    assert torch.equal(*(trainer.runs.model.projection for trainer in trainers))


def test_a_model_folder_holds_a_plain_table(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("good 1 2 3 4 5\nbad -1 -2 -3 -4 1\nunseen 5 6 7 8 2\n")
    text = TextConfig(vectors=str(path), vectors_projection=0.1, vectors_words=10)
    data = number_labels(["good film", "bad film"] * 4, ["pos", "neg"] * 4)
    config = Config(text, NETWORK).with_training(epochs=2)
    artifact, _ = fit(data, None, config, RunOptions(device="cpu"))
    model_folder.save(tmp_path / "model", artifact)
    path.unlink()  # the model has no need of it any more
    loaded = Predictor.load(tmp_path / "model")
    assert loaded.artifact.weights.keys() == NETWORK.parameter_shapes(1, 2).keys()
    texts = ["unseen film", "good", "bad"]
    np.testing.assert_array_equal(
        loaded.probabilities(texts), Predictor(artifact).probabilities(texts)
    )


def test_a_run_does_not_go_on_with_other_vectors(tmp_path):
    path, checkpoint = tmp_path / "vectors.txt", tmp_path / "checkpoint"
    path.write_text("good 1 2 3 4 5\nbad -1 -2 -3 -4 1\n")
    text = TextConfig(vectors=str(path), vectors_projection=0.1)
    data = number_labels(["good film", "bad film"] * 4, ["pos", "neg"] * 4)
    config = Config(text, NETWORK).with_training(epochs=2)

    def run(resume: bool) -> None:
        options = {"device": "cpu", "checkpoint_path": checkpoint, "resume": resume}
        fit(data, None, config, RunOptions(**options))

    run(resume=False)
    run(resume=True)
    path.write_text("good 2 2 3 4 5\nbad -1 -2 -3 -4 1\n")
    with pytest.raises(UserError, match=r"belongs to another run: data was .*with --overwrite"):
        run(resume=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vectors_projection": 0.1}, "needs vectors; name their file in text.vectors"),
        ({"vectors_words": 5}, "vectors_words=5 needs vectors; name their file in text.vectors"),
        ({"vectors": "v.txt", "vectors_projection": 1.5}, "must be from 0 to 1"),
    ],
)
def test_a_projection_that_cannot_be_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        TextConfig(**settings)


def test_vectors_that_are_all_the_same_are_refused():
    same = WordVectors("same.txt", np.array([1, 2]), np.full((2, 6), 3, np.float32))
    with pytest.raises(DataError, match="all numbers are the same"):
        make_model(projecting(), ENCODER, CLASSES, same)
