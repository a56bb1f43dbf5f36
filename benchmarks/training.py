"""Training on a CPU: one step, and a whole run on the built-in corpus."""

from dataclasses import replace
from functools import partial

import numpy as np

from dcnn.artifact import Artifact
from dcnn.config import Config, DCNNConfig, TrainingConfig
from dcnn.data.batching import Examples
from dcnn.data.corpora.opinions import Opinion, read_opinions
from dcnn.data.labels import LabelledTexts, number_labels
from dcnn.ops import select as backends
from dcnn.training.batches import RunSpec
from dcnn.training.fit import RunOptions, choose_device, fit
from dcnn.training.native_run import NativeDCNN
from dcnn.training.trainer import Trainer
from eager_torch import torch_model
from report import Outcome, Row, plural
from timing import TimedCall, time_interleaved
from workload import CLASSES, TORCH, Workload, computing_with, describe_backend, too_few_cores

BATCH, WORDS, EXAMPLES = 64, 18, 1024
CALLS = 5
# Of one and of two threads: while one thread works the second core falls asleep, and it is some
# calls until it wakes as fast as in a training.
CALLS_OF_THREADS = 50
# The host of a virtual machine moves its cores together and apart, for seconds at a time, and what
# threads exchange takes five times as long between distant ones: half a minute sees both.
TIMES_THE_ROUNDS = 20
THREADS = (1, 2)
ENDLESS = 1_000_000  # epochs: the run is timed, never finished


def train_step(workload: Workload) -> Outcome:
    """A step of 64 sentences of 18 words on one thread and on two; a training from start to end."""
    own, chosen = training_backend(), backends.forced()
    rows, notes = [], []
    for threads in THREADS:
        timed = [
            step_timed_call(workload, name, backend, threads)
            for name, backend in (("ours", chosen), (TORCH, "torch"))
        ]
        measures = time_interleaved(timed, workload.rounds, CALLS)
        ours, theirs = (measures[timed_call.name].rate(BATCH) for timed_call in timed)
        setup = f"training step of {BATCH} sentences of {WORDS} words"
        name = f"{setup}, {plural(threads, 'thread')}"
        rows.append(Row.compare(name, "sentences/s", ours, theirs, TORCH))
        notes += too_few_cores(threads)
    timed = [
        replace(step_timed_call(workload, "", chosen, threads), name=plural(threads, "thread"))
        for threads in reversed(THREADS)
    ]
    rounds = TIMES_THE_ROUNDS * workload.rounds
    two, one = time_interleaved(timed, rounds, CALLS_OF_THREADS).values()
    rows.append(
        Row.compare(name, "sentences/s", two.rate(BATCH), one.rate(BATCH), "ours, 1 thread")
    )
    rows.append(_whole_training(workload, chosen))
    return Outcome(describe_backend(own), rows, notes)


def training_backend() -> str:
    """The backend that trains on a CPU.

    Raises:
        ConfigError: ``DCNN_BACKEND`` forces a backend that is missing or cannot train.
    """
    choose_device("cpu")
    return backends.for_training("cpu")


def step_timed_call(workload: Workload, name: str, backend: str, threads: int) -> TimedCall:
    """All of a step: batch, dropout, forward, backward, clipping, Adagrad."""
    targets = np.random.default_rng(1).integers(0, len(CLASSES), EXAMPLES)
    examples = Examples(workload.sentences(EXAMPLES, WORDS), targets)
    config = TrainingConfig(batch_size=BATCH, epochs=ENDLESS)
    context = partial(computing_with, backend, threads)
    with context():  # the optimizer is chosen now, the layers at every step
        is_native = backends.for_training("cpu") == "native"
        model = (native_model if is_native else torch_model)(workload.artifact())
        trainer = Trainer(model, examples, [RunSpec(config)], threads=threads)
    return TimedCall(name, trainer.step, context)


def native_model(artifact: Artifact) -> NativeDCNN:
    """The network of ``artifact`` as ``dcnn train`` trains it on a CPU."""
    classes, vocabulary = len(artifact.classes), len(artifact.encoder.vocabulary)
    assert isinstance(artifact.config.model, DCNNConfig)  # noqa: S101
    model = NativeDCNN(artifact.config.model, vocabulary, classes)
    for name, value in model.weights.items():
        value[:] = artifact.weights[name]
    return model


def _whole_training(workload: Workload, chosen: str) -> Row:
    corpus = read_opinions()
    train_texts, dev_texts = workload.training_texts
    data = _labelled(corpus["train"][:train_texts])
    dev = _labelled(corpus["dev"][:dev_texts])
    # Early stopping could end one side sooner than the other.
    config = Config(model=workload.model).with_training(epochs=workload.epochs, patience=0)

    def train() -> None:
        fit(data, dev, config, RunOptions(device="cpu"))

    timed = [
        TimedCall(name, train, partial(computing_with, backend))
        for name, backend in (("ours", chosen), (TORCH, "torch"))
    ]
    measures = time_interleaved(timed, workload.slowest_rounds, warm_up=False)
    name = (
        f"training on the built-in corpus: {len(data.texts):,} sentences, "
        f"{workload.epochs} epochs, 1 thread"
    )
    return Row.compare(name, "s", measures["ours"], measures[TORCH], TORCH)


def _labelled(opinions: list[Opinion]) -> LabelledTexts:
    texts, labels = [o.text for o in opinions], [o.label for o in opinions]
    return number_labels(texts, labels, classes=CLASSES)
