"""A step of the compiled backend in one call is the step of torch, with any number of threads."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dcnn.config import DCNNConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.ops import native, native_torch
from dcnn.text.vocabulary import Sentences
from dcnn.training.batches import RunSpec
from dcnn.training.trainer import Trainer
from networks import build_model
from parity import computing_with

pytestmark = pytest.mark.skipif(not native.available(), reason="not compiled")
NATIVE = f"native {native.instruction_set()}" if native.available() else ""
WORDS, CLASSES, COUNT = 150, 3, 90  # more words than a thread takes at a time
NETWORK = DCNNConfig(dim=16, widths=(5, 3), maps=(3, 4), k_top=3, dropout=0.3)
# With a usual eps, a gradient of nearly zero takes a step as long as any, in the direction in which
# it was rounded.
PLAIN = TrainingConfig(
    eps=1e-2,
    epochs=2, batch_size=32, patience=0, max_grad_norm=0, l2_embeddings=0, l2_filters=(0,),
    l2_head=0, schedule="constant", word_dropout=0, label_smoothing=0,
)  # fmt: skip
SETTINGS = {
    "plain": {},
    "L2": {"l2_embeddings": 1e-3, "l2_filters": (1e-2, 1e-3), "l2_head": 1e-2},
    "clipping": {"max_grad_norm": 0.05},
    "average": {"ema": 0.9},
    "decay": {"decay_embeddings": 0.3, "schedule": "linear"},
    "word dropout": {"word_dropout": 0.3, "label_smoothing": 0.1},
    "ensemble": {"n_ensemble": 2},
    "class weights": {"class_weights": "balanced"},
    "reset": {"reset_every": 1},
    "all": {
        "l2_embeddings": 1e-3, "max_grad_norm": 0.1, "ema": 0.8, "decay_embeddings": 0.1,
        "word_dropout": 0.2, "n_ensemble": 2, "schedule": "linear",
    },
}  # fmt: skip


def make_examples(kind="classes", seed=0):
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, 15, COUNT)
    ids = generator.integers(0, WORDS, lengths.sum()).astype(np.int32)
    targets = generator.integers(0, CLASSES, COUNT)
    if kind == "soft":
        targets = generator.dirichlet(np.ones(CLASSES), COUNT).astype(np.float32)
    if kind == "multi-label":
        targets = (generator.random((COUNT, CLASSES)) < 0.4).astype(np.float32)
    weights = generator.random(COUNT).astype(np.float32) if kind == "weighted" else None
    return Examples(Sentences.from_flat(ids, lengths), targets, weights)


def make_model(n_ensemble=1, ngrams=False):
    model = build_model(NETWORK, 100 if ngrams else WORDS, CLASSES)
    model.n_ensemble = n_ensemble
    if ngrams:  # a third of the words are new ones
        generator = np.random.default_rng(3)
        counts = generator.integers(0, 6, WORDS)
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
        buckets = torch.from_numpy(generator.integers(0, 400, counts.sum()).astype(np.int32))
        model.add_ngrams(offsets, buckets, 400)
    generator = torch.Generator().manual_seed(0)
    model.initialize(generator)
    with torch.no_grad():
        model.embeddings.mul_(10)
        if model.ngrams is not None:
            model.ngrams.normal_(generator=generator)
    return model


def learn(backend, configs, kind="classes", ngrams=False, threads=1, steps=6):
    """The sums of the losses, the norms and the weights after some steps."""
    with computing_with(backend), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        trainer = Trainer(
            make_model(configs[0].n_ensemble, ngrams),
            make_examples(kind),
            [RunSpec(config) for config in configs],
            multi_label=kind == "multi-label",
        )
        assert bool(trainer.runs.networks.learners) == (backend != "torch")
        losses, norms = [], []
        for _ in range(steps):
            trainer.step()
            losses.append(trainer.runs._loss_sum.clone())
            norms.append(trainer.runs._norms.clone())
        weights = {f"{name} now": value.detach() for name, value in trainer.runs.weights.items()}
        evaluated = {
            f"{name} mean": value for name, value in trainer.runs.optimizer.evaluated().items()
        }
        sums = {f"{name} sum": value for name, value in trainer.runs.optimizer.sums.items()}
    return {"losses": torch.stack(losses), "norms": torch.stack(norms)} | weights | evaluated | sums


def assert_close(found, expected, clips):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name == "norms" and not clips:
            assert not found[name].any()  # nobody needs them
            continue
        scale = float(value.abs().max()) or 1.0
        assert float((found[name] - value).abs().max()) <= 2e-4 * scale, name


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("ngrams", [False, True], ids=["words", "n-grams"])
@pytest.mark.parametrize("name", SETTINGS)
def test_steps_are_those_of_torch(name, ngrams, threads):
    config = replace(PLAIN, **SETTINGS[name])
    expected = learn("torch", [config], ngrams=ngrams)
    found = learn(NATIVE, [config], ngrams=ngrams, threads=threads)
    assert_close(found, expected, config.max_grad_norm > 0)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n_ensemble", [1, 2])
@pytest.mark.parametrize("kind", ["soft", "multi-label", "weighted"])
def test_steps_with_other_targets_are_those_of_torch(kind, n_ensemble, threads):
    config = replace(PLAIN, n_ensemble=n_ensemble, max_grad_norm=0.5)
    expected = learn("torch", [config], kind)
    assert_close(learn(NATIVE, [config], kind, threads=threads), expected, True)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("ngrams", [False, True], ids=["words", "n-grams"])
def test_several_runs_take_the_steps_of_torch(ngrams, threads):
    configs = [
        replace(PLAIN, seed=1, max_grad_norm=0.1, word_dropout=0.2, ema=0.9),
        replace(PLAIN, seed=2, max_grad_norm=5.0, l2_embeddings=1e-3, learning_rate=0.05),
    ]
    expected = learn("torch", configs, ngrams=ngrams)
    assert_close(learn(NATIVE, configs, ngrams=ngrams, threads=threads), expected, True)


@pytest.mark.parametrize("name", ["native avx2", "native plain"])
def test_every_instruction_set_takes_the_steps_of_torch(name):
    config = replace(PLAIN, **SETTINGS["all"])
    expected = learn("torch", [config], ngrams=True)
    assert_close(learn(name, [config], ngrams=True, threads=2), expected, True)


@pytest.mark.parametrize("ngrams", [False, True], ids=["words", "n-grams"])
@pytest.mark.parametrize("threads", [1, 2, 3, 200])
def test_the_same_number_of_threads_gives_the_same_bits(threads, ngrams):
    config = replace(PLAIN, **SETTINGS["all"])
    first, second = (learn(NATIVE, [config], ngrams=ngrams, threads=threads) for _ in range(2))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


@pytest.mark.parametrize("keep", [0.5, 0.7, 1.0])
def test_masks_are_those_of_torchs_uniform_numbers(keep):
    ours, theirs = (torch.Generator().manual_seed(7) for _ in range(2))
    for size in (1, 5, 623, 624, 625, 2000, 0, 3):
        expected = torch.empty(size).uniform_(generator=theirs).lt_(keep).div_(keep)
        assert torch.equal(native_torch.draw_mask(torch.empty(size), keep, ours), expected)
        assert torch.equal(ours.get_state(), theirs.get_state())
    assert torch.equal(torch.rand(3, generator=ours), torch.rand(3, generator=theirs))


THREADS_MADE = """
import os, subprocess, sys
from dcnn.config import Config, DCNNConfig
from dcnn.data.labels import number_labels
from dcnn.training.fit import RunOptions, fit

