"""The training loop: steps until the run is finished, and checkpoints on the way."""

import time
from typing import TYPE_CHECKING

import torch

from dcnn.config import TrainingConfig
from dcnn.data.batching import Examples
from dcnn.errors import TrainingStoppedError
from dcnn.models import SentenceModel
from dcnn.training.checkpoint import Checkpoint
from dcnn.training.feeds import Feed
from dcnn.training.progress import Listener
from dcnn.training.run import Run, TrainingSummary

if TYPE_CHECKING:
    from dcnn.training.workers import Workers


def train(
    model: SentenceModel,
    examples: Examples | Feed,
    dev: Examples | None,
    config: TrainingConfig,
    *,
    device: torch.device | str = "cpu",
    checkpoint: Checkpoint | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 15.0,
    listener: Listener | None = None,
    workers: "Workers | None" = None,
    many: bool = False,
) -> TrainingSummary:
    """Train ``model`` in place; it ends with the weights that were best on ``dev``.

    Without a dev set the weights of the last step are kept. With ``many`` a text may have several
    labels: targets are noughts and ones (N, labels), and micro F1 on ``dev`` decides. With
    ``workers``, each of several processes calls this with the same arguments; ``examples``, if a
    feed, is then its own part. The first one writes the checkpoints, and all read them.

    Raises:
        TrainingError: the loss is no longer finite.
        TrainingStoppedError: the listener asked to stop.
        UserError: the checkpoint to resume from is damaged or belongs to another run.
    """
    place, listener = torch.device(device), listener or Listener()
    run = Run(model.to(device), examples, dev, config, place, listener, workers, many)
    saved = checkpoint.load() if checkpoint is not None and resume else None
    if checkpoint is not None and saved is not None:
        try:
            run.restore(*saved)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise checkpoint.unreadable(error) from error
    if workers is not None:
        workers.require_agreement("where to go on", f"step {run.state.step}")
        if not workers.is_first:
            checkpoint = None
    if checkpoint is not None and saved is None:
        checkpoint.save(*run.snapshot())  # a place that cannot be written is found out now
    last_saved = time.monotonic()
    while not run.state.finished:
        run.step()
        stopped = run.stops and not run.state.finished
        due = time.monotonic() - last_saved >= checkpoint_seconds
        if checkpoint is not None and (due or stopped or run.state.finished):
            checkpoint.save(*run.snapshot())
            last_saved = time.monotonic()
        if stopped:
            raise TrainingStoppedError(
                f"stopped in epoch {run.state.epoch + 1} after {run.state.step} steps"
            )
    return run.conclude()
