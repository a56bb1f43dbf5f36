"""Training of RecNN and RecNTN on the Stanford trees (Table 1).

Their examples are trees, not sentences, so they have a loop of their own: cross-entropy at every
node, Adagrad with L2, the epoch whose roots are classified best on dev. R runs with a seed each
take every step together, with the same trees in the same order.
"""

import time
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, vmap

from dcnn.config import RecNNConfig
from dcnn.errors import TrainingError
from dcnn.experiments.recipes import Recipe
from dcnn.experiments.runs import Report, TrainedNetwork
from dcnn.experiments.tasks import TreeTask
from dcnn.metrics import evaluate_logits
from dcnn.models.recursive import Forest, RecursiveNetwork, Trees
from dcnn.text.vocabulary import UNKNOWN
from dcnn.training.adagrad import Adagrad, Weights
from dcnn.training.callbacks import RunsReport
from dcnn.training.objective import cross_entropy

PREDICTED_AT_ONCE = 256  # trees


class TreeTrainer:
    """R runs of one recursive network, with all that changes from step to step."""

    def __init__(self, task: TreeTask, recipe: Recipe, seeds: Sequence[int], device: str) -> None:
        self.task, self.device = task, device
        configs = [recipe.config.with_training(seed=seed) for seed in seeds]
        self.config = configs[0].training
        vocabulary, classes = len(task.encoder.vocabulary), len(task.classes)
        network = cast(RecNNConfig, recipe.config.model)  # as a tree task has no other
        self.model = RecursiveNetwork(network, vocabulary, classes)
        starts = []
        for seed in seeds:
            self.model.initialize(torch.Generator().manual_seed(seed))
            starts.append({n: v.detach().clone() for n, v in self.model.named_parameters()})
        self.weights: Weights = {
            name: torch.stack([start[name] for start in starts]).to(device).requires_grad_()
            for name in starts[0]
        }
        self.optimizer = Adagrad(self.weights, [config.training for config in configs])
        self.generator = torch.Generator(device).manual_seed(seeds[0])
        self.targets = torch.from_numpy(task.node_targets).to(device)
        self.node_weights = torch.from_numpy(task.node_weights).to(device)

    def logits(self, weights: Weights, forest: Forest, dropout: Tensor | None = None) -> Tensor:
        """(R, N, classes) of all nodes; ``dropout`` is (R, N, d)."""
        if len(self.optimizer.settings[0]) == 1:  # without the cost of vmap
            own = {name: value[0] for name, value in weights.items()}
            mask = None if dropout is None else dropout[0]
            logits: Tensor = functional_call(self.model, own, (forest, mask))
            return logits[None]

        def of_run(own: Weights, *mask: Tensor) -> Tensor:
            found: Tensor = functional_call(self.model, own, (forest, *mask))
            return found

        return vmap(of_run)(weights, *(() if dropout is None else (dropout,)))

    def step(self, chosen: NDArray[np.int64], progress: float) -> Tensor:
        """Learn from some trees; the losses of all runs (R,)."""
        forest = self.task.trees["train"].forest(chosen, self.device)
        model, runs = self.model.config, self.optimizer.settings.shape[1]
        if share := self.config.word_dropout:
            drawn = torch.rand(forest.words.shape, generator=self.generator, device=self.device)
            forest = forest._replace(words=forest.words.masked_fill(drawn < share, UNKNOWN))
        dropout, nodes = None, torch.from_numpy(forest.nodes).to(self.device)
        if model.dropout:
            shape = runs, len(nodes), model.dim
            drawn = torch.rand(shape, generator=self.generator, device=self.device)
            dropout = (drawn >= model.dropout) / (1 - model.dropout)
        logits = self.logits(self.weights, forest, dropout)
        losses = cross_entropy(logits, self.targets[nodes], self.node_weights[nodes])
        losses = losses * (len(nodes) / len(chosen))  # the sum over a tree, the mean over trees
        gradients = torch.autograd.grad(losses.sum(), list(self.weights.values()))
        done = self.optimizer.settings.new_full((runs,), progress)
        self.optimizer.step(dict(zip(self.weights, gradients, strict=True)), done)
        return losses.detach()

    def epoch(self, number: int) -> list[float]:
        """Learn from every tree once; the mean loss of each run."""
        count, size = len(self.task.trees["train"]), self.config.batch_size
        order = np.random.default_rng((self.config.seed, number)).permutation(count)
        starts = range(0, count, size)
        losses = [
            self.step(order[start : start + size], (number + start / count) / self.config.epochs)
            for start in starts
        ]
        means: list[float] = (torch.stack(losses).sum(dim=0) / len(starts)).tolist()
        return means

    @torch.no_grad()
    def root_logits(self, weights: Weights, trees: Trees) -> NDArray[np.float32]:
        """(R, trees, classes) of the roots."""
        found = []
        for start in range(0, len(trees), PREDICTED_AT_ONCE):
            chosen = np.arange(start, min(start + PREDICTED_AT_ONCE, len(trees)))
            forest = trees.forest(chosen, self.device)
            found.append(self.logits(weights, forest)[:, forest.roots])
        return torch.cat(found, dim=1).cpu().numpy()


def train_trees(
    task: TreeTask, recipe: Recipe, seeds: Sequence[int], device: str, report: Report
) -> list[TrainedNetwork]:
    """Train ``seeds`` together, and predict the test set once with the final weights of each."""
    assert task.dev is not None  # noqa: S101
    started, trainer = time.monotonic(), TreeTrainer(task, recipe, seeds, device)
    config, runs = recipe.config.training, range(len(seeds))
    best, best_epochs = [(-1.0, 0.0)] * len(seeds), [0] * len(seeds)
    kept = {name: value.detach().clone() for name, value in trainer.weights.items()}
    for epoch in range(config.epochs):
        losses, weights = trainer.epoch(epoch), trainer.optimizer.evaluated()
        if not np.isfinite(losses).all():
            raise TrainingError(
                f"the losses are {losses} in epoch {epoch + 1}: training diverged; "
                f"lower training.learning_rate={config.learning_rate}"
            )
        accuracies = []
        for run, logits in enumerate(trainer.root_logits(weights, task.trees["dev"])):
            accuracy, loss, _ = evaluate_logits(logits, task.dev.targets)
            accuracies.append(accuracy)
            if config.keep == "last" or (accuracy, -loss) > best[run]:
                best[run], best_epochs[run] = (accuracy, -loss), epoch + 1
                for name, value in kept.items():
                    value[run].copy_(weights[name][run])
        report("training", RunsReport(epoch + 1, config.epochs, losses, accuracies))
    logits = torch.from_numpy(trainer.root_logits(kept, task.trees["test"]))
    probabilities = torch.softmax(logits, dim=-1).numpy()
    seconds = time.monotonic() - started
    trees = config.epochs * len(task.train) * len(seeds)
    return [
        TrainedNetwork(
            seed=seeds[run],
            weights={name: value[run].cpu().numpy() for name, value in kept.items()},
            dev_accuracy=best[run][0],
            epochs=best_epochs[run],
            test_probabilities=probabilities[run],
            float32_probabilities=probabilities[run],
            seconds=seconds,
            sentences_per_second=trees / seconds,
        )
        for run in runs
    ]
