"""Training on numpy arrays is training on torch's tensors, bit for bit, and needs no torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import strategies as st

import dcnn
from dcnn.config import Config, DCNNConfig, TextConfig
from dcnn.data.batching import Examples
from dcnn.data.labels import LabelledTexts
from dcnn.errors import TrainingError, TrainingStoppedError, UserError
from dcnn.models import DCNN
from dcnn.ops import native
from dcnn.training import fit as fit_module
from dcnn.training.batches import RunSpec
from dcnn.training.callbacks import Callback
from dcnn.training.fit import RunOptions, fit, initialize, make_model, make_native_model
from dcnn.training.native_run import NativeDCNN
from dcnn.training.trainer import Trainer, _checksum

pytestmark = pytest.mark.skipif(not native.available(), reason="not compiled")
if native.available():
    from dcnn.ops.native_training import Generator
# Torch's normal numbers are other ones where it has no kernel for AVX2.
as_torch_draws = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="no AVX2"
)
WORDS = [f"w{number}" for number in range(60)]
NETWORK = DCNNConfig(dim=16, widths=(5, 3), maps=(3, 4), k_top=3, dropout=0.3)
SETTINGS = {
    "one layer": {"model": DCNNConfig(dim=8, widths=(4,), maps=(5,), k_top=2, fold=False)},
    "without dropout": {"model": DCNNConfig(dim=8, widths=(4,), maps=(2,), k_top=2, dropout=0)},
    "ensemble": {"training.n_ensemble": 2},
    "average, word dropout": {"training.ema": 0.9, "training.word_dropout": 0.2},
    "clipped, decaying": {
        "training.max_grad_norm": 0.5, "training.schedule": "linear",
        "training.decay_embeddings": 0.1, "training.reset_every": 1,
    },
    "balanced": {"training.class_weights": "balanced", "training.label_smoothing": 0.1},
    "n-grams": {"text": TextConfig(char_ngrams=(2, 3), n_buckets=50, min_count=3)},
    "n-grams, ensemble": {
        "text": TextConfig(char_ngrams=(2, 3), n_buckets=50), "training.n_ensemble": 2,
    },
    "folds": {"training.folds": 3},
}  # fmt: skip


def make_texts(count, kind="classes", seed=0):
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(WORDS, generator.integers(1, 15))) for _ in range(count)]
    targets = generator.integers(0, 3, count)
    if kind == "soft":
        targets = generator.dirichlet(np.ones(3), count).astype(np.float32)
    if kind == "multi-label":
        targets = (generator.random((count, 3)) < 0.4).astype(np.float32)
    weights = generator.random(count).astype(np.float32) if kind == "weighted" else None
    return LabelledTexts(texts, targets, ("a", "b", "c"), weights, kind == "multi-label")


def make_config(settings):
    sections = {name: value for name, value in settings.items() if "." not in name}
    training = {"epochs": 2, "batch_size": 16, "patience": 0}
    training |= {name[9:]: value for name, value in settings.items() if "." in name}
    return Config(**{"model": NETWORK} | sections).with_training(**training)


def fit_both(*given, **options):
    """Models of arrays and of tensors with their summaries."""
    found, made = [], []
    for make in (
        make_native_model,
        lambda config, encoder, classes, words: make_model(config, encoder, classes, None, words),
    ):
        with pytest.MonkeyPatch.context() as patch:

            def noted(*arguments, make=make):
                made.append(make(*arguments))
                return made[-1]

            patch.setattr(fit_module, "make_native_model", noted)
            found.append(fit(*given, RunOptions(device="cpu", **options)))
    assert {type(model) for model in made} == {NativeDCNN, DCNN}
    return found


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def assert_same_models(*fitted):
    (one, summary), (other, expected) = fitted
    assert_same(one.weights, other.weights)
    assert one.thresholds == other.thresholds
    clock = ("seconds", "sentences_per_second")
    assert all(one.metadata[name] == other.metadata[name] for name in one.metadata.keys() - clock)
    assert [record.loss for record in summary.history] == [
        record.loss for record in expected.history
    ]


@as_torch_draws
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("has_dev", [True, False], ids=["dev", "no dev"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_model_is_the_one_that_tensors_give_bit_for_bit(name, has_dev, threads):
    config, dev = make_config(SETTINGS[name]), make_texts(30, seed=1) if has_dev else None
    assert_same_models(*fit_both(make_texts(90), dev, config, threads=threads))


@as_torch_draws
@pytest.mark.parametrize("kind", ["soft", "multi-label", "weighted"])
def test_other_targets_too(kind):
    config = make_config(SETTINGS["ensemble"])
    assert_same_models(*fit_both(make_texts(90, kind), make_texts(30, kind, 1), config))


@as_torch_draws
@pytest.mark.parametrize("ngrams", [(), (2, 3)], ids=["words", "n-grams"])
def test_pretrained_vectors_and_a_model_to_continue_too(ngrams, tmp_path):
    path = tmp_path / "vectors.txt"
    lines = [f"{word} {' '.join('1234' * 4)} {number}\n" for number, word in enumerate(WORDS)]
    path.write_text("".join(lines))
    config = make_config({"text": TextConfig(vectors=str(path), char_ngrams=ngrams, n_buckets=50)})
    start, other = fit_both(make_texts(60), None, config)
    assert_same_models(start, other)
    given = make_texts(60, seed=2), make_texts(30, seed=1), config
    assert_same_models(*fit_both(*given, start_from=start[0]))


@as_torch_draws
@pytest.mark.parametrize("steps", [4, 7])
@pytest.mark.parametrize("name", ["average, word dropout", "n-grams, ensemble"])
def test_a_snapshot_of_either_continues_the_other(name, steps):
    config, data = make_config(SETTINGS[name]), make_texts(90)
    encoder, sentences = fit_module.Encoder.learn(data.texts, config.text)
    examples = Examples(sentences, data.targets)

    def trainer(make):
        model = make(config, encoder, 3)
        initialize(model, config, None)
        return Trainer(model, examples, [RunSpec(config.training)], examples)

    whole = trainer(make_native_model)
    whole.train()
    for first, second in ((make_native_model, make_model), (make_model, make_native_model)):
        begun, continued = trainer(first), trainer(second)
        for _ in range(steps):
            begun.step()
        assert bool(begun.runs.kept) == (steps > 6)  # there are six in an epoch
        arrays, progress = begun.snapshot()
        continued.restore({key: value.copy() for key, value in arrays.items()}, progress)
        continued.train()
        assert_same(continued.weights_of(0), whole.weights_of(0))


def test_a_stopped_run_ends_with_the_weights_of_one_that_was_not(tmp_path):
    class Stop(Callback):
        stop = False

        def on_step(self, progress):
            self.stop = progress.step == 7

    config, data = make_config(SETTINGS["average, word dropout"]), make_texts(90)
    options = RunOptions(device="cpu", checkpoint_path=tmp_path / "checkpoint", resume=True)
    with pytest.raises(TrainingStoppedError):
        fit(data, data, config, RunOptions(**options.__dict__ | {"callback": Stop()}))
    resumed, _ = fit(data, data, config, options)
    whole, _ = fit(data, data, config, RunOptions(device="cpu"))
    assert_same(resumed.weights, whole.weights)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("run/generator", lambda state: np.zeros_like(state), "no state of a generator"),
        ("run/generator", lambda state: state[:24], "no state of a generator"),
        ("model/embeddings", lambda table: table[:1], "cannot reshape"),
        ("best/embeddings", lambda table: table[:1], "cannot reshape"),
        ("best/head.bias", None, "head.bias"),
        ("adagrad/head.bias", lambda total: total + 1, "its checksum is another"),
    ],
)
def test_a_damaged_checkpoint_is_refused(name, change, message, tmp_path):
    config, data, path = make_config({}), make_texts(90), tmp_path / "checkpoint"
    fit(data, data, config, RunOptions(device="cpu", checkpoint_path=path))
    arrays = safetensors.numpy.load_file(path)
    changed = arrays | ({} if change is None else {name: change(arrays[name]).copy()})
    if change is None:
        del changed[name]
    with safetensors.safe_open(path, "np") as stream:
        description = json.loads(stream.metadata()["description"])
    if name != "adagrad/head.bias":
        description["crc32"] = _checksum(changed)
    safetensors.numpy.save_file(changed, path, {"description": json.dumps(description)})
    options = RunOptions(device="cpu", checkpoint_path=path, resume=True)
    with pytest.raises(UserError, match=f"not a readable checkpoint .*{message}"):
        fit(data, data, config, options)


@pytest.mark.parametrize("kind", ["classes", "multi-label"])
@pytest.mark.parametrize("rate", [1e6, 1e9])
def test_a_training_that_diverges_says_so_and_can_be_repeated(rate, kind, tmp_path):
    config = make_config({"text": TextConfig(char_ngrams=(2, 3), n_buckets=50)})
    options = RunOptions(device="cpu", checkpoint_path=tmp_path / "checkpoint")
    with pytest.raises(TrainingError, match=r"training diverged; lower training.learning_rate"):
        fit(make_texts(90, kind), None, config.with_training(learning_rate=rate), options)
    assert not options.checkpoint_path.exists()


def test_arrays_are_for_a_single_run_on_a_cpu():
    config, data = make_config({}), make_texts(20)
    encoder, sentences = fit_module.Encoder.learn(data.texts, config.text)
    model = make_native_model(config, encoder, 3)
    with pytest.raises(ValueError, match="a NativeDCNN has a single run"):
        Trainer(model, Examples(sentences, data.targets), [RunSpec(config.training)] * 2)


@pytest.mark.parametrize("installed", [True, False], ids=["torch", "no torch"])
@pytest.mark.parametrize("driver", [True, False], ids=["driver", "no driver"])
def test_torch_is_asked_for_a_gpu_only_where_there_is_a_driver(driver, installed, tmp_path):
    torch = "class cuda:\n    is_available = lambda: True\n"
    (tmp_path / "torch.py").write_text(torch if installed else "raise ModuleNotFoundError")
    code = (
        "from dcnn.training import fit\n"
        f"fit._has_gpu_driver = lambda: {driver}\n"
        "import sys; print(fit.choose_device('auto'), 'torch' in sys.modules)"
    )
    search = os.pathsep.join([str(tmp_path), str(Path(dcnn.__file__).parents[1])])
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": search, "DCNN_BACKEND": "auto"},
    )
    found = "cuda" if driver and installed else "cpu"
    assert ended.stdout == f"{found} {found == 'cuda'}\n", ended.stderr


DRAWS = st.lists(
    st.tuples(st.sampled_from(["uniform", "mask", "normal"]), st.integers(0, 1300)), max_size=6
)


@as_torch_draws
@given(seed=st.integers(0, 2**64 - 1), draws=DRAWS)
def test_random_numbers_are_those_of_torch(seed, draws):
    ours, theirs = Generator.seeded(seed), torch.Generator().manual_seed(seed)
    np.testing.assert_array_equal(ours.state, theirs.get_state().numpy())
    for kind, size in draws:
        empty = torch.empty(size)
        if kind == "uniform":
            found, expected = ours.uniform((size,)), empty.uniform_(generator=theirs)
        elif kind == "mask":
            found = ours.mask((size,), 0.7)
            expected = empty.uniform_(generator=theirs).lt_(0.7).div_(0.7)
        else:
            found = ours.normal((size,), 0.05)
            expected = empty.normal_(0, 0.05, generator=theirs)
        np.testing.assert_array_equal(found, expected.numpy())
        np.testing.assert_array_equal(ours.state, theirs.get_state().numpy())


def test_normal_numbers_are_normal():
    numbers = np.sort(Generator.seeded(0).normal((1_000_000,), 2.0))
    assert abs(numbers.mean()) < 0.01
    assert numbers.std() == pytest.approx(2, rel=0.005)
    within = np.searchsorted(numbers, [-4, -2, 2, 4]) / len(numbers)
    np.testing.assert_allclose(within, [0.02275, 0.15866, 0.84134, 0.97725], atol=0.002)


def test_initial_values_are_drawn_for_every_weight():
    model = NativeDCNN(NETWORK, 30, 3)
    for value in model.weights.values():
        value.fill(np.nan)  # as memory that nothing wrote might be
    model.initialize(0)
    assert all(np.isfinite(value).all() for value in model.weights.values())


# As where nothing is installed but what predicting needs.
WITHOUT_EXTRAS = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("torch", "sklearn", "scipy"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
"""


def test_a_training_needs_nothing_that_predicting_does_not(tmp_path):
    rows = zip(*(getattr(make_texts(200), name) for name in ("texts", "targets")), strict=True)
    lines = "".join(f"{text},{label}\n" for text, label in rows)
    (tmp_path / "train.csv").write_text("text,label\n" + lines)
    for arguments in (
        ["train", "train.csv", "--test", "train.csv", "--out", "model", "--epochs", "2"],
        ["train", "train.csv", "--start-from", "model", "--out", "continued", "--epochs", "1"],
        ["train", "train.csv", "--stream", "--out", "streamed", "--epochs", "1"],
        ["predict", "continued", "w1 w2"],
    ):
        code = (
            f"{WITHOUT_EXTRAS}"
            f"sys.argv = ['dcnn', *{arguments!r}]; from dcnn.__main__ import main; sys.exit(main())"
        )
        ended = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=os.environ | {"DCNN_BACKEND": "auto", "DCNN_CACHE": str(tmp_path / "cache")},
        )
        assert ended.returncode == 0, ended.stderr
