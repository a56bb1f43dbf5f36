"""A whole network in training by the Triton backend: one step against the torch backend.

In Triton's interpreter, which is slow, or on a GPU where one is.
"""

import pytest
import torch
from torch.func import functional_call, vmap

from dcnn.config import DCNNConfig
from networks import build_model
from parity import computing_with

pytest.importorskip("triton")
from dcnn.ops import triton_backend
from dcnn.ops import triton_backend as triton_network

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY = 9
CONFIGS = {
    "one layer": DCNNConfig(dim=4, widths=(3,), maps=(2,), k_top=2),
    "two layers": DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=2),
    "three layers, odd rows": DCNNConfig(
        dim=3, widths=(2, 3, 2), maps=(1, 2, 1), k_top=1, fold=False
    ),
}


@pytest.fixture(autouse=True)
def _unwritten_memory_is_not_a_number():
    """As it may be on a GPU: a kernel that reads what none wrote gives what is not a number."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def make_model(config, classes=3, seed=0):
    model = build_model(config, VOCABULARY, classes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5, generator=torch.Generator().manual_seed(seed))
            seed += 1
    return model.to(DEVICE)


def through_triton(model):
    """The model's function of ids, lengths and dropout, computed by Triton."""

    def forward(weights, ids, lengths, dropout):
        layers = [
            weights[f"layers.{number}.{part}"]
            for number in range(model.config.depth)
            for part in ("filters", "bias")
        ]
        top = (weights["head.weight"], weights["head.bias"])
        settings = (model.config.fold, model.config.k_top)
        return triton_network.network(
            ids, lengths, dropout, *settings, weights["embeddings"], *top, *layers
        )

    return forward


def through_torch(model, monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", "torch")
    return lambda weights, *inputs: functional_call(model, weights, inputs)


def step(forward, weights, *inputs):
    """Logits and the gradients of a random projection of them."""
    leaves = {name: value.detach().clone().requires_grad_() for name, value in weights.items()}
    logits = forward(leaves, *inputs)
    weight = torch.randn(logits.shape, generator=torch.Generator().manual_seed(9)).to(DEVICE)
    return logits.detach(), *torch.autograd.grad((logits * weight).sum(), list(leaves.values()))


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(VOCABULARY, (4, 7), generator=generator)
    return ids.to(DEVICE), torch.tensor([7, 1, 4, 6]).to(DEVICE)


def assert_same(found, expected):
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("drops", [True, False], ids=["dropout", "no dropout"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_a_step_is_that_of_the_torch_backend(config, drops, batch, monkeypatch):
    model = make_model(config)
    weights = dict(model.named_parameters())
    dropout = (torch.rand(4, model.head.in_features).to(DEVICE) < 0.5) * 2.0 if drops else None
    found = step(through_triton(model), weights, *batch, dropout)
    assert_same(found, step(through_torch(model, monkeypatch), weights, *batch, dropout))


def test_a_mapped_axis_is_the_axis_of_runs(batch, monkeypatch):
    config = CONFIGS["two layers"]
    models = [make_model(config, seed=seed) for seed in (0, 40)]
    weights = {
        name: torch.stack([dict(model.named_parameters())[name] for model in models])
        for name, _ in models[0].named_parameters()
    }
    ids, lengths = (torch.stack([value, value.flip(0)]) for value in batch)
    dropout = (torch.rand(2, 4, models[0].head.in_features).to(DEVICE) < 0.5) * 2.0
    found = step(vmap(through_triton(models[0])), weights, ids, lengths, dropout)
    with monkeypatch.context() as patch:
        plain = vmap(through_torch(models[0], patch))
        assert_same(found, step(plain, weights, ids, lengths, dropout))


def add_ngrams(model):
    """Of a word without any, of some, of as many as a program takes at once, and of more."""
    counts = torch.tensor([0, 3, 8, 1, 9, 20, 2, 0, 5, 7, 4])  # the last two are new words
    buckets = torch.randint(12, (int(counts.sum()),), generator=torch.Generator().manual_seed(5))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    model.add_ngrams(offsets.to(DEVICE), buckets.to(DEVICE), 12)
    with torch.no_grad():
        model.ngrams.normal_(0, 0.5, generator=torch.Generator().manual_seed(6))
    return model.to(DEVICE)


@pytest.mark.parametrize("runs", [1, 2])
def test_character_ngrams_are_those_of_the_torch_backend(runs, batch, monkeypatch):
    model = add_ngrams(make_model(CONFIGS["one layer"]))
    weights = {name: torch.stack([v, v * 0.5]) for name, v in model.named_parameters()}
    ids, lengths = (torch.stack([value, value.flip(0)]) for value in batch)
    ids[0, 0, :2] = torch.tensor([VOCABULARY, VOCABULARY + 1])
    inputs = (ids, lengths)
    forward = lambda own, *inputs: functional_call(model, own, inputs)  # noqa: E731
    if runs == 1:
        weights = {name: value[0] for name, value in weights.items()}
        inputs = (ids[0], lengths[0])
    else:
        forward = vmap(forward)
    with computing_with("triton"):
        found = step(forward, weights, *inputs)
    monkeypatch.setenv("DCNN_BACKEND", "torch")
    assert_same(found, step(forward, weights, *inputs))


def test_runs_may_share_a_batch(batch, monkeypatch):
    """As when several runs predict together."""
    config = CONFIGS["two layers"]
    model = make_model(config)
    weights = {name: torch.stack([v, v * 0.5]) for name, v in model.named_parameters()}
    forward = through_triton(model)
    logits = vmap(lambda own: forward(own, *batch, None))(weights)
    plain = through_torch(model, monkeypatch)
    for run in range(2):
        own = {name: value[run] for name, value in weights.items()}
        torch.testing.assert_close(logits[run], plain(own, *batch, None), rtol=1e-4, atol=1e-5)


def test_many_classes_and_parts_of_sentences(batch, monkeypatch):
    monkeypatch.setattr(
        triton_backend, "_SENTENCES_PER_PROGRAM", 3
    )  # of four: a full part and a rest
    monkeypatch.setattr(triton_backend, "_WARPS", 1)
    monkeypatch.setattr(triton_network, "_PRODUCTS", 16)
    monkeypatch.setattr(triton_network, "_PLACES", 2)
    model = make_model(CONFIGS["two layers"], classes=11)
    weights = dict(model.named_parameters())
    found = step(through_triton(model), weights, *batch, None)
    assert_same(found, step(through_torch(model, monkeypatch), weights, *batch, None))
