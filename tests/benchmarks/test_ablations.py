"""The networks of the ablations: the base is the package's own, and their laws hold."""

import json

import pytest
import torch
from torch.func import functional_call, vmap

import ablations
from ablations import TOPICS, VARIANTS, Variant, VariantNetwork, recipe_of, render
from dcnn.config import DCNNConfig
from dcnn.models import DCNN

CONFIG = DCNNConfig(dim=4, widths=(4, 3), maps=(2, 3), k_top=3, dropout=0.0)
SENTENCES = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [3, 1], [5]]


def network(variant, config=CONFIG):
    kind = type("Variant", (VariantNetwork,), {"variant": variant})
    model = kind(config, 11, 2)
    model.initialize(torch.Generator().manual_seed(0))
    return model


def batch(sentences, extra=0):
    width = max(map(len, sentences)) + extra
    ids = torch.tensor([one + [7] * (width - len(one)) for one in sentences])
    return ids, torch.tensor([len(one) for one in sentences])


def test_without_a_variant_it_is_the_dcnn():
    plain = DCNN(CONFIG, 11, 2)
    plain.initialize(torch.Generator().manual_seed(0))
    ours = network(Variant("none"))(*batch(SENTENCES))
    torch.testing.assert_close(ours, plain(*batch(SENTENCES)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["max", "fixed-4", "narrow"])
def test_padding_and_batch_mates_change_nothing_and_runs_train_together(name):
    model = network(VARIANTS[name])
    together = model(*batch(SENTENCES, extra=3))
    for place, sentence in enumerate(SENTENCES):
        torch.testing.assert_close(together[place], model(*batch([sentence]))[0])
    base = network(Variant("none"))
    assert not torch.allclose(together, base(*batch(SENTENCES)))
    runs = {
        key: value.detach()[None].repeat_interleave(2, 0) for key, value in model.named_parameters()
    }
    inputs = [one[None].expand(2, *one.shape) for one in batch(SENTENCES, extra=3)]
    of_runs = vmap(lambda own, *given: functional_call(model, own, given))(runs, *inputs)
    torch.testing.assert_close(of_runs[1], together)


def test_fft_is_the_direct_convolution():
    x, filters = torch.randn(2, 3, 4, 9), torch.randn(5, 3, 4, 6)
    expected = ablations.wide_convolution(x, filters)
    torch.testing.assert_close(ablations.by_fft(x, filters), expected, rtol=1e-4, atol=1e-4)


def test_every_variant_of_a_topic_is_a_network_other_than_the_base():
    for _, tasks in TOPICS.values():
        for task, names in tasks.items():
            assert "base" in names
            recipes = [recipe_of(task, VARIANTS[name]) for name in names]
            apart = {(str(one.to_dict()), VARIANTS[name].fixed_k, VARIANTS[name].narrow)
                     for one, name in zip(recipes, names, strict=True)}  # fmt: skip
            assert len(apart) == len(names)


def test_the_page_shows_what_has_been_run(tmp_path):
    for name, values in (("base", [0.8, 0.82]), ("narrow", [0.7, 0.72])):
        (tmp_path / f"sst2-{name}.json").write_text(json.dumps({"accuracies": values}))
    text = render(tmp_path, tmp_path)
    assert "| SST-2 | narrow convolution | 71.0 ± 1.4 | -10.0 | 2 |" in text
    assert "| TREC | narrow convolution | not yet run | - | - |" in text
    assert "Not yet run." in text
    assert (tmp_path / "ablation-width.svg").read_text().startswith("<svg")
