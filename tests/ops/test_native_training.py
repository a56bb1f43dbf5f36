"""What is the native network's own in training; that a step is the others' is in test_parity."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dcnn.config import DCNNConfig
from dcnn.ops import native
from dcnn.training.objective import cross_entropy
from networks import build_model, native_gradients

if not native.available():
    pytest.skip(native.reason(), allow_module_level=True)
from dcnn.ops import native_torch

VOCABULARY, CLASSES = 30, 3
CONFIGS = [
    DCNNConfig(),
    DCNNConfig(dim=5, widths=(5,), maps=(3,), k_top=4, fold=False),
    DCNNConfig(dim=24, widths=(4, 3, 2), maps=(2, 3, 2), k_top=2),
    DCNNConfig(dim=20, widths=(10, 1), maps=(5, 7), k_top=5),
    DCNNConfig(dim=7, widths=(1,), maps=(1,), k_top=1, fold=False),
]


def make_model(config, seed=0):
    model = build_model(config, VOCABULARY, CLASSES)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    return model


def make_batch(lengths, padding=0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths) + padding)
    return torch.randint(VOCABULARY, shape, generator=generator), torch.tensor(lengths)


def step(model, ids, lengths, dropout):
    """The loss with random targets, and all gradients."""
    targets = torch.rand(len(ids), CLASSES, generator=torch.Generator().manual_seed(9))
    loss, gradients = native_gradients(model, (ids, lengths, dropout), targets)
    return loss, *(gradient.to_dense() for gradient in gradients.values())


@given(
    half_dim=st.integers(1, 20),
    fold=st.booleans(),
    k_top=st.integers(1, 20),
    layers=st.lists(st.tuples(st.integers(1, 18), st.integers(1, 9)), min_size=1, max_size=3),
    lengths=st.lists(st.integers(1, 80), min_size=1, max_size=4),
    padding=st.integers(0, 5),
    seed=st.integers(0, 999),
)
def test_any_shape_gives_numbers(half_dim, fold, k_top, layers, lengths, padding, seed):
    widths, maps = zip(*layers, strict=True)
    config = DCNNConfig(
        dim=half_dim * 2 ** len(layers) if fold else half_dim,
        widths=(max(widths[0], k_top), *widths[1:]),
        maps=maps,
        k_top=k_top,
        fold=fold,
    )
    model = make_model(config, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DCNN_BACKEND", "native")
        for tensor in step(model, *make_batch(lengths, padding, seed), None):
            assert torch.isfinite(tensor).all()


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config.depth} of {config.dim}")
def test_logits_and_gradients_are_those_of_torch(config, dropped, monkeypatch):
    model, (ids, lengths) = make_model(config), make_batch([9, 1, 40, 5, 17], padding=2)
    dropout = model.draw_dropout(5, torch.Generator().manual_seed(1)) if dropped else None
    targets = torch.rand(5, CLASSES, generator=torch.Generator().manual_seed(9))
    monkeypatch.setenv("DCNN_BACKEND", "torch")
    expected = model(ids, lengths, dropout)
    cross_entropy(expected, targets).backward()
    monkeypatch.setenv("DCNN_BACKEND", "native")
    with torch.no_grad():
        found = model(ids, lengths, dropout)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)
    _, *gradients = step(model, ids, lengths, dropout)
    for mine, weight in zip(gradients, weights_of(model), strict=True):
        scale = max(float(weight.grad.abs().max()), 1.0)
        assert float((mine - weight.grad).abs().max()) <= 1e-5 * scale


MIXED_LENGTHS = """
import torch
from dcnn.config import DCNNConfig
from dcnn.models import DCNN
model = DCNN(DCNNConfig(), 30, 3)
model.initialize(torch.Generator().manual_seed(0))
torch.set_grad_enabled(False)  # with gradients, torch computes the output layer
for longest in (220, 224, 450):
    lengths = torch.arange(longest - 11, longest + 1)
    ids = torch.randint(30, (12, longest))
    logits = model(ids, lengths)
    alone = model(ids[:1, : int(lengths[0])].contiguous(), lengths[:1])
    assert torch.equal(logits[:1], alone), longest
"""


def test_one_sentence_of_a_batch_is_long_enough_for_windows_and_others_are_not():
    """Those beside it need more memory than it does; a process of its own, which might end."""
    done = subprocess.run(
        [sys.executable, "-c", MIXED_LENGTHS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def weights_of(model):
    layers = [part for layer in model.convolutions for part in (layer.filters, layer.bias)]
    return [model.embeddings, model.head.weight, model.head.bias, *layers]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids, lengths: (ids * 0 + VOCABULARY, lengths), "a word id lies outside"),
        (lambda ids, lengths: (ids * 0 - 1, lengths), "a word id lies outside"),
        (lambda ids, lengths: (ids, lengths[:1]), "do not fit ids"),
        (lambda ids, lengths: (ids, lengths + 1), "lengths must lie between 1 and the columns"),
        (lambda ids, lengths: (ids, lengths * 0), "lengths must lie between 1 and the columns"),
    ],
)
def test_ids_and_lengths_out_of_bounds_are_refused(change, message):
    model, batch = make_model(CONFIGS[0]), make_batch([4, 4])
    with pytest.raises(ValueError, match=message):
        native_torch.logits(*change(*batch), None, True, 4, *weights_of(model))


@pytest.mark.parametrize("place", range(7))
def test_weights_that_do_not_fit_together_are_refused(place):
    model, batch = make_model(CONFIGS[0]), make_batch([4, 4])
    weights = weights_of(model)
    # Fewer rows of a word; of all else, one class or map less.
    weights[place] = weights[place].detach()[:, 1:] if place == 0 else weights[place].detach()[1:]
    with pytest.raises(ValueError, match=r"do not fit in|does not fit"):
        native_torch.logits(*batch, None, True, 4, *weights)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(2, 671), "does not fit"),
        (torch.ones(1, 672), "does not fit"),
        (torch.ones(2, 672, dtype=torch.bool), "is not float32"),
        (torch.ones(2, 672, device="meta"), "is not on the CPU"),
    ],
)
def test_dropout_that_does_not_fit_is_refused(mask, message):
    model, batch = make_model(CONFIGS[0]), make_batch([4, 4])
    with pytest.raises(ValueError, match=message):
        native_torch.logits(*batch, mask, True, 4, *weights_of(model))


def test_memory_of_any_layout_and_any_default_type_will_do(monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", "native")
    model, (ids, lengths) = make_model(CONFIGS[0]), make_batch([4, 7])
    weights = weights_of(model)
    expected = native_torch.logits(ids, lengths, None, True, 4, *weights)
    turned = [weight.mT.contiguous().mT if weight.dim() > 1 else weight for weight in weights]
    torch.set_default_dtype(torch.float64)
    try:
        found = native_torch.logits(ids.mT.contiguous().mT, lengths, None, True, 4, *turned)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, expected)
