"""The gradients of a batch on a CPU without autograd: the library's way up, the loss, its way down.

Autograd would find its own way over the few numbers between the two calls of the library, and hand
on a dense gradient of the embeddings. Here that gradient is sparse, of the words of the batch, and
``NativeAdagrad`` goes through the embeddings once. Nothing on the way wakes torch's threads, which
would hold the cores that the library's want: a softmax of 64 sentences does.

"""

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from dcnn.metrics import sigmoid
from dcnn.models import SentenceModel
from dcnn.models.dcnn import DCNN
from dcnn.ops import native_training
from dcnn.training.adagrad import NativeAdagrad


def fits(model: SentenceModel, optimizer: Optimizer) -> bool:
    """Whether the library computes all of ``model`` and of its update."""
    whole = isinstance(model, DCNN) and model.projection is None
    return whole and isinstance(optimizer, NativeAdagrad)


@torch.no_grad()
def set_gradients(
    model: DCNN,
    batch: tuple[Tensor, Tensor, Tensor | None],
    targets: Tensor,
    weights: Tensor | None,
    multi_label: bool = False,
) -> Tensor:
    """As ``Run`` does it with autograd: every member's own gradient; returns their mean loss.

    Args:
        model: gets a gradient in every parameter, in the place of an old one.
        batch: ids (B, s), lengths (B,) and dropout (B, features) or none.
        targets: (B * members, classes) distributions, as ``repeat_for_ensemble`` makes them.
        weights: (B * members,) or none.
        multi_label: whether a text may have several labels: ``binary_cross_entropy`` then.
    """
    config = model.config
    layers = [part for layer in model.convolutions for part in (layer.filters, layer.bias)]
    parameters = [model.embeddings, model.head.weight, model.head.bias, *layers]
    given = batch, config.fold, config.k_top, parameters
    logits, pooled = native_training.forward(*given, model.n_ensemble)
    objective = _binary_cross_entropy if multi_label else native_training.cross_entropy
    loss, gradient = objective(logits.view(len(targets), -1), targets, weights)
    if model.n_ensemble > 1:
        gradient *= model.n_ensemble
    gradients = native_training.backward(
        *given, pooled, gradient.view_as(logits), model.n_ensemble, sparse=True
    )
    for parameter, of_batch in zip(parameters, gradients, strict=True):
        parameter.grad = of_batch
    return loss


def _binary_cross_entropy(
    logits: Tensor, targets: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient (B, labels), in numpy: it wakes no thread of torch's."""
    scores, truth = logits.numpy(), targets.numpy()
    share = np.float32(1 / len(scores)) * (1 if weights is None else weights.numpy()[:, None])
    losses = (np.logaddexp(np.float32(0), scores) - truth * scores) * share
    gradient = (sigmoid(scores) - truth) * share
    return torch.tensor(float(losses.sum())), torch.from_numpy(gradient)
