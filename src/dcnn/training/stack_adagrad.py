"""Adagrad for stacked runs: one update of all runs' parameters, each run with its own settings.

The rules are those of ``dcnn.training.optimizer``; every parameter has a leading axis of runs.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor

from dcnn.config import TrainingConfig
from dcnn.ops.choice import backend_name
from dcnn.training import native_adagrad
from dcnn.training.optimizer import l2_of

Weights = dict[str, Tensor]

DECAYING = "embeddings"  # the parameter that ``decay_embeddings`` shrinks


class StackedAdagrad:
    """Rate, schedule, L2, gradient norm and moving average of each run, in one pass over all."""

    def __init__(
        self, weights: Weights, configs: Sequence[TrainingConfig], members: int = 1
    ) -> None:
        self.weights = weights
        device = next(iter(weights.values())).device

        def a_run(value: Callable[[TrainingConfig], float]) -> Tensor:
            return torch.tensor([value(config) for config in configs], device=device)

        self._rate = a_run(lambda config: config.learning_rate)
        self._linear = a_run(lambda config: float(config.schedule == "linear"))
        self._eps = a_run(lambda config: config.eps)
        self._decay = a_run(lambda config: config.decay_embeddings)
        self._largest_norm = a_run(lambda config: config.max_grad_norm * members**0.5 or torch.inf)
        self._ema = a_run(lambda config: config.ema)
        self._l2 = {name: a_run(partial(l2_of, name)) for name in weights}
        self._sums = {name: torch.zeros_like(value) for name, value in weights.items()}
        self._steps = torch.zeros((), device=device)  # on the device, for CUDA graphs
        self._backend = backend_name(device)
        averages = any(config.ema for config in configs)
        self._averages = {
            name: value.detach().clone() for name, value in weights.items() if averages
        }

    @torch.no_grad()
    def step(self, gradients: Weights, progress: Tensor) -> None:
        """One update; ``progress`` (R,) is the share of each run that lies behind."""
        self._steps += 1
        if self._backend == "triton":
            self._step_at_once(gradients, progress)
        else:
            self._step_by_parameter(gradients, progress)

    def _step_by_parameter(self, gradients: Weights, progress: Tensor) -> None:
        norms = [torch.linalg.vector_norm(value.flatten(1), dim=1) for value in gradients.values()]
        norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)  # (R,)
        clip = (self._largest_norm / (norm + 1e-6)).clamp(max=1)
        rate = self._rate * (1 - self._linear * progress)
        fresh = 1 - torch.minimum(self._ema, (1 + self._steps) / (10 + self._steps))
        update_one = native_adagrad.update if self._backend == "native" else update
        for name, value in self.weights.items():
            shrink = 1 - rate * self._decay if name == DECAYING else torch.ones_like(rate)
            scalars = [clip, self._l2[name], rate, shrink, self._eps, fresh]
            update_one(value, gradients[name], self._sums[name], self._averages.get(name), scalars)

    def _step_at_once(self, gradients: Weights, progress: Tensor) -> None:
        from dcnn.training import triton_adagrad

        triton_adagrad.update(
            list(self.weights.values()),
            [gradients[name] for name in self.weights],
            list(self._sums.values()),
            list(self._averages.values()),
            [name == DECAYING for name in self.weights],
            self._settings,
            self._l2_table,
            progress,
            self._steps,
        )

    @cached_property
    def _settings(self) -> Tensor:
        """(6, R), as ``triton_adagrad`` reads them."""
        settings = (self._rate, self._linear, self._eps, self._decay, self._largest_norm, self._ema)
        return torch.stack(settings)

    @cached_property
    def _l2_table(self) -> Tensor:
        """(parameters, R)."""
        return torch.stack(list(self._l2.values()))

    def reset(self, runs: Tensor) -> None:
        """Let Adagrad forget the gradients of ``runs`` (R,), true for those that start again."""
        for total in self._sums.values():
            total[runs] = 0

    def evaluated(self) -> Weights:
        """The weights that count: their moving average where a run keeps one."""
        return {name: value.detach() for name, value in (self._averages or self.weights).items()}


def update(
    value: Tensor, gradient: Tensor, total: Tensor, average: Tensor | None, scalars: list[Tensor]
) -> None:
    """Update ``value``, ``total`` and ``average`` (R, ...) in place.

    Args:
        value: the parameter.
        gradient: of the loss.
        total: sum of the squared gradients so far.
        average: moving average of the values, or none.
        scalars: six values a run, (R,) each: factor of the gradient, L2, learning rate, factor of
            the value, eps, share of the new value in the average.
    """
    clip, l2, rate, shrink, eps, fresh = (
        scalar.view(-1, *[1] * (value.dim() - 1)) for scalar in scalars
    )
    value.mul_(shrink)
    gradient = torch.addcmul(gradient * clip, value, l2)
    total.addcmul_(gradient, gradient)
    value.addcdiv_(gradient * -rate, total.sqrt().add_(eps))
    if average is not None:
        average.lerp_(value, fresh.expand_as(value))
