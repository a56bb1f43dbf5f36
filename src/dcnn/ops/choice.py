"""The layer of a backend in training; ``dcnn.ops.select`` decides which backend that is."""

from collections.abc import Callable

import torch
from torch import Tensor

from dcnn.ops import select as backends
from dcnn.ops import torch_backend

Layer = Callable[..., tuple[Tensor, Tensor]]


def choose_layer(x: Tensor) -> Layer:
    """The fused layer of the device of ``x`` for float32, else torch."""
    name = backends.for_training(x.device.type)
    if x.dtype == torch.float32:
        if name == "native":
            from dcnn.ops import native_training as native_backend

            return native_backend.layer
        if name == "triton":
            from dcnn.ops import triton_backend

            return triton_backend.layer
    return torch_backend.layer


def choose_network(embeddings: Tensor) -> Callable[..., Tensor] | None:
    """What computes a whole DCNN at once, where a backend does, in float32."""
    name = backend_name(embeddings.device)
    if embeddings.dtype == torch.float32 and name == "native":
        from dcnn.ops import native_training

        return native_training.network
    if embeddings.dtype == torch.float32 and name == "triton":
        from dcnn.ops import triton_backend as triton_network

        return triton_network.network
    return None


def backend_name(device: torch.device) -> str:
    """What a run on ``device`` computes its layers with, for its record."""
    return backends.for_training(device.type)
