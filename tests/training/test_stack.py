"""A run inside a stack is the run that it would be alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.errors import TrainingError
from dcnn.models import build_model
from dcnn.text.vocabulary import Sentences
from dcnn.training.stack import RunSpec, Stack
from dcnn.training.stack_data import NONE, DeviceSentences, stacked_order
from dcnn.training.trainer import train

VOCABULARY, CLASSES = 20, 3
NETWORKS = [
    DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=2, dropout=0),
    MaxTDNNConfig(dim=4, width=3),
    NBoWConfig(dim=4),
]
# One batch an epoch and no word dropped: nothing random is left but the initial weights.
QUIET = TrainingConfig(epochs=5, batch_size=64, word_dropout=0, patience=0)


def make_examples(count=40, seed=0, weights=None):
    generator = np.random.default_rng(seed)
    sentences = [
        generator.integers(1, VOCABULARY, generator.integers(1, 12)).tolist() for _ in range(count)
    ]
    targets = np.array([sentence[0] % CLASSES for sentence in sentences])
    return Examples(Sentences.from_lists(sentences), targets, weights)


def initial(network, seed):
    model = build_model(network, VOCABULARY, CLASSES)
    model.initialize(torch.Generator().manual_seed(seed))
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def stacked(network, examples, specs):
    """The weights of every run."""
    stack = Stack(build_model(network, VOCABULARY, CLASSES), examples, specs)
    for outcome, spec in zip(stack.train(), specs, strict=True):
        assert outcome.epochs == spec.training.epochs
    return [stack.weights_of(run) for run in range(len(specs))]


def alone(network, examples, config, dev=None):
    model = build_model(network, VOCABULARY, CLASSES)
    model.initialize(torch.Generator().manual_seed(config.seed))
    train(model, examples, dev, config)
    return dict(model.named_parameters())


def assert_same(left, right):
    for name, value in left.items():
        torch.testing.assert_close(value, right[name].detach(), rtol=1e-3, atol=1e-5)


SETTINGS = [
    {"learning_rate": 0.05},
    {"schedule": "linear", "epochs": 4},
    {"l2_embeddings": 0.1, "l2_top": 0.2, "l2_filters": (0.3, 0.1)},
    {"decay_embeddings": 0.5},
    {"label_smoothing": 0.2},
    {"max_grad_norm": 0.1},
    {"ema": 0.5, "eps": 1e-3},
    {"reset_every": 2},
]


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.kind)
def test_each_run_is_what_it_is_alone(network):
    examples = make_examples()
    configs = [
        TrainingConfig(**{"epochs": 5, "batch_size": 64, "word_dropout": 0, "seed": seed} | values)
        for seed, values in enumerate(SETTINGS)
    ]
    specs = [RunSpec(config, initial(network, config.seed)) for config in configs]
    for weights, config in zip(stacked(network, examples, specs), configs, strict=True):
        assert_same(weights, alone(network, examples, config))


def test_every_setting_of_the_law_above_changes_the_weights():
    network, examples = NETWORKS[0], make_examples()
    plain = TrainingConfig(epochs=5, batch_size=64, word_dropout=0)
    specs = [
        RunSpec(
            TrainingConfig(**{"epochs": 5, "batch_size": 64, "word_dropout": 0} | values),
            initial(network, 0),
        )
        for values in SETTINGS
    ]
    base, *others = stacked(network, examples, [RunSpec(plain, initial(network, 0)), *specs])
    for weights in others:
        assert (weights["head.weight"] - base["head.weight"]).abs().max() > 1e-4


def test_example_weights_and_own_targets_count_as_alone():
    network = NETWORKS[0]
    weights = np.random.default_rng(3).uniform(0, 2, 40).astype(np.float32)
    examples = make_examples(weights=weights)
    own = np.random.default_rng(4).dirichlet(np.ones(CLASSES), 40).astype(np.float32)
    specs = [RunSpec(QUIET, initial(network, 0)), RunSpec(QUIET, initial(network, 0), targets=own)]
    first, second = stacked(network, examples, specs)
    assert_same(first, alone(network, examples, QUIET))
    relabelled = Examples(examples.sentences, own, weights)
    assert_same(second, alone(network, relabelled, QUIET))


def test_a_subset_is_all_that_a_run_sees():
    network, examples = NETWORKS[0], make_examples()
    subset = np.arange(0, 40, 2)
    specs = [RunSpec(QUIET, initial(network, 0)), RunSpec(QUIET, initial(network, 0), subset)]
    _, half = stacked(network, examples, specs)
    part = Examples(examples.sentences.select(subset), examples.targets[subset])
    assert_same(half, alone(network, part, QUIET))


def test_the_best_weights_on_dev_are_kept():
    network, examples, dev = NETWORKS[0], make_examples(), make_examples(30, seed=9)
    config = TrainingConfig(epochs=12, batch_size=8, learning_rate=0.2, word_dropout=0)
    specs = [RunSpec(config, initial(network, seed)) for seed in (0, 1)]
    model = build_model(network, VOCABULARY, CLASSES)
    stack = Stack(model, examples, specs)
    outcomes = stack.train(dev)
    for outcome, probabilities in zip(outcomes, stack.probabilities(dev.sentences), strict=True):
        assert len(outcome.history) == 12
        assert outcome.dev_accuracy == max(outcome.history)
        assert outcome.epochs == outcome.history.index(outcome.dev_accuracy) + 1
        assert (probabilities.argmax(axis=1) == dev.targets).mean() == pytest.approx(
            outcome.dev_accuracy
        )


def test_dev_is_evaluated_several_times_an_epoch():
    network, examples, dev = NETWORKS[0], make_examples(), make_examples(30, seed=9)
    config = TrainingConfig(epochs=3, batch_size=8, evaluations=2, word_dropout=0)
    stack = Stack(
        build_model(network, VOCABULARY, CLASSES), examples, [RunSpec(config, initial(network, 0))]
    )
    epochs = []
    (outcome,) = stack.train(dev, lambda report: epochs.append(report.epoch))
    assert epochs == [1, 1, 2, 2, 3, 3]
    assert len(outcome.history) == 6
    assert outcome.dev_accuracy == max(outcome.history)


def test_the_same_seeds_give_the_same_weights_and_others_do_not():
    network, examples = DCNNConfig(dim=8, widths=(4,), maps=(2,), k_top=2), make_examples()

    def weights(seed):
        config = TrainingConfig(epochs=2, batch_size=8, seed=seed)
        (weights,) = stacked(network, examples, [RunSpec(config, initial(network, 0))])
        return weights["head.weight"]

    torch.testing.assert_close(weights(1), weights(1), rtol=0, atol=0)
    assert not torch.allclose(weights(1), weights(2))


def test_an_order_holds_every_example_once_and_lengths_agree_between_runs():
    lengths = torch.from_numpy(np.random.default_rng(0).integers(1, 50, 1000))
    subsets = [torch.arange(1000), torch.arange(1000), torch.arange(0, 990)]
    order = stacked_order(lengths, subsets, [5, 6, 7], batch_size=16, epoch=0)
    assert order.shape == (63, 3, 16)
    for run, subset in enumerate(subsets):
        seen = order[:, run].flatten()
        assert sorted(seen[seen != NONE].tolist()) == subset.tolist()
    assert not torch.equal(order[:, 0], order[:, 1])
    longest = lengths[order.clamp(min=0)].amax(dim=2).float()
    assert (longest[:, 0] - longest[:, 1]).abs().mean() < 2
    assert longest[:, 0].std() > 10  # of batches; within one, lengths are alike
    again = stacked_order(lengths, subsets, [5, 6, 7], batch_size=16, epoch=1)
    assert not torch.equal(order, again)


def test_sentences_are_padded_as_on_the_host():
    sentences = make_examples().sentences
    indices = np.array([3, 1, 7])
    ids, lengths = sentences.padded(indices)
    there, there_lengths = DeviceSentences(sentences, torch.device("cpu")).padded(
        torch.from_numpy(indices), int(lengths.max())
    )
    np.testing.assert_array_equal(there.numpy(), ids)
    np.testing.assert_array_equal(there_lengths.numpy(), lengths)


@pytest.mark.parametrize(
    ("network", "settings"),
    [
        (DCNNConfig(dim=8, widths=(4, 3), maps=(2, 3), k_top=2, dropout=0.5), {}),
        (NETWORKS[0], {"word_dropout": 0.3}),
        (NETWORKS[0], {"class_weights": "balanced"}),
    ],
    ids=["dropout", "word dropout", "balanced"],
)
def test_what_the_laws_above_leave_out_acts_too(network, settings):
    examples = make_examples()
    keep = examples.targets != 2  # two thirds of the examples, of which few are of class 1
    keep[np.flatnonzero(examples.targets == 1)[3:]] = False
    kept = np.flatnonzero(keep)
    part = Examples(examples.sentences.select(kept), examples.targets[kept])
    base = {"epochs": 2, "batch_size": 64, "word_dropout": 0.0}
    (plain,) = stacked(
        NETWORKS[0], part, [RunSpec(TrainingConfig(**base), initial(NETWORKS[0], 0))]
    )
    (acted,) = stacked(
        network, part, [RunSpec(TrainingConfig(**base | settings), initial(network, 0))]
    )
    assert (plain["head.weight"] - acted["head.weight"]).abs().max() > 1e-4


def test_balanced_classes_weigh_as_alone():
    examples = make_examples()
    config = TrainingConfig(epochs=3, batch_size=64, word_dropout=0, class_weights="balanced")
    (weights,) = stacked(NETWORKS[0], examples, [RunSpec(config, initial(NETWORKS[0], 0))])
    assert_same(weights, alone(NETWORKS[0], examples, config))


def test_dropout_and_order_follow_from_the_seed():
    network = DCNNConfig(dim=8, widths=(4,), maps=(2,), k_top=2)
    examples = make_examples()
    stacks = [
        Stack(
            build_model(network, VOCABULARY, CLASSES),
            examples,
            [RunSpec(TrainingConfig(seed=seed), initial(network, 0))],
        )
        for seed in (0, 1)
    ]
    draws = [torch.rand(5, generator=stack.generator) for stack in stacks]
    assert not torch.equal(*draws)
    lengths = stacks[0].sentences.lengths
    everything = [torch.arange(40)]
    orders = [stacked_order(lengths, everything, [0], 8, epoch) for epoch in (0, 1)]
    batches = [{tuple(sorted(batch[0].tolist())) for batch in order} for order in orders]
    assert batches[0] != batches[1]  # other mates, not only another order of the same batches


@pytest.mark.parametrize(
    ("name", "values"),
    [("batch_size", (8, 16)), ("evaluations", (1, 2)), ("class_weights", ("none", "balanced"))],
)
def test_settings_that_runs_must_share_are_refused_otherwise(name, values):
    network = NETWORKS[0]
    specs = [RunSpec(TrainingConfig(**{name: value}), initial(network, 0)) for value in values]
    with pytest.raises(ValueError, match=f"runs of a stack share {name}; got "):
        Stack(build_model(network, VOCABULARY, CLASSES), make_examples(), specs)


@pytest.mark.parametrize("part", ["head.weight", "embeddings"])
def test_a_run_that_diverges_leaves_the_others_alone(part):
    network, examples = NETWORKS[0], make_examples()
    broken = initial(network, 0)
    broken[part][:, 0] = torch.nan
    specs = [RunSpec(QUIET, broken), RunSpec(QUIET, initial(network, 1))]
    stack = Stack(build_model(network, VOCABULARY, CLASSES), examples, specs)
    outcomes = stack.train()
    assert [outcome.failed for outcome in outcomes] == [True, False]
    assert_same(stack.weights_of(1), alone(network, examples, replace(QUIET, seed=1)))


def test_a_batch_is_never_larger_than_the_corpus():
    examples = make_examples()
    config = replace(QUIET, batch_size=2**30)
    (weights,) = stacked(NETWORKS[0], examples, [RunSpec(config, initial(NETWORKS[0], 0))])
    assert_same(weights, alone(NETWORKS[0], examples, QUIET))


def test_a_loss_beyond_all_bounds_is_divergence():
    network = NETWORKS[0]
    config = replace(QUIET, learning_rate=1e9, max_grad_norm=0)
    with pytest.raises(TrainingError, match=r"training diverged; lower training\.learning_rate"):
        stacked(network, make_examples(), [RunSpec(config, initial(network, 0))])


def test_divergence_is_named():
    network, examples = NETWORKS[0], make_examples()
    broken = initial(network, 0)
    broken["head.weight"][0, 0] = torch.nan
    with pytest.raises(TrainingError, match="the loss is nan in epoch 1: training diverged"):
        stacked(network, examples, [RunSpec(QUIET, broken), RunSpec(QUIET, broken)])
