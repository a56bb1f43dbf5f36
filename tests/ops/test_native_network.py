"""What is the native network's own; that it predicts what the reference does is in test_parity."""

import numpy as np
import pytest

from dcnn.config import DCNNConfig
from dcnn.ops import native
from untrained import make_artifact

if not native.available():
    pytest.skip(native.reason(), allow_module_level=True)
from dcnn.ops.native import Network

CONFIGS = [
    DCNNConfig(),
    DCNNConfig(dim=5, widths=(5,), maps=(3,), k_top=4, fold=False),
    DCNNConfig(dim=24, widths=(4, 3, 2), maps=(2, 3, 2), k_top=2),
    DCNNConfig(dim=20, widths=(10, 1), maps=(5, 7), k_top=5),
    DCNNConfig(dim=7, widths=(1,), maps=(1,), k_top=1, fold=False),
]


@pytest.fixture(params=CONFIGS, ids=str)
def artifact(request):
    return make_artifact(request.param, classes=("a", "b", "c"))


def network_of(artifact):
    return Network(artifact.weights, artifact.config.model.fold, artifact.config.model.k_top)


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


@pytest.mark.parametrize("name", ["layers.0.filters", "layers.1.bias", "head.weight"])
def test_weights_that_do_not_fit_together_are_refused(name):
    weights = dict(make_artifact(CONFIGS[0]).weights)
    weights[name] = weights[name][:, :-1]
    with pytest.raises(ValueError, match="fit"):
        Network(weights, True, 4)
