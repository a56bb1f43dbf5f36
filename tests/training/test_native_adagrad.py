"""The one-pass update against the same update in torch operations."""

import numpy as np
import pytest
import torch
from torch.optim import Adagrad

from dcnn.config import DCNNConfig, TrainingConfig
from dcnn.models import build_model
from dcnn.ops import native
from dcnn.training import adagrad as native_adagrad
from dcnn.training import adagrad as stack_adagrad
from dcnn.training.adagrad import clip_gradients, make_optimizer

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
    config = TrainingConfig(l2_embeddings=1e-1, l2_filters=(1e-2, 1e-3), l2_head=1e-4)
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
    model.head.bias.grad[:] = torch.tensor([3.0, 4.0])
    assert float(clip_gradients(model, optimizer, largest)) == pytest.approx(5)
    assert optimizer.clip == pytest.approx(factor, rel=1e-5)
    optimizer.step()
    sums = optimizer.state[model.head.bias]["sum"]
    np.testing.assert_allclose(sums, [(3 * factor) ** 2, (4 * factor) ** 2], rtol=1e-5)
    assert optimizer.clip == 1  # of that step alone


def sparse_gradient(rows, dim, words, seed=0):
    values = torch.randn(len(rows), dim, generator=torch.Generator().manual_seed(seed))
    places = torch.tensor([rows], dtype=torch.int64)
    return torch.sparse_coo_tensor(places, values, (words, dim), check_invariants=True)


ROWS = {
    "some": [0, 3, 4, 17, 39],
    "none": [],
    "all": list(range(40)),
    "the last": [39],
    "out of order and twice": [5, 1, 5],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("l2", [0.0, 1e-2])
@pytest.mark.parametrize("name", native.INSTRUCTION_SETS)
def test_a_sparse_gradient_updates_as_the_dense_one_bit_for_bit(rows, l2, name):
    before = native.instruction_set()
    try:
        native.use_instruction_set(name)
    except ValueError:
        pytest.skip(f"this machine has no {name}")
    try:
        gradient, updated = sparse_gradient(rows, 21, 40), []
        for given in (gradient, gradient.to_dense()):
            value = torch.nn.Parameter(torch.linspace(-1, 1, 840).view(40, 21))
            optimizer = native_adagrad.NativeAdagrad([value], lr=0.1, weight_decay=l2)
            for _ in range(3):
                optimizer.clip = 0.5
                value.grad = given
                optimizer.step()
            updated.append((value.detach(), optimizer.state[value]["sum"]))
    finally:
        native.use_instruction_set(before)
    for sparse, dense in zip(*updated, strict=True):
        assert torch.equal(sparse, dense)


def test_threads_change_no_bit_of_an_update():
    words, dim = 4000, 48  # large enough for two
    gradient, updated = sparse_gradient(list(range(0, words, 7)), dim, words), []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        try:
            value = torch.nn.Parameter(torch.linspace(-1, 1, words * dim).view(words, dim))
            optimizer = native_adagrad.NativeAdagrad([value], lr=0.1, weight_decay=1e-3)
            value.grad = gradient
            optimizer.step()
        finally:
            torch.set_num_threads(before)
        updated.append(value.detach())
    assert torch.equal(updated[0], updated[1])
    assert torch.equal(updated[0], updated[2])


def test_rows_beyond_the_table_are_refused():
    value, total = torch.zeros(4, 2), torch.zeros(4, 2)
    for rows in ([4], [-1]):
        gradient = torch.sparse_coo_tensor(
            torch.tensor([rows]), torch.ones(1, 2), (4, 2), is_coalesced=True,
            check_invariants=False,
        )  # fmt: skip
        with pytest.raises(ValueError, match="a word id lies outside the embeddings"):
            native_adagrad._update_one(value, gradient, total, None, (1.0, 0, 0.1, 1.0, 0, 0))
    assert not value.any()


def test_the_norm_is_that_of_all_gradients_together():
    dense = [torch.full((5, 7), 2.0), torch.tensor([3.0]), torch.zeros(0)]
    sparse = sparse_gradient([3, 1, 3], 50, 9)
    expected = torch.cat([*(part.ravel() for part in dense), sparse.to_dense().ravel()]).norm()
    assert native_adagrad.norm([*dense, sparse]) == pytest.approx(float(expected), rel=1e-6)
    with pytest.raises(ValueError, match="float32"):
        native_adagrad.norm([torch.zeros(2, dtype=torch.float64)])
