"""A stack as a GPU trains it, in Triton's interpreter or on one, against the same in torch."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.models import build_model
from dcnn.text.vocabulary import Sentences
from dcnn.training.stack import RunSpec, Stack
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
        stack = Stack(build_model(network, VOCABULARY, CLASSES), EXAMPLES, specs, place.device)
        assert stack.backend == backend.partition(" ")[0]
        outcomes = stack.train()
    return {name: value.cpu() for name, value in stack.kept.items()}, outcomes


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
    _, outcomes = trained("triton", TINY_DCNN, specs)
    assert [outcome.failed for outcome in outcomes] == [True, False]


def test_words_are_lost_at_the_share_of_their_run():
    pytest.importorskip("triton")
    configs = [CONFIG, replace(CONFIG, word_dropout=0.999)]
    with computing_with("triton") as place:
        model = build_model(TINY_DCNN, VOCABULARY, CLASSES)
        specs = [RunSpec(config, initial(TINY_DCNN, 0)) for config in configs]
        stack = Stack(model, EXAMPLES, specs, place.device)
        ids, _ = stack._words(torch.arange(5, device=place.device).expand(2, 5), 6)
    assert ids[0].any()
    assert not ids[1].any()
