"""The progress bar of a training run in a terminal, for ``dcnn train`` and ``verbose=True``."""

from datetime import timedelta
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from dcnn.training.callbacks import Callback, EvaluationRecord
from dcnn.training.callbacks import Progress as TrainingProgress


class TrainingBar(Callback):
    """Shows epoch, loss, speed and time left, and prints a line per evaluation.

    Where the output is not a terminal, only the lines.

    Args:
        console: where to print; by default standard error.
        name: put before every line.
        quiet: print no lines.
    """

    def __init__(self, console: Console | None = None, name: str = "", quiet: bool = False) -> None:
        self.console = console or Console(stderr=True, markup=False, highlight=False, emoji=False)
        self.name, self.quiet = name, quiet
        self._dev = ""
        self._bar = Progress(
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

    def on_step(self, progress: TrainingProgress) -> None:
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
