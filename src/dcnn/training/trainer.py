"""One training run: mini-batches, evaluation on dev, early stopping.

Everything that decides the next step is in ``Run``, and all of it goes into a snapshot: a run that
was killed and resumed ends with the same weights, bit for bit on CPU, as one that was not.


The training loop: steps until the run is finished, and checkpoints on the way.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dcnn.config import TrainingConfig
from dcnn.data.batching import Batch, Examples
from dcnn.errors import TrainingError, TrainingStoppedError
from dcnn.models import SentenceModel
from dcnn.models.dcnn import DCNN
from dcnn.text.vocabulary import UNKNOWN
from dcnn.training import native_step
from dcnn.training.adagrad import (
    WeightAverage,
    clip_gradients,
    decay_embeddings,
    make_optimizer,
    reset_accumulators,
    set_learning_rate,
)
from dcnn.training.batches import ALONE, Feed, MemoryFeed
from dcnn.training.callbacks import Callback, EvaluationRecord, Progress
from dcnn.training.checkpoint import Checkpoint
from dcnn.training.objective import (
    binary_cross_entropy,
    cross_entropy,
    evaluate_label_weights,
    evaluate_weights,
    repeat_for_ensemble,
)

if TYPE_CHECKING:
    from dcnn.training.distributed import Workers


Weights = dict[str, Tensor]

# Looking at a loss makes a GPU wait; on one, finiteness is checked every this many steps.
STEPS_BETWEEN_LOOKS = 50


@dataclass
class State:
    """The counters of a run; everything here is plain values."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    evaluations_since_best: int = 0
    best_accuracy: float = -1.0
    best_micro_f1: float = -1.0
    best_loss: float = float("inf")
    seconds: float = 0.0
    sentences: int = 0
    finished: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class TrainingSummary:
    """How a finished run went.

    Attributes:
        epochs: epochs done, the last perhaps in part.
        dev_accuracy: of the weights that were kept; none without a dev set.
        seconds: time spent in training, over all resumptions.
        sentences_per_second: training sentences over that time.
        history: every look at the dev set.
        dev_micro_f1: of the same, where a text may have several labels.
    """

    epochs: int
    dev_accuracy: float | None
    seconds: float
    sentences_per_second: float
    history: list[EvaluationRecord]
    dev_micro_f1: float | None = None


