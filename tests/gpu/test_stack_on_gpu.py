"""A stack on a GPU (fused layer, CUDA graphs, one-pass Adagrad) learns what it learns on a CPU."""

import numpy as np
import pytest
import torch

from dcnn.config import DCNNConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.models import build_model
from dcnn.text.vocabulary import Sentences
from dcnn.training.stack import RunSpec, Stack

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@pytest.mark.parametrize("members", [1, 2])
def test_losses_and_weights_are_those_of_the_cpu(n_ensemble):
    generator = np.random.default_rng(0)
    sentences = [generator.integers(1, 50, generator.integers(1, 12)).tolist() for _ in range(200)]
    examples = Examples(
        Sentences.from_lists(sentences), np.array([sentence[0] % 2 for sentence in sentences])
    )
    network = DCNNConfig(dim=8, dropout=0)
    losses, weights = [], []
    for device in ("cpu", "cuda"):
        model = build_model(network, 50, 2)
        model.divide(n_ensemble)
        model.initialize(torch.Generator().manual_seed(0))
        initial = {name: value.detach().clone() for name, value in model.named_parameters()}
        # One batch an epoch, so that the order, which is drawn on the device, does not matter.
        configs = [
            TrainingConfig(epochs=12, batch_size=256, word_dropout=0, ema=0.9),
            TrainingConfig(epochs=12, batch_size=256, word_dropout=0, learning_rate=0.05),
        ]
        stack = Stack(model, examples, [RunSpec(config, initial) for config in configs], device)
        reports = []
        stack.train(report=lambda report, reports=reports: reports.append(report.losses))
        losses.append(reports)
        weights.append({name: value.cpu() for name, value in stack.kept.items()})
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], rtol=1e-3, atol=1e-4)
