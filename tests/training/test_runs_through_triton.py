"""Runs as a GPU trains them, in Triton's interpreter or on one, against the same in torch."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.text.vocabulary import Sentences
from dcnn.training.batches import RunSpec
from dcnn.training.objective import cross_entropy
from dcnn.training.resident import ResidentBatches
from dcnn.training.trainer import Trainer
from networks import build_model
from parity import GPU, computing_with

VOCABULARY, CLASSES = 20, 3
TINY_DCNN = DCNNConfig(dim=4, widths=(3, 2), maps=(1, 2), k_top=2, dropout=0)
# Two batches an epoch, the second with a free place.
CONFIG = TrainingConfig(epochs=2, batch_size=3, word_dropout=0, patience=0)
GENERATOR = np.random.default_rng(0)
WORDS = [GENERATOR.integers(1, VOCABULARY, GENERATOR.integers(1, 7)).tolist() for _ in range(5)]
EXAMPLES = Examples(
    Sentences.from_lists(WORDS),
    np.array([words[0] % CLASSES for words in WORDS]),
    GENERATOR.random(5).astype(np.float32),
)
SOFT = GENERATOR.random((5, CLASSES)).astype(np.float32)


def initial(network, seed):
    model = build_model(network, VOCABULARY, CLASSES)
    model.initialize(torch.Generator().manual_seed(seed))
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def trained(backend, network, specs):
    with computing_with(backend) as place:
        model = build_model(network, VOCABULARY, CLASSES)
        trainer = Trainer(model, EXAMPLES, specs, device=place.device)
        assert trainer.runs.backend == backend.partition(" ")[0]
        summaries = trainer.train()
    return {name: value.cpu() for name, value in trainer.runs.kept.items()}, summaries


@pytest.mark.parametrize(
    "network", [TINY_DCNN, MaxTDNNConfig(dim=4, width=3), NBoWConfig(dim=4)], ids=lambda n: n.kind
)
def test_weights_are_those_of_torch(network):
    pytest.importorskip("triton")
    other = replace(CONFIG, seed=1, ema=0.9, decay_embeddings=0.1)
    specs = [
        RunSpec(CONFIG, initial(network, 0)),
        RunSpec(other, initial(network, 1), subset=np.array([1, 3]), targets=SOFT),
    ]
    # On the same device: the order of the examples is drawn there.
    expected, _ = trained("torch cuda" if GPU else "torch", network, specs)
    found, _ = trained("triton", network, specs)
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, on such numbers
def test_a_run_that_is_broken_from_the_words_up_shows():
    pytest.importorskip("triton")
    broken = initial(TINY_DCNN, 0)
    broken["embeddings"][:] = torch.nan
    specs = [RunSpec(CONFIG, broken), RunSpec(replace(CONFIG, seed=1), initial(TINY_DCNN, 1))]
    _, summaries = trained("triton", TINY_DCNN, specs)
    assert [summary.failed for summary in summaries] == [True, False]


def test_a_batch_is_that_of_torch_and_words_are_dropped_at_the_share_of_their_run():
    pytest.importorskip("triton")
    other = replace(CONFIG, word_dropout=0.999)
    specs = [RunSpec(CONFIG), RunSpec(other, subset=np.array([1, 3]), targets=SOFT)]
    found = []
    for backend in ("triton", "torch cuda" if GPU else "torch"):
        with computing_with(backend) as place:
            device = torch.device(place.device)
            batches = ResidentBatches(EXAMPLES, specs, CLASSES, device)
            batches.start(0, 1)
            generator = torch.Generator(device).manual_seed(0)
            batch, _ = batches.next(6, generator)
            found.append([batch.ids, batch.lengths, batch.targets, batch.weights])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, check_dtype=False)
    assert found[0][0][0].any()
    assert not found[0][0][1].any()


@pytest.mark.parametrize("n_ensemble", [1, 3])
@pytest.mark.parametrize("classes", [2, 5])
def test_losses_and_gradients_are_those_of_torch(n_ensemble, classes, monkeypatch):
    pytest.importorskip("triton")
    from dcnn.training import triton_step

    monkeypatch.setattr(triton_step, "_BLOCK", 8)  # several blocks per run
    device = "cuda" if GPU else "cpu"

    def draw(*shape):
        return torch.from_numpy(GENERATOR.random(shape)).float().to(device)

    targets, weights = draw(2, 7, classes), draw(2, 7)  # targets need not add up to one
    logits = draw(2, 7 * n_ensemble, classes)
    logits[0, 0, 0] = 1e4  # its power is beyond all floats
    logits.requires_grad_()
    upstream = torch.tensor([1.0, 3.0], device=device)
    losses = triton_step.cross_entropy(logits, targets, weights)
    gradient = torch.autograd.grad(losses, logits, upstream)[0]
    repeated = [part.repeat_interleave(n_ensemble, dim=1) for part in (targets, weights)]
    expected = cross_entropy(logits, *repeated)
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, logits, upstream)[0])
