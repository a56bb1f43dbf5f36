"""The trainer: mini-batches, evaluation on dev, checkpoints and early stopping, for R runs at once.

R runs of one architecture, each with its own seed, settings, examples, targets and weights, take
every step together. Checkpoints, resumption, early stopping and torchrun are for a single run
(R = 1) only. What a step computes is in ``Runs``: ``NativeRun`` on numpy arrays, ``TorchRuns`` on
tensors. Everything that decides the next step is in ``State`` and in ``Runs``, and all of it goes
into a checkpoint: a run that was killed and resumed ends with the same weights, bit for bit on a
CPU.
"""

import json
import math
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from dcnn.config import Config
from dcnn.data.batching import Examples
from dcnn.data.store import Corpus
from dcnn.errors import TrainingError, TrainingStoppedError, UserError
from dcnn.files import write_atomically
from dcnn.metrics import evaluate_logits
from dcnn.ops.reference import sigmoid, softmax
from dcnn.text.vocabulary import Sentences
from dcnn.training.batches import Batches, RunSpec
from dcnn.training.callbacks import Callback, EvaluationRecord, Progress, RunsReport
from dcnn.training.native_run import NativeDCNN, NativeRun
from dcnn.training.runs import Arrays, Runs

if TYPE_CHECKING:
    from dcnn.models import SentenceModel
    from dcnn.training.distributed import Workers

# Reading a loss makes the host wait for a GPU; on one, it is read every this many steps.
STEPS_BETWEEN_READS = 50
DIVERGED = 1000.0  # a run whose mean cross-entropy, per label, reaches this has failed
SHARED = ("batch_size", "evaluations_per_epoch", "class_weights")
CHECKPOINT_VERSION = 4


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often an unfinished run saves its state, and what identifies the run.

    One file is replaced as a whole: arrays and a JSON description, in safetensors; nothing is
    pickled. A run killed at any moment continues from it to the same weights. ``identity`` has
    the settings and a fingerprint of the data as flat plain values; a checkpoint with another
    identity is refused.
    """

    path: Path
    identity: dict[str, Any]
    seconds: float = 15.0  # between writes
    resume: bool = False  # whether to continue from the file, if it is there

    def save(self, arrays: Arrays, progress: dict[str, Any]) -> None:
        """Replace the file by this state."""
        description = {
            "version": CHECKPOINT_VERSION,
            "identity": self.identity,
            "progress": progress,
        }
        state = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        description["crc32"] = _checksum(state)
        with write_atomically(self.path) as stream:
            stream.write(safetensors.numpy.save(state, {"description": json.dumps(description)}))

    def load(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Arrays and progress, or none where there is no checkpoint."""
        if not self.path.exists():
            return None
        try:
            with safetensors.safe_open(self.path, "np") as stream:
                description = json.loads((stream.metadata() or {})["description"])
                arrays = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
                self._check_identity(description)
                if _checksum(arrays) != description["crc32"]:
                    raise self.unreadable(ValueError("its checksum is another"))
                return arrays, description["progress"]
        except (
            safetensors.SafetensorError,
            OSError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
            json.JSONDecodeError,
        ) as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> UserError:
        """The error of a checkpoint whose content makes no sense."""
        return UserError(
            f"{self.path} is not a readable checkpoint ({error}); "
            "delete it and train from the start, without --resume"
        )

    def _check_identity(self, description: dict[str, Any]) -> None:
        here = json.loads(json.dumps(self.identity))
        # A setting that did not exist when the file was written had the value of its default.
        defaults = Config().to_flat()
        new = {name: defaults[name] for name in here if name in defaults}
        there = new | description["identity"]
        differences = [
            f"{name} was {there.get(name)!r} and is now {here.get(name)!r}"
            for name in sorted(there.keys() | here.keys())
            if there.get(name) != here.get(name)
        ]
        if description["version"] != CHECKPOINT_VERSION:
            differences = [f"its format version is {description['version']!r}"]
        if differences:
            raise UserError(
                f"{self.path} belongs to another run: {'; '.join(differences)}; repeat the command "
                "as it was, or train from the start, with --overwrite instead of --resume"
            )


def _checksum(arrays: Arrays) -> int:
    found = 0
    for _, array in sorted(arrays.items()):
        found = zlib.crc32(array.reshape(-1).view(np.uint8).data, found)
    return found


