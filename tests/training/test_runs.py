"""A run that trains beside others is the run that it would be alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig, TrainingConfig
from dcnn.data.batching import Examples, training_order
from dcnn.errors import TrainingError
from dcnn.text.vocabulary import Sentences
from dcnn.training.batches import RunSpec
from dcnn.training.callbacks import Callback
from dcnn.training.resident import ResidentBatches
from dcnn.training.trainer import Trainer
from networks import build_model, train

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


def together(network, examples, specs):
    """The weights of every run."""
    trainer = Trainer(build_model(network, VOCABULARY, CLASSES), examples, specs)
    for summary, spec in zip(trainer.train(), specs, strict=True):
        assert summary.best_epoch == spec.training.epochs
    return [trainer.weights_of(run) for run in range(len(specs))]


def alone(network, examples, config, dev=None):
    model = build_model(network, VOCABULARY, CLASSES)
    model.initialize(torch.Generator().manual_seed(config.seed))
    train(model, examples, dev, config)
    return {name: value.detach().numpy() for name, value in model.named_parameters()}


def assert_same(left, right):
    for name, value in left.items():
        np.testing.assert_allclose(value, right[name], rtol=1e-3, atol=1e-5)


SETTINGS = [
    {"learning_rate": 0.05},
    {"schedule": "linear", "epochs": 4},
    {"l2_embeddings": 0.1, "l2_head": 0.2, "l2_filters": (0.3, 0.1)},
    {"decay_embeddings": 0.5},
    {"label_smoothing": 0.2},
    {"max_grad_norm": 0.1},
    {"ema": 0.5, "eps": 1e-3},
    {"reset_every": 2},
]


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.kind)
def test_each_run_is_what_it_is_alone(network, backend, monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", backend)
    examples = make_examples()
    configs = [
        TrainingConfig(**{"epochs": 5, "batch_size": 64, "word_dropout": 0, "seed": seed} | values)
        for seed, values in enumerate(SETTINGS)
    ]
    specs = [RunSpec(config, initial(network, config.seed)) for config in configs]
    for weights, config in zip(together(network, examples, specs), configs, strict=True):
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
    base, *others = together(network, examples, [RunSpec(plain, initial(network, 0)), *specs])
    for weights in others:
        assert np.abs(weights["head.weight"] - base["head.weight"]).max() > 1e-4


def test_example_weights_and_own_targets_count_as_alone():
    network = NETWORKS[0]
    weights = np.random.default_rng(3).uniform(0, 2, 40).astype(np.float32)
    examples = make_examples(weights=weights)
    own = np.random.default_rng(4).dirichlet(np.ones(CLASSES), 40).astype(np.float32)
    specs = [RunSpec(QUIET, initial(network, 0)), RunSpec(QUIET, initial(network, 0), targets=own)]
    first, second = together(network, examples, specs)
    assert_same(first, alone(network, examples, QUIET))
    relabelled = Examples(examples.sentences, own, weights)
    assert_same(second, alone(network, relabelled, QUIET))


def test_a_subset_is_all_that_a_run_sees():
    network, examples = NETWORKS[0], make_examples()
    subset = np.arange(0, 40, 2)
    specs = [RunSpec(QUIET, initial(network, 0)), RunSpec(QUIET, initial(network, 0), subset)]
    _, half = together(network, examples, specs)
    part = Examples(examples.sentences.select(subset), examples.targets[subset])
    assert_same(half, alone(network, part, QUIET))


def test_the_best_weights_on_dev_are_kept():
    network, examples, dev = NETWORKS[0], make_examples(), make_examples(30, seed=9)
    config = TrainingConfig(epochs=12, batch_size=8, learning_rate=0.2, word_dropout=0)
    specs = [RunSpec(config, initial(network, seed)) for seed in (0, 1)]
    model = build_model(network, VOCABULARY, CLASSES)
    trainer = Trainer(model, examples, specs, dev)
    summaries = trainer.train()
    for summary, probabilities in zip(summaries, trainer.probabilities(dev.sentences), strict=True):
        best = max(summary.history, key=lambda record: (record.dev_accuracy, -record.dev_loss))
        assert len(summary.history) == 12
        assert summary.dev_accuracy == best.dev_accuracy
        assert summary.best_epoch == best.epoch
        assert (probabilities.argmax(axis=1) == dev.targets).mean() == pytest.approx(
            summary.dev_accuracy
        )


def test_a_run_with_fewer_epochs_than_others_reports_its_own():
    network, examples, dev = NETWORKS[0], make_examples(), make_examples(30, seed=9)
    specs = [RunSpec(replace(QUIET, epochs=epochs), initial(network, 0)) for epochs in (2, 5)]
    model = build_model(network, VOCABULARY, CLASSES)
    for summary, epochs in zip(Trainer(model, examples, specs, dev).train(), (2, 5), strict=True):
        assert summary.epochs == len(summary.history) == epochs


class Epochs(Callback):
    def __init__(self):
        self.epochs = []

    def on_report(self, report):
        self.epochs.append(report.epoch)


@pytest.mark.parametrize("runs", [1, 2])
def test_dev_is_evaluated_several_times_per_epoch(runs):
    network, examples, dev = NETWORKS[0], make_examples(), make_examples(30, seed=9)
    config = TrainingConfig(epochs=3, batch_size=8, evaluations_per_epoch=2, word_dropout=0)
    model, callback = build_model(network, VOCABULARY, CLASSES), Epochs()
    specs = [RunSpec(config, initial(network, 0))] * runs
    for summary in Trainer(model, examples, specs, dev, callback=callback).train():
        assert len(summary.history) == 6
        assert summary.dev_accuracy == max(record.dev_accuracy for record in summary.history)
    assert callback.epochs == [1, 1, 2, 2, 3, 3]


def test_the_same_seeds_give_the_same_weights_and_others_do_not():
    network, examples = DCNNConfig(dim=8, widths=(4,), maps=(2,), k_top=2), make_examples()

    def weights(seed):
        config = TrainingConfig(epochs=2, batch_size=8, seed=seed)
        (weights,) = together(network, examples, [RunSpec(config, initial(network, 0))])
        return weights["head.weight"]

    np.testing.assert_array_equal(weights(1), weights(1))
    assert not np.allclose(weights(1), weights(2))


def resident(lengths, subsets, seeds, batch_size, **settings):
    sentences = Sentences.from_lists([[1] * length for length in lengths])
    examples = Examples(sentences, np.zeros(len(lengths), np.int64))
    configs = [TrainingConfig(seed=seed, batch_size=batch_size, **settings) for seed in seeds]
    runs = zip(configs, subsets, strict=True)
    specs = [RunSpec(config, subset=subset) for config, subset in runs]
    return ResidentBatches(examples, specs, CLASSES, torch.device("cpu"))


def test_an_order_holds_every_example_once_and_lengths_agree_between_runs():
    lengths = np.random.default_rng(0).integers(1, 50, 1000)
    subsets = [np.arange(1000), None, np.arange(0, 990)]
    batches = resident(lengths, subsets, [5, 6, 7], batch_size=16)
    batches.start(0)
    order = batches.order.clone()
    assert order.shape == (63, 3, 16)
    for run, count in enumerate((1000, 1000, 990)):
        seen = order[:, run][batches.place_weights[:, run] > 0]
        assert sorted(seen.tolist()) == list(range(count))
    assert not torch.equal(order[:, 0], order[:, 1])
    longest = torch.from_numpy(lengths)[order].amax(dim=2).float()
    assert (longest[:, 0] - longest[:, 1]).abs().mean() < 2
    assert longest[:, 0].std() > 10  # of batches; within one, lengths are alike
    assert batches.columns == longest.amax(dim=1).tolist()
    assert sum(batches.sentences) == 2990
    batches.start(1)
    assert not torch.equal(order, batches.order)


def test_a_single_run_has_the_order_that_it_has_on_the_host():
    lengths = np.random.default_rng(0).integers(1, 30, 1003)
    batches = resident(lengths, [None], [5], batch_size=8)
    for epoch in (0, 1):
        batches.start(epoch)
        expected = training_order(lengths, 8, 5, epoch)
        assert len(batches.order) == len(expected)
        real = batches.place_weights[:, 0] > 0
        for indices, own, mask in zip(expected, batches.order[:, 0], real, strict=True):
            assert own[mask].tolist() == indices.tolist()


def test_sentences_are_padded_as_on_the_host():
    examples, place = make_examples(), torch.device("cpu")
    config = TrainingConfig(batch_size=8, word_dropout=0)
    batches = ResidentBatches(examples, [RunSpec(config)], CLASSES, place)
    batches.start(0, 2)
    ids, lengths = examples.sentences.padded(batches.order[2, 0].numpy())
    batch, progress = batches.next(batches.columns[2], torch.Generator())
    np.testing.assert_array_equal(batch.ids[0].numpy(), ids)
    np.testing.assert_array_equal(batch.lengths[0].numpy(), lengths)
    expected = examples.targets[batches.order[2, 0].numpy()]
    np.testing.assert_array_equal(batch.targets[0].argmax(dim=1), expected)
    assert progress.tolist() == [2 / 5 / config.epochs]
    assert int(batches.cursor) == 3


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
    (plain,) = together(
        NETWORKS[0], part, [RunSpec(TrainingConfig(**base), initial(NETWORKS[0], 0))]
    )
    (acted,) = together(
        network, part, [RunSpec(TrainingConfig(**base | settings), initial(network, 0))]
    )
    assert np.abs(plain["head.weight"] - acted["head.weight"]).max() > 1e-4


def test_balanced_classes_weigh_as_alone():
    examples = make_examples()
    config = TrainingConfig(epochs=3, batch_size=64, word_dropout=0, class_weights="balanced")
    (weights,) = together(NETWORKS[0], examples, [RunSpec(config, initial(NETWORKS[0], 0))])
    assert_same(weights, alone(NETWORKS[0], examples, config))


def test_dropout_and_order_follow_from_the_seed():
    network = DCNNConfig(dim=8, widths=(4,), maps=(2,), k_top=2)
    examples = make_examples()
    model = build_model(network, VOCABULARY, CLASSES)
    trainers = [Trainer(model, examples, [RunSpec(TrainingConfig(seed=seed))]) for seed in (0, 1)]
    draws = [torch.rand(5, generator=trainer.runs.generator) for trainer in trainers]
    assert not torch.equal(*draws)
    resident_batches = resident(examples.sentences.lengths, [None], [0], 8)
    orders = []
    for epoch in (0, 1):
        resident_batches.start(epoch)
        orders.append(resident_batches.order.clone())
    batches = [{tuple(sorted(batch[0].tolist())) for batch in order} for order in orders]
    assert batches[0] != batches[1]  # other batches, not only another order of the same


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("batch_size", (8, 16)),
        ("evaluations_per_epoch", (1, 2)),
        ("class_weights", ("none", "balanced")),
    ],
)
def test_settings_that_runs_must_share_are_refused_otherwise(name, values):
    network = NETWORKS[0]
    specs = [RunSpec(TrainingConfig(**{name: value}), initial(network, 0)) for value in values]
    with pytest.raises(ValueError, match=f"runs that train together share {name}; got "):
        Trainer(build_model(network, VOCABULARY, CLASSES), make_examples(), specs)


@pytest.mark.parametrize("part", ["head.weight", "embeddings"])
def test_a_run_that_diverges_leaves_the_others_alone(part):
    network, examples = NETWORKS[0], make_examples()
    broken = initial(network, 0)
    broken[part][:, 0] = torch.nan
    specs = [RunSpec(QUIET, broken), RunSpec(QUIET, initial(network, 1))]
    trainer = Trainer(build_model(network, VOCABULARY, CLASSES), examples, specs)
    assert [summary.failed for summary in trainer.train()] == [True, False]
    assert_same(trainer.weights_of(1), alone(network, examples, replace(QUIET, seed=1)))


def test_a_batch_is_never_larger_than_the_corpus():
    examples = make_examples()
    config = replace(QUIET, batch_size=2**30)
    (weights,) = together(NETWORKS[0], examples, [RunSpec(config, initial(NETWORKS[0], 0))])
    assert_same(weights, alone(NETWORKS[0], examples, QUIET))


def test_a_loss_beyond_all_bounds_is_divergence():
    network = NETWORKS[0]
    config = replace(QUIET, learning_rate=1e9, max_grad_norm=0)
    with pytest.raises(TrainingError, match=r"training diverged; lower training\.learning_rate"):
        together(network, make_examples(), [RunSpec(config, initial(network, 0))] * 2)


def test_divergence_is_named():
    network, examples = NETWORKS[0], make_examples()
    broken = initial(network, 0)
    broken["head.weight"][0, 0] = torch.nan
    with pytest.raises(
        TrainingError, match="the loss is nan in epoch 1, step 1: training diverged"
    ):
        together(network, examples, [RunSpec(QUIET, broken), RunSpec(QUIET, broken)])
