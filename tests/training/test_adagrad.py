"""Adagrad's rule, and that every backend computes the same."""

import os
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from dcnn.config import DCNNConfig, TrainingConfig
from dcnn.ops import native, native_torch, native_training
from dcnn.training.adagrad import Adagrad
from networks import build_model

CONFIG = DCNNConfig(dim=8, widths=(4, 3, 2), maps=(2, 2, 2), k_top=2)
TRAINING = TrainingConfig(
    learning_rate=0.1, l2_embeddings=1e-1, l2_filters=(1e-2, 1e-3), l2_head=1e-4, eps=1e-6
)
PLAIN = TrainingConfig(
    l2_embeddings=0, l2_filters=(0,), l2_head=0, max_grad_norm=0, learning_rate=0.1
)
GPU = torch.cuda.is_available()
compiled = pytest.mark.skipif(not native.available(), reason="not compiled")


@pytest.fixture(params=["torch", pytest.param("native", marks=compiled)])
def backend(request, monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", request.param)
    return request.param


def draw(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def take_step(optimizer, gradients, progress=0.0):
    """A step of a single run, with ``gradients`` without the axis of runs."""
    given = [gradients]
    if optimizer.backend != "native":
        given = {name: value.to_dense()[None] for name, value in gradients.items()}
    return optimizer.step(given, torch.tensor([progress], dtype=torch.float64))


def test_each_parameter_has_its_own_l2_term_and_biases_none():
    model = build_model(CONFIG, 5, 2)
    assert {name: TRAINING.l2_of(name) for name, _ in model.named_parameters()} == {
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


def test_steps_are_those_of_torchs_optimizer(backend):
    shapes = {"embeddings": (7, 3), "layers.0.filters": (2, 5), "head.weight": (4,)}
    weights = {name: draw((1, *shape)) for name, shape in shapes.items()}
    expected = {name: torch.nn.Parameter(value[0].clone()) for name, value in weights.items()}
    groups = [
        {"params": [value], "weight_decay": TRAINING.l2_of(name)}
        for name, value in expected.items()
    ]
    reference = torch.optim.Adagrad(groups, lr=0.1, eps=1e-6)
    optimizer = Adagrad(weights, [TRAINING])
    assert optimizer.backend == backend
    for step in range(20):
        gradients = {name: draw(shape, step) for name, shape in shapes.items()}
        largest = TRAINING.max_grad_norm or np.inf
        norm = torch.cat([value.ravel() for value in gradients.values()]).norm()
        for name, value in expected.items():
            value.grad = gradients[name] * min(1, largest / float(norm))
        reference.step()
        take_step(optimizer, gradients)
    for name, value in expected.items():
        torch.testing.assert_close(weights[name][0], value.detach(), rtol=1e-4, atol=1e-5)


def test_reset_runs_forget_their_gradients_and_others_do_not():
    weights = {"head.bias": torch.zeros(2, 3)}
    optimizer = Adagrad(weights, [PLAIN] * 2)
    optimizer.sums["head.bias"].fill_(1)
    optimizer.reset([1])
    assert optimizer.sums["head.bias"].tolist() == [[1] * 3, [0] * 3]


@pytest.mark.parametrize(("schedule", "rate"), [("constant", 0.1), ("linear", 0.075)])
def test_the_schedule_at_a_quarter(backend, schedule, rate):
    config = TrainingConfig(**PLAIN.__dict__ | {"schedule": schedule})
    weights = {"head.bias": torch.zeros(1, 3)}
    take_step(Adagrad(weights, [config]), {"head.bias": torch.full((3,), 2.0)}, 0.25)
    # The first step of Adagrad goes as far as the learning rate, whatever the gradient.
    torch.testing.assert_close(weights["head.bias"], torch.full((1, 3), -rate), rtol=1e-5, atol=0)


def test_embeddings_decay_by_a_share_of_the_current_rate(backend):
    settings = {"schedule": "linear", "decay_embeddings": 0.2}
    config = TrainingConfig(**PLAIN.__dict__ | settings)
    weights = {"embeddings": torch.ones(1, 4, 2), "head.weight": torch.ones(1, 4)}
    gradients = {name: torch.zeros_like(value[0]) for name, value in weights.items()}
    take_step(Adagrad(weights, [config]), gradients, 0.5)
    torch.testing.assert_close(weights["embeddings"], torch.full((1, 4, 2), 1 - 0.05 * 0.2))
    assert weights["head.weight"].eq(1).all()


def test_the_average_follows_the_weights(backend):
    config = TrainingConfig(**PLAIN.__dict__ | {"ema": 0.5})
    weights = {"head.bias": torch.zeros(1, 3)}
    optimizer = Adagrad(weights, [config])
    take_step(optimizer, {"head.bias": -torch.ones(3)})  # early decay is 2 / 11
    torch.testing.assert_close(optimizer.evaluated()["head.bias"], weights["head.bias"] * 9 / 11)
    for _ in range(60):
        take_step(optimizer, {"head.bias": torch.zeros(3)})
    torch.testing.assert_close(optimizer.evaluated()["head.bias"], weights["head.bias"])


@compiled
@pytest.mark.parametrize("fresh", [0.3, 0.8])
def test_an_average_is_torchs_lerp_bit_for_bit(fresh):
    if native.instruction_set() == "plain" or "san.so" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("without fused multiplication and addition it rounds otherwise")
    value, average = draw((5, 37)), draw((5, 37), 1)
    before = average.clone()
    rates = native_training.Rates(0.1, 1e-6, torch.inf, fresh)
    update_natively([(value, torch.zeros_like(value), average)], [draw((5, 37), 2)], rates)
    assert torch.equal(average, before.lerp(value, fresh))


@pytest.mark.parametrize(("largest", "factor"), [(1.0, 0.2), (5.0, 1.0), (100.0, 1.0)])
def test_gradients_are_clipped_down_and_never_up(backend, largest, factor):
    config = TrainingConfig(**PLAIN.__dict__ | {"max_grad_norm": largest})
    optimizer = Adagrad({"head.bias": torch.zeros(1, 2)}, [config])
    norms = take_step(optimizer, {"head.bias": torch.tensor([3.0, 4.0])})
    assert norms.tolist() == [pytest.approx(5)]
    expected = [[(3 * factor) ** 2, (4 * factor) ** 2]]
    np.testing.assert_allclose(optimizer.sums["head.bias"], expected, rtol=1e-5)


SHAPES = {"embeddings": (1500, 2), "layers.0.filters": (5, 7), "head.bias": (1,)}
CONFIGS = [
    TrainingConfig(max_grad_norm=0.5, decay_embeddings=0.1, l2_embeddings=0.2, l2_head=0.3),
    TrainingConfig(max_grad_norm=0, schedule="linear", learning_rate=0.3, eps=1e-3),
]


@pytest.mark.parametrize("ema", [0.9, 0.0], ids=["average", "no average"])
@pytest.mark.parametrize("name", ["triton", pytest.param("native", marks=compiled)])
def test_three_steps_of_two_runs_equal_those_in_torch(name, ema):
    if name == "triton":
        pytest.importorskip("triton")
    device = "cuda" if GPU and name == "triton" else "cpu"
    precision = torch.float32 if device == "cuda" else torch.float64
    configs = [CONFIGS[0], TrainingConfig(**CONFIGS[1].__dict__ | {"ema": ema})]
    ends = []
    for backend in (name, "torch"):
        weights = {key: draw((2, *shape)).to(device) for key, shape in SHAPES.items()}
        before = {key: value.clone() for key, value in weights.items()}
        optimizer = Adagrad(weights, configs)
        optimizer.backend = backend
        for step in range(3):
            gradients = {key: draw((2, *shape), step).to(device) for key, shape in SHAPES.items()}
            progress = torch.tensor([0.1, 0.2], dtype=precision, device=device) * step
            if backend == "native":
                gradients = [{key: v[run] for key, v in gradients.items()} for run in range(2)]
            optimizer.step(gradients, progress)
        assert all(not torch.equal(weights[key], value) for key, value in before.items())
        ends.append((weights, optimizer.sums, optimizer.evaluated()))
    for fused, plain in zip(*ends, strict=True):
        for key, value in fused.items():
            torch.testing.assert_close(value, plain[key], rtol=1e-5, atol=1e-6)


def test_a_zero_gradient_moves_nothing_and_one_that_is_not_a_number_shows():
    pytest.importorskip("triton")
    device = "cuda" if GPU else "cpu"
    weights = {"head.bias": torch.ones(2, 3).to(device)}
    optimizer = Adagrad(weights, [CONFIGS[0], CONFIGS[0]])
    optimizer.backend = "triton"
    gradient = torch.zeros(2, 3)
    gradient[1, 0] = torch.nan
    optimizer.step({"head.bias": gradient.to(device)}, torch.zeros(2, device=device))
    assert weights["head.bias"][0].tolist() == [1, 1, 1]
    assert weights["head.bias"][1].isnan().all()  # the norm is none, so no step can be right


@contextmanager
def instruction_set(name):
    before = native.instruction_set()
    try:
        native.use_instruction_set(name)
    except ValueError:
        pytest.skip(f"this machine has no {name}")
    try:
        yield
    finally:
        native.use_instruction_set(before)


def update_natively(parameters, gradients, rates, threads=1, l2=0.0):
    """One update of tensors: value, sum of squares and perhaps average of each."""
    arrays = [[tensor.numpy() for tensor in own] + [None] * (3 - len(own)) for own in parameters]
    parameters = [native_training.Parameter(*own, l2) for own in arrays]
    gradients = list(map(native_torch.from_tensor, gradients))
    return native_training.update(parameters, gradients, rates, threads)


def update_with_native(value, gradient, total, clip=1.0, l2=0.0, eps=1e-6, threads=1):
    """An update whose gradient is clipped by this factor."""
    largest = torch.inf if clip == 1 else clip * float(gradient.to_dense().norm())
    rates = native_training.Rates(0.1, eps, largest, 1.0)
    return update_natively([(value, total)], [gradient], rates, threads, l2)


def sparse_gradient(rows, dim, words):
    places = torch.tensor([rows], dtype=torch.int64)
    values = draw((len(rows), dim))
    return torch.sparse_coo_tensor(places, values, (words, dim), check_invariants=True)


ROWS = {
    "some": [0, 3, 4, 17, 39],
    "none": [],
    "all": list(range(40)),
    "the last": [39],
    "out of order and twice": [5, 1, 5],
}


@compiled
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of torch 2.11, although checked
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("l2", [0.0, 1e-2])
@pytest.mark.parametrize("name", native.INSTRUCTION_SETS)
def test_a_sparse_gradient_updates_as_the_dense_one_bit_for_bit(rows, l2, name):
    gradient, updated = sparse_gradient(rows, 21, 40), []
    with instruction_set(name):
        for given in (gradient, gradient.to_dense()):
            value, total = torch.linspace(-1, 1, 840).view(40, 21), torch.zeros(40, 21)
            for _ in range(3):
                update_with_native(value, given, total, 0.5, l2, 1e-10)
            updated.append((value, total))
    for sparse, dense in zip(*updated, strict=True):
        assert torch.equal(sparse, dense)


@compiled
def test_threads_change_no_bit_of_an_update():
    words, dim = 4000, 48  # large enough for two
    gradient, updated = sparse_gradient(list(range(0, words, 7)), dim, words), []
    for threads in (1, 2, 3):
        value = torch.linspace(-1, 1, words * dim).view(words, dim)
        update_with_native(value, gradient, torch.zeros_like(value), 1.0, 1e-3, 1e-10, threads)
        updated.append(value)
    assert torch.equal(updated[0], updated[1])
    assert torch.equal(updated[0], updated[2])


@compiled
def test_numbers_too_small_to_matter_become_zero():
    tiny = torch.full((64,), 1e-42)  # below the smallest normal number
    update_with_native(tiny, torch.zeros(64), torch.zeros(64))
    assert not tiny.any()
    # The processor's mode is as it was: numpy still has such numbers.
    assert (np.full(4, 1e-38, np.float32) * np.float32(1e-3)).all()


@compiled
def test_other_than_dense_float32_is_refused():
    double = torch.zeros(4, dtype=torch.float64)
    with pytest.raises(ValueError, match="a dense float32 array is needed; got float64"):
        update_with_native(double, double, double)
    single = double.float()
    for gradient in (double, single[:3]):
        with pytest.raises(ValueError, match="a gradient of 4 x 1 in float32 is needed"):
            update_with_native(single, gradient, torch.zeros(4))


@compiled
def test_rows_beyond_the_table_are_refused():
    value, total = torch.zeros(4, 2), torch.zeros(4, 2)
    for rows in ([4], [-1]):
        gradient = torch.sparse_coo_tensor(
            torch.tensor([rows]), torch.ones(1, 2), (4, 2), is_coalesced=True,
            check_invariants=False,
        )  # fmt: skip
        with pytest.raises(ValueError, match="a word id lies outside the embeddings"):
            update_with_native(value, gradient, total, eps=0.0)
    assert not value.any()


@compiled
@pytest.mark.parametrize("threads", [1, 3])
def test_the_norm_is_that_of_all_gradients_together(threads):
    gradients = [
        *(draw((5, 7)), torch.tensor([3.0]), torch.zeros(0), draw((40_000, 3))),
        sparse_gradient([3, 1, 3], 50, 9),
    ]
    parameters = [[torch.zeros(gradient.shape) for _ in range(2)] for gradient in gradients]
    expected = torch.cat([gradient.to_dense().ravel() for gradient in gradients]).norm()
    rates = native_training.Rates(0.1, 0, 1e9, 1)
    norm = update_natively(parameters, gradients, rates, threads)
    assert norm == pytest.approx(float(expected), rel=1e-6)
