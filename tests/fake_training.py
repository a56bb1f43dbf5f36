"""A training that takes no time: its accuracy follows from the settings, its time from a clock."""

import os
import time
import zlib
from dataclasses import dataclass, field

import numpy as np

from dcnn.config import Config
from dcnn.errors import TrainingError, TrainingStoppedError
from dcnn.training.callbacks import Callback, EvaluationRecord, Progress
from dcnn.tuning.search import Trained


@dataclass
class FakeClock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def goodness(config: Config) -> float:
    """Between 0 and 1; another value for nearly every config."""
    training = config.training
    return 1 / (1 + training.label_smoothing + training.word_dropout + config.model.dropout)


EXAMPLES = 400  # that a trial is evaluated on


def outcome(accuracy: float) -> Trained:
    """What a training with this accuracy gives: the first examples are labelled correctly."""
    correct = np.arange(EXAMPLES) < round(accuracy * EXAMPLES)
    return Trained(accuracy, 0.5, 6, 1000, np.packbits(correct).tobytes().hex())


@dataclass
class FakeTraining:
    """Trains 6 epochs of 10 seconds each.

    Attributes:
        clock: what goes on meanwhile.
        interrupt_at: the number of the call that Ctrl-C ends in the middle.
        diverge_below: accuracy at which the loss is no longer finite.
        epoch_seconds: how long an epoch takes.
        configs: what was trained, finished or not.
    """

    clock: FakeClock = field(default_factory=FakeClock)
    interrupt_at: int = -1
    diverge_below: float = 0.0
    epoch_seconds: float = 10.0
    configs: list[Config] = field(default_factory=list)

    def __call__(self, config: Config, callback: Callback) -> Trained:
        call = len(self.configs)
        self.configs.append(config)
        for epoch in range(1, 7):
            self.clock.now += self.epoch_seconds
            callback.on_step(Progress(epoch, 6, epoch, 6, 0.5, 1.0, 1.0))
            if call == self.interrupt_at and epoch == 2:
                raise KeyboardInterrupt
            accuracy = goodness(config) * epoch / 6
            if accuracy < self.diverge_below / 6:
                raise TrainingError("the loss is nan")
            callback.on_evaluation(EvaluationRecord(epoch, epoch, 0.5, 0.5, accuracy, True))
            if callback.stop and epoch < 6:
                raise TrainingStoppedError("stopped")
        return outcome(goodness(config))


class UnevenTraining(FakeTraining):
    """Trials that take more or less real time, so that processes finish them out of order."""

    def __call__(self, config: Config, callback: Callback) -> Trained:
        time.sleep(zlib.crc32(str(config).encode()) % 100 / 1000)
        return super().__call__(config, callback)


class KilledTraining(FakeTraining):
    """The process is killed, as one that needs too much memory is."""

    def __call__(self, config: Config, callback: Callback) -> Trained:
        os._exit(9)
