"""Which backend computes a layer in training: decided here and nowhere else."""

import importlib.util
import os
import shutil
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from dcnn.ops import torch_backend

Layer = Callable[..., tuple[Tensor, Tensor]]


def choose_layer(x: Tensor, columns: int) -> Layer:
    """The fused kernel for float32 on a GPU, else torch.

    Args:
        x: the input of the layer.
        columns: of its convolution; the fused kernel has a limit.
    """
    if x.device.type == "cuda" and x.dtype == torch.float32 and _has_triton():
        from dcnn.ops import triton_backend

        if columns <= triton_backend.LONGEST:
            return triton_backend.layer
    return torch_backend.layer


def backend_name(device: torch.device) -> str:
    """What a run on ``device`` computes its layers with, for its record."""
    return "triton" if device.type == "cuda" and _has_triton() else "torch"


@cache
def _has_triton() -> bool:
    """Whether Triton is installed, and a C compiler, which it needs to launch its kernels."""
    compilers = (os.environ.get("CC"), "cc", "gcc", "clang")
    return importlib.util.find_spec("triton") is not None and any(
        shutil.which(compiler) for compiler in compilers if compiler
    )
