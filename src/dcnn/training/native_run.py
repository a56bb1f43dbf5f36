"""One run of a DCNN on numpy arrays, by the compiled backend alone: training without torch.

The weights are, bit for bit, those of the same run with torch's tensors (``TorchRuns``) on a CPU:
both use the same learner, and ``Generator`` draws the numbers that torch would draw.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.artifact import EMBEDDINGS, NGRAMS
from dcnn.config import WEIGHT_DEVIATION, DCNNConfig, TrainingConfig
from dcnn.data.batching import Examples, prediction_batches
from dcnn.data.store import Corpus
from dcnn.ops import native
from dcnn.ops.native_training import Generator, Learner, Parameter, Rates, logits
from dcnn.text.vocabulary import UNKNOWN, Ints, Sentences
from dcnn.training.batches import Batches, MemoryBatches, RunSpec, StoreBatches
from dcnn.training.runs import Arrays, Runs

PARTS = ("filters", "bias")  # of a layer


class NativeDCNN:
    """A DCNN on numpy arrays; ``dcnn.models.DCNN`` is the same on tensors."""

    def __init__(self, config: DCNNConfig, vocabulary: int, classes: int) -> None:
        self.config, self.n_ensemble = config, 1
        shapes = config.parameter_shapes(vocabulary, classes)
        self.weights: Arrays = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
        self.bag_offsets: Ints | None = None
        self.bag_buckets: NDArray[np.int32] | None = None
        self.used_buckets, self.n_buckets = np.zeros(1, np.int32), 0

    def add_ngrams(self, offsets: Ints, buckets: NDArray[np.int32], n_buckets: int) -> None:
        """Add the vectors of character n-grams, as ``SentenceModel.add_ngrams`` does."""
        every = np.append(np.zeros(1, np.int32), buckets)  # one at least
        self.used_buckets, numbers = np.unique(every, return_inverse=True)
        self.bag_offsets, self.bag_buckets = offsets, numbers[1:].astype(np.int32)
        self.n_buckets = n_buckets
        self.weights[NGRAMS] = np.empty((len(self.used_buckets), self.config.dim), np.float32)

    @property
    def bags(self) -> tuple[Ints, NDArray[np.int32]] | None:
        """Offsets and buckets of the words' n-grams."""
        if self.bag_offsets is None or self.bag_buckets is None:
            return None
        return self.bag_offsets, self.bag_buckets

    def initialize(self, seed: int) -> None:
        """Draw the authors' initial values, as ``SentenceModel.initialize`` does."""
        generator = Generator.seeded(seed)
        layers = [f"layers.{i}.{part}" for i in range(self.config.depth) for part in PARTS]
        for name in (EMBEDDINGS, *layers, "head.weight"):
            shape = self.weights[name].shape
            if name.endswith(".bias"):
                self.weights[name][:] = generator.uniform(shape)
            else:
                self.weights[name][:] = generator.normal(shape, WEIGHT_DEVIATION)
        self.weights["head.bias"][:] = 0
        if NGRAMS in self.weights:
            self.weights[NGRAMS][:] = 0

    def plain(self, weights: Mapping[str, NDArray[Any]], words: Ints | None = None) -> Arrays:
        """The weights of an equivalent network without n-grams or ensemble.

        With n-grams, it knows ``words``, or all of them.
        """
        plain = dict(weights)
        words = np.arange(len(plain[EMBEDDINGS])) if words is None else words
        if self.bags is not None:
            tables = plain[EMBEDDINGS], plain.pop(NGRAMS)
            plain[EMBEDDINGS] = native.compose(words, self.bags, *tables)
        if self.n_ensemble > 1:
            plain["head.weight"] = plain["head.weight"] / np.float32(self.n_ensemble)
        return plain

    def all_ngrams(self, ngrams: NDArray[np.float32]) -> NDArray[np.float32]:
        """The vectors of all buckets, zero where none occurs: (used, d) -> (n_buckets, d)."""
        table = np.zeros((self.n_buckets, ngrams.shape[1]), np.float32)
        table[self.used_buckets] = ngrams
        return table


def learner_order(depth: int, has_ngrams: bool) -> list[str]:
    """The names of a DCNN's parameters, in the order in which a ``Learner`` takes them."""
    layers = [f"layers.{i}.{part}" for i in range(depth) for part in PARTS]
    return [EMBEDDINGS, "head.weight", "head.bias", *layers, *([NGRAMS] if has_ngrams else [])]


def make_parameters(
    weights: Mapping[str, NDArray[Any]],
    sums: Mapping[str, NDArray[Any]],
    averages: Mapping[str, NDArray[Any]],
    config: TrainingConfig,
) -> dict[str, Parameter]:
    """The parameters of one run by name, with what Adagrad keeps of each."""
    return {
        name: Parameter(
            value, sums[name], averages.get(name), config.l2_of(name), config.decay_of(name)
        )
        for name, value in weights.items()
    }


def rates_at(config: TrainingConfig, n_ensemble: int, step: int, progress: float) -> Rates:
    """The rates of a step, counted from 1; ``progress`` is the fraction of the run that is done."""
    rate = config.learning_rate * (1 - progress * (config.schedule == "linear"))
    largest_norm = config.max_grad_norm * n_ensemble**0.5 or np.inf
    ema_weight = 1 - min(config.ema, (1 + step) / (10 + step))
    return Rates(rate, config.eps, largest_norm, ema_weight)


