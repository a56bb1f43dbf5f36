"""The layer of a backend in training; ``dcnn.ops.backends`` decides which backend that is."""

from collections.abc import Callable

import torch
from torch import Tensor

from dcnn.ops import backends, torch_backend

Layer = Callable[..., tuple[Tensor, Tensor]]


def choose_layer(x: Tensor, columns: int) -> Layer:
    """The fused layer of the device for float32, else torch.

    Args:
        x: the input of the layer.
        columns: of its convolution; the fused kernel on a GPU has a limit.
    """
    name = backends.for_training(x.device.type)
    if x.dtype == torch.float32:
        if name == "native":
            from dcnn.ops import native_backend

            return native_backend.layer
        if name == "triton":
            from dcnn.ops import triton_backend

            if columns <= triton_backend.LONGEST:
                return triton_backend.layer
    return torch_backend.layer


def choose_network(embeddings: Tensor) -> Callable[..., Tensor] | None:
    """What computes a whole DCNN at once, where a backend does: the native one in float32."""
    if embeddings.dtype != torch.float32 or backend_name(embeddings.device) != "native":
        return None
    from dcnn.ops import native_training

    return native_training.network


def backend_name(device: torch.device) -> str:
    """What a run on ``device`` computes its layers with, for its record."""
    return backends.for_training(device.type)
