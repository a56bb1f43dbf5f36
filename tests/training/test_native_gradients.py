"""The gradients of a batch without autograd are those that autograd finds."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from dcnn.config import DCNNConfig
from dcnn.ops import native
from dcnn.training.objective import cross_entropy, repeat_for_ensemble
from networks import build_model, native_gradients
from parity import BACKENDS, assert_close, computing_with

pytestmark = pytest.mark.skipif(not native.available(), reason="not compiled")
VOCABULARY, CLASSES = 12, 3  # few words, so that a batch has each several times
NETWORKS = [
    DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=2),
    DCNNConfig(dim=5, widths=(3,), maps=(2,), k_top=3, fold=False),
]


def make_model(network, vocabulary=VOCABULARY, classes=CLASSES):
    model = build_model(network, vocabulary, classes)
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


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name.startswith("native")])
@given(
    classes=st.integers(2, 150),  # three blocks of the output layer, and a part of a fourth
    sentences=st.integers(1, 19),
    n_ensemble=st.integers(1, 3),
    maps=st.integers(1, 9),
    k_top=st.integers(1, 3),
)
@example(classes=2, sentences=2, n_ensemble=1, maps=1, k_top=1)  # less than a vector of features
def test_any_number_of_classes_has_autograds_logits_and_gradients(
    backend, classes, sentences, n_ensemble, maps, k_top
):
    network = DCNNConfig(dim=4 * n_ensemble, widths=(3,), maps=(maps,), k_top=k_top)
    model = make_model(network, classes=classes)
    model.n_ensemble = n_ensemble
    generator = torch.Generator().manual_seed(classes)
    with torch.no_grad():
        model.head.bias.normal_(generator=generator)
    ids = torch.randint(VOCABULARY, (sentences, 4), generator=generator)
    lengths = torch.randint(1, 5, (sentences,), generator=generator)
    batch = ids, lengths, model.draw_dropout(sentences, generator)
    targets = torch.rand(sentences, classes, generator=generator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DCNN_BACKEND", "torch")
        expected = model(*batch).detach()
        repeated, _ = repeat_for_ensemble(targets, None, n_ensemble)
        (n_ensemble * cross_entropy(model(*batch, apart=True), repeated)).backward()
        with computing_with(backend):
            with torch.no_grad():
                assert_close(model(*batch).numpy(), expected.numpy(), "logits")
            _, gradients = native_gradients(model, batch, targets)
    for name, parameter in model.named_parameters():
        assert_close(gradients[name].to_dense().numpy(), parameter.grad.numpy(), "gradients")


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
