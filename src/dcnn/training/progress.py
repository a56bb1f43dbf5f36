"""What a training run tells whoever listens: the library reports, the command line draws."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where the run stands after a step.

    Attributes:
        epoch: number of the current epoch, from 1.
        epochs: how many there will be at most.
        step: steps done in all.
        steps: steps there will be at most.
        loss: mean training loss of the epoch so far.
        sentences_per_second: measured since the run started or was resumed.
        seconds_left: estimate for all epochs.
        learning_rate: of the step.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    sentences_per_second: float
    seconds_left: float
    learning_rate: float = 0.0


@dataclass(frozen=True)
class EvaluationRecord:
    """One look at the dev set.

    Attributes:
        epoch: number of the epoch, from 1.
        step: steps done.
        loss: mean training loss of the epoch so far.
        dev_loss: cross-entropy on the dev set.
        dev_accuracy: share of the dev set classified correctly.
        best: whether these are the best weights so far.
        dev_micro_f1: where a text may have several labels, what decides instead of the accuracy,
            which is then the share of texts with all their labels and no other.
    """

    epoch: int
    step: int
    loss: float
    dev_loss: float
    dev_accuracy: float
    best: bool
    dev_micro_f1: float | None = None

    @property
    def measure(self) -> str:
        """What decides, in words."""
        if self.dev_micro_f1 is None:
            return f"dev accuracy {100 * self.dev_accuracy:.2f} %"
        return f"dev micro F1 {100 * self.dev_micro_f1:.2f} %"


class Listener:
    """Hears what happens; by default does nothing. Set ``stop`` to end the run after a step."""

    stop: bool = False

    def on_resume(self, epoch: int, step: int) -> None:
        """The run goes on from a checkpoint."""

    def on_step(self, progress: Progress) -> None:
        """A step is done."""

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """The dev set has been evaluated."""


class Listeners(Listener):
    """Several that hear the same; ``stop`` is set here, for all."""

    def __init__(self, *members: Listener) -> None:
        self.members = members

    def on_resume(self, epoch: int, step: int) -> None:
        """Tell all."""
        for member in self.members:
            member.on_resume(epoch, step)

    def on_step(self, progress: Progress) -> None:
        """Tell all."""
        for member in self.members:
            member.on_step(progress)

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """Tell all."""
        for member in self.members:
            member.on_evaluation(record)
