"""Adagrad with an L2 term a parameter group (Sect. 5.1), and the average of the weights.

The L2 term is added to the gradient before Adagrad scales it, as the paper's objective says.
"""

import torch
from torch import Tensor
from torch.optim import Adagrad

from dcnn.config import TrainingConfig
from dcnn.models import SentenceModel
from dcnn.ops.choice import backend_name
from dcnn.training.native_adagrad import NativeAdagrad, norm


def l2_of(name: str, config: TrainingConfig) -> float:
    """The L2 term of a parameter by its name; biases carry none."""
    match name.split("."):
        case ["embeddings"]:
            return config.l2_embeddings
        case ["projection"]:
            return config.l2_projection
        case ["top", "weight"]:
            return config.l2_top
        case ["layers", index, "filters"]:
            return config.l2_filters[min(int(index), len(config.l2_filters) - 1)]
    return 0.0


def make_optimizer(model: SentenceModel, config: TrainingConfig) -> Adagrad:
    """A group a parameter, each with its own L2 term."""
    groups: list[dict[str, object]] = [
        {"params": [parameter], "weight_decay": l2_of(name, config)}
        for name, parameter in model.named_parameters()
    ]
    native = backend_name(model.embeddings.device) == "native"
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
    largest *= model.members**0.5
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
