import pytest
import torch

from dcnn.config import DCNNConfig, TrainingConfig
from dcnn.models import build_model
from dcnn.training.adagrad import (
    WeightAverage,
    decay_embeddings,
    make_optimizer,
    reset_accumulators,
    set_learning_rate,
)

CONFIG = DCNNConfig(dim=8, widths=(4, 3, 2), maps=(2, 2, 2), k_top=2)
TRAINING = TrainingConfig(
    learning_rate=0.1, l2_embeddings=1e-1, l2_filters=(1e-2, 1e-3), l2_head=1e-4, eps=1e-6
)


@pytest.fixture
def model():
    model = build_model(CONFIG, 5, 2)
    model.initialize(torch.Generator().manual_seed(0))
    return model


def decays(optimizer, model):
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        names[parameter]: group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


def test_each_group_has_its_own_l2_term_and_biases_none(model):
    assert decays(make_optimizer(model, TRAINING), model) == {
        "embeddings": 1e-1,
        "layers.0.filters": 1e-2,
        "layers.1.filters": 1e-3,
        "layers.2.filters": 1e-3,
        "head.weight": 1e-4,
        "layers.0.bias": 0,
        "layers.1.bias": 0,
        "layers.2.bias": 0,
        "head.bias": 0,
    }


def test_a_step_is_adagrads(model):
    optimizer = make_optimizer(model, TRAINING)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    model(torch.tensor([[1, 2, 3]]), torch.tensor([3])).square().sum().backward()
    optimizer.step()
    for name, value in model.named_parameters():
        gradient = value.grad + decays(optimizer, model)[name] * before[name]
        expected = before[name] - 0.1 * gradient / (gradient.square().sqrt() + 1e-6)
        torch.testing.assert_close(value.detach(), expected)


def test_accumulators_start_again_from_zero(model):
    optimizer = make_optimizer(model, TRAINING)
    model(torch.tensor([[1]]), torch.tensor([1])).sum().backward()
    optimizer.step()
    assert optimizer.state[model.head.weight]["sum"].any()
    reset_accumulators(optimizer)
    assert not any(state["sum"].any() for state in optimizer.state.values())


@pytest.mark.parametrize(("schedule", "rate"), [("constant", 0.1), ("linear", 0.075)])
def test_the_schedule_at_a_quarter(model, schedule, rate):
    config = TrainingConfig(learning_rate=0.1, schedule=schedule)
    optimizer = make_optimizer(model, config)
    set_learning_rate(optimizer, config, 0.25)
    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates == [pytest.approx(rate)] * len(rates)


def test_embeddings_decay_by_a_share_of_the_current_rate(model):
    config = TrainingConfig(learning_rate=0.1, schedule="linear", decay_embeddings=0.2)
    optimizer = make_optimizer(model, config)
    before, top = model.embeddings.detach().clone(), model.head.weight.detach().clone()
    set_learning_rate(optimizer, config, progress=0.5)
    decay_embeddings(model, optimizer, config)
    torch.testing.assert_close(model.embeddings.detach(), before * (1 - 0.05 * 0.2))
    assert torch.equal(model.head.weight, top)


def test_the_average_follows_the_weights(model):
    average = WeightAverage(model, decay=0.5)
    start = model.head.weight.detach().clone()
    with torch.no_grad():
        model.head.weight.add_(1)
    average.update(model)  # early decay is 2 / 11
    torch.testing.assert_close(average.weights["head.weight"], start + 9 / 11)
    for _ in range(60):
        average.update(model)
    torch.testing.assert_close(average.weights["head.weight"], model.head.weight.detach())