class NativeRun(Runs):
    """A single run of a DCNN; the model's weights are trained where they are."""

    def __init__(
        self,
        model: NativeDCNN,
        examples: Examples | Corpus | Batches,
        spec: RunSpec,
        dev: Examples | None,
        multi_label: bool,
        threads: int,
    ) -> None:
        self.model, self.dev, self.threads = model, dev, threads
        self.config = config = spec.training
        weights, classes = model.weights, len(model.weights["head.bias"])
        self.sums: Arrays = {name: np.zeros_like(value) for name, value in weights.items()}
        self.averages: Arrays = {}
        if config.ema:
            self.averages = {name: value.copy() for name, value in weights.items()}
        parameters = make_parameters(weights, self.sums, self.averages, config)
        names = learner_order(model.config.depth, model.bags is not None)
        self._learner = Learner(
            [parameters[name] for name in names],
            model.config.fold,
            model.config.k_top,
            model.n_ensemble,
            multi_label,
            model.bags,
        )
        # Not the seed itself, which the initial values were drawn from.
        own_seed = int(np.random.SeedSequence([config.seed, 1]).generate_state(1)[0])
        self.generator = Generator.seeded(own_seed)
        if isinstance(examples, Batches):
            self.batches = examples
        elif isinstance(examples, Corpus):
            self.batches = StoreBatches(examples, config)
        else:
            self.batches = MemoryBatches(examples, spec, classes, multi_label=multi_label)
        self.kept = {}
        self._steps = 0
        self._loss_sum, self._norm = np.zeros(1, np.float32), 0.0

    def learn(self, epoch: int, number: int, progress: float) -> int:
        """See ``Runs``."""
        batch, network = self.batches.batch(epoch, number), self.model.config
        ids, dropout = batch.ids, None
        if self.config.word_dropout:
            draws = self.generator.uniform(ids.shape)
            ids = np.where(draws < np.float32(self.config.word_dropout), UNKNOWN, ids)
        if network.dropout:
            shape = len(ids), self.model.weights["head.weight"].shape[1]
            dropout = self.generator.mask(shape, 1 - network.dropout)
        assert batch.targets is not None  # noqa: S101
        self._steps += 1
        rates = rates_at(self.config, self.model.n_ensemble, self._steps, progress)
        given = (ids, batch.lengths, dropout), batch.targets, batch.weights, rates
        loss, self._norm = self._learner.step(*given, self.threads)
        self._loss_sum += np.float32(loss)
        return len(ids)

    def losses(self) -> list[float]:
        """See ``Runs``."""
        return [float(self._loss_sum[0])]

    def norms(self) -> list[float]:
        """See ``Runs``."""
        return [self._norm]

    def end_epoch(self) -> None:
        """See ``Runs``."""
        self._loss_sum[:] = 0

    def reset_adagrad(self, runs: Sequence[int]) -> None:
        """See ``Runs``."""
        for total in self.sums.values() if runs else ():
            total[:] = 0

    def dev_logits(self) -> NDArray[np.float32]:
        """See ``Runs``."""
        assert self.dev is not None  # noqa: S101
        return self._logits(self._evaluated(), self.dev.sentences)[None]

    def _evaluated(self) -> Arrays:
        return self.averages or self.model.weights

    def _logits(self, weights: Arrays, sentences: Sentences) -> NDArray[np.float32]:
        if NGRAMS not in weights:
            return self.logits_of_plain(self.model.plain(weights), sentences)
        used, places = np.unique(sentences.ids, return_inverse=True)
        plain = self.model.plain(weights, used)  # the vector of each word once, not in every batch
        return self.logits_of_plain(plain, replace(sentences, ids=places))

    def keep(self, runs: Sequence[int]) -> None:
        """See ``Runs``."""
        for name, value in self._evaluated().items() if runs else ():
            if name in self.kept:
                np.copyto(self.kept[name], value)
            else:
                self.kept[name] = value.copy()

    def finish(self) -> None:
        """See ``Runs``."""
        for name, value in self.kept.items():
            self.model.weights[name][:] = value

    def logits(self, sentences: Sentences) -> NDArray[np.float32]:
        """See ``Runs``."""
        return self._logits(self.kept, sentences)[None]

    def logits_of_plain(
        self, weights: Mapping[str, NDArray[Any]], sentences: Sentences
    ) -> NDArray[np.float32]:
        """See ``Runs``."""
        network, shape = self.model.config, (len(sentences), len(weights["head.bias"]))
        by_place = [weights[name] for name in learner_order(network.depth, False)]
        result: NDArray[np.float32] = np.empty(shape, np.float32)
        for batch in prediction_batches(sentences):
            given = batch.ids, batch.lengths, None, network.fold, network.k_top
            result[batch.order] = logits(*given, *by_place, threads=self.threads)
        return result

    def weights_of(self, run: int) -> Arrays:  # noqa: ARG002
        """See ``Runs``."""
        plain = self.model.plain(self.kept)
        if NGRAMS in self.kept:  # for words that training never saw
            plain[NGRAMS] = self.model.all_ngrams(self.kept[NGRAMS])
        return plain

    def _groups(self) -> dict[str, Arrays]:
        """What changes from step to step, by the names that a checkpoint has."""
        return {
            "model": self.model.weights,
            "average": self.averages,
            "adagrad": self.sums,
            "run": {"loss_sum": self._loss_sum},
        }

    def snapshot(self) -> Arrays:
        """See ``Runs``."""
        groups = self._groups() | {"best": self.kept}
        found = {f"{group}/{name}": v for group, own in groups.items() for name, v in own.items()}
        return found | {"run/generator": self.generator.state}

    def restore(self, arrays: Arrays, step: int) -> None:
        """See ``Runs``."""
        for group, own in self._groups().items():
            for name, value in own.items():
                value[:] = arrays[f"{group}/{name}"].reshape(value.shape)
        self.kept = {
            name: arrays[f"best/{name}"].reshape(value.shape)
            for name, value in self.model.weights.items()
            if any(key.startswith("best/") for key in arrays)
        }
        self.generator = Generator(arrays["run/generator"])
        self._steps = step
