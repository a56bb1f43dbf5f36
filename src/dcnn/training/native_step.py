"""The gradients of a batch on a CPU without autograd: the library's way up, the loss, its way down.

Autograd would find its own way over the few numbers between the two calls of the library, and hand
on a dense gradient of the embeddings. Here that gradient is sparse, of the words of the batch, and
``NativeAdagrad`` goes through the embeddings once. Nothing on the way wakes torch's threads, which
would hold the cores that the library's want: a softmax of 64 sentences does.
"""

import torch
from torch import Tensor
from torch.optim import Optimizer

from dcnn.models import SentenceModel
from dcnn.models.dcnn import DCNN
from dcnn.ops import native_training
from dcnn.training.native_adagrad import NativeAdagrad


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
) -> Tensor:
    """As ``cross_entropy(model(*batch), targets, weights).backward()``; returns the loss.

    Args:
        model: gets a gradient in every parameter, in the place of an old one.
        batch: ids (B, s), lengths (B,) and dropout (B, features) or none.
        targets: (B, classes) distributions.
        weights: (B,) or none.
    """
    config = model.config
    layers = [part for layer in model.convolutions for part in (layer.filters, layer.bias)]
    parameters = [model.embeddings, model.top.weight, model.top.bias, *layers]
    logits, pooled = native_training.forward(batch, config.fold, config.k_top, parameters)
    loss, gradient = native_training.cross_entropy(logits, targets, weights)
    gradients = native_training.backward(
        batch, config.fold, config.k_top, parameters, pooled, gradient, sparse=True
    )
    for parameter, of_batch in zip(parameters, gradients, strict=True):
        parameter.grad = of_batch
    return loss
