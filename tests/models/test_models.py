"""Laws that every sentence model obeys, and the sizes the paper gives for its own."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.func import functional_call

from dcnn.config import DCNNConfig, LSTMConfig, MaxTDNNConfig, NBoWConfig, RNNConfig
from networks import build_model

CONFIGS = [
    DCNNConfig(dim=4, widths=(3,), maps=(2,), k_top=2),
    DCNNConfig(dim=4, widths=(4, 2), maps=(2, 3), k_top=3),
    DCNNConfig(dim=8, widths=(3, 3, 2), maps=(2, 2, 2), k_top=2),
    DCNNConfig(dim=3, widths=(3, 2), maps=(2, 2), k_top=2, fold=False),
    MaxTDNNConfig(dim=4, width=3, dropout=0.5),
    NBoWConfig(dim=4, dropout=0.5),
    RNNConfig(dim=3, dropout=0.5),
    LSTMConfig(dim=3, dropout=0.5),
]
NAMES = ["one layer", "two layers", "three layers", "no folding", "max-tdnn", "nbow", "rnn", "lstm"]
VOCABULARY, CLASSES = 11, 3
SST_BINARY = DCNNConfig()

every_model = pytest.mark.parametrize("config", CONFIGS, ids=NAMES)


def make_model(config, seed=0):
    """In float64, with weights large enough to saturate nothing."""
    model = build_model(config, VOCABULARY, CLASSES).double()
    model.initialize(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "bias" not in name:
                value.mul_(8)
    return model


def padded(sentences, extra=0, junk=0):
    width = max(map(len, sentences)) + extra
    ids = torch.full((len(sentences), width), junk)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = torch.tensor(sentence)
    return ids, torch.tensor([len(sentence) for sentence in sentences])


def loss_gradients(model, ids, lengths, rows):
    """Gradients of a sum of squares over some rows of the batch."""
    model.zero_grad()
    model(ids, lengths)[rows].square().sum().backward()
    return {name: value.grad.clone() for name, value in model.named_parameters()}


sentence = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9)


@every_model
@settings(max_examples=25)
@given(st.lists(sentence, min_size=1, max_size=5), st.data())
def test_padding_order_and_batch_mates_change_nothing(config, sentences, data):
    model = make_model(config)
    order = data.draw(st.permutations(range(len(sentences))))
    extra, junk = data.draw(st.integers(0, 4)), data.draw(st.integers(0, VOCABULARY - 1))
    shuffled = padded([sentences[i] for i in order], extra, junk)
    together = model(*shuffled)
    for place, index in enumerate(order):
        alone = padded([sentences[index]])
        torch.testing.assert_close(together[place], model(*alone)[0], rtol=1e-10, atol=1e-12)
        expected = loss_gradients(model, *alone, [0])
        for name, gradient in loss_gradients(model, *shuffled, [place]).items():
            torch.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-10)


@every_model
def test_gradients_equal_finite_differences(config):
    model = make_model(config, seed=3)
    ids, lengths = padded([[1, 2, 3, 4, 5, 6, 7], [8, 9], [10]])
    names = [name for name, _ in model.named_parameters()]

    def logits(*values):
        return functional_call(model, dict(zip(names, values, strict=True)), (ids, lengths))

    values = tuple(value.detach().requires_grad_() for value in model.parameters())
    assert gradcheck(logits, values, eps=1e-7, atol=1e-5)


@every_model
def test_parameters_have_the_names_and_shapes_of_the_config(config):
    model = build_model(config, VOCABULARY, CLASSES)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert shapes == config.parameter_shapes(VOCABULARY, CLASSES)


@every_model
def test_word_order_matters_except_to_a_bag_of_words(config):
    model = make_model(config)
    forward, backward = padded([[1, 2, 3, 4, 5]]), padded([[5, 4, 3, 2, 1]])
    same = torch.allclose(model(*forward), model(*backward))
    assert same == isinstance(config, NBoWConfig)


@every_model
def test_dropout_follows_from_the_given_generator(config):
    model = make_model(replace(config, dropout=0.5))
    batch = padded([[1, 2, 3, 4]])
    torch.testing.assert_close(model(*batch), model(*batch), rtol=0, atol=0)
    first, again, other = (
        model(*batch, model.draw_dropout(1, torch.Generator().manual_seed(seed)))
        for seed in (1, 1, 2)
    )
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.allclose(first, other)
    assert make_model(replace(config, dropout=0.0)).draw_dropout(1, torch.Generator()) is None


def test_dropout_keeps_the_mean_of_the_features():
    model = make_model(NBoWConfig(dim=4, dropout=0.5))
    batch = padded([[1, 2, 3]])
    expected = model(*batch)
    generator = torch.Generator().manual_seed(0)
    draws = [model(*batch, model.draw_dropout(1, generator)) for _ in range(4000)]
    mean = torch.stack(draws).mean(dim=0)
    torch.testing.assert_close(mean, expected, rtol=0, atol=0.02)


def test_sst_binary_has_the_sizes_of_the_paper():
    shapes = SST_BINARY.parameter_shapes(15448, 2)
    sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    maps, _, rows, width = shapes["layers.0.filters"]
    assert (maps * rows, width) == (288, 7)  # first-layer detectors of 7-grams (Sect. 5.5)
    assert sizes["layers.0.filters"] == 2016
    assert sizes["layers.1.filters"] == 10080
    assert sizes["layers.0.bias"] + sizes["layers.1.bias"] == 312
    assert shapes["head.weight"] == (2, 4 * 14 * 12)


def test_initial_values_are_the_authors():
    model = build_model(SST_BINARY, 15448, 2)
    model.initialize(torch.Generator().manual_seed(0))
    for name, value in model.named_parameters():
        if name == "head.bias":
            assert not value.any()
        elif "bias" in name:
            assert value.min() >= 0
            assert value.max() <= 1
            assert value.mean().item() == pytest.approx(0.5, abs=0.1)
        else:
            assert value.std().item() == pytest.approx(0.05, rel=0.1)


def test_max_tdnn_pads_a_short_sentence_with_zeros_on_the_right():
    config = MaxTDNNConfig(dim=2, width=4, dropout=0)
    model = make_model(config)
    word = model.embeddings[3]
    (layer,) = model.convolutions
    # One word and three zeros: the narrow convolution has one column, weight 0 times the word.
    features = torch.tanh(layer.filters[0, 0, :, 0] * word + layer.bias[0])
    torch.testing.assert_close(model(*padded([[3]]))[0], model.head(features))


def test_a_large_mask_is_zero_or_the_inverse_of_the_share_kept_everywhere():
    model = build_model(DCNNConfig(dropout=0.25), 5, 2)  # 672 features: more than one part
    mask = model.draw_dropout(100, torch.Generator().manual_seed(3))
    draws = torch.empty(100, 672).uniform_(generator=torch.Generator().manual_seed(3))
    assert torch.equal(mask, (draws < 0.75).float() / 0.75)
