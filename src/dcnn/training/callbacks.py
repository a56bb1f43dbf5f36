"""Callbacks of a training: what it reports, its progress bar, and the log for TensorBoard.

Steps are logged at fixed numbers, so that a resumed run leaves the curves of one that was not
stopped: TensorBoard drops what a killed run wrote past the point of resumption. A log that cannot
be written never ends a training.
"""

import importlib.util
import logging
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dcnn.artifact import settings_table
from dcnn.config import Config
from dcnn.errors import MissingExtraError, StorageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID
    from torch.utils.tensorboard import SummaryWriter


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
    """One evaluation on the dev set.

    Attributes:
        epoch: number of the epoch, from 1.
        step: steps done.
        loss: mean training loss of the epoch so far.
        dev_loss: cross-entropy on the dev set.
        dev_accuracy: share of the dev set classified correctly.
        best: whether these are the best weights so far.
        dev_micro_f1: of multi-label targets, what decides instead of the accuracy, which is then
            the share of texts with all their labels and no other.
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


@dataclass(frozen=True)
class EpochReport:
    """Training losses and dev accuracies of all runs when an evaluation is due.

    Attributes:
        epoch: number of the epoch, from 1.
        epochs: how many there will be at most.
        losses: mean training loss of the epoch so far, of each run.
        dev_accuracies: of each run; none without a dev set.
    """

    epoch: int
    epochs: int
    losses: list[float]
    dev_accuracies: list[float] | None


class Callback:
    """By default does nothing. Set ``stop`` to end the run after a step."""

    stop: bool = False

    def on_resume(self, epoch: int, step: int) -> None:
        """The run goes on from a checkpoint."""

    def on_step(self, progress: Progress) -> None:
        """A step is done."""

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """The dev set has been evaluated."""

    def on_epoch(self, report: EpochReport) -> None:
        """An evaluation was due, with or without a dev set, of one run or of several."""


class CallbackList(Callback):
    """Calls several callbacks; ``stop`` is set here, for all."""

    def __init__(self, *callbacks: Callback) -> None:
        self.callbacks = callbacks

    def on_resume(self, epoch: int, step: int) -> None:
        """Call all."""
        for callback in self.callbacks:
            callback.on_resume(epoch, step)

    def on_step(self, progress: Progress) -> None:
        """Call all."""
        for callback in self.callbacks:
            callback.on_step(progress)

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """Call all."""
        for callback in self.callbacks:
            callback.on_evaluation(record)

    def on_epoch(self, report: EpochReport) -> None:
        """Call all."""
        for callback in self.callbacks:
            callback.on_epoch(report)


STEPS_BETWEEN = 10  # a scalar takes some 50 us, a step of a small network a millisecond
FLUSH_SECONDS = 5  # sooner than checkpoints, so that a killed run's curves reach to the last one

logger = logging.getLogger("dcnn")


def require_tensorboard() -> None:
    """Check before any work is done that a log can be written.

    Raises:
        MissingExtraError: the package is not installed.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingExtraError("--tensorboard", "tensorboard")


class TrainingBar(Callback):
    """Shows epoch, loss, speed and time left, and prints a line per evaluation.

    Where the output is not a terminal, only the lines.

    Args:
        console: where to print; by default standard error.
        name: put before every line.
        quiet: print no lines.
    """

    def __init__(
        self, console: "Console | None" = None, name: str = "", quiet: bool = False
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self.console = console or Console(stderr=True, markup=False, highlight=False, emoji=False)
        self.name, self.quiet = name, quiet
        self._dev = ""
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[speed]:>7,.0f} sentences/s"),
            TextColumn("{task.fields[left]} left"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def on_resume(self, epoch: int, step: int) -> None:
        """Print where the run continues."""
        self.console.print(f"Resumed in epoch {epoch}, after {step:,} steps.")

    def on_step(self, progress: Progress) -> None:
        """Move the bar."""
        epoch = f"epoch {progress.epoch}/{progress.epochs}"
        description = f"{self.name}{epoch}  loss {progress.loss:.4f}{self._dev}"
        if self._task is None:
            self._task = self._bar.add_task(description, total=progress.steps, speed=0.0, left="")
        self._bar.update(
            self._task,
            completed=progress.step,
            description=description,
            speed=progress.sentences_per_second,
            left=str(timedelta(seconds=round(progress.seconds_left))),
        )

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """Print a line above the bar."""
        score = record.dev_accuracy if record.dev_micro_f1 is None else record.dev_micro_f1
        self._dev = f"  dev {100 * score:.1f} %"
        if not self.quiet:
            dev = f"dev loss {record.dev_loss:.4f}  {record.measure}"
            best = "  best so far" if record.best else ""
            self.console.print(
                f"{self.name}epoch {record.epoch:>3}  loss {record.loss:.4f}  {dev}{best}"
            )


class TensorBoardLog(Callback):
    """Writes loss, learning rate, speed and evaluations, beside the settings.

    Args:
        folder: of this run; other runs have others.
        config: the run's settings.

    Raises:
        StorageError: there can be no such folder.
    """

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder, config
        self._writer: SummaryWriter | None = None
        self._next_step = 0
        self._failed = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{folder} cannot be made ({error.strerror}); name another"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:
                self._give_up(error)

    def on_resume(self, epoch: int, step: int) -> None:  # noqa: ARG002
        """Drop what was written after ``step``: it will be written again."""
        self._next_step = step + 1

    def on_step(self, progress: Progress) -> None:
        """Log the first step, and every tenth."""
        if progress.step == 1 or progress.step % STEPS_BETWEEN == 0:
            values = {
                "training/loss": progress.loss,
                "training/learning_rate": progress.learning_rate,
                "training/sentences_per_second": progress.sentences_per_second,
            }
            self._write(values, progress.step)

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """Log every evaluation."""
        values = {"dev/loss": record.dev_loss, "dev/accuracy": record.dev_accuracy}
        if record.dev_micro_f1 is not None:  # what decides, of multi-label targets
            values["dev/micro_f1"] = record.dev_micro_f1
        self._write(values, record.step)

    def _write(self, values: dict[str, float], step: int) -> None:
        if self._failed:
            return
        try:
            writer = self._open()
            for name, value in values.items():
                writer.add_scalar(name, value, step)
        except OSError as error:  # of the thread that writes, too
            self._give_up(error)

    def _open(self) -> "SummaryWriter":
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(
                str(self.folder), purge_step=self._next_step, flush_secs=FLUSH_SECONDS
            )
            if not self._next_step:
                self._writer.add_text("settings", settings_table(self.config), 0)
        return self._writer

    def _give_up(self, error: OSError) -> None:
        if not self._failed:
            logger.warning(
                "%s: the log for TensorBoard ends here (%s); training goes on",
                self.folder,
                error.strerror or error,
            )
        self._failed = True
