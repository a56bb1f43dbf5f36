"""Adagrad with an L2 term per parameter (Sect. 5.1), for R runs, and the average of the weights.

``Adagrad`` has one rule; how it is computed depends on the backend:

- torch: a few operations per parameter, on any device;
- native: one pass over all parameters in compiled code, run by run. A sparse gradient, of the words
  of a batch, updates the embeddings as a dense one with zeros for all other words would;
- triton: two kernels for all parameters of all runs.

The L2 term is added to the gradient before Adagrad scales it, as the paper's objective says.
"""

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dcnn.config import DECAYING, TrainingConfig
from dcnn.ops import select
from dcnn.ops.native_torch import from_tensor
from dcnn.ops.native_training import Rates, update
from dcnn.training.native_run import make_parameters, rates_at

Weights = dict[str, Tensor]


def _of_run(weights: Weights, run: int) -> dict[str, NDArray[Any]]:
    """The memory of one run's tensors."""
    return {name: value.detach()[run].numpy() for name, value in weights.items()}


class Adagrad:
    """Learning rate, schedule, L2, gradient norm, decay and moving average of every run.

    ``weights``, ``sums`` and ``averages`` map names to tensors (R, ...) and are updated in place.
    ``sums`` are the sums of squared gradients; ``averages`` are exponential moving averages of the
    weights, empty if no run keeps one. In early steps t the decay of an average is lower,
    (1 + t) / (10 + t), so that the initial values fade quickly. The gradient norm of an
    ensemble is clipped to ``max_grad_norm`` * sqrt(n_ensemble).
    """

    def __init__(
        self, weights: Weights, configs: Sequence[TrainingConfig], n_ensemble: int = 1
    ) -> None:
        first = next(iter(weights.values()))
        single = first.dtype == torch.float32
        self.backend = select.for_training(first.device.type) if single else "torch"
        self.weights = weights
        self.sums = {name: torch.zeros_like(value) for name, value in weights.items()}
        self.averages: Weights = {}
        if any(config.ema for config in configs):
            self.averages = {name: value.detach().clone() for name, value in weights.items()}
        settings = [
            (
                config.learning_rate,
                float(config.schedule == "linear"),
                config.eps,
                config.decay_embeddings,
                config.max_grad_norm * n_ensemble**0.5 or torch.inf,
                config.ema,
            )
            for config in configs
        ]
        self._configs, self._n_ensemble = configs, n_ensemble
        l2 = [[config.l2_of(name) for config in configs] for name in weights]
        # In double precision on a CPU, where they are read as Python's floats.
        dtype = torch.float64 if first.device.type == "cpu" else torch.float32
        self.settings = torch.tensor(settings, dtype=dtype, device=first.device).T.contiguous()
        self.l2 = torch.tensor(l2, dtype=dtype, device=first.device)  # (parameters, R)
        self.steps = torch.zeros((), dtype=dtype, device=first.device)
        # Of every run by name, as the native backend takes them.
        self.native = [
            make_parameters(
                _of_run(self.weights, run),
                _of_run(self.sums, run),
                _of_run(self.averages, run),
                config,
            )
            for run, config in enumerate(configs if self.backend == "native" else ())
        ]

    @torch.no_grad()
    def step(self, gradients: Weights | Sequence[Weights], progress: Tensor) -> Tensor:
        """One update of every run.

        ``gradients`` maps names to tensors (R, ...). For the native backend it is a sequence of one
        such mapping per run, without the axis R, and the gradient of the embeddings may be sparse.
        ``progress`` (R,) is the fraction of each run that is done. Returns the norms of the
        gradients (R,), zero where the native backend did not need them.
        """
        if isinstance(gradients, dict):
            self.steps += 1
        if self.backend == "triton" and isinstance(gradients, dict):
            from dcnn.training import triton_step

            return triton_step.adagrad(self, gradients, progress)
        if isinstance(gradients, dict):
            return self._step_torch(gradients, progress)
        rates, threads = self.next_rates(progress.tolist()), torch.get_num_threads()
        norms = [
            update(list(own.values()), [from_tensor(of_run[name]) for name in own], now, threads)
            for own, of_run, now in zip(self.native, gradients, rates, strict=True)
        ]
        return torch.tensor(norms)

    def next_rates(self, progress: Sequence[float]) -> list[Rates]:
        """Count a step, and return its rates for every run, for the native backend."""
        self.steps += 1
        step = int(self.steps)
        return [
            rates_at(config, self._n_ensemble, step, done)
            for config, done in zip(self._configs, progress, strict=True)
        ]

    def reset(self, runs: Sequence[int]) -> None:
        """Let Adagrad forget the gradients of ``runs``."""
        for total in self.sums.values():
            for run in runs:
                total[run].zero_()

    def evaluated(self) -> Weights:
        """The weights that are evaluated: their moving average where a run keeps one."""
        return self.averages or {name: value.detach() for name, value in self.weights.items()}

    def _step_torch(self, gradients: Weights, progress: Tensor) -> Tensor:
        norms = [torch.linalg.vector_norm(value.flatten(1), dim=1) for value in gradients.values()]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms), dim=0)  # (R,)
        rate, linear, eps, decay, largest_norm, ema = self.settings
        rate = rate * (1 - linear * progress)
        clip = (largest_norm / (norm + 1e-6)).clamp(max=1)
        ema_weight = 1 - torch.minimum(ema, (1 + self.steps) / (10 + self.steps))
        for number, (name, value) in enumerate(self.weights.items()):
            shrink = 1 - rate * decay if name == DECAYING else torch.ones_like(rate)
            scalars = clip, self.l2[number], rate, shrink, eps, ema_weight  # (R,) each
            factor, l2, own_rate, left, own_eps, share = (
                scalar.to(value.dtype).view(-1, *[1] * (value.dim() - 1)) for scalar in scalars
            )
            value.mul_(left)
            gradient = torch.addcmul(gradients[name] * factor, value, l2)
            total = self.sums[name].addcmul_(gradient, gradient)
            value.addcdiv_(gradient * -own_rate, total.sqrt().add_(own_eps))
            if name in self.averages:
                self.averages[name].lerp_(value, share.expand_as(value))
        return norm
