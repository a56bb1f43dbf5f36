"""The trainer: mini-batches, evaluation on dev, checkpoints and early stopping, for R runs at once.

The kernels of one small network leave a GPU idle, so the weights have a leading run axis: R runs of
one architecture, each with its own seed, settings, examples, targets and weights, take every step
together. Checkpoints, resumption, early stopping and torchrun are for a single run (R = 1) only.

On a GPU the examples stay on the device if they fit, and a step is a CUDA graph that is replayed,
one per padded length. Everything that decides the next step is in ``Trainer``, and all of it goes
into a snapshot: a run that was killed and resumed ends with the same weights, bit for bit on a CPU.
"""

import gc
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from dcnn.config import Config
from dcnn.data.batching import Batch, Examples
from dcnn.data.store import Corpus
from dcnn.errors import TrainingError, TrainingStoppedError, UserError
from dcnn.files import write_atomically
from dcnn.models import DCNN, SentenceModel
from dcnn.ops.compile_kernels import compile_in_processes, recording
from dcnn.text.vocabulary import UNKNOWN, Sentences
from dcnn.training.adagrad import Adagrad, Weights
from dcnn.training.batches import Batches, MemoryBatches, ResidentBatches, RunSpec, StoreBatches
from dcnn.training.callbacks import Callback, EvaluationRecord, Progress, RunsReport
from dcnn.training.objective import Networks, RunBatch, TensorBatch, evaluate_logits

if TYPE_CHECKING:
    from dcnn.training.distributed import Workers

# Reading a loss makes the host wait for a GPU; on one, it is read every this many steps.
STEPS_BETWEEN_READS = 50
DIVERGED = 1000.0  # with several runs, one whose mean cross-entropy reaches this has failed
SHARED = ("batch_size", "evaluations_per_epoch", "class_weights")
CHECKPOINT_VERSION = 3