texts = ["a good film", "a dull one"] * 400
data = number_labels(texts, ["good", "bad"] * 400)
config = Config(model=DCNNConfig(dim=8)).with_training(epochs=20, dev_fraction=0, calibrate=False)

def threads_after(count):
    fit(data, None, config, RunOptions(device="cpu", threads=count))
    return len(os.listdir("/proc/self/task"))

before = threads_after(1)
busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
try:
    print(threads_after(2) - before)
finally:
    busy.kill()
    busy.wait()
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux does")
def test_two_threads_are_two_also_where_another_program_has_a_core():
    made = subprocess.run([sys.executable, "-c", THREADS_MADE], capture_output=True, check=True)
    assert int(made.stdout) <= 1


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux does")
def test_a_forked_process_has_threads_of_its_own():
    """Those of the pool that its parent has are gone in it."""
    expected = learn(NATIVE, [PLAIN], threads=2)
    tasks = Path("/proc/self/task")
    child = os.fork()
    if child == 0:
        passed = False
        try:
            threads = len(list(tasks.iterdir()))
            found = learn(NATIVE, [PLAIN], threads=2)
            same = all(torch.equal(found[name], value) for name, value in expected.items())
            passed = same and len(list(tasks.iterdir())) > threads
        finally:
            os._exit(not passed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
