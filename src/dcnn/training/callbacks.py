"""Callbacks of a training: what it reports, its progress bar, and the log for TensorBoard.

Steps are logged at fixed numbers, so that a resumed run leaves the curves of one that was not
stopped: TensorBoard drops what a killed run wrote past the point of resumption. A log that cannot
be written never ends a training.
"""

import importlib.util
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dcnn.config import Config
from dcnn.errors import MissingExtraError, StorageError
from dcnn.model_card import settings_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID
    from torch.utils.tensorboard import SummaryWriter


@dataclass(frozen=True)
class Progress:
    """Where the run stands after a step."""

    epoch: int  # from 1
    epochs: int  # at most
    step: int
    steps: int  # at most
    loss: float  # mean training loss of the epoch so far
    sentences_per_second: float  # since the run started or was resumed
    seconds_left: float  # an estimate, for all epochs
    learning_rate: float = 0.0


@dataclass(frozen=True)
class EvaluationRecord:
    """One evaluation on the dev set."""

    epoch: int  # from 1
    step: int
    loss: float  # mean training loss of the epoch so far
    dev_loss: float  # cross-entropy
    dev_accuracy: float  # of multi-label targets the share of texts with exactly their labels
    kept: bool  # whether these weights replace those that were kept before
    dev_micro_f1: float | None = None  # of multi-label targets, where it decides
    keeps_last: bool = False  # by ``training.keep``: the last weights are kept, not the best

    @property
    def best(self) -> bool:
        """Whether these weights are the best so far, and kept for that."""
        return self.kept and not self.keeps_last

    @property
    def score(self) -> float:
        """The score by which evaluations are compared."""
        return self.dev_accuracy if self.dev_micro_f1 is None else self.dev_micro_f1

    @property
    def measure(self) -> str:
        """``score`` and its name, for messages."""
        name = "accuracy" if self.dev_micro_f1 is None else "micro F1"
        return f"dev {name} {100 * self.score:.2f} %"


@dataclass(frozen=True)
class RunsReport:
    """Training losses and dev accuracies of all runs when an evaluation is due."""

    epoch: int  # from 1
    epochs: int  # at most
    losses: list[float]  # mean training loss of the epoch so far, of each run
    dev_accuracies: list[float] | None  # of each run; none without a dev set


class Callback:
    """By default does nothing. Set ``stop`` to end the run after a step."""

    stop: bool = False

    def on_resume(self, epoch: int, step: int) -> None:
        """The run continues from a checkpoint."""

    def on_step(self, progress: Progress) -> None:
        """A step is done."""

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """A single run has been evaluated on the dev set."""

    def on_report(self, report: RunsReport) -> None:
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

    def on_report(self, report: RunsReport) -> None:
        """Call all."""
        for callback in self.callbacks:
            callback.on_report(report)


SECONDS_BETWEEN = 0.1  # updates of the bar, which take as long as a tenth of a small step
STEPS_BETWEEN = 10  # a scalar takes some 50 us, a step of a small network a millisecond
FLUSH_SECONDS = 5  # sooner than checkpoints, so that a killed run's curves reach to the last one

logger = logging.getLogger("dcnn")


def require_tensorboard() -> None:
    """Check before any work is done that a log can be written."""
    if not all(map(importlib.util.find_spec, ("torch", "tensorboard"))):  # torch has its writer
        raise MissingExtraError("--tensorboard", "tensorboard")


class TrainingBar(Callback):
    """Shows epoch, loss, speed and time left, and prints a line per evaluation.

    There is no bar if the output is not a terminal; ``quiet`` leaves out the lines.
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
        self._next_update = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def on_resume(self, epoch: int, step: int) -> None:
        """Print where the run continues."""
        self.console.print(f"Resumed in epoch {epoch}, after {step:,} steps.")

    def on_step(self, progress: Progress) -> None:
        """Move the bar, as often as it is drawn."""
        if (now := time.monotonic()) < self._next_update:
            return
        self._next_update = now + SECONDS_BETWEEN
        epoch = f"epoch {progress.epoch}/{progress.epochs}"
        description = f"{self.name}{epoch}  loss {progress.loss:.4f}{self._dev}"
        if self._task is None:
            self._bar.start()
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
        self._dev = f"  dev {100 * record.score:.1f} %"
        if not self.quiet:
            dev = f"dev loss {record.dev_loss:.4f}  {record.measure}"
            best = "  best so far" if record.best else ""
            self.console.print(
                f"{self.name}epoch {record.epoch:>3}  loss {record.loss:.4f}  {dev}{best}"
            )


class TensorBoardLog(Callback):
    """Writes loss, learning rate, speed, evaluations and settings to the folder of the run."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder, config
        self._writer: SummaryWriter | None = None
        self._next_step, self._failed = 0, False
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
            with self._ends_on_failure():
                self._writer.close()

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
        with self._ends_on_failure():
            if self._writer is None:
                from torch.utils.tensorboard import SummaryWriter

                self._writer = SummaryWriter(
                    str(self.folder), purge_step=self._next_step, flush_secs=FLUSH_SECONDS
                )
                if not self._next_step:
                    self._writer.add_text("settings", settings_table(self.config), 0)
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    @contextmanager
    def _ends_on_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # of the thread that writes, too
            if not self._failed:
                message = "%s: the log for TensorBoard ends here (%s); training continues"
                logger.warning(message, self.folder, error.strerror or error)
            self._failed = True
