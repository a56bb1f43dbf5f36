"""The progress bar of ``dcnn tune``: trials done, the best so far, time left."""

from datetime import timedelta

from rich.progress import Progress as Bar

from dcnn.training.callbacks import EvaluationRecord, Progress
from dcnn.tuning.search import Limits, SearchCallback, TrialRecord


class SearchBar(SearchCallback):
    """A bar over time or trials, and a line per trial; without a terminal only the lines."""

    def __init__(self, bar: Bar, limits: Limits, measure: str) -> None:
        self.limits, self.measure, self._bar = limits, measure, bar
        self._best = self._trial = self._dev = ""
        self._task = bar.add_task("", total=limits.trials or limits.seconds, left="")

    def on_trial(self, number: int) -> None:
        """A trial begins."""
        self._dev, self._trial = "", f"trial {number}"
        self._bar.update(self._task, description=f"{self._trial}{self._best}")

    def on_step(self, progress: Progress) -> None:
        """Show the epoch."""
        epoch = f"epoch {progress.epoch}/{progress.epochs}"
        self._bar.update(self._task, description=f"{self._trial}, {epoch}{self._dev}{self._best}")

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """Keep the accuracy for the line."""
        self._dev = f", {100 * record.dev_accuracy:.1f} %"

    def on_time(self, seconds_left: float | None) -> None:
        """Show the time left for trials."""
        if seconds_left is None or self.limits.seconds is None:
            return
        left = max(0.0, seconds_left)
        self._bar.update(self._task, left=f"{timedelta(seconds=round(left))} left")
        if self.limits.trials is None:
            self._bar.update(self._task, completed=self.limits.seconds - left)

    def on_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        """Print a line above the bar."""
        if best is not None and best.trained is not None:
            self._best = f"; best {100 * best.trained.accuracy:.2f} % (trial {best.number})"
        if self.limits.trials is not None:
            self._bar.update(self._task, completed=record.number + 1)
        reached = record.trained.accuracy if record.trained else next(reversed(record.curve), None)
        accuracy = "" if reached is None else f", {self.measure} {100 * reached:.2f} %"
        if accuracy and not record.trained:  # of some folds, which may be easy ones
            accuracy += " so far"
        trial = f"trial {record.number:>3}{'' if record.number else ' (first settings)'}"
        end = f"{record.outcome}{accuracy}, {record.seconds:.1f} s{self._best}"
        self._bar.console.print(f"{trial}: {end}")
