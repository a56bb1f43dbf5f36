"""What people see in a terminal while a model trains, and the tables of its scores."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from dcnn.metrics import Evaluation, LabelEvaluation
from dcnn.training.callbacks import Callback, EvaluationRecord
from dcnn.training.callbacks import Progress as TrainingProgress

# Beyond this many classes a confusion matrix no longer fits a screen: show the worst pairs.
MATRIX_CLASSES = 12
WORST_PAIRS = 10


_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def printable(value: object) -> str:
    """A text or label of anybody's as a terminal may have it: what would steer it is replaced."""
    return _CONTROLS.sub("\ufffd", str(value))


def make_console(stderr: bool = False, quiet: bool = False) -> Console:
    """A console that prints what it is given: a label such as ``[b]`` is no markup here."""
    return Console(stderr=stderr, quiet=quiet, markup=False, highlight=False, emoji=False)


class TrainingBar(Callback):
    """A progress bar with epoch, loss, speed and time left, and a line an evaluation.

    Where the output is no terminal, the lines alone.
    """

    def __init__(self, console: Console | None = None, name: str = "", quiet: bool = False) -> None:
        self.console = console or make_console(stderr=True)
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
        """Say where the run goes on."""
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
        """Write a line above the bar."""
        score = record.dev_accuracy if record.dev_micro_f1 is None else record.dev_micro_f1
        self._dev = f"  dev {100 * score:.1f} %"
        if not self.quiet:
            dev = f"dev loss {record.dev_loss:.4f}  {record.measure}"
            best = "  best so far" if record.best else ""
            self.console.print(
                f"{self.name}epoch {record.epoch:>3}  loss {record.loss:.4f}  {dev}{best}"
            )


class EncodingBar:
    """Tells how many examples have been encoded; where the output is no terminal, nothing."""

    def __init__(self, console: Console, files: int) -> None:
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn(f"encoding {files:,} files: {{task.completed:,}} examples"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def on_encoded(self, examples: int) -> None:
        """So many have been encoded so far."""
        self._bar.update(self._task, completed=examples)


def print_evaluation(console: Console, evaluation: Evaluation, labels: Sequence[object]) -> None:
    """Scores, the table of the classes, and where they are confused."""
    shares = {
        "accuracy": evaluation.accuracy,
        "macro F1": evaluation.macro_f1,
        "calibration error": evaluation.calibration_error,
    }
    console.print("   ".join(f"{name} {100 * share:.2f} %" for name, share in shares.items()))
    table = Table("label", box=box.SIMPLE)
    for column in ("precision", "recall", "F1", "examples"):
        table.add_column(column, justify="right")
    for score in evaluation.per_class:
        values = (f"{value:.3f}" for value in (score.precision, score.recall, score.f1))
        table.add_row(score.label, *values, str(score.support))
    console.print(table)
    if len(labels) <= MATRIX_CLASSES:
        _print_matrix(console, evaluation, labels)
    else:
        _print_worst_pairs(console, evaluation, labels)


def print_label_evaluation(
    console: Console, evaluation: LabelEvaluation, thresholds: Sequence[float]
) -> None:
    """Scores of sets of labels, and the table of the labels with their thresholds."""
    shares = {
        "micro F1": evaluation.micro_f1,
        "macro F1": evaluation.macro_f1,
        "subset accuracy": evaluation.subset_accuracy,
        "calibration error": evaluation.calibration_error,
    }
    console.print(
        "   ".join(f"{name} {100 * share:.2f} %" for name, share in shares.items()), soft_wrap=True
    )
    table = Table("label", box=box.SIMPLE)
    for column in ("precision", "recall", "F1", "examples", "threshold"):
        table.add_column(column, justify="right")
    for score, threshold in zip(evaluation.per_label, thresholds, strict=True):
        values = (f"{value:.3f}" for value in (score.precision, score.recall, score.f1))
        table.add_row(score.label, *values, str(score.support), f"{threshold:.3f}")
    console.print(table)


def _print_matrix(console: Console, evaluation: Evaluation, labels: Sequence[object]) -> None:
    table = Table("true \\ predicted", box=box.SIMPLE)
    for label in labels:
        table.add_column(str(label), justify="right")
    for label, row in zip(labels, evaluation.confusion, strict=True):
        table.add_row(str(label), *(str(count) for count in row))
    console.print(table)


def _print_worst_pairs(console: Console, evaluation: Evaluation, labels: Sequence[object]) -> None:
    counts = evaluation.confusion.copy()
    counts[range(len(labels)), range(len(labels))] = 0
    table = Table("most confused: true", "predicted", "examples", box=box.SIMPLE)
    for place in counts.argsort(axis=None)[::-1][:WORST_PAIRS]:
        truth, predicted = divmod(int(place), len(labels))
        if counts[truth, predicted]:
            table.add_row(str(labels[truth]), str(labels[predicted]), str(counts[truth, predicted]))
    console.print(table)