logger = logging.getLogger("dcnn")


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often an unfinished run saves its state, and what identifies the run.

    One file is replaced as a whole: tensors and a JSON description, in safetensors; nothing is
    pickled. A run killed at any moment continues from it to the same weights. ``identity`` has
    the settings and a fingerprint of the data as flat plain values; a checkpoint with another
    identity is refused.
    """

    path: Path
    identity: dict[str, Any]
    seconds: float = 15.0  # between writes
    resume: bool = False  # whether to continue from the file, if it is there

    def save(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Replace the file by this state."""
        description = {
            "version": CHECKPOINT_VERSION,
            "identity": self.identity,
            "progress": progress,
        }
        state = {name: tensor.contiguous() for name, tensor in tensors.items()}
        with write_atomically(self.path) as stream:
            stream.write(safetensors.torch.save(state, {"description": json.dumps(description)}))

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and progress, or none where there is no checkpoint."""
        if not self.path.exists():
            return None
        try:
            with safetensors.safe_open(self.path, "pt") as stream:
                description = json.loads((stream.metadata() or {})["description"])
                tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
                self._check_identity(description)
                return tensors, description["progress"]
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
    """R runs of one network on one set of examples, and all that changes from step to step.

    ``weights`` and ``kept`` map names to tensors (R, ...); ``kept`` has the best weights on ``dev``
    so far, or the last ones without dev. At the end a single run puts them into the model. Only a
    single run can have examples that are not in memory, ``workers`` (all processes that train it
    together, this one included) and a callback that stops it. If ``multi_label``, targets are 0/1
    (N, labels), and micro F1 on ``dev`` selects the weights.
    """

    def __init__(
        self,
        model: SentenceModel,
        examples: Examples | Corpus | Batches,
        specs: Sequence[RunSpec],
        dev: Examples | None = None,
        *,
        device: torch.device | str = "cpu",
        callback: Callback | None = None,
        workers: "Workers | None" = None,
        multi_label: bool = False,
    ) -> None:
        self.model, self.specs, self.device = model.to(device), specs, torch.device(device)
        self.callback, self.workers, self.multi_label = callback or Callback(), workers, multi_label
        self.configs = configs = [spec.training for spec in specs]
        self.most_epochs = max(config.epochs for config in configs)
        for name in SHARED:
            values = sorted({str(getattr(config, name)) for config in configs})
            if len(values) > 1:
                raise ValueError(f"runs that train together share {name}; got {', '.join(values)}")
        self.dev = dev
        if dev is not None and workers is not None:
            self.dev = dev.select(np.arange(workers.rank, len(dev), workers.size))
        self.weights = self._initial_weights()
        self.optimizer = Adagrad(self.weights, configs, model.n_ensemble)
        self.backend = self.optimizer.backend
        self.networks = Networks(
            self.model, self.weights, self.backend, multi_label, self.optimizer.native
        )
        # One native call per step; not with several processes, which first sum their gradients.
        self._in_one_call = bool(self.networks.learners) and workers is None
        self.kept: Weights = {}
        if len(specs) > 1:  # one that fails at once keeps its initial weights
            self.kept = {name: value.detach().clone() for name, value in self.weights.items()}
        # Not the seeds themselves, which the initial values were drawn from.
        entropy = [*(config.seed for config in configs), 1]
        own_seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        self.generator = torch.Generator(self.device).manual_seed(own_seed)
        self.batches = self._make_batches(examples)
        self.state = State([RunState() for _ in specs])
        self._loss_sum = torch.zeros(len(specs), device=self.device)
        self._norms = torch.zeros(len(specs), device=self.device)
        self._want_to_stop = torch.zeros((), device=self.device)
        self._graphs: dict[int, ReplayedCall] = {}  # of a step, by padded length
        self._graph_pool: Any = None
        self._dev_logits: ReplayedCall | None = None
        self._dev_order = np.empty(0, np.int64)
        self._started = time.monotonic()
        self._sentences_at_start, self._seconds_before = 0, 0.0
        self._resumed = True  # resident batches have to be started

    def _initial_weights(self) -> Weights:
        own = {name: value.detach() for name, value in self.model.named_parameters()}
        if len(self.specs) == 1 and self.specs[0].weights is None:
            return {name: value[None] for name, value in own.items()}  # the model's own memory
        runs = [own if spec.weights is None else spec.weights for spec in self.specs]
        return {name: torch.stack([run[name] for run in runs]).to(self.device) for name in own}

    def _make_batches(self, examples: Examples | Corpus | Batches) -> Batches:
        rank = (0, 1) if self.workers is None else (self.workers.rank, self.workers.size)
        if isinstance(examples, Batches):
            return examples
        if isinstance(examples, Corpus):
            return StoreBatches(examples, self.configs[0], rank)
        classes, multi_label = self.model.head.out_features, self.multi_label
        if len(self.specs) == 1 and (self.workers is not None or not self._fits(examples)):
            return MemoryBatches(examples, self.specs[0], classes, rank, multi_label)
        return ResidentBatches(examples, self.specs, classes, self.device, multi_label)

    def _fits(self, examples: Examples) -> bool:
        """Whether examples and the largest batch take at most a quarter of a GPU's memory.

        Not of what is free: a resumed run must choose the same batches.
        """
        if self.device.type != "cuda" or not len(examples):
            return False
        corpus = 4 * len(examples.sentences.ids)
        corpus += len(examples) * (16 + 4 * self.model.head.out_features)
        if self.model.bag_buckets is not None and self.model.bag_offsets is not None:
            words, dim = len(self.model.bag_offsets), self.model.embeddings.shape[1]
            corpus += 12 * len(self.model.bag_buckets) + 12 * words * dim
        # Convolutions with their gradients, and words; in torch, the m-grams of all words.
        layers = self.model.convolutions
        per_word = 3 * self.model.embeddings.shape[1]
        per_word += sum(3 * layer.bias.numel() for layer in layers)
        if self.backend != "triton" or not isinstance(self.model, DCNN):
            per_word += sum(3 * layer.filters[0].numel() for layer in layers)
        words = min(self.configs[0].batch_size, len(examples))
        words *= int(examples.sentences.lengths.max())
        _, total = torch.cuda.mem_get_info(self.device)
        return bool(corpus + 4 * words * per_word <= total / 4)

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
        if self.workers is not None:
            self.workers.require_agreement("where to continue", f"step {self.state.step}")
            if self.workers.rank > 0:
                checkpoint = None
        if checkpoint is not None and saved is None:
            checkpoint.save(*self.snapshot())  # a path that cannot be written is found now
        self._prepare()
        self._started = last_saved = time.monotonic()
        while not self.state.finished:
            self.step()
            stop = self.callback.stop
            if self.workers is not None:  # all processes read it after the same step
                stop = self._may_read() and bool(self._want_to_stop > 0)
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
        return self.device.type == "cpu" or self.state.step % STEPS_BETWEEN_READS == 0

    def step(self) -> None:
        """Train every run on one batch; then report, evaluate and end the epoch, where due."""
        state, config, batches = self.state, self.configs[0], self.batches
        if state.batch == 0:
            resets = enumerate(config.reset_every for config in self.configs)
            self.optimizer.reset([run for run, n in resets if n and state.epoch % n == 0])
        before, whole = batches.done(state.epoch, state.batch)
        if isinstance(batches, ResidentBatches):
            if state.batch == 0 or self._resumed:
                self._prepare()
                batches.start(state.epoch, state.batch)
                self._resumed = False
            self._resident_step(batches.columns[state.batch])
            state.sentences += batches.sentences[state.batch]
        else:
            progress = (state.epoch + before / whole) / config.epochs
            state.sentences += self._host_step(batches.batch(state.epoch, state.batch), progress)
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
            self._loss_sum.zero_()
        without_better = state.runs[0].evaluations_since_best
        patience_ends = len(self.specs) == 1 and 0 < config.patience <= without_better
        state.finished = state.epoch == self.most_epochs or patience_ends
        # Read the clock last: an evaluation waits until a GPU has finished the steps before it.
        state.seconds = self._seconds_before + time.monotonic() - self._started

    def _host_step(self, batch: Batch, progress: float) -> int:
        """Learn from a batch of the host; returns its number of sentences in all processes."""

        def tensor(array: NDArray[Any] | None) -> Tensor | None:
            return None if array is None else torch.from_numpy(array).to(self.device)

        ids, lengths, targets, weights = map(
            tensor, (batch.ids, batch.lengths, batch.targets, batch.weights)
        )
        assert ids is not None and lengths is not None and targets is not None  # noqa: S101, PT018
        part, share = batch.part, self.configs[0].word_dropout
        shape = ids.shape if part is None else (part.sentences, part.words)
        own = ... if part is None else torch.from_numpy(part.places).to(self.device)
        if share:  # drawn for the whole batch; each process takes its part
            draws = torch.rand(shape, generator=self.generator, device=self.device)
            draws = draws if part is None else draws[own][:, : ids.shape[1]]
            ids = ids.masked_fill(draws < share, UNKNOWN)
        dropout = self.model.draw_dropout(shape[0], self.generator)
        dropout = dropout if dropout is None or part is None else dropout[own]
        if self._in_one_call:
            self._native_step([((ids, lengths, dropout), targets, weights)], [progress])
            return shape[0]
        tensors = TensorBatch(
            *(ids[None], lengths[None], targets[None]), None if weights is None else weights[None]
        )
        behind = self.optimizer.steps.new_tensor([progress])
        self._learn(tensors, None if dropout is None else dropout[None], behind)
        return shape[0]

    def _resident_step(self, words: int) -> None:
        """Learn from the next resident batch; on a GPU by a CUDA graph, recorded on first use."""
        columns = rounded_length(words)
        if self.device.type != "cuda":
            self._learn_next(words)
        elif columns in self._graphs:
            self._graphs[columns]()
        else:
            step = partial(self._learn_next, columns)
            self._graphs[columns] = ReplayedCall(step, self.generator, self._graph_pool)

    def _learn_next(self, columns: int) -> None:
        """Learn from the next resident batch, with tensors at fixed addresses, as graphs need."""
        assert isinstance(self.batches, ResidentBatches)  # noqa: S101
        batch, progress = self.batches.next(columns, self.generator)
        dropout = self.model.draw_dropout(batch.lengths.numel(), self.generator)
        dropout = None if dropout is None else dropout.view(*batch.lengths.shape, -1)
        self._learn(batch, dropout, progress)

    def _learn(self, batch: TensorBatch, dropout: Tensor | None, progress: Tensor) -> None:
        """One update of every run."""
        if self._in_one_call:
            batches = [batch.of_run(run, dropout) for run in range(len(self.specs))]
            self._native_step(batches, progress.tolist())
            return
        losses, gradients = self.networks.gradients(batch, dropout)
        if self.workers is not None:
            own = gradients if isinstance(gradients, dict) else gradients[0]
            loss, self._want_to_stop = self.workers.add_up(own, losses[0], self.callback.stop)
            losses = loss[None]
        self._norms.copy_(self.optimizer.step(gradients, progress))
        self._loss_sum += losses

    def _native_step(self, batches: Sequence[RunBatch], progress: Sequence[float]) -> None:
        """One update of every run by the native backend."""
        rates = self.optimizer.next_rates(progress)
        runs = zip(self.networks.learners, batches, rates, strict=True)
        found = np.array([learner.step(*batch, of_run) for (_, learner), batch, of_run in runs])
        totals, norms = self._loss_sum.numpy(), self._norms.numpy()  # quicker than torch's
        totals += found[:, 0].astype(np.float32)
        norms[:] = found[:, 1]

    def _prepare(self) -> None:
        """On a GPU, record the step for every padded length, and the evaluation.

        Afterwards the state of the training is restored.
        """
        batches = self.batches
        if self.device.type != "cuda" or not isinstance(batches, ResidentBatches) or self._graphs:
            return
        started = time.monotonic()
        gc.collect()  # a graph of a former trainer cannot be freed while another is recorded
        batches.start(self.state.epoch, self.state.batch)
        self._graph_pool = torch.cuda.graph_pool_handle()
        changed = [*self.weights.values(), *self.optimizer.sums.values()]
        changed += [*self.optimizer.averages.values(), self.optimizer.steps, batches.cursor]
        changed += [self._loss_sum, self._norms]
        before = [tensor.detach().clone() for tensor in changed]
        drawn = self.generator.get_state()
        lengths = range(min(batches.columns), int(batches.lengths.max()) + 1)
        padded = sorted({rounded_length(length) for length in lengths})
        shortest = int(np.argmin(batches.columns))  # its sentences fit every padded length
        fused = isinstance(self.model, DCNN) and self.model.projection is None
        # Recorded kernels do not run, so torch operations would look up ids that nothing gathered.
        if self.backend == "triton" and fused:
            with recording() as kernels:
                for columns in padded:
                    batches.cursor.fill_(shortest)
                    self._learn_next(columns)
                if self.dev:
                    for batch in self._dev_batches(self.dev)[0]:
                        self.networks.logits(self.optimizer.evaluated(), *batch)
            compile_in_processes(kernels)
        if self.dev is not None:
            self._logits_on_dev(self.dev, self.optimizer.evaluated())
        for columns in padded:
            batches.cursor.fill_(shortest)
            self._resident_step(columns)
        with torch.no_grad():
            for tensor, value in zip(changed, before, strict=True):
                tensor.copy_(value)
        self.generator.set_state(drawn)
        torch.cuda.synchronize()
        message = "compiled and recorded the training step for %d padded lengths in %.1f s"
        logger.info(message, len(padded), time.monotonic() - started)

    def _report_step(self, batches: int, part: float) -> None:
        """Report the last step; ``part`` is the fraction of the epoch before it."""
        state, config = self.state, self.configs[0]
        loss = float(self._loss_sum) / state.batch
        norm = float(self._norms)
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
        state, weights = self.state, self.optimizer.evaluated()
        losses: list[float] = (self._loss_sum / state.batch).tolist()  # of the epoch so far
        if len(self.specs) > 1:
            for of_run, loss in zip(state.runs, losses, strict=True):
                of_run.failed |= not loss < DIVERGED
            self._require(not all(run.failed for run in state.runs), "loss", losses[0])
        records: list[EvaluationRecord] = []
        if self.dev is None:
            better = [run for run in range(len(self.specs)) if self._still_trains(run)]
            for run in better:
                state.runs[run].best_epoch = state.epoch + 1
            better = better if len(self.specs) > 1 else []  # a single run keeps its last weights
        else:
            records = self._records(self.dev, losses, weights)
            better = [run for run, record in enumerate(records) if record.kept]
        self._keep(better, weights)
        if len(self.specs) == 1 and records:
            self.callback.on_evaluation(records[0])
        accuracies = [record.dev_accuracy for record in records] or None
        self.callback.on_report(RunsReport(state.epoch + 1, self.most_epochs, losses, accuracies))

    def _still_trains(self, run: int) -> bool:
        """Whether a run has not ended: others may have more epochs."""
        return self.state.epoch < self.configs[run].epochs and not self.state.runs[run].failed

    def _records(
        self, dev: Examples, losses: list[float], weights: Weights
    ) -> list[EvaluationRecord]:
        records, epoch, step = [], self.state.epoch + 1, self.state.step
        for run, logits in enumerate(self._logits_on_dev(dev, weights)):
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

    def _keep(self, runs: list[int], weights: Weights) -> None:
        if not self.kept and runs:
            self.kept = {name: value.clone() for name, value in weights.items()}
        for name, value in self.kept.items():
            for run in runs:
                value[run].copy_(weights[name][run])

    def _dev_batches(self, dev: Examples) -> tuple[list[tuple[Tensor, ...]], NDArray[np.int64]]:
        """Ids and lengths of the batches of ``dev``, on the GPU; and their indices in ``dev``."""
        batches = self.networks.prediction_batches(dev.sentences)
        on_device = [
            tuple(torch.from_numpy(part).to(self.device) for part in (one.ids, one.lengths))
            for one in batches
        ]
        return on_device, np.concatenate([batch.order for batch in batches])

    def _logits_on_dev(self, dev: Examples, weights: Weights) -> NDArray[np.float32]:
        """(R, N, classes)."""
        if self.device.type != "cuda" or not len(dev):  # of several processes one may have none
            return self.networks.logits_of(weights, dev.sentences)
        if self._dev_logits is None:
            on_device, order = self._dev_batches(dev)
            self._dev_order = np.argsort(order)
            self._dev_logits = ReplayedCall(
                lambda: [self.networks.logits(weights, *batch) for batch in on_device]
            )
        logits = torch.cat(self._dev_logits(), dim=1)
        return logits.cpu().numpy()[:, self._dev_order]

    def logits(self, sentences: Sentences) -> NDArray[np.float32]:
        """(R, N, classes) of the kept weights of every run."""
        return self.networks.logits_of(self.kept, sentences)

    def probabilities(self, sentences: Sentences) -> NDArray[np.float32]:
        """(R, N, classes) of the kept weights of every run."""
        logits = torch.from_numpy(self.logits(sentences))
        return (torch.sigmoid(logits) if self.multi_label else torch.softmax(logits, -1)).numpy()

    def weights_of(self, run: int) -> Weights:
        """The kept weights of one run, as a plain network has them."""
        weights = {name: value[run].clone() for name, value in self.kept.items()}
        known = torch.arange(len(weights["embeddings"]), device=self.device)
        merged = self.model.merged(weights, known)
        if "ngrams" in weights:  # for words that training never saw
            merged["ngrams"] = self.model.all_ngrams(weights["ngrams"])
        return merged

    def _tensors(self) -> Weights:
        """What changes from step to step, by the names that a checkpoint has."""
        groups: dict[str, Weights] = {
            "model": self.weights,
            "best": self.kept,
            "average": self.optimizer.averages,
            "adagrad": self.optimizer.sums,
            "run": {"loss_sum": self._loss_sum},
        }
        return {
            f"{group}/{name}": tensor.detach()
            for group, of_group in groups.items()
            for name, tensor in of_group.items()
        }

    def snapshot(self) -> tuple[Weights, dict[str, Any]]:
        """All that ``restore`` needs of a single run."""
        return self._tensors() | {"run/generator": self.generator.get_state()}, asdict(self.state)

    def restore(self, tensors: Weights, progress: dict[str, Any]) -> None:
        """Return to the state of a snapshot."""
        runs = [RunState(**run) for run in progress["runs"]]
        self.state = State(**progress | {"runs": runs})
        self.kept = {
            name.removeprefix("best/"): tensor.to(self.device)
            for name, tensor in tensors.items()
            if name.startswith("best/")
        }
        for name, tensor in self._tensors().items():
            tensor.copy_(tensors[name])
        self.generator.set_state(tensors["run/generator"])
        self.optimizer.steps.fill_(self.state.step)
        self._sentences_at_start, self._seconds_before = self.state.sentences, self.state.seconds
        self._resumed = True
        self.callback.on_resume(self.state.epoch + 1, self.state.step)

    def _conclude(self) -> list[TrainingSummary]:
        """Put the kept weights of a single run into the model, and sum up."""
        state = self.state
        if not self.kept:
            self._keep(list(range(len(self.specs))), self.optimizer.evaluated())
        if len(self.specs) == 1:
            self.model.load_state_dict({name: value[0] for name, value in self.kept.items()})
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


def rounded_length(length: int) -> int:
    """The padded length that sentences of up to ``length`` words share: few, so few graphs."""
    step = 4 if length <= 32 else 16 if length <= 128 else 64
    return -(-length // step) * step


class ReplayedCall:
    """A function of tensors that stay where they are, called once and recorded as a CUDA graph.

    A step of a small network is dozens of short kernels. Launched one by one they wait for Python;
    recorded once and replayed they follow one another without a gap. The results are overwritten by
    the next call; ``pool`` is memory that graphs share.
    """

    def __init__(
        self,
        function: Callable[[], Any],
        generator: torch.Generator | None = None,
        pool: Any = None,
    ) -> None:
        self._function = function  # holds the tensors that the graph reads
        function()  # compiles its kernels
        self._graph = torch.cuda.CUDAGraph()
        if generator is not None:
            self._graph.register_generator_state(generator)
        with torch.cuda.graph(self._graph, pool=pool):
            self._results = function()

    def __call__(self) -> Any:
        """The results."""
        self._graph.replay()
        return self._results
