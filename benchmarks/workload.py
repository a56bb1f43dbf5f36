"""What the benchmarks run on: the network, its sentences and texts, the backend and the threads.

The network is the paper's SST binary with random weights: speed does not depend on the weights.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from dcnn.artifact import Artifact
from dcnn.config import Config, DCNNConfig
from dcnn.ops import native
from dcnn.ops import select as backends
from dcnn.text.encoder import Encoder
from dcnn.text.tokenizer import Tokenizer
from dcnn.text.vocabulary import Sentences, Vocabulary

CLASSES = ("negative", "positive")
TORCH = "eager torch"


@dataclass(frozen=True)
class Workload:
    """The sizes of everything; by default those of the paper's SST binary.

    Attributes:
        model: the network.
        vocabulary: words it knows, the unknown one included.
        classes: number of labels.
        rounds: rounds of interleaved calls.
        calls: calls per round, for calls that take microseconds.
        file_texts: texts in the file that is classified.
        training_texts: sentences of the built-in corpus for training and for dev.
        epochs: of the whole training.
    """

    model: DCNNConfig = field(default_factory=DCNNConfig)
    vocabulary: int = 15_448
    classes: int = len(CLASSES)
    rounds: int = 20
    calls: int = 50
    file_texts: int = 5000
    training_texts: tuple[int, int] = (6000, 800)
    epochs: int = 12

    @property
    def slow_rounds(self) -> int:
        """Rounds of calls that take about a second."""
        return max(self.rounds // 4, 1)

    @property
    def slowest_rounds(self) -> int:
        """Rounds of calls that take about a minute."""
        return max(self.rounds // 10, 1)

    def sentences(self, count: int, words: int) -> Sentences:
        """Random sentences of ``words`` words each."""
        generator = np.random.default_rng(0)
        ids = generator.integers(0, self.vocabulary, count * words).astype(np.int32)
        return Sentences.from_flat(ids, np.full(count, words))

    def texts(self, count: int, words: int) -> list[str]:
        """Texts of known words, cycled in random order so that every word occurs."""
        order = np.random.default_rng(1).permutation(np.arange(1, self.vocabulary))
        chosen = np.resize(order, (count, words))
        return [" ".join(map(_word, row)) for row in chosen.tolist()]

    def artifact(self) -> Artifact:
        """The network with random weights and its vocabulary."""
        generator = np.random.default_rng(0)
        labels = CLASSES if self.classes == len(CLASSES) else tuple(map(str, range(self.classes)))
        shapes = self.model.parameter_shapes(self.vocabulary, self.classes)
        weights = {
            name: generator.standard_normal(shape, np.float32) * np.float32(0.05)
            for name, shape in shapes.items()
        }
        words = [_word(number) for number in range(1, self.vocabulary)]
        encoder = Encoder(Tokenizer(), Vocabulary(words))
        return Artifact(Config(model=self.model), labels, encoder, weights)


def _word(number: int) -> str:
    return f"word{number}"


@contextmanager
def computing_with(backend: str, threads: int = 1) -> Iterator[None]:
    """Force ``backend`` and torch's number of threads; restore both at the end."""
    import torch

    forced, torch_threads = os.environ.get(backends.VARIABLE), torch.get_num_threads()
    os.environ[backends.VARIABLE] = backend
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(torch_threads)
        if forced is None:
            del os.environ[backends.VARIABLE]
        else:
            os.environ[backends.VARIABLE] = forced


def describe_backend(backend: str) -> str:
    """The backend's name, with the instruction set of the native one."""
    return f"native ({native.instruction_set()})" if backend == "native" else backend


def missing_native() -> list[str]:
    """A note if anything but the native backend computes our side; else none."""
    if backends.forced() not in ("auto", "native"):
        return [f"ours: {backends.VARIABLE}={backends.forced()} is forced, not the native backend"]
    if native.available():
        return []
    return [
        f"ours: the native backend is not available ({native.reason()}), so prediction is numpy "
        "and training is torch itself; install a C++ compiler and run `make native`"
    ]


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def too_few_cores(threads: int) -> list[str]:
    """A note if there are fewer cores than ``threads``; else none."""
    if (available := cores()) >= threads:
        return []
    return [f"{threads} threads share {available} core here, so they gain nothing over one"]


def busy_machine(load: float) -> list[str]:
    """A note if other programs kept every core busy; else none."""
    if load < cores():
        return []
    return [
        f"the machine was busy (load {load:.1f}, {cores()} cores): measure again on a quiet one"
    ]
