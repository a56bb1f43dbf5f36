"""``dcnn train`` on a GPU: an ensemble, a corpus on disk, and torchrun with NCCL."""

import csv
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from dcnn.artifact import load
from dcnn.config import Config, DCNNConfig, TrainingConfig
from dcnn.data.labels import number_labels
from dcnn.predictor import Predictor
from dcnn.training.fit import RunOptions, fit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
WORDS = ["plot", "cast", "end", "score", "joke"]
# Nothing is drawn on the device, whose generator is another than the CPU's.
CERTAIN = ("--set", "model.dropout=0", "--set", "training.word_dropout=0", "--epochs", "3")


def opinions(count, seed=0):
    generator = random.Random(seed)
    for _ in range(count):
        good = generator.random() < 0.4
        some = generator.choices(WORDS, k=generator.randrange(1, 9))
        yield " ".join([*some, "is", "good" if good else "bad"]), "pos" if good else "neg"


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(3):
        with (folder / f"{number}.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([("text", "label"), *opinions(80, number)])
    return folder


def train(folder, *arguments, launcher=()):
    """Run ``dcnn train`` in ``folder`` and return what it printed."""
    command = [sys.executable, *launcher, "-m", "dcnn", "train", *map(str, arguments)]
    environment = {"COLUMNS": "200", "DCNN_CACHE": str(folder / "cache")}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("n_ensemble", [1, 4])
def test_an_ensemble_is_that_of_the_cpu(n_ensemble):
    texts, labels = zip(*opinions(120), strict=True)
    data = number_labels(texts, labels, classes=("neg", "pos"))
    network = DCNNConfig(dim=32, widths=(4, 3), maps=(3, 4), k_top=2, dropout=0)
    training = TrainingConfig(epochs=3, batch_size=16, word_dropout=0, n_ensemble=n_ensemble)
    logits = []
    for device in ("cpu", "cuda"):
        config = Config(model=network, training=training)
        artifact, _ = fit(data, data, config, RunOptions(device=device))
        logits.append(Predictor(artifact).probabilities(texts))
    np.testing.assert_allclose(*logits, atol=2e-3)


def test_a_corpus_on_disk_gives_the_model_of_the_cpu(shards, tmp_path):
    texts = [text for text, _ in opinions(60, 9)]
    predicted = []
    for device in ("cpu", "cuda"):
        train(tmp_path, shards, "--out", device, "--device", device, "--stream", *CERTAIN)
        predicted.append(Predictor.load(tmp_path / device).probabilities(texts))
    # A weight whose first gradient is next to nothing may go either way, and decides nothing.
    np.testing.assert_allclose(*predicted, atol=0.02)


@pytest.mark.parametrize("where", [(), ("--stream",)], ids=["in memory", "on disk"])
def test_nccl_gives_what_one_process_gives(shards, tmp_path, where):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1")
    arguments = (shards, "--device", "cuda", *CERTAIN, *where)
    train(tmp_path, *arguments, "--out", "plain")
    out = train(tmp_path, *arguments, "--out", "nccl", launcher=launcher)
    assert "training on cuda" in out
    assert load(tmp_path / "nccl").metadata["processes"] == 1
    texts = [text for text, _ in opinions(60, 9)]
    predicted = [Predictor.load(tmp_path / name).probabilities(texts) for name in ("plain", "nccl")]
    # Sums of gradients are added in another order, and a weight whose first gradient is next to
    # nothing may go either way.
    np.testing.assert_allclose(*predicted, atol=0.02)
