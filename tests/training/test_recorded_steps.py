"""Steps that are recorded and replayed, as on a GPU, train what steps that just run train.

A CUDA graph reads and writes the memory that its recording saw, and recording runs nothing. Here a
replay runs the function again, and checks that it still finds everything in the same memory.
"""

import numpy as np
import pytest
import torch

from dcnn.config import DCNNConfig, MaxTDNNConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.errors import TrainingStoppedError
from dcnn.text.vocabulary import Sentences
from dcnn.training import torch_runs
from dcnn.training.batches import RunSpec
from dcnn.training.callbacks import Callback
from dcnn.training.trainer import Checkpoint, Trainer
from networks import build_model

VOCABULARY, CLASSES = 20, 3
# Of all kinds of state: sums of Adagrad and their resets, averages, kept weights, random numbers.
CONFIG = TrainingConfig(
    epochs=4, batch_size=8, word_dropout=0, ema=0.9, reset_every=2, patience=0, learning_rate=0.1
)
NETWORKS = [
    DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=2, dropout=0.5),
    MaxTDNNConfig(dim=4, width=3),
]


def make_examples(count, seed):
    generator = np.random.default_rng(seed)
    sentences = [
        generator.integers(1, VOCABULARY, generator.integers(1, 12)).tolist() for _ in range(count)
    ]
    targets = np.array([sentence[0] % CLASSES for sentence in sentences])
    return Examples(Sentences.from_lists(sentences), targets)


EXAMPLES, DEV = make_examples(40, 0), make_examples(30, 9)


def memory(runs):
    """The addresses of what a step reads and writes."""
    batches, optimizer = runs.batches, runs.optimizer
    tensors = [*runs.weights.values(), *optimizer.sums.values(), *optimizer.averages.values()]
    tensors += [optimizer.steps, runs._loss_sum, runs._norms, batches.cursor]
    tensors += [batches.order, batches.place_weights, batches.progress]
    return [tensor.data_ptr() for tensor in tensors]


@pytest.fixture
def recording(monkeypatch):
    """Makes a ``TorchRuns`` on a CPU record; returns the number of replays so far."""
    replays = []

    class Recorded:
        def __init__(self, function, generator=None, pool=None):
            self.function, self.results = function, function()
            self.before = None

        def __call__(self):
            replays.append(self)
            self.before = self.before or memory(self.runs)
            assert memory(self.runs) == self.before
            found = self.function()
            if self.results is None:
                return None
            for old, new in zip(self.results, found, strict=True):
                old.copy_(new)
            return self.results

    def start(trainer):
        Recorded.runs = trainer.runs
        trainer.runs._records = True
        return replays

    monkeypatch.setattr(torch_runs, "ReplayedCall", Recorded)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setenv("DCNN_BACKEND", "torch")
    # Also of a single run, whose examples would stay on the host without a GPU.
    monkeypatch.setattr(torch_runs.TorchRuns, "_fits", lambda *_: True)
    return start


def new_trainer(network, runs=1, callback=None):
    model = build_model(network, VOCABULARY, CLASSES)
    specs = [RunSpec(CONFIG)]
    if runs > 1:
        weights = {name: value.detach().clone() for name, value in model.named_parameters()}
        specs = [RunSpec(CONFIG, weights), RunSpec(CONFIG, weights, subset=np.arange(30))]
    return Trainer(model, EXAMPLES, specs, DEV, callback=callback)


def trained(trainer, checkpoint=None):
    summaries = trainer.train(checkpoint)
    runs = trainer.runs
    return [summary.history for summary in summaries], runs.weights | {
        f"kept {name}": value for name, value in runs.kept.items()
    }


def assert_same(found, expected):
    for one, other in zip(found[0], expected[0], strict=True):
        assert [record.dev_accuracy for record in one] == [record.dev_accuracy for record in other]
        losses = [[record.loss for record in history] for history in (one, other)]
        np.testing.assert_allclose(*losses, rtol=1e-5)
    for name, value in found[1].items():
        torch.testing.assert_close(value, expected[1][name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.kind)
def test_recorded_steps_train_the_same_weights(network, runs, recording):
    expected = trained(new_trainer(network, runs))
    trainer = new_trainer(network, runs)
    replays = recording(trainer)
    found = trained(trainer)
    steps, evaluations = CONFIG.epochs * 5, CONFIG.epochs + 1  # one when it was recorded
    assert len(replays) == steps + evaluations
    assert_same(found, expected)


class Stop(Callback):
    def on_step(self, progress):
        self.stop = progress.step == 12  # in the middle of an epoch


def test_a_resumed_run_records_again_and_ends_the_same(recording, tmp_path):
    expected = trained(new_trainer(NETWORKS[0]))
    checkpoint = Checkpoint(tmp_path / "checkpoint", {})
    stopped = new_trainer(NETWORKS[0], callback=Stop())
    recording(stopped)
    with pytest.raises(TrainingStoppedError):
        stopped.train(checkpoint)
    resumed = new_trainer(NETWORKS[0])
    recording(resumed)
    assert_same(trained(resumed, Checkpoint(checkpoint.path, {}, resume=True)), expected)
