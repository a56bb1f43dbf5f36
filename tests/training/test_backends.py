"""Training with any backend is the same training: the losses step by step, the accuracy after."""

import numpy as np
import pytest
import torch

from dcnn.config import Config, DCNNConfig, TextConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.data.corpora.opinions import read_opinions
from dcnn.data.corpora.registry import Source
from dcnn.experiments.recipes import DataConfig, Recipe
from dcnn.experiments.tasks import load_task
from dcnn.text.encoder import Encoder
from dcnn.training import trainer as run
from dcnn.training.callbacks import Callback
from networks import build_model, train
from parity import GPU, computing_with

TRAINERS = ["torch", "native avx512", "native avx2", "native plain"]
if GPU:
    TRAINERS += ["torch cuda", "triton"]
# Rounding differs from the first step on, and where it moves a value over the edge of a pool two
# runs begin to go ways of their own: to the same place, but not in step.
FIRST_STEPS, CLOSE = 20, 1e-4
SAME_ACCURACY = 0.05  # about the spread of seeds


def opinions():
    """The built-in corpus: training and dev examples, and the number of words."""
    corpus = read_opinions()
    parts = [corpus["train"][:5000], corpus["dev"][:400]]
    encoder, sentences = Encoder.learn([opinion.text for opinion in parts[0]], TextConfig())
    encoded = [sentences, encoder.encode_all([opinion.text for opinion in parts[1]])]
    labels = sorted({opinion.label for opinion in parts[0]})
    examples = [
        Examples(some, np.array([labels.index(opinion.label) for opinion in part]))
        for some, part in zip(encoded, parts, strict=True)
    ]
    return *examples, len(encoder.vocabulary)


def sst2(corpora, folder):
    """A sample of SST-2: the phrases of the first sentences."""
    for part, sentences in (("train", 200), ("dev", 400), ("test", 10)):
        lines = (corpora / "sst" / f"{part}.txt").read_text(encoding="utf-8").splitlines()
        (folder / f"{part}.txt").write_text(
            "\n".join(lines[:: len(lines) // sentences]) + "\n", encoding="utf-8"
        )
    sources = {part: Source(folder / f"{part}.txt") for part in ("train", "dev", "test")}
    recipe = Recipe("paper", Config(text=TextConfig(tokenizer="whitespace")), DataConfig())
    task = load_task("sst2", recipe, sources)
    return task.train, task.dev, len(task.encoder.vocabulary)


@pytest.fixture(
    scope="module", params=["opinions", pytest.param("sst2", marks=pytest.mark.corpora)]
)
def corpus(request, tmp_path_factory):
    if request.param == "opinions":
        return opinions()
    return sst2(request.getfixturevalue("corpora"), tmp_path_factory.mktemp("sst2"))


class Losses(Callback):
    """What every step reports."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_step(self, progress):
        self.seen.append(progress.loss)


def learn(name, corpus):
    """The losses of the first steps, and the accuracy on dev at the end."""
    examples, dev, vocabulary = corpus
    # Nothing is dropped: a GPU would draw what from a source of its own. Averages of ever smaller
    # steps end where they end, and not where the last batch threw them.
    config = TrainingConfig(
        epochs=8, batch_size=32, schedule="linear", ema=0.99, word_dropout=0, patience=0
    )
    network = DCNNConfig(dim=16, widths=(5, 3), maps=(3, 4), k_top=3, dropout=0)
    with computing_with(name) as backend, pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "STEPS_BETWEEN_READS", 1)
        model = build_model(network, vocabulary, 2)
        model.initialize(torch.Generator().manual_seed(0))
        losses = Losses()
        device = torch.device(backend.device)
        summary = train(model, examples, dev, config, device=device, callback=losses)
    return losses.seen[:FIRST_STEPS], summary.dev_accuracy


@pytest.fixture(scope="module")
def with_torch(corpus):
    return learn("torch", corpus)


@pytest.mark.parametrize("name", TRAINERS[1:])
def test_losses_and_accuracy_are_those_of_torch(name, corpus, with_torch):
    losses, accuracy = learn(name, corpus)
    np.testing.assert_allclose(losses, with_torch[0], rtol=CLOSE)
    assert abs(accuracy - with_torch[1]) <= SAME_ACCURACY
    assert accuracy > 0.6  # it has learned something
