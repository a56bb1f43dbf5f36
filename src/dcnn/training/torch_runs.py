"""R runs of a network on torch's tensors, on any device and backend.

The kernels of one small network leave a GPU idle, so the weights have a leading run axis: all runs
take every step together. On a GPU the examples stay on the device if they fit, and a step is a CUDA
graph that is replayed, one per padded length.
"""

import gc
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dcnn.data.batching import Batch, Examples
from dcnn.data.store import Corpus
from dcnn.models import DCNN, SentenceModel
from dcnn.ops.compile_kernels import compile_in_processes, recording
from dcnn.text.vocabulary import UNKNOWN, Sentences
from dcnn.training.adagrad import Adagrad, Weights
from dcnn.training.batches import Batches, MemoryBatches, RunSpec, StoreBatches
from dcnn.training.objective import Networks, RunBatch, TensorBatch, as_arrays
from dcnn.training.resident import ResidentBatches
from dcnn.training.runs import Arrays, Runs

if TYPE_CHECKING:
    from dcnn.training.distributed import Workers

logger = logging.getLogger("dcnn")


class TorchRuns(Runs):
    """See ``Runs``; ``weights`` and ``kept`` map names to tensors (R, ...).

    ``workers`` are all processes that train a single run together, this one included;
    ``stop`` says whether this one wants to stop.
    """

    def __init__(
        self,
        model: SentenceModel,
        examples: Examples | Corpus | Batches,
        specs: Sequence[RunSpec],
        dev: Examples | None,
        device: str,
        stop: Callable[[], bool],
        workers: "Workers | None",
        multi_label: bool,
    ) -> None:
        self.model, self.specs, self.device = model.to(device), specs, torch.device(device)
        self.dev, self._stop, self.workers = dev, stop, workers
        self.configs = configs = [spec.training for spec in specs]
        self.multi_label, self.waits = multi_label, self.device.type != "cpu"
        self._records = self.device.type == "cuda"  # the evaluation, and steps of resident batches
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
        self._want_to_stop = torch.zeros((), device=self.device)  # how many of the processes do
        self._loss_sum = torch.zeros(len(specs), device=self.device)
        self._norms = torch.zeros(len(specs), device=self.device)
        self._graphs: dict[int, ReplayedCall] = {}  # of a step, by padded length
        self._graph_pool: Any = None
        self._dev_logits: ReplayedCall | None = None
        self._dev_order = np.empty(0, np.int64)
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

    def learn(self, epoch: int, number: int, progress: float) -> int:
        """See ``Runs``."""
        batches = self.batches
        if not isinstance(batches, ResidentBatches):
            return self._host_step(batches.batch(epoch, number), progress)
        if number == 0 or self._resumed:
            self.prepare(epoch, number)
            batches.start(epoch, number)
            self._resumed = False
        self._resident_step(batches.columns[number])
        return batches.sentences[number]

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
        dropout = None if dropout is None else dropout[None]
        self._learn(tensors, dropout, self.optimizer.steps.new_tensor([progress]))
        return shape[0]

    def _resident_step(self, words: int) -> None:
        """Learn from the next resident batch; on a GPU by a CUDA graph, recorded on first use."""
        columns = rounded_length(words)
        if not self._records:
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
            loss, self._want_to_stop = self.workers.add_up(own, losses[0], self._stop())
            losses = loss[None]
        self._norms.copy_(self.optimizer.step(gradients, progress))
        self._loss_sum += losses

    def _native_step(self, batches: Sequence[RunBatch], progress: Sequence[float]) -> None:
        """One update of every run by the native backend."""
        rates = self.optimizer.next_rates(progress)
        runs = zip(self.networks.learners, batches, rates, strict=True)
        threads = torch.get_num_threads()
        found = np.array(
            [
                learner.step(*as_arrays(batch), of_run, threads)
                for (_, learner), batch, of_run in runs
            ]
        )
        totals, norms = self._loss_sum.numpy(), self._norms.numpy()  # quicker than torch's
        totals += found[:, 0].astype(np.float32)
        norms[:] = found[:, 1]

    def stop_is_wanted(self) -> bool:
        """See ``Runs``."""
        return bool(self._want_to_stop > 0)

    def losses(self) -> list[float]:
        """See ``Runs``."""
        losses: list[float] = self._loss_sum.tolist()
        return losses

    def norms(self) -> list[float]:
        """See ``Runs``."""
        norms: list[float] = self._norms.tolist()
        return norms

    def end_epoch(self) -> None:
        """See ``Runs``."""
        self._loss_sum.zero_()

    def reset_adagrad(self, runs: Sequence[int]) -> None:
        """See ``Runs``."""
        self.optimizer.reset(runs)

    def prepare(self, epoch: int, number: int) -> None:
        """On a GPU, record the step for every padded length, and the evaluation.

        Afterwards the state of the training is restored.
        """
        batches = self.batches
        if not self._records or not isinstance(batches, ResidentBatches) or self._graphs:
            return
        started = time.monotonic()
        gc.collect()  # a graph of a former trainer cannot be freed while another is recorded
        batches.start(epoch, number)
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
            self.dev_logits()
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

    def _dev_batches(self, dev: Examples) -> tuple[list[tuple[Tensor, ...]], NDArray[np.int64]]:
        """Ids and lengths of the batches of ``dev``, on the GPU; and their indices in ``dev``."""
        batches = self.networks.prediction_batches(dev.sentences)
        on_device = [
            tuple(torch.from_numpy(part).to(self.device) for part in (one.ids, one.lengths))
            for one in batches
        ]
        return on_device, np.concatenate([batch.order for batch in batches])

    def dev_logits(self) -> NDArray[np.float32]:
        """See ``Runs``."""
        weights, dev = self.optimizer.evaluated(), self.dev
        assert dev is not None  # noqa: S101
        if not self._records or not len(dev):  # of several processes one may have none
            return self.networks.logits_of(weights, dev.sentences)
        if self._dev_logits is None:
            on_device, order = self._dev_batches(dev)
            self._dev_order = np.argsort(order)
            self._dev_logits = ReplayedCall(
                lambda: [self.networks.logits(weights, *batch) for batch in on_device]
            )
        logits = torch.cat(self._dev_logits(), dim=1)
        return logits.cpu().numpy()[:, self._dev_order]

    def keep(self, runs: Sequence[int]) -> None:
        """See ``Runs``."""
        weights = self.optimizer.evaluated()
        if not self.kept and runs:
            self.kept = {name: value.clone() for name, value in weights.items()}
        for name, value in self.kept.items():
            for run in runs:
                value[run].copy_(weights[name][run])

    def finish(self) -> None:
        """See ``Runs``."""
        self.model.load_state_dict({name: value[0] for name, value in self.kept.items()})

    def logits(self, sentences: Sentences) -> NDArray[np.float32]:
        """See ``Runs``."""
        return self.networks.logits_of(self.kept, sentences)

    def logits_of_plain(
        self, weights: Mapping[str, NDArray[Any]], sentences: Sentences
    ) -> NDArray[np.float32]:
        """See ``Runs``; of a network with n-grams, from whose vectors ``weights`` were made."""
        one = {
            name: torch.from_numpy(value)[None].to(self.device) for name, value in weights.items()
        }
        logits: NDArray[np.float32] = self.networks.logits_of(one, sentences)[0]
        return logits

    def weights_of(self, run: int) -> Arrays:
        """See ``Runs``."""
        weights = {name: value[run].clone() for name, value in self.kept.items()}
        known = torch.arange(len(weights["embeddings"]), device=self.device)
        merged = self.model.merged(weights, known)
        if "ngrams" in weights:  # for words that training never saw
            merged["ngrams"] = self.model.all_ngrams(weights["ngrams"])
        return {name: value.cpu().numpy() for name, value in merged.items()}

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

    def snapshot(self) -> Arrays:
        """See ``Runs``."""
        tensors = self._tensors() | {"run/generator": self.generator.get_state()}
        return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}

    def restore(self, arrays: Arrays, step: int) -> None:
        """See ``Runs``."""
        tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
        self.kept = {
            name: tensors[f"best/{name}"].reshape(value.shape).to(self.device)
            for name, value in self.weights.items()
            if any(key.startswith("best/") for key in tensors)
        }
        for name, tensor in self._tensors().items():
            tensor.copy_(tensors[name].reshape(tensor.shape))
        self.generator.set_state(tensors["run/generator"])
        self.optimizer.steps.fill_(step)
        self._resumed = True


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
