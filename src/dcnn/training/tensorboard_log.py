"""A run's curves for TensorBoard, in the files that it reads.

Steps are noted at fixed numbers, so that a run that was resumed leaves the curves of one that was
not: the log says where it goes on, and TensorBoard drops what a killed run wrote past that point.
A log that cannot be written never ends a training.
"""

import importlib.util
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dcnn.config import Config
from dcnn.errors import MissingExtraError, StorageError
from dcnn.model_card import settings_table
from dcnn.training.progress import EvaluationRecord, Listener, Progress

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

STEPS_BETWEEN = 10  # a scalar takes some 50 us, a step of a small network a millisecond
FLUSH_SECONDS = 5  # sooner than checkpoints, so that a killed run's curves reach to the last one

logger = logging.getLogger("dcnn")


def require_tensorboard() -> None:
    """Say before any work is done that no log can be written.

    Raises:
        MissingExtraError: the package is not installed.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingExtraError("--tensorboard", "tensorboard")


class TensorBoardLog(Listener):
    """Writes loss, learning rate, speed, and what the dev set says, beside the settings.

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
        """Let what was written after ``step`` be forgotten: it will be written again."""
        self._next_step = step + 1

    def on_step(self, progress: Progress) -> None:
        """Note the first step, and every tenth."""
        if progress.step == 1 or progress.step % STEPS_BETWEEN == 0:
            values = {
                "training/loss": progress.loss,
                "training/learning_rate": progress.learning_rate,
                "training/sentences_per_second": progress.sentences_per_second,
            }
            self._write(values, progress.step)

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """Note every look at the dev set."""
        values = {"dev/loss": record.dev_loss, "dev/accuracy": record.dev_accuracy}
        if record.dev_micro_f1 is not None:  # what decides, where a text may have several labels
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
