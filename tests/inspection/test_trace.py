"""A trace is the network's own forward pass, and its margins are what they say."""

import numpy as np
import pytest
from hypothesis import given

from dcnn.config import MaxTDNNConfig, NBoWConfig
from dcnn.errors import UserError
from dcnn.inspection.trace import trace_sentence
from dcnn.ops import reference
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import Sentences
from small_networks import example, inspected
from untrained import make_artifact


@given(inspected())
def test_logits_are_those_of_the_predictor(seen):
    ids = seen.artifact.encoder.vocabulary.ids(seen.words)
    (logits,) = Predictor(seen.artifact).logits(Sentences.from_lists([ids]))
    np.testing.assert_allclose(seen.trace.logits, logits, atol=1e-5)


@given(inspected())
def test_every_layer_is_the_reference_layer(seen):
    x = seen.trace.matrix[None]
    for layer in seen.trace.layers:
        values, positions = reference.layer(
            x[None],
            np.array([x.shape[-1]]),
            layer.filters,
            layer.bias,
            np.array([layer.values.shape[-1]]),
            seen.artifact.config.model.fold,
        )
        np.testing.assert_array_equal(layer.values, values[0])
        np.testing.assert_array_equal(layer.positions, positions[0])
        x = layer.values


@given(inspected())
def test_a_margin_is_the_distance_to_the_best_dropped_value(seen):
    for layer in seen.trace.layers:
        for o, r in np.ndindex(layer.values.shape[:2]):
            row, kept = layer.convolution[o, r], layer.positions[o, r]
            np.testing.assert_array_equal(layer.pooled[o, r], row[kept])
            dropped = [t for t in range(len(row)) if t not in kept]
            if not dropped:
                assert layer.rivals[o, r] == -1
                assert np.isinf(layer.margins[o, r]).all()
                continue
            assert layer.rivals[o, r] == max(dropped, key=lambda t: (row[t], -t))
            np.testing.assert_array_equal(layer.margins[o, r], row[kept] - row[dropped].max())
            assert (layer.margins[o, r] >= 0).all()


@pytest.mark.parametrize("model", [NBoWConfig(dim=5), MaxTDNNConfig(dim=5, width=4)])
def test_other_networks_have_no_graph(model):
    with pytest.raises(UserError, match=f"the model is of the kind {model.kind}, which has no"):
        trace_sentence(make_artifact(model), ["good"])


def test_a_sentence_has_at_least_one_word():
    with pytest.raises(UserError, match="the text has no words"):
        trace_sentence(example().artifact, [])
