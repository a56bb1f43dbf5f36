"""Adagrad with an L2 term a parameter group (Sect. 5.1), and the average of the weights.

The L2 term is added to the gradient before Adagrad scales it, as the paper's objective says.


Adagrad in one pass over a parameter on a CPU: decay, clipping, L2, accumulator, step, average.

Written as separate torch operations an update goes through the embeddings several times, which for
a large vocabulary takes longer than the network itself. A sparse gradient, of the words of a batch,
updates the embeddings as a dense one with zeros for all other words would; where neither L2 nor
decay moves these, they are not touched. Rows are spread over torch's number of threads, which
changes no bit.


Adagrad for stacked runs: one update of all runs' parameters, each run with its own settings.

The rules are those of ``dcnn.training.adagrad``; every parameter has a leading axis of runs.

"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.optim import Adagrad

from dcnn.config import TrainingConfig
from dcnn.models import SentenceModel
from dcnn.ops import native
from dcnn.ops.select import for_training


def l2_of(name: str, config: TrainingConfig) -> float:
    """The L2 term of a parameter by its name; biases carry none."""
    match name.split("."):
        case ["embeddings"]:
            return config.l2_embeddings
        case ["projection"]:
            return config.l2_projection
        case ["head", "weight"]:
            return config.l2_head
        case ["layers", index, "filters"]:
            return config.l2_filters[min(int(index), len(config.l2_filters) - 1)]
    return 0.0


def make_optimizer(model: SentenceModel, config: TrainingConfig) -> Adagrad:
    """A group a parameter, each with its own L2 term."""
    groups: list[dict[str, object]] = [
        {"params": [parameter], "weight_decay": l2_of(name, config)}
        for name, parameter in model.named_parameters()
    ]
    native = for_training(model.embeddings.device.type) == "native"
    single = model.embeddings.dtype == torch.float32
    optimizer = NativeAdagrad if native and single else Adagrad
    return optimizer(groups, lr=config.learning_rate, eps=config.eps)


def set_learning_rate(optimizer: Adagrad, config: TrainingConfig, progress: float) -> None:
    """Apply the schedule at ``progress``, the share of all steps that lies behind."""
    factor = 1 - progress if config.schedule == "linear" else 1.0
    for group in optimizer.param_groups:
        group["lr"] = config.learning_rate * factor


def clip_gradients(model: SentenceModel, optimizer: Adagrad, largest: float) -> Tensor:
    """Scale all gradients down to the norm ``largest`` a member; returns the norm that they had."""
    largest *= model.n_ensemble**0.5
    if not isinstance(optimizer, NativeAdagrad):
        return torch.nn.utils.clip_grad_norm_(model.parameters(), largest)
    total = norm([value.grad for value in model.parameters() if value.grad is not None])
    optimizer.clip = min(1.0, largest / (total + 1e-6))  # the update scales on its way
    return torch.tensor(total)


def decay_embeddings(model: SentenceModel, optimizer: Adagrad, config: TrainingConfig) -> None:
    """Shrink the word embeddings a little, by a share that Adagrad does not scale."""
    if config.decay_embeddings:
        rate = optimizer.param_groups[0]["lr"]
        with torch.no_grad():
            model.embeddings.mul_(1 - rate * config.decay_embeddings)


def reset_accumulators(optimizer: Adagrad) -> None:
    """Let Adagrad forget the gradients it has seen."""
    for state in optimizer.state.values():
        state["sum"].zero_()


class WeightAverage:
    """Exponential moving average of a model's weights, corrected for its start.

    Early on the decay is lower, (1 + t) / (10 + t), so that the initial values fade quickly.
    """

    def __init__(self, model: SentenceModel, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def update(self, model: SentenceModel) -> None:
        """Take in the weights after one more step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        current: dict[str, Tensor] = model.state_dict()
        with torch.no_grad():
            for name, average in self.weights.items():
                average.lerp_(current[name], 1 - decay)


class NativeAdagrad(Adagrad):
    """torch's Adagrad, its state included, for float32 parameters on a CPU.

    Attributes:
        clip: the factor that the gradients of the next step are multiplied with.
    """

    clip = 1.0

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """One update of every parameter that has a gradient; nothing is evaluated on the way."""
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is not None:
                    state = self.state[value]
                    state["step"] += 1
                    scalars = (
                        self.clip,
                        group["weight_decay"],
                        group["lr"],
                        1.0,
                        group["eps"],
                        0.0,
                    )
                    _update_one(value, value.grad, state["sum"], None, scalars)
        self.clip = 1.0


