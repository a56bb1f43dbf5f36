"""Members of an ensemble are networks of their own, and their mean is one network."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn.artifact import Artifact
from dcnn.config import Config, DCNNConfig, MaxTDNNConfig, NBoWConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.data.labels import number_labels
from dcnn.models import sentence
from dcnn.ops import native
from dcnn.predictor import Predictor
from dcnn.text.encoder import Encoder
from dcnn.text.vocabulary import Sentences
from dcnn.training.batches import RunSpec
from dcnn.training.fit import RunOptions, fit, make_model
from dcnn.training.trainer import Trainer
from networks import build_model, encoder_of, train

VOCABULARY, CLASSES = 12, 3
# A network, and how many networks its rows are an ensemble of.
ENSEMBLES = [
    (DCNNConfig(dim=24, widths=(4, 3), maps=(2, 3), k_top=2, dropout=0.5), 3),
    (DCNNConfig(dim=8, widths=(3,), maps=(2,), k_top=3, dropout=0), 4),
    (DCNNConfig(dim=6, widths=(4, 2), maps=(2, 2), k_top=3, fold=False, dropout=0.5), 2),
    (MaxTDNNConfig(dim=6, width=3, dropout=0.5), 3),
    (NBoWConfig(dim=8), 2),
]
every_ensemble = pytest.mark.parametrize(
    ("config", "n_ensemble"),
    ENSEMBLES,
    ids=["two layers", "one layer", "no folding", "tdnn", "nbow"],
)
BACKENDS = ["torch", *(["native"] if native.available() else [])]


def make_ensemble(config, n_ensemble, seed=0):
    model = build_model(config, VOCABULARY, CLASSES)
    model.n_ensemble = n_ensemble
    model.initialize(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(8)
    return model


def rows_of(config, values, axis, n_ensemble, member):
    """What of ``values`` is a member's along ``axis``, which has the rows of some layer.

    Folding sums rows i and i + d/2: whose a row is follows from the row of the last layer.
    """
    last = config.feature_shape[1]
    owner = torch.arange(values.shape[axis]) % last // (last // n_ensemble)
    return values.index_select(axis, torch.nonzero(owner == member)[:, 0])


def of_member(config, weights, n_ensemble, member):
    """The weights, or gradients, of a network that is the member alone; the bias is of all."""
    maps, rows, kept = config.feature_shape
    top = weights["head.weight"].view(-1, maps, rows, kept)
    own = {
        "embeddings": rows_of(config, weights["embeddings"], 1, n_ensemble, member),
        "head.weight": rows_of(config, top, 2, n_ensemble, member).flatten(1),
        "head.bias": weights["head.bias"],
    }
    for layer in range(config.depth):
        for part, axis in (("filters", 2), ("bias", 1)):
            name = f"layers.{layer}.{part}"
            own[name] = rows_of(config, weights[name], axis, n_ensemble, member)
    return own


def stand_alone(config, weights, n_ensemble, member):
    """The member as a network without others."""
    small = Config(model=config).with_settings([f"model.dim={config.dim // n_ensemble}"]).model
    model = build_model(small, VOCABULARY, CLASSES)
    model.load_state_dict(of_member(config, weights, n_ensemble, member))
    return model


def make_batch(model, config, n_ensemble):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(VOCABULARY, (6, 9), generator=generator)
    lengths = torch.tensor([9, 1, 4, 7, 2, 9])
    dropout = model.draw_dropout(6, generator)
    apart = None
    if dropout is not None:
        shaped = dropout.view(-1, *config.feature_shape)
        apart = [
            rows_of(config, shaped, 2, n_ensemble, member).flatten(1)
            for member in range(n_ensemble)
        ]
    return ids, lengths, dropout, apart


@pytest.mark.parametrize("widest", [0, 256], ids=["each head", "all heads"])
@pytest.mark.parametrize("backend", BACKENDS)
@every_ensemble
def test_a_member_is_a_network_of_its_own(config, n_ensemble, backend, widest, monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", backend)
    monkeypatch.setattr(sentence, "WIDEST_HEAD", widest)
    model = make_ensemble(config, n_ensemble)
    ids, lengths, dropout, apart = make_batch(model, config, n_ensemble)
    logits = model(ids, lengths, dropout, apart=True).view(6, n_ensemble, CLASSES)
    for member in range(n_ensemble):
        alone = stand_alone(config, model.state_dict(), n_ensemble, member)
        mask = None if apart is None else apart[member]
        torch.testing.assert_close(
            logits[:, member], alone(ids, lengths, mask), rtol=1e-4, atol=1e-5
        )
    mean = model(ids, lengths, dropout)
    torch.testing.assert_close(mean, logits.mean(dim=1), rtol=1e-4, atol=1e-5)


@every_ensemble
def test_their_mean_is_one_network(config, n_ensemble):
    model = make_ensemble(config, n_ensemble)
    encoder = Encoder.learn([" ".join(map(str, range(VOCABULARY - 1)))], Config().text)[0]
    weights = {name: value.numpy() for name, value in model.merged(model.state_dict()).items()}
    artifact = Artifact(Config(model=config), ("a", "b", "c"), encoder, weights)
    ids, lengths, _, _ = make_batch(model, config, n_ensemble)
    sentences = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
    predicted = Predictor(artifact).logits(Sentences.from_lists(sentences))
    with torch.no_grad():
        expected = model(ids, lengths).numpy()
    np.testing.assert_allclose(predicted, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=20)
@given(st.integers(1, 3), st.integers(1, 3), st.booleans(), st.integers(0, 2**16))
def test_the_native_library_divides_as_torch_does(n_ensemble, units, fold, seed):
    if not native.available():
        pytest.skip("not compiled")
    rows = 4 * units * n_ensemble
    config = DCNNConfig(dim=rows, widths=(4, 3), maps=(2, 3), k_top=2, fold=fold, dropout=0.5)
    examples = make_examples(seed=seed)
    training = TrainingConfig(epochs=1, batch_size=8, n_ensemble=n_ensemble, word_dropout=0)
    trained = {}
    for backend in ("torch", "native"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DCNN_BACKEND", backend)
            model = make_ensemble(config, n_ensemble, seed)
            train(model, examples, None, training)
            trained[backend] = dict(model.state_dict())
    for name, value in trained["torch"].items():
        torch.testing.assert_close(value, trained["native"][name], rtol=1e-3, atol=1e-4)


# One step that is the gradient: Adagrad's eps is far above it, and nothing is random.
STEP = {"epochs": 1, "batch_size": 64, "word_dropout": 0, "learning_rate": 1e4, "eps": 1e4}


def make_examples(count=40, seed=0):
    generator = np.random.default_rng(seed)
    sentences = [
        generator.integers(1, VOCABULARY, generator.integers(1, 12)).tolist() for _ in range(count)
    ]
    targets = np.array([sentence[0] % CLASSES for sentence in sentences])
    return Examples(Sentences.from_lists(sentences), targets)


@pytest.mark.parametrize("backend", BACKENDS)
@every_ensemble
def test_each_learns_as_if_it_were_alone(config, n_ensemble, backend, monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", backend)
    config = Config(model=config).with_settings(["model.dropout=0"]).model
    examples = make_examples()
    ensemble = make_ensemble(config, n_ensemble)
    singles = [
        stand_alone(config, ensemble.state_dict(), n_ensemble, member)
        for member in range(n_ensemble)
    ]
    train(ensemble, examples, None, TrainingConfig(n_ensemble=n_ensemble, **STEP))
    steps = torch.zeros(CLASSES)
    for member, single in enumerate(singles):
        train(single, examples, None, TrainingConfig(**STEP))
        learned = of_member(config, ensemble.state_dict(), n_ensemble, member)
        steps += single.head.bias.detach()
        for name, value in single.state_dict().items():
            if name != "head.bias":
                torch.testing.assert_close(learned[name], value, rtol=1e-4, atol=1e-5)
    # They share the bias, which starts at zero: it goes the way of all of them.
    torch.testing.assert_close(ensemble.head.bias.detach(), steps, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@every_ensemble
def test_runs_together_are_ensembles_as_a_single_run_is(config, n_ensemble, backend, monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", backend)
    config = Config(model=config).with_settings(["model.dropout=0"]).model
    # A norm far below that of the gradients, of which each member has its share.
    examples, training = (
        make_examples(),
        TrainingConfig(n_ensemble=n_ensemble, max_grad_norm=0.1, **STEP),
    )
    alone = make_ensemble(config, n_ensemble)
    initial = {name: value.detach().clone() for name, value in alone.named_parameters()}
    train(alone, examples, None, training)
    specs = [RunSpec(training, initial)] * 2
    trainer = Trainer(make_ensemble(config, n_ensemble), examples, specs)
    trainer.train()
    expected = alone.merged(alone.state_dict())
    for name, value in trainer.weights_of(1).items():
        np.testing.assert_allclose(value, expected[name].detach(), rtol=1e-3, atol=1e-4)


def test_each_may_have_the_largest_norm():
    config = DCNNConfig(dim=16, widths=(3,), maps=(2,), k_top=2, dropout=0)
    model = make_ensemble(config, 4)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    quiet = {"l2_embeddings": 0, "l2_filters": (0,), "l2_head": 0, "max_grad_norm": 1e-3}
    train(model, make_examples(), None, TrainingConfig(n_ensemble=4, **quiet, **STEP))
    moved = [(value.detach() - before[name]).norm() for name, value in model.named_parameters()]
    assert float(torch.stack(moved).norm()) == pytest.approx(2e-3, rel=1e-3)


def test_the_settings_divide_the_network_that_is_trained():
    config = Config(model=DCNNConfig(dim=16), training=TrainingConfig(n_ensemble=2))
    assert make_model(config, encoder_of(VOCABULARY), CLASSES).n_ensemble == 2
    data = number_labels(["good film", "bad film"] * 4, ["pos", "neg"] * 4)
    artifact, _ = fit(data, None, config.with_training(epochs=1), RunOptions(device="cpu"))
    assert artifact.metadata["n_ensemble"] == 2


@pytest.mark.parametrize(("asked", "said"), [(2, False), (9, True)])
def test_that_there_are_fewer_than_asked_for_is_said(asked, said, caplog):
    config = Config(model=DCNNConfig(dim=16)).with_training(n_ensemble=asked, epochs=1)
    data = number_labels(["good film", "bad film"] * 4, ["pos", "neg"] * 4)
    with caplog.at_level("INFO", "dcnn"):
        fit(data, None, config, RunOptions(device="cpu"))
    message = (
        "training.n_ensemble=9: model.dim=16 rows make an ensemble of 2, each of 8 rows or more"
    )
    assert (message in caplog.text) is said


def examples_of_all_kinds():
    """With weights, multi-label, and with both."""
    one = make_examples()
    weights = np.linspace(0.1, 3, len(one), dtype=np.float32)
    several = (np.random.default_rng(2).random((len(one), CLASSES)) < 0.4).astype(np.float32)
    return [
        (Examples(one.sentences, one.targets, weights), False),
        (Examples(one.sentences, several), True),
        (Examples(one.sentences, several, weights), True),
    ]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("examples", "multi_label"), examples_of_all_kinds(), ids=["weights", "labels", "both"]
)
def test_weights_and_several_labels_are_those_of_each(examples, multi_label, backend, monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", backend)
    config, n_ensemble = ENSEMBLES[1]
    ensemble = make_ensemble(config, n_ensemble)
    singles = [
        stand_alone(config, ensemble.state_dict(), n_ensemble, member)
        for member in range(n_ensemble)
    ]
    train(
        ensemble,
        examples,
        None,
        TrainingConfig(n_ensemble=n_ensemble, **STEP),
        multi_label=multi_label,
    )
    for member, single in enumerate(singles):
        train(single, examples, None, TrainingConfig(**STEP), multi_label=multi_label)
        learned = of_member(config, ensemble.state_dict(), n_ensemble, member)
        for name, value in single.state_dict().items():
            if name != "head.bias":
                torch.testing.assert_close(learned[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", [ENSEMBLES[0], ENSEMBLES[3]], ids=["dcnn", "tdnn"])
def test_projected_vectors_are_divided_too(network):
    config, n_ensemble = network
    config = Config(model=config).with_settings(["model.dropout=0"]).model
    generator = torch.Generator().manual_seed(3)
    vectors = torch.randn(VOCABULARY, 5, generator=generator)
    projection = torch.randn(5, config.dim, generator=generator)
    ensemble = make_ensemble(config, n_ensemble)
    singles = [
        stand_alone(config, ensemble.state_dict(), n_ensemble, member)
        for member in range(n_ensemble)
    ]
    for member, model in [(None, ensemble), *enumerate(singles)]:
        model.project(vectors)
        with torch.no_grad():
            own = (
                projection if member is None else rows_of(config, projection, 1, n_ensemble, member)
            )
            model.projection.copy_(own)
    examples = make_examples()
    train(ensemble, examples, None, TrainingConfig(n_ensemble=n_ensemble, **STEP))
    for member, single in enumerate(singles):
        train(single, examples, None, TrainingConfig(**STEP))
        learned = rows_of(config, ensemble.projection.detach(), 1, n_ensemble, member)
        torch.testing.assert_close(learned, single.projection.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("network", "most", "n_ensemble"),
    [
        (DCNNConfig(dim=96), 8, 8),
        (DCNNConfig(dim=96), 1, 1),
        (DCNNConfig(dim=48), 8, 6),  # of eight rows each
        (DCNNConfig(dim=40), 8, 5),
        (DCNNConfig(dim=44), 8, 1),  # eleven times the four rows that are folded into one
        (DCNNConfig(dim=44, fold=False), 8, 4),
        (DCNNConfig(dim=4), 8, 1),
        (NBoWConfig(dim=30), 8, 3),
    ],
)
def test_rows_are_divided_among_as_many_as_may_be(network, most, n_ensemble):
    assert Config(model=network, training=TrainingConfig(n_ensemble=most)).n_ensemble == n_ensemble
