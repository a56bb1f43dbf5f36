"""The update of all parameters in two kernels against the same update in torch operations."""

import pytest
import torch

from dcnn.config import TrainingConfig
from dcnn.training.adagrad import StackedAdagrad

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytest.importorskip("triton")

SHAPES = {"embeddings": (1500, 2), "layers.0.filters": (5, 7), "head.bias": (1,)}
CONFIGS = [
    TrainingConfig(max_grad_norm=0.5, decay_embeddings=0.1, l2_embeddings=0.2, l2_head=0.3),
    TrainingConfig(max_grad_norm=0, schedule="linear", learning_rate=0.3, eps=1e-3),
]


@pytest.mark.parametrize("ema", [0.9, 0.0], ids=["average", "no average"])
def test_three_steps_equal_the_separate_operations(ema):
    configs = [CONFIGS[0], TrainingConfig(**(CONFIGS[1].__dict__ | {"ema": ema}))]
    ends = []
    for backend in ("triton", "torch"):
        generator = torch.Generator().manual_seed(0)

        def draw(shape, generator=generator):
            return torch.randn(2, *shape, generator=generator).to(DEVICE)

        weights = {name: draw(shape) for name, shape in SHAPES.items()}
        before = {name: value.clone() for name, value in weights.items()}
        optimizer = StackedAdagrad(weights, configs)
        optimizer._backend = backend
        for step in range(3):
            gradients = {name: draw(shape) for name, shape in SHAPES.items()}
            optimizer.step(gradients, torch.tensor([0.1, 0.2], device=DEVICE) * step)
        assert all(not torch.equal(weights[name], value) for name, value in before.items())
        ends.append((weights, optimizer._sums, optimizer.evaluated()))
    for fused, plain in zip(*ends, strict=True):
        for name, value in fused.items():
            torch.testing.assert_close(value, plain[name], rtol=1e-5, atol=1e-6)


def test_a_gradient_of_nothing_moves_nothing_and_one_that_is_no_number_shows():
    weights = {"head.bias": torch.ones(2, 3).to(DEVICE)}
    optimizer = StackedAdagrad(weights, [CONFIGS[0], CONFIGS[0]])
    optimizer._backend = "triton"
    gradient = torch.zeros(2, 3)
    gradient[1, 0] = torch.nan
    optimizer._l2["head.bias"].zero_()
    optimizer.step({"head.bias": gradient.to(DEVICE)}, torch.zeros(2, device=DEVICE))
    assert weights["head.bias"][0].tolist() == [1, 1, 1]
    assert weights["head.bias"][1].isnan().all()  # the norm is none, so no step can be right