@torch.no_grad()
def update(
    value: Tensor, gradient: Tensor, total: Tensor, average: Tensor | None, scalars: list[Tensor]
) -> None:
    """See ``dcnn.training.adagrad.update``."""
    for run, of_run in enumerate(torch.stack(scalars, dim=1).tolist()):
        _update_one(
            value[run],
            gradient[run],
            total[run],
            None if average is None else average[run],
            of_run,
        )


def norm(gradients: Sequence[Tensor]) -> float:
    """The norm of all of them together; what a sparse one does not hold is zero."""
    dense = [
        (gradient.coalesce().values() if gradient.is_sparse else gradient).contiguous()
        for gradient in gradients
    ]
    for tensor in dense:
        if tensor.dtype != torch.float32:
            raise ValueError(f"a float32 tensor is needed; got {tensor.dtype}")
    pointers, numbers = (
        native.array_of(kind, len(dense)) for kind in (ctypes.c_void_p, ctypes.c_int64)
    )
    places = pointers(*(tensor.data_ptr() for tensor in dense))
    sizes = numbers(*(tensor.numel() for tensor in dense))
    total: float = native.library().dcnn_norm(
        ctypes.addressof(places), ctypes.addressof(sizes), len(dense)
    )
    return total


def _update_one(
    value: Tensor,
    gradient: Tensor,
    total: Tensor,
    average: Tensor | None,
    scalars: tuple[float, ...],
) -> None:
    rows = None
    if gradient.is_sparse:
        gradient = gradient.coalesce()
        rows, gradient = gradient.indices()[0].contiguous(), gradient.values()
    gradient = gradient.contiguous()
    for tensor in (value, gradient, total, value if average is None else average):
        if tensor.dtype != torch.float32 or not tensor.is_contiguous():
            raise ValueError(f"a dense float32 tensor is needed; got {tensor.dtype}")
    average_at = None if average is None else average.data_ptr()
    if rows is None:
        native.library().dcnn_adagrad(
            value.data_ptr(),
            gradient.data_ptr(),
            total.data_ptr(),
            average_at,
            value.numel(),
            *scalars,
        )
        return
    native.check(
        native.library().dcnn_adagrad_rows(
            value.data_ptr(),
            gradient.data_ptr(),
            rows.data_ptr(),
            len(rows),
            total.data_ptr(),
            average_at,
            len(value),
            value.numel() // len(value),
            *scalars,
            torch.get_num_threads(),
        )
    )


Weights = dict[str, Tensor]

DECAYING = "embeddings"  # the parameter that ``decay_embeddings`` shrinks


class StackedAdagrad:
    """Rate, schedule, L2, gradient norm and moving average of each run, in one pass over all."""

    def __init__(
        self, weights: Weights, configs: Sequence[TrainingConfig], n_ensemble: int = 1
    ) -> None:
        self.weights = weights
        device = next(iter(weights.values())).device

        def a_run(value: Callable[[TrainingConfig], float]) -> Tensor:
            return torch.tensor([value(config) for config in configs], device=device)

        self._rate = a_run(lambda config: config.learning_rate)
        self._linear = a_run(lambda config: float(config.schedule == "linear"))
        self._eps = a_run(lambda config: config.eps)
        self._decay = a_run(lambda config: config.decay_embeddings)
        self._largest_norm = a_run(
            lambda config: config.max_grad_norm * n_ensemble**0.5 or torch.inf
        )
        self._ema = a_run(lambda config: config.ema)
        self._l2 = {name: a_run(partial(l2_of, name)) for name in weights}
        self._sums = {name: torch.zeros_like(value) for name, value in weights.items()}
        self._steps = torch.zeros((), device=device)  # on the device, for CUDA graphs
        self._backend = for_training(device.type)
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
        update_one = update if self._backend == "native" else update_stack_adagrad
        for name, value in self.weights.items():
            shrink = 1 - rate * self._decay if name == DECAYING else torch.ones_like(rate)
            scalars = [clip, self._l2[name], rate, shrink, self._eps, fresh]
            update_one(value, gradients[name], self._sums[name], self._averages.get(name), scalars)

    def _step_at_once(self, gradients: Weights, progress: Tensor) -> None:
        from dcnn.training import triton_step as triton_adagrad

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


def update_stack_adagrad(
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
