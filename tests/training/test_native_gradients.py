"""The gradients of a batch without autograd are those that autograd finds."""

import pytest
import torch

from dcnn.config import DCNNConfig
from dcnn.ops import native
from dcnn.training.objective import cross_entropy
from networks import build_model, native_gradients

pytestmark = pytest.mark.skipif(not native.available(), reason="not compiled")
VOCABULARY, CLASSES = 12, 3  # few words, so that a batch has each several times
NETWORKS = [
    DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=2),
    DCNNConfig(dim=5, widths=(3,), maps=(2,), k_top=3, fold=False),
]


def make_model(network, vocabulary=VOCABULARY):
    model = build_model(network, vocabulary, CLASSES)
    model.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10)
    return model


def make_batch(model, weighted):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(VOCABULARY, (6, 9), generator=generator)
    lengths = torch.tensor([9, 1, 4, 7, 2, 9])
    targets = torch.rand(6, CLASSES, generator=generator)  # they need not add up to one
    weights = torch.rand(6, generator=generator) if weighted else None
    return (ids, lengths, model.draw_dropout(6, generator)), targets, weights


@pytest.mark.parametrize("network", NETWORKS, ids=["two layers", "one layer"])
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_and_gradients_are_autograds(network, weighted, monkeypatch):
    model = make_model(network, 40)
    batch, targets, weights = make_batch(model, weighted)
    monkeypatch.setenv("DCNN_BACKEND", "torch")  # else the library is compared with itself
    expected = cross_entropy(model(*batch), targets, weights)
    expected.backward()
    monkeypatch.setenv("DCNN_BACKEND", "native")
    parameters = dict(model.named_parameters())
    loss, gradients = native_gradients(model, batch, targets, weights)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=1e-7)
    for name, parameter in parameters.items():
        torch.testing.assert_close(gradients[name].to_dense(), parameter.grad, rtol=1e-5, atol=1e-6)
    rows = gradients["embeddings"].indices()[0]
    ids, lengths, _ = batch
    used = {int(i) for row, length in zip(ids, lengths, strict=True) for i in row[:length]}
    assert rows.tolist() == sorted(used)  # no word that is padding, and none twice


@pytest.mark.parametrize("multi_label", [False, True])
def test_a_logit_beyond_all_others_overflows_nothing(multi_label):
    model = make_model(NETWORKS[1])
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([1e4, -1e4, 0.0]))
    batch = torch.zeros(1, 3, dtype=torch.int64), torch.tensor([3]), None
    targets = torch.tensor([[0.0, 1.0, 0.0]])
    loss, gradients = native_gradients(model, batch, targets, None, multi_label)
    assert float(loss) == pytest.approx(2e4, rel=1e-4)
    assert gradients["head.bias"].tolist() == [1.0, -1.0, 0.5 if multi_label else 0.0]


def test_what_does_not_fit_is_refused():
    model = make_model(NETWORKS[0])
    (ids, lengths, mask), targets, weights = make_batch(model, True)
    for change in (
        {"batch": (ids, lengths, mask[:, 1:])},
        {"batch": (ids, lengths, mask.double())},
        {"targets": targets[:, :2]},
        {"targets": targets.double()},
        {"weights": weights[1:]},
    ):
        given = {"batch": (ids, lengths, mask), "targets": targets, "weights": weights} | change
        with pytest.raises(ValueError, match=r"float32 of .* is needed; got"):
            native_gradients(model, **given)
    for batch, message in (
        ((ids, lengths[1:], mask), "do not fit ids"),
        ((ids, lengths + 1, mask), "lengths must lie between"),
        ((ids + VOCABULARY, lengths, mask), "a word id lies outside"),
        ((ids - VOCABULARY, lengths, mask), "a word id lies outside"),
    ):
        with pytest.raises(ValueError, match=message):
            native_gradients(model, batch, targets)
    with pytest.raises(ValueError, match="lengths must lie between"):
        native_gradients(model, (ids[:0], lengths[:0], None), targets[:0])
    model.n_ensemble = 3
    with pytest.raises(ValueError, match="cannot be divided among 3"):
        native_gradients(model, (ids, lengths, mask), targets)