class Run:
    """A model, its data and all that changes from step to step."""

    def __init__(
        self,
        model: SentenceModel,
        examples: Examples | Feed,
        dev: Examples | None,
        config: TrainingConfig,
        device: torch.device,
        callback: Callback,
        workers: "Workers | None" = None,
        multi_label: bool = False,
    ) -> None:
        self.model, self.dev, self.config, self.multi_label = model, dev, config, multi_label
        self.device, self.callback, self.workers = device, callback, workers
        rank = (workers.rank, workers.size) if workers is not None else ALONE
        if isinstance(examples, Examples):
            examples = MemoryFeed(examples, config, model.head.out_features, rank, multi_label)
        self.feed = examples
        if dev is not None and rank != ALONE:
            self.dev = dev.select(np.arange(rank[0], len(dev), rank[1]))
        self.optimizer = make_optimizer(model, config)
        self.average = WeightAverage(model, config.ema) if config.ema else None
        self.best: Weights = {}
        # Not the seed itself, which the initial values were drawn from.
        own_seed = int(np.random.SeedSequence((config.seed, 1)).generate_state(1)[0])
        self.generator = torch.Generator(device).manual_seed(own_seed)
        self.state = State()
        self._loss_sum = torch.zeros((), device=device)
        self._norm = torch.zeros((), device=device)
        self._started = time.monotonic()
        self._sentences_at_start = 0
        self._seconds_before = 0.0
        self._want_to_stop = torch.zeros((), device=device)

    @property
    def stops(self) -> bool:
        """Whether somebody asked to stop; all processes find it so after the same step."""
        if self.workers is None:
            return self.callback.stop
        return self._may_look() and bool(self._want_to_stop > 0)

    def _may_look(self) -> bool:
        """Whether a number on the device may be looked at after this step."""
        return self.device.type == "cpu" or self.state.step % STEPS_BETWEEN_LOOKS == 0

    def step(self) -> None:
        """Learn from one batch, and do what is due after it."""
        state, config = self.state, self.config
        if state.batch == 0 and config.reset_every and state.epoch % config.reset_every == 0:
            reset_accumulators(self.optimizer)
        before, whole = self.feed.behind(state.epoch, state.batch)
        progress = (state.epoch + before / whole) / config.epochs
        set_learning_rate(self.optimizer, config, progress)
        batch = self.feed.batch(state.epoch, state.batch)
        self._loss_sum += self._learn(batch)
        state.batch += 1
        state.step += 1
        state.sentences += len(batch.lengths) if batch.part is None else batch.part.sentences
        state.seconds = self._seconds_before + time.monotonic() - self._started

        done, _ = self.feed.behind(state.epoch, state.batch)
        epoch_ends = done == whole
        if self._may_look() or epoch_ends:
            self._look_at_loss(self.feed.batches(state.epoch))
        # Whether one of the epoch's evaluations, evenly spread, falls on this step.
        times = config.evaluations_per_epoch
        if self.dev is not None and done * times // whole > before * times // whole:
            self._evaluate(self.dev)
        if epoch_ends:
            state.epoch, state.batch = state.epoch + 1, 0
            self._loss_sum.zero_()
        patience_ends = config.patience and state.evaluations_since_best >= config.patience
        state.finished = bool(state.epoch == config.epochs or patience_ends)

    def _learn(self, batch: Batch) -> Tensor:
        """One update; returns the loss of the batch."""
        assert batch.targets is not None  # noqa: S101
        ids, lengths = self._tensor(batch.ids), self._tensor(batch.lengths)
        part = batch.part
        shape = ids.shape if part is None else (part.sentences, part.words)
        here = ... if part is None else self._tensor(part.places)  # what is drawn is for all
        if self.config.word_dropout:
            draws = torch.rand(shape, generator=self.generator, device=self.device)
            draws = draws[here][:, : ids.shape[1]]
            ids = ids.masked_fill(draws < self.config.word_dropout, UNKNOWN)
        weights = None if batch.weights is None else self._tensor(batch.weights)
        dropout = self.model.draw_dropout(shape[0], self.generator)
        dropout = None if dropout is None else dropout[here]
        loss = self._set_gradients((ids, lengths, dropout), self._tensor(batch.targets), weights)
        if self.workers is not None:
            loss, self._want_to_stop = self.workers.add_up(
                self.model, loss.detach(), self.callback.stop
            )
        if self.config.max_grad_norm:
            self._norm = clip_gradients(self.model, self.optimizer, self.config.max_grad_norm)
        decay_embeddings(self.model, self.optimizer, self.config)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model)
        return loss.detach()

    def _set_gradients(
        self,
        batch: tuple[Tensor, Tensor, Tensor | None],
        targets: Tensor,
        weights: Tensor | None,
    ) -> Tensor:
        """Give every parameter its gradient; returns the loss."""
        n_ensemble = self.model.n_ensemble
        targets = repeat_for_ensemble(targets, n_ensemble)
        weights = None if weights is None else repeat_for_ensemble(weights, n_ensemble)
        if isinstance(self.model, DCNN) and native_step.fits(self.model, self.optimizer):
            return native_step.set_gradients(self.model, batch, targets, weights, self.multi_label)
        objective = binary_cross_entropy if self.multi_label else cross_entropy
        loss = objective(self.model(*batch, apart=True), targets, weights)
        self.optimizer.zero_grad(set_to_none=True)
        # A member learns as if it were alone: its gradient is not the share of a mean.
        (loss * n_ensemble).backward()  # type: ignore[no-untyped-call]
        return loss

    def _look_at_loss(self, batches: int) -> None:
        state = self.state
        loss = float(self._loss_sum) / state.batch
        self._require_finite("loss", loss)
        self._require_finite("norm of the gradient", float(self._norm))
        steps = state.step - state.batch + (self.config.epochs - state.epoch) * batches
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = (state.sentences - self._sentences_at_start) / seconds
        left = max(steps - state.step, 0) * (state.sentences / state.step) / rate
        learning_rate = float(self.optimizer.param_groups[0]["lr"])
        epoch, epochs = state.epoch + 1, self.config.epochs
        self.callback.on_step(
            Progress(epoch, epochs, state.step, steps, loss, rate, left, learning_rate)
        )

    def _require_finite(self, name: str, value: float) -> None:
        if not math.isfinite(value):
            config = self.config
            raise TrainingError(
                f"the {name} is {value} in epoch {self.state.epoch + 1}, step {self.state.step}: "
                f"training diverged; lower training.learning_rate={config.learning_rate} or set "
                f"training.max_grad_norm={config.max_grad_norm} to a smaller value above 0"
            )

    def _evaluate(self, dev: Examples) -> None:
        state = self.state
        f1 = None
        if self.multi_label:
            accuracy, loss, f1 = evaluate_label_weights(self.model, self._current(), dev)
        else:
            accuracy, loss = evaluate_weights(self.model, self._current(), dev, self.device)
        if self.workers is not None:
            parts = (round(accuracy * len(dev)), loss * len(dev), len(dev))
            hits, losses, number = self.workers.sums(*parts)
            accuracy, loss = hits / number, losses / number
        self._require_finite("loss on the dev set", loss)
        score, best_score = (
            (accuracy, state.best_accuracy) if f1 is None else (f1, state.best_micro_f1)
        )
        # Equal accuracy is common on a small dev set; the loss then decides.
        best = (score, -loss) > (best_score, -state.best_loss)
        if best:
            self.best = {name: value.clone() for name, value in self._current().items()}
            state.best_accuracy, state.best_loss = accuracy, loss
            state.best_micro_f1 = -1.0 if f1 is None else f1
            state.evaluations_since_best = 0
        else:
            state.evaluations_since_best += 1
        train_loss = float(self._loss_sum) / state.batch
        record = EvaluationRecord(state.epoch + 1, state.step, train_loss, loss, accuracy, best, f1)
        state.history.append(asdict(record))
        self.callback.on_evaluation(record)

    def _current(self) -> Weights:
        """The weights that are evaluated: the average if there is one."""
        if self.average is not None:
            return self.average.weights
        return {name: value.detach() for name, value in self.model.state_dict().items()}

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def snapshot(self) -> tuple[Weights, dict[str, Any]]:
        """All that ``restore`` needs."""
        groups: dict[str, Mapping[str, Tensor]] = {
            "model": self.model.state_dict(),
            "best": self.best,
            "average": self.average.weights if self.average is not None else {},
            "adagrad": {
                name: self.optimizer.state[parameter]["sum"]
                for name, parameter in self.model.named_parameters()
            },
            "run": {"generator": self.generator.get_state(), "loss_sum": self._loss_sum},
        }
        tensors = {
            f"{group}/{name}": tensor.detach()
            for group, n_ensemble in groups.items()
            for name, tensor in n_ensemble.items()
        }
        return tensors, asdict(self.state)

    def restore(self, tensors: Weights, progress: dict[str, Any]) -> None:
        """Go back to the state of a snapshot."""

        def group(prefix: str) -> Weights:
            return {
                name.removeprefix(f"{prefix}/"): tensor
                for name, tensor in tensors.items()
                if name.startswith(f"{prefix}/")
            }

        self.state = State(**progress)
        self.model.load_state_dict(group("model"))
        self.best = {name: tensor.to(self.device) for name, tensor in group("best").items()}
        sums = group("adagrad")
        for name, parameter in self.model.named_parameters():
            self.optimizer.state[parameter]["sum"].copy_(sums[name])
        if self.average is not None:
            self.average.steps = self.state.step
            for name, tensor in group("average").items():
                self.average.weights[name].copy_(tensor)
        run = group("run")
        self.generator.set_state(run["generator"])
        self._loss_sum.copy_(run["loss_sum"])
        self._started = time.monotonic()
        self._sentences_at_start = self.state.sentences
        self._seconds_before = self.state.seconds
        self.callback.on_resume(self.state.epoch + 1, self.state.step)

    def conclude(self) -> TrainingSummary:
        """Put the weights that are kept into the model, and sum up."""
        state = self.state
        self.model.load_state_dict(self.best or self._current())
        return TrainingSummary(
            epochs=state.epoch + (state.batch > 0),
            dev_accuracy=state.best_accuracy if self.dev is not None else None,
            seconds=state.seconds,
            sentences_per_second=state.sentences / max(state.seconds, 1e-9),
            history=[EvaluationRecord(**record) for record in state.history],
            dev_micro_f1=state.best_micro_f1 if self.multi_label and self.dev is not None else None,
        )


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
    callback: Callback | None = None,
    workers: "Workers | None" = None,
    multi_label: bool = False,
) -> TrainingSummary:
    """Train ``model`` in place; it ends with the weights that were best on ``dev``.

    Without a dev set the weights of the last step are kept. With ``multi_label`` a text may
    have several labels: targets are 0/1 (N, labels), and micro F1 on ``dev`` decides. With
    ``workers``, each of several processes calls this with the same arguments; ``examples``, if a
    feed, is then its own part. The first one writes the checkpoints, and all read them.

    Raises:
        TrainingError: the loss is no longer finite.
        TrainingStoppedError: the listener asked to stop.
        UserError: the checkpoint to resume from is damaged or belongs to another run.
    """
    place, callback = torch.device(device), callback or Callback()
    run = Run(model.to(device), examples, dev, config, place, callback, workers, multi_label)
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
