"""Runs on a GPU (fused layers, CUDA graphs, one-pass Adagrad) learn what they learn on a CPU."""

import numpy as np
import pytest
import torch

from dcnn.config import DCNNConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.errors import TrainingStoppedError
from dcnn.text.vocabulary import Sentences
from dcnn.training.batches import RunSpec
from dcnn.training.callbacks import Callback
from dcnn.training.resident import ResidentBatches
from dcnn.training.trainer import Checkpoint, Trainer
from networks import build_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


class Losses(Callback):
    def __init__(self):
        self.losses = []

    def on_report(self, report):
        self.losses.append(report.losses)


def make_examples():
    generator = np.random.default_rng(0)
    sentences = [generator.integers(1, 50, generator.integers(1, 12)).tolist() for _ in range(200)]
    targets = np.array([sentence[0] % 2 for sentence in sentences])
    return Examples(Sentences.from_lists(sentences), targets)


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("n_ensemble", [1, 2])
def test_losses_and_weights_are_those_of_the_cpu(n_ensemble, runs):
    examples = make_examples()
    network = DCNNConfig(dim=8, dropout=0)
    losses, weights = [], []
    for device in ("cpu", "cuda"):
        model = build_model(network, 50, 2)
        model.n_ensemble = n_ensemble
        model.initialize(torch.Generator().manual_seed(0))
        initial = {name: value.detach().clone() for name, value in model.named_parameters()}
        # One batch per epoch, so that the order, which is drawn on the device, does not matter.
        configs = [
            TrainingConfig(epochs=12, batch_size=256, word_dropout=0, ema=0.9),
            TrainingConfig(epochs=12, batch_size=256, word_dropout=0, learning_rate=0.05),
        ]
        specs = [RunSpec(config, initial) for config in configs[:runs]]
        callback = Losses()
        trainer = Trainer(model, examples, specs, examples, device=device, callback=callback)
        assert isinstance(trainer.runs.batches, ResidentBatches) == (device == "cuda" or runs > 1)
        trainer.train()
        losses.append(callback.losses)
        weights.append(
            {name: value.cpu() for name, value in trainer.runs.optimizer.evaluated().items()}
        )
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], rtol=1e-3, atol=1e-4)


class Stopped(Callback):
    """Stops after a few steps."""

    def on_step(self, progress):
        self.stop = progress.step >= 50


@pytest.mark.parametrize("multi_label", [False, True])
def test_a_resumed_run_continues_where_it_was(tmp_path, multi_label):
    examples = make_examples()
    if multi_label:
        examples = Examples(examples.sentences, np.eye(2, dtype=np.int64)[examples.targets])
    config = TrainingConfig(epochs=8, batch_size=16, word_dropout=0.1, ema=0.9, patience=0)
    ends = []
    for stops in (False, True):
        model = build_model(DCNNConfig(dim=8), 50, 2)
        model.initialize(torch.Generator().manual_seed(0))
        settings = {"device": "cuda", "multi_label": multi_label}
        trainer = Trainer(model, examples, [RunSpec(config)], examples, **settings)
        checkpoint = Checkpoint(tmp_path / "checkpoint", {})
        if stops:
            trainer.callback = Stopped()
            with pytest.raises(TrainingStoppedError):
                trainer.train(checkpoint)
            model = build_model(DCNNConfig(dim=8), 50, 2)
            trainer = Trainer(model, examples, [RunSpec(config)], examples, **settings)
            (summary,) = trainer.train(Checkpoint(checkpoint.path, {}, resume=True))
            assert trainer.state.step == 8 * 13
        else:
            (summary,) = trainer.train()
        assert (trainer.runs.device.type, summary.epochs) == ("cuda", 8)
        ends.append({name: value.cpu() for name, value in trainer.runs.weights.items()})
    # The kernels add gradients up in any order, so a resumed run is the same up to rounding, which
    # grows where a weight's first gradient is next to nothing.
    for name, value in ends[0].items():
        assert float((value - ends[1][name]).abs().mean()) < 0.01, name
