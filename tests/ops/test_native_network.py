"""A whole network in one native call against the reference, layer by layer."""

import numpy as np
import pytest

from dcnn.config import DCNNConfig
from dcnn.ops import native
from dcnn.predictor import Predictor
from dcnn.text.sentences import Sentences
from untrained import make_artifact

if not native.available():
    pytest.skip(native.reason(), allow_module_level=True)
from dcnn.ops.native_network import Network

CONFIGS = [
    DCNNConfig(),
    DCNNConfig(dim=5, widths=(5,), maps=(3,), k_top=4, fold=False),
    DCNNConfig(dim=24, widths=(4, 3, 2), maps=(2, 3, 2), k_top=2),
    DCNNConfig(dim=20, widths=(10, 1), maps=(5, 7), k_top=5),
    DCNNConfig(dim=7, widths=(1,), maps=(1,), k_top=1, fold=False),
]
LENGTHS = [1, 2, 3, 7, 18, 57, 58, 59, 113, 114, 115, 4096]


def make_sentences(words, lengths, seed=0):
    generator = np.random.default_rng(seed)
    return Sentences.from_lists([generator.integers(0, words, s).tolist() for s in lengths])


@pytest.fixture(params=CONFIGS, ids=str)
def artifact(request):
    return make_artifact(request.param, classes=("a", "b", "c"))


def network_of(artifact):
    return Network(artifact.weights, artifact.config.model.fold, artifact.config.model.k_top)


@pytest.mark.parametrize("name", native.INSTRUCTION_SETS)
def test_prediction_equals_the_reference(artifact, name, monkeypatch):
    before = native.instruction_set()
    try:
        native.use_instruction_set(name)
    except ValueError:
        pytest.skip(f"this machine has no {name}")
    network = network_of(artifact)  # keeps the instruction set that it was made for
    native.use_instruction_set(before)
    monkeypatch.setenv("DCNN_BACKEND", "reference")
    sentences = make_sentences(len(artifact.encoder.vocabulary), LENGTHS)
    expected = Predictor(artifact).logits(sentences)
    logits = network.logits(sentences.ids, sentences.offsets)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


def test_threads_and_batch_mates_change_no_bit(artifact):
    network = network_of(artifact)
    sentences = make_sentences(len(artifact.encoder.vocabulary), [*LENGTHS, *range(1, 60)])
    together = network.logits(sentences.ids, sentences.offsets)
    for threads in (2, 5):
        many = network.logits(sentences.ids, sentences.offsets, threads)
        np.testing.assert_array_equal(many, together)
    for number in range(len(sentences)):
        one = sentences.select(np.array([number]))
        np.testing.assert_array_equal(network.logits(one.ids, one.offsets)[0], together[number])


def test_bad_ids_and_offsets_are_refused(artifact):
    network, words = network_of(artifact), len(artifact.encoder.vocabulary)
    for wrong in (-1, words, 2**31 - 1):
        with pytest.raises(ValueError, match="outside the embeddings"):
            network.logits(np.array([0, wrong]), np.array([0, 2]))
    with pytest.raises(ValueError, match="go past the 2 ids"):
        network.logits(np.array([0, 1]), np.array([0, 3]))
    for offsets in ([0, 0, 2], [0, 2000, 2], [-1, 2]):
        with pytest.raises(ValueError, match="lengths must lie between"):
            network.logits(np.array([0, 1]), np.array(offsets))


def test_no_sentences_give_no_logits(artifact):
    assert network_of(artifact).logits(np.zeros(0), np.zeros(1)).shape == (0, 3)


@pytest.mark.parametrize("name", ["layers.0.filters", "layers.1.bias", "top.weight"])
def test_weights_that_do_not_fit_together_are_refused(name):
    weights = dict(make_artifact(CONFIGS[0]).weights)
    weights[name] = weights[name][:, :-1]
    with pytest.raises(ValueError, match="fit"):
        Network(weights, True, 4)
