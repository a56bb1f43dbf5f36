"""The one-pass update against the same update in torch operations."""

import numpy as np
import pytest
import torch
from torch.optim import Adagrad

from dcnn.config import DCNNConfig, TrainingConfig
from dcnn.models import build_model
from dcnn.ops import native
from dcnn.training import native_adagrad, stack_adagrad
from dcnn.training.optimizer import clip_gradients, make_optimizer

pytestmark = pytest.mark.skipif(not native.available(), reason="not compiled")


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 1500), (1, 1)])
@pytest.mark.parametrize("averages", [True, False])
@pytest.mark.parametrize("name", native.INSTRUCTION_SETS)
def test_one_pass_equals_the_separate_operations(shape, averages, name):
    generator = torch.Generator().manual_seed(0)
    value, gradient, average = (torch.randn(shape, generator=generator) for _ in range(3))
    total = torch.rand(shape, generator=generator)
    scalars = [torch.rand(shape[0], generator=generator) for _ in range(6)]
    updated = []
    before = native.instruction_set()
    try:
        native.use_instruction_set(name)
    except ValueError:
        pytest.skip(f"this machine has no {name}")
    for update in (native_adagrad.update, stack_adagrad.update):
        state = [value.clone(), total.clone(), average.clone() if averages else None]
        update(state[0], gradient.clone(), state[1], state[2], scalars)
        updated.append(state)
    native.use_instruction_set(before)
    for fused, plain in zip(*updated, strict=True):
        if fused is not None:
            torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)
    assert not torch.equal(updated[0][0], value)


def test_many_steps_are_those_of_torchs_optimizer(monkeypatch):
    config = TrainingConfig(l2_embeddings=1e-1, l2_filters=(1e-2, 1e-3), l2_top=1e-4)
    weights = []
    for name, kind in (("native", native_adagrad.NativeAdagrad), ("torch", Adagrad)):
        monkeypatch.setenv("DCNN_BACKEND", name)
        model = build_model(DCNNConfig(dim=8, widths=(4, 3), maps=(2, 2), k_top=2), 5, 2)
        model.initialize(torch.Generator().manual_seed(0))
        optimizer = make_optimizer(model, config)
        assert type(optimizer) is kind
        generator = torch.Generator().manual_seed(1)
        for _ in range(20):
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            optimizer.step()
        weights.append([p.detach().clone() for p in model.parameters()])
        sums = [optimizer.state[p]["sum"].clone() for p in model.parameters()]
        weights[-1] += sums
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_numbers_too_small_to_matter_become_zero():
    tiny = torch.full((64,), 1e-42)  # below the smallest normal number
    total = torch.zeros(64)
    native_adagrad.update(
        tiny[None], torch.zeros(1, 64), total[None], None,
        [torch.tensor([scalar]) for scalar in (1.0, 0.0, 0.1, 1.0, 1e-6, 0.0)],
    )  # fmt: skip
    assert not tiny.any()
    # The processor's mode is as it was: numpy still has such numbers.
    assert (np.full(4, 1e-38, np.float32) * np.float32(1e-3)).all()


def test_other_than_dense_float32_is_refused():
    scalars = [torch.ones(1)] * 6
    double = torch.zeros(1, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match="a dense float32 tensor is needed; got torch"):
        native_adagrad.update(double, double, double, None, scalars)


@pytest.mark.parametrize(("largest", "factor"), [(1.0, 0.2), (5.0, 1.0), (100.0, 1.0)])
def test_gradients_are_clipped_down_and_never_up(largest, factor):
    model = build_model(DCNNConfig(), 10, 2)
    model.initialize(torch.Generator().manual_seed(0))
    optimizer = make_optimizer(model, TrainingConfig())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    model.top.bias.grad[:] = torch.tensor([3.0, 4.0])
    assert float(clip_gradients(model, optimizer, largest)) == pytest.approx(5)
    assert optimizer.clip == pytest.approx(factor, rel=1e-5)
    optimizer.step()
    sums = optimizer.state[model.top.bias]["sum"]
    np.testing.assert_allclose(sums, [(3 * factor) ** 2, (4 * factor) ** 2], rtol=1e-5)
    assert optimizer.clip == 1  # of that step alone