@dataclass
class RunState:
    """What evaluations found of one run; plain values."""

    best_accuracy: float = -1.0
    best_micro_f1: float = -1.0
    best_loss: float = float("inf")
    best_epoch: int = 0
    evaluations_since_best: int = 0
    failed: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class State:
    """The counters of a training; plain values."""

    runs: list[RunState]
    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    sentences: int = 0
    finished: bool = False


@dataclass(frozen=True)
class TrainingSummary:
    """How a finished run went; scores are of the weights that were kept."""

    epochs: int  # the last perhaps in part
    dev_accuracy: float | None  # none without a dev set
    seconds: float  # of training, over all resumptions; without the preparation of a GPU
    sentences_per_second: float  # of all runs over that time
    history: list[EvaluationRecord]
    dev_micro_f1: float | None = None  # of multi-label targets
    best_epoch: int = 0  # the epoch, from 1, of the weights that were kept
    failed: bool = False  # whether this one of several runs diverged; its weights are from before


class Trainer:
    """R runs of one network on one set of examples: when to learn, evaluate, save and stop.

    The weights that ``training.keep`` selects are kept: the last, or the best on ``dev`` so far. At
    the end a single run puts them into the model. Only a single run can have examples that are not
    in memory, ``workers`` (all processes that train it together, this one included) and a callback
    that stops it; only a ``NativeDCNN`` has ``threads`` of its own, others have torch's. If
    ``multi_label``, targets are 0/1 (N, labels), and micro F1 on ``dev`` selects the weights.
    """

    def __init__(
        self,
        model: "SentenceModel | NativeDCNN",
        examples: Examples | Corpus | Batches,
        specs: Sequence[RunSpec],
        dev: Examples | None = None,
        *,
        device: str = "cpu",
        callback: Callback | None = None,
        workers: "Workers | None" = None,
        multi_label: bool = False,
        threads: int = 1,
    ) -> None:
        self.specs, self.callback = specs, callback or Callback()
        self.workers, self.multi_label = workers, multi_label
        self.configs = configs = [spec.training for spec in specs]
        self.most_epochs = max(config.epochs for config in configs)
        for name in SHARED:
            values = sorted({str(getattr(config, name)) for config in configs})
            if len(values) > 1:
                raise ValueError(f"runs that train together share {name}; got {', '.join(values)}")
        self.dev = dev
        if dev is not None and workers is not None:
            self.dev = dev.select(np.arange(workers.rank, len(dev), workers.size))
        self.runs: Runs
        if isinstance(model, NativeDCNN):
            if len(specs) > 1 or specs[0].weights is not None or workers or device != "cpu":
                raise ValueError("a NativeDCNN has a single run, in one process and on a CPU")
            self.runs = NativeRun(model, examples, specs[0], self.dev, multi_label, threads)
            labels = len(model.weights["head.bias"])
        else:
            from dcnn.training.torch_runs import TorchRuns

            others = self.dev, device, lambda: self.callback.stop, workers, multi_label
            self.runs = TorchRuns(model, examples, specs, *others)
            labels = model.head.out_features
        self._diverged = DIVERGED * (labels if multi_label else 1)
        self.state = State([RunState() for _ in specs])
        self._started = time.monotonic()
        self._sentences_at_start, self._seconds_before = 0, 0.0

    def train(self, checkpoint: Checkpoint | None = None) -> list[TrainingSummary]:
        """Train every run to its end; a checkpoint is for a single run.

        Of several processes the first one writes the checkpoints, and all read them.
        """
        saved = checkpoint.load() if checkpoint is not None and checkpoint.resume else None
        if checkpoint is not None and saved is not None:
            try:
                self.restore(*saved)
            except (LookupError, TypeError, ValueError, RuntimeError) as error:
                raise checkpoint.unreadable(error) from error
            self.callback.on_resume(self.state.epoch + 1, self.state.step)
        if self.workers is not None:
            self.workers.require_agreement("where to continue", f"step {self.state.step}")
            if self.workers.rank > 0:
                checkpoint = None
        if checkpoint is not None and saved is None:
            checkpoint.save(*self.snapshot())  # a path that cannot be written is found now
        self.runs.prepare(self.state.epoch, self.state.batch)
        self._started = last_saved = time.monotonic()
        while not self.state.finished:
            try:
                self.step()
            except TrainingError:  # it diverged, and would again from any of its checkpoints
                if checkpoint is not None:
                    checkpoint.path.unlink(missing_ok=True)
                raise
            stop = self.callback.stop
            if self.workers is not None:  # all processes read it after the same step
                stop = self._may_read() and self.runs.stop_is_wanted()
            stopped = stop and not self.state.finished
            if checkpoint is not None:
                due = time.monotonic() - last_saved >= checkpoint.seconds
                if due or stopped or self.state.finished:
                    checkpoint.save(*self.snapshot())
                    last_saved = time.monotonic()
            if stopped:
                raise TrainingStoppedError(
                    f"stopped in epoch {self.state.epoch + 1} after {self.state.step} steps"
                )
        return self._conclude()

    def _may_read(self) -> bool:
        """Whether values are read from the device after this step; on a GPU, only now and then."""
        return not self.runs.waits or self.state.step % STEPS_BETWEEN_READS == 0

    def step(self) -> None:
        """Train every run on one batch; then report, evaluate and end the epoch, where due."""
        state, config, batches = self.state, self.configs[0], self.runs.batches
        if state.batch == 0:
            resets = enumerate(config.reset_every for config in self.configs)
            self.runs.reset_adagrad([run for run, n in resets if n and state.epoch % n == 0])
        before, whole = batches.done(state.epoch, state.batch)
        progress = (state.epoch + before / whole) / config.epochs
        state.sentences += self.runs.learn(state.epoch, state.batch, progress)
        state.batch += 1
        state.step += 1
        done, _ = batches.done(state.epoch, state.batch)
        epoch_ends = done == whole
        if len(self.specs) == 1 and (self._may_read() or epoch_ends):
            self._report_step(batches.count(state.epoch), before / whole)
        # Whether one of the epoch's evaluations, evenly spread, is due after this step.
        times = config.evaluations_per_epoch
        if done * times // whole > before * times // whole:
            self._evaluate()
        if epoch_ends:
            state.epoch, state.batch = state.epoch + 1, 0
            self.runs.end_epoch()
        without_better = state.runs[0].evaluations_since_best
        patience_ends = len(self.specs) == 1 and 0 < config.patience <= without_better
        state.finished = state.epoch == self.most_epochs or patience_ends
        # Read the clock last: an evaluation waits until a GPU has finished the steps before it.
        state.seconds = self._seconds_before + time.monotonic() - self._started

    def _report_step(self, batches: int, part: float) -> None:
        """Report the last step; ``part`` is the fraction of the epoch before it."""
        state, config = self.state, self.configs[0]
        loss, norm = self.runs.losses()[0] / state.batch, self.runs.norms()[0]
        self._require(math.isfinite(loss), "loss", loss)
        self._require(math.isfinite(norm), "norm of the gradient", norm)
        steps = state.step - state.batch + (config.epochs - state.epoch) * batches
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = (state.sentences - self._sentences_at_start) / seconds
        left = max(steps - state.step, 0) * (state.sentences / state.step) / rate
        learning_rate, epochs = config.learning_rate, (state.epoch + 1, config.epochs)
        if config.schedule == "linear":
            learning_rate *= 1 - (state.epoch + part) / config.epochs
        progress = Progress(*epochs, state.step, steps, loss, rate, left, learning_rate)
        self.callback.on_step(progress)

    def _require(self, converges: bool, name: str, value: float) -> None:
        config = self.configs[0]
        if not converges:
            raise TrainingError(
                f"the {name} is {value} in epoch {self.state.epoch + 1}, step {self.state.step}: "
                f"training diverged; lower training.learning_rate={config.learning_rate} or set "
                f"training.max_grad_norm={config.max_grad_norm} to a smaller value above 0"
            )

    def _evaluate(self) -> None:
        """Evaluate every run on dev, keep the weights of those that are better, and report."""
        state = self.state
        losses = [loss / state.batch for loss in self.runs.losses()]  # of the epoch so far
        for of_run, loss in zip(state.runs, losses, strict=True):
            of_run.failed |= not loss < self._diverged
        self._require(not all(run.failed for run in state.runs), "loss", losses[0])
        records: list[EvaluationRecord] = []
        if self.dev is None:
            better = [run for run in range(len(self.specs)) if self._still_trains(run)]
            for run in better:
                state.runs[run].best_epoch = state.epoch + 1
            better = better if len(self.specs) > 1 else []  # a single run keeps its last weights
        else:
            records = self._records(self.dev, losses)
            better = [run for run, record in enumerate(records) if record.kept]
        self.runs.keep(better)
        if len(self.specs) == 1 and records:
            self.callback.on_evaluation(records[0])
        accuracies = [record.dev_accuracy for record in records] or None
        self.callback.on_report(RunsReport(state.epoch + 1, self.most_epochs, losses, accuracies))

    def _still_trains(self, run: int) -> bool:
        """Whether a run has not ended: others may have more epochs."""
        return self.state.epoch < self.configs[run].epochs and not self.state.runs[run].failed

    def _records(self, dev: Examples, losses: list[float]) -> list[EvaluationRecord]:
        records, epoch, step = [], self.state.epoch + 1, self.state.step
        for run, logits in enumerate(self.runs.dev_logits()):
            of_run = self.state.runs[run]
            accuracy, loss, f1 = evaluate_logits(logits, dev.targets, self.multi_label)
            if self.workers is not None:
                parts = (round(accuracy * len(dev)), loss * len(dev), len(dev))
                hits, total, number = self.workers.sums(*parts)
                accuracy, loss = hits / number, total / number
            if len(self.specs) == 1:
                self._require(math.isfinite(loss), "loss on the dev set", loss)
            # Equal accuracy is common on a small dev set; the loss then decides.
            found = accuracy if f1 is None else f1, -loss
            best_score = of_run.best_accuracy if f1 is None else of_run.best_micro_f1
            keeps_last = self.configs[run].keep == "last"
            better = keeps_last or found > (best_score, -of_run.best_loss)
            kept = better and self._still_trains(run)
            of_run.evaluations_since_best += 1
            if kept:
                of_run.best_accuracy, of_run.best_loss, of_run.best_epoch = accuracy, loss, epoch
                of_run.best_micro_f1 = -1.0 if f1 is None else f1
                of_run.evaluations_since_best = 0
            scores = losses[run], loss, accuracy, kept, f1, keeps_last
            records.append(EvaluationRecord(epoch, step, *scores))
            if self._still_trains(run):
                of_run.history.append(asdict(records[-1]))
        return records

    def logits(self, sentences: Sentences) -> NDArray[np.float32]:
        """(R, N, classes) of the kept weights of every run."""
        return self.runs.logits(sentences)

    def probabilities(self, sentences: Sentences) -> NDArray[np.float32]:
        """(R, N, classes) of the kept weights of every run."""
        logits = self.logits(sentences)
        found: NDArray[np.float32] = sigmoid(logits) if self.multi_label else softmax(logits)
        return found

    def weights_of(self, run: int) -> Arrays:
        """The kept weights of one run, as a plain network has them."""
        return self.runs.weights_of(run)

    def snapshot(self) -> tuple[Arrays, dict[str, Any]]:
        """All that ``restore`` needs of a single run."""
        return self.runs.snapshot(), asdict(self.state)

    def restore(self, arrays: Arrays, progress: dict[str, Any]) -> None:
        """Return to the state of a snapshot."""
        runs = [RunState(**run) for run in progress["runs"]]
        self.state = State(**progress | {"runs": runs})
        self.runs.restore(arrays, self.state.step)
        self._sentences_at_start, self._seconds_before = self.state.sentences, self.state.seconds

    def _conclude(self) -> list[TrainingSummary]:
        """Put the kept weights of a single run into the model, and sum up."""
        state = self.state
        if not self.runs.kept:
            self.runs.keep(range(len(self.specs)))
        if len(self.specs) == 1:
            self.runs.finish()
        has_dev = self.dev is not None
        return [
            TrainingSummary(
                epochs=min(state.epoch + (state.batch > 0), config.epochs),
                dev_accuracy=run.best_accuracy if has_dev and run.best_epoch else None,
                seconds=state.seconds,
                sentences_per_second=state.sentences / max(state.seconds, 1e-9),
                history=[EvaluationRecord(**record) for record in run.history],
                dev_micro_f1=run.best_micro_f1 if self.multi_label and has_dev else None,
                best_epoch=run.best_epoch,
                failed=run.failed,
            )
            for run, config in zip(state.runs, self.configs, strict=True)
        ]
