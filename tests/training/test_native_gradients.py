"""The gradients of a batch without autograd are those that autograd finds."""

import pytest
import torch

from dcnn.config import DCNNConfig
from dcnn.ops import native, native_training
from dcnn.training.objective import cross_entropy, native_gradients
from networks import build_model

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
    loss, gradients = native_gradients(model, parameters, batch, targets, weights)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=1e-7)
    for name, parameter in parameters.items():
        torch.testing.assert_close(gradients[name].to_dense(), parameter.grad, rtol=1e-5, atol=1e-6)
    rows = gradients["embeddings"].indices()[0]
    ids, lengths, _ = batch
    used = {int(i) for row, length in zip(ids, lengths, strict=True) for i in row[:length]}
    assert rows.tolist() == sorted(used)  # no word that is padding, and none twice


def test_a_logit_beyond_all_others_overflows_nothing():
    logits = torch.tensor([[1e4, -1e4, 0.0]])
    targets = torch.tensor([[0.0, 1.0, 0.0]])
    loss, gradient = native_training.cross_entropy(logits, targets, None)
    assert float(loss) == 2e4
    assert gradient.tolist() == [[1.0, -1.0, 0.0]]


def test_targets_that_do_not_fit_are_refused():
    logits = torch.zeros(2, 3)
    for targets, weights in ((torch.zeros(2, 2), None), (torch.zeros(2, 3), torch.ones(3))):
        with pytest.raises(ValueError, match="do not agree"):
            native_training.cross_entropy(logits, targets, weights)
    with pytest.raises(ValueError, match="float32"):
        native_training.cross_entropy(logits, logits.double(), None)
