"""Which backend computes: decided here and nowhere else.

The choice is automatic and can be forced: ``DCNN_BACKEND=reference|torch|native|triton``. Modules
that need torch are imported only by the functions that return a layer or a network for training, so
that prediction can ask too.
"""

import os
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dcnn.ops import native

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

VARIABLE = "DCNN_BACKEND"
NAMES = ("auto", "reference", "torch", "native", "triton")


def forced() -> str:
    """The name in ``DCNN_BACKEND``; ``auto`` if it is not set."""
    name = os.environ.get(VARIABLE) or "auto"
    if name not in NAMES:
        raise ValueError(f"{VARIABLE}={name!r} must be one of {', '.join(NAMES)}")
    return name


def for_prediction() -> str:
    """``native`` where it is available, else ``reference``.

    Prediction never imports torch, so forcing a training backend selects the reference.

    Raises:
        ValueError: the forced backend is unknown.
        RuntimeError: the forced backend is not available.
    """
    name = forced()
    if name == "native":
        _require_native()
    return "native" if name == "native" or (name == "auto" and native.available()) else "reference"


def compose_for_prediction() -> "Callable[..., NDArray[Any]]":
    """What adds the n-grams to words where there is no torch."""
    if for_prediction() == "native":
        return native.compose
    from dcnn.ops import reference

    return reference.compose


def for_training(device: str) -> str:
    """``triton`` on ``cuda`` and ``native`` on ``cpu`` where they are available, else ``torch``.

    Raises:
        ValueError: the forced backend is unknown, or cannot train on ``device``.
        RuntimeError: the forced backend is not available.
    """
    name = forced()
    if name == "reference":
        raise ValueError(
            f"{VARIABLE}=reference has no gradients; force native, torch or triton "
            "for training, or none"
        )
    home = {"native": "cpu", "triton": "cuda"}.get(name, device)
    if home != device:
        raise ValueError(f"{VARIABLE}={name} computes on {home}; the device is {device}")
    if name == "native":
        _require_native()
    if name == "triton" and not _has_triton():
        raise RuntimeError(f"{VARIABLE}=triton is forced, but triton or a C compiler is missing")
    if name == "auto" and device == "cuda" and _has_triton():
        return "triton"
    if name == "auto" and device == "cpu" and native.available():
        return "native"
    return "torch" if name == "auto" else name


def for_network(kind: str, device: str) -> str:
    """The backend that trains a network of a ``kind``: torch alone has those other than a DCNN.

    ``for_training`` still chooses how Adagrad updates their weights.
    """
    backend = for_training(device)
    return backend if kind == "dcnn" else "torch"


def choose_layer(x: "Tensor") -> "Callable[..., tuple[Tensor, Tensor]]":
    """The layer with gradients for ``x``: fused in float32, else torch's."""
    layer: Callable[..., tuple[Tensor, Tensor]] = _module(x).layer
    return layer


def choose_network(embeddings: "Tensor", gradients: bool) -> "Callable[..., Tensor] | None":
    """The float32 function for a whole DCNN in one call, with ``gradients`` if asked; or None."""
    module = _module(embeddings)
    return getattr(module, "network", None if gradients else getattr(module, "logits", None))


def adds_ngrams(embeddings: "Tensor") -> bool:
    """Whether ``choose_network`` adds character n-grams to the words of a batch itself."""
    return getattr(_module(embeddings), "ADDS_NGRAMS", False)


def choose_compose(embeddings: "Tensor") -> "Callable[..., Tensor] | None":
    """What adds the n-grams to words in float32 without gradients, or none."""
    return getattr(_module(embeddings), "compose", None)


def choose_draw_mask(mask: "Tensor") -> "Callable[..., Tensor] | None":
    """The function that draws the same float32 dropout mask as torch, but faster; or None."""
    return getattr(_module(mask), "draw_mask", None)


def _module(x: "Tensor") -> ModuleType:
    """The backend for training with ``x``; the fused ones compute in float32 alone."""
    name = for_training(x.device.type) if str(x.dtype) == "torch.float32" else "torch"
    if name == "native":
        from dcnn.ops import native_torch

        return native_torch
    if name == "triton":
        from dcnn.ops import triton_backend

        return triton_backend
    from dcnn.ops import torch_backend

    return torch_backend


def why_not_native(device: str) -> str:
    """The end of a log line: why training on ``device`` is not native, if there is a reason."""
    if device == "cpu" and forced() == "auto" and not native.available():
        return f": the native one is not available, {native.reason()}"
    return ""


def _require_native() -> None:
    if not native.available():
        raise RuntimeError(
            f"{VARIABLE}=native is forced, but it is not available: {native.reason()}; "
            "install a C++ compiler and run `make native`"
        )


@cache
def _has_triton() -> bool:
    """Whether Triton is installed, and a C compiler, which it needs to launch its kernels."""
    import importlib.util
    import shutil

    compilers = (os.environ.get("CC"), "cc", "gcc", "clang")
    return importlib.util.find_spec("triton") is not None and any(
        shutil.which(compiler) for compiler in compilers if compiler
    )
