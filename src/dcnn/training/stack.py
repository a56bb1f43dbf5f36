"""Many runs of one architecture, trained together.

The kernels of one such small network leave a GPU idle. Here R runs, each with its own seed,
settings, examples, targets and weights, take every step at once: parameters carry a leading axis
of runs, and ``torch.func.vmap`` maps the very module that a single run trains.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, vmap

from dcnn.config import TrainingConfig
from dcnn.data.batching import Examples, prediction_batches
from dcnn.errors import TrainingError
from dcnn.models import SentenceModel
from dcnn.ops.select import for_training
from dcnn.text.vocabulary import UNKNOWN, Ints, Sentences
from dcnn.training.adagrad import StackedAdagrad, Weights
from dcnn.training.cuda_graphs import GraphedStep, Step
from dcnn.training.objective import example_weights, target_distributions
from dcnn.training.stack_data import DeviceSentences, stacked_order

# A mean cross-entropy that no network comes back from; also what is not a number is not below it.
DIVERGED = 1000.0

# Sentences times runs that are predicted in one go.
PREDICTED_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class RunSpec:
    """What is one run's own.

    Attributes:
        training: its settings. Runs of a stack share ``batch_size``, ``evaluations`` and
            ``class_weights``, and none stops early: ``patience`` is for runs of their own. Whether
            they have members is a matter of the network.
        weights: its initial weights by name.
        subset: indices of the examples it learns from; none is all of them.
        targets: (N, classes) its own targets in place of the examples', or none.
    """

    training: TrainingConfig
    weights: Weights
    subset: Ints | None = None
    targets: NDArray[Any] | None = None


@dataclass
class Outcome:
    """How one run of a stack ended.

    Attributes:
        dev_accuracy: of the weights that are kept; none without dev.
        epochs: epochs that led to them.
        failed: whether the loss went beyond all bounds; the weights are then those before that.
        history: dev accuracy at each evaluation.
    """

    dev_accuracy: float | None = None
    epochs: int = 0
    failed: bool = False
    history: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class EpochReport:
    """Where a stack stands when it was evaluated: training loss and dev accuracy of each run."""

    epoch: int
    epochs: int
    losses: list[float]
    dev_accuracies: list[float] | None


class Stack:
    """R runs on one network and one set of examples."""

    def __init__(
        self,
        model: SentenceModel,
        examples: Examples,
        specs: Sequence[RunSpec],
        device: torch.device | str = "cpu",
    ) -> None:
        self.model, self.specs, self.device = model.to(device), specs, torch.device(device)
        self.backend = for_training(self.device.type)
        self.configs = [spec.training for spec in specs]
        for name in ("batch_size", "evaluations_per_epoch", "class_weights"):
            values = sorted({str(getattr(config, name)) for config in self.configs})
            if len(values) > 1:
                raise ValueError(f"runs of a stack share {name}; got {', '.join(values)}")
        self.sentences = DeviceSentences(examples.sentences, self.device)
        self.targets = self._own_or_shared_targets(examples.targets)  # (R or 1, N, classes)
        self.importance = None
        if (weights := self._importance(examples)) is not None:
            self.importance = torch.from_numpy(weights).to(self.device)  # (N,)
        everything = torch.arange(len(examples), device=self.device)
        self.subsets = [
            everything if spec.subset is None else torch.from_numpy(spec.subset).to(self.device)
            for spec in specs
        ]
        self.weights = {
            name: torch.stack([spec.weights[name] for spec in specs]).to(self.device)
            for name, _ in model.named_parameters()
        }
        for value in self.weights.values():
            value.requires_grad_()
        self.kept = {name: value.detach().clone() for name, value in self.weights.items()}
        self.optimizer = StackedAdagrad(self.weights, self.configs, model.n_ensemble)
        seeds = [config.seed for config in self.configs]
        own_seed = int(np.random.SeedSequence([*seeds, 1]).generate_state(1)[0])
        self.generator = torch.Generator(self.device).manual_seed(own_seed)
        self._take_step: Step | None = None
        dropped = [config.word_dropout for config in self.configs]
        self.word_dropout = torch.tensor(dropped, device=self.device)

    def _own_or_shared_targets(self, shared: NDArray[Any]) -> Tensor:
        smoothings = {config.label_smoothing for config in self.configs}
        alike = len(smoothings) == 1 and all(spec.targets is None for spec in self.specs)
        distributions = [
            target_distributions(
                shared if spec.targets is None else spec.targets,
                self.model.head.out_features,
                spec.training.label_smoothing,
            )
            for spec in (self.specs[:1] if alike else self.specs)
        ]
        return torch.from_numpy(np.stack(distributions)).to(self.device)

    def _importance(self, examples: Examples) -> NDArray[Any] | None:
        balanced = self.configs[0].class_weights == "balanced"
        classes = self.model.head.out_features
        return example_weights(examples.targets, classes, balanced, examples.weights)

    def train(
        self,
        dev: Examples | None = None,
        report: Callable[[EpochReport], None] = lambda _: None,
    ) -> list[Outcome]:
        """Train every run for its epochs; ``kept`` ends with the weights that were best on ``dev``.

        Without a dev set these are the last ones.
        """
        outcomes = [Outcome() for _ in self.specs]
        most_epochs = max(config.epochs for config in self.configs)
        for epoch in range(most_epochs):
            for losses in self._epoch(epoch):
                for outcome, loss in zip(outcomes, losses, strict=True):
                    outcome.failed |= not loss < DIVERGED
                if all(outcome.failed for outcome in outcomes):
                    raise TrainingError(
                        f"the loss is {losses[0]:g} in epoch {epoch + 1}: training diverged; "
                        "lower training.learning_rate"
                    )
                self._evaluate(epoch, outcomes, losses, dev, report)
        return outcomes

    def _evaluate(
        self,
        epoch: int,
        outcomes: list[Outcome],
        losses: list[float],
        dev: Examples | None,
        report: Callable[[EpochReport], None],
    ) -> None:
        """Keep the weights of the runs that are better than before, and tell."""
        weights = self.optimizer.evaluated()
        accuracies = None if dev is None else self._accuracies(weights, dev)
        better = [
            run
            for run, outcome in enumerate(outcomes)
            if epoch < self.configs[run].epochs
            and not outcome.failed
            and self._take_in(outcome, epoch, None if accuracies is None else accuracies[run])
        ]
        for name, value in self.kept.items():
            value[better] = weights[name][better]
        most_epochs = max(config.epochs for config in self.configs)
        report(EpochReport(epoch + 1, most_epochs, losses, accuracies))

    def weights_of(self, run: int) -> Weights:
        """The kept weights of one run."""
        return self.model.merged({name: value[run].clone() for name, value in self.kept.items()})

    @staticmethod
    def _take_in(outcome: Outcome, epoch: int, accuracy: float | None) -> bool:
        """Note an evaluation; returns whether these are the weights to keep so far."""
        if accuracy is not None:
            outcome.history.append(accuracy)
            if outcome.dev_accuracy is not None and accuracy <= outcome.dev_accuracy:
                return False
            outcome.dev_accuracy = accuracy
        outcome.epochs = epoch + 1
        return True

    def _epoch(self, epoch: int) -> Iterator[list[float]]:
        """One pass of every run over its examples; mean losses when an evaluation is due."""
        size = min(self.configs[0].batch_size, max(map(len, self.subsets)))
        seeds = [config.seed for config in self.configs]
        order = stacked_order(self.sentences.lengths, self.subsets, seeds, size, epoch)
        longest = self.sentences.lengths_of(order).amax(dim=(1, 2)).tolist()
        starts_again = [
            bool(config.reset_every) and epoch % config.reset_every == 0 for config in self.configs
        ]
        if any(starts_again):
            self.optimizer.reset(torch.tensor(starts_again, device=self.device))
        epochs = torch.tensor([config.epochs for config in self.configs], device=self.device)
        done = epoch + torch.arange(len(order), device=self.device) / len(order)
        progress = (done[:, None] / epochs).clamp(max=1)  # (batches, R)
        if self._take_step is None:
            self._take_step = self.make_step(order[0], progress[0])
        # Evenly spread; the last is at the end of the epoch.
        evaluations = min(self.configs[0].evaluations_per_epoch, len(order))
        for part in np.array_split(np.arange(len(order)), evaluations):
            total = torch.zeros(len(self.specs), device=self.device)
            for step in part:
                total += self._take_step(order[step], longest[step], progress[step])
            losses: list[float] = (total / len(part)).tolist()
            yield losses

    def make_step(self, indices: Tensor, progress: Tensor) -> Step:
        """What learns from a batch a run; on a GPU recorded once and replayed.

        Args:
            indices: (R, B) like those of every step.
            progress: (R,) like that of every step.
        """
        if self.device.type != "cuda":
            return self._step
        return GraphedStep(self._step, indices, progress, self.generator)

    def _step(self, indices: Tensor, columns: int, progress: Tensor) -> Tensor:
        """Learn from a batch a run, indices (R, B); returns the losses (R,)."""
        ids, lengths = self._words(indices, columns)  # (R, B, s), (R, B)
        dropout = self.model.draw_dropout(indices.numel(), self.generator)
        masks = () if dropout is None else (dropout.view(*indices.shape, -1),)
        n_ensemble = self.model.n_ensemble
        called = partial(self._call, apart=True)
        logits = vmap(called)(self.weights, ids, lengths, *masks)  # (R, B * members, classes)
        loss = self._loss(logits, indices.repeat_interleave(n_ensemble, dim=1))
        # A member learns as if it were alone: its gradient is not the share of a mean.
        weights, each = list(self.weights.values()), torch.full_like(loss, n_ensemble)
        gradients = torch.autograd.grad(loss, weights, each)
        self.optimizer.step(dict(zip(self.weights, gradients, strict=True)), progress)
        return loss.detach()

    def _words(self, indices: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        """Padded ids and lengths; some of the words are lost."""
        draws = torch.rand((*indices.shape, columns), generator=self.generator, device=self.device)
        if self.backend == "triton":
            from dcnn.training import triton_step as triton_batch

            parts = (self.sentences.ids, self.sentences.starts, self.sentences.lengths)
            return triton_batch.padded(indices, *parts, draws, self.word_dropout, UNKNOWN)
        ids, lengths = self.sentences.padded(indices, columns)
        return ids.masked_fill(draws < self.word_dropout[:, None, None], UNKNOWN), lengths

    def _loss(self, logits: Tensor, indices: Tensor) -> Tensor:
        """(R,), the mean over the places of the batch that a sentence takes."""
        if self.backend == "triton":
            from dcnn.training import triton_step as triton_batch

            return triton_batch.cross_entropy(logits, indices, self.targets, self.importance)
        exists, indices = indices >= 0, indices.clamp(min=0)
        runs = torch.arange(len(self.targets), device=self.device)[:, None]
        losses = -(self.targets[runs, indices] * torch.log_softmax(logits, dim=-1)).sum(dim=-1)
        if self.importance is not None:
            losses = losses * self.importance[indices]
        return (losses * exists).sum(dim=1) / exists.sum(dim=1).clamp(min=1)

    def _call(self, weights: Weights, *inputs: Tensor, apart: bool = False) -> Tensor:
        logits: Tensor = functional_call(self.model, weights, inputs, {"apart": apart})
        return logits

    def _accuracies(self, weights: Weights, dev: Examples) -> list[float]:
        predicted = self.probabilities(dev.sentences, weights).argmax(axis=2)
        accuracies: list[float] = (predicted == dev.targets).mean(axis=1).tolist()
        return accuracies

    @torch.no_grad()
    def probabilities(
        self, sentences: Sentences, weights: Weights | None = None
    ) -> NDArray[np.float32]:
        """(R, N, classes) of every run, with the weights that are kept or with ``weights``."""
        weights, runs = weights or self.kept, len(self.specs)
        result = np.empty((runs, len(sentences), self.model.head.out_features), np.float32)
        predict = vmap(self._call, in_dims=(0, None, None))
        for batch in prediction_batches(sentences, max(PREDICTED_AT_ONCE // runs, 1)):
            ids, lengths = (torch.from_numpy(part) for part in (batch.ids, batch.lengths))
            logits = predict(weights, ids.to(self.device), lengths.to(self.device))
            result[:, batch.order] = torch.softmax(logits, dim=-1).cpu().numpy()
        return result
