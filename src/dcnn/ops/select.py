"""Which backend computes, by name: decided here and nowhere else.

The choice is automatic and can be forced: ``DCNN_BACKEND=reference|torch|native|triton``. Nothing
here imports torch, so that prediction can ask too; ``dcnn.ops.choice`` has the functions that
belong to the names in training.

"""

import importlib.util
import os
import shutil
from functools import cache

from dcnn.ops import native

VARIABLE = "DCNN_BACKEND"
NAMES = ("auto", "reference", "torch", "native", "triton")


def forced() -> str:
    """The name in ``DCNN_BACKEND``; ``auto`` if it is not set.

    Raises:
        ValueError: there is no such backend.
    """
    name = os.environ.get(VARIABLE) or "auto"
    if name not in NAMES:
        raise ValueError(f"{VARIABLE}={name!r} must be one of {', '.join(NAMES)}")
    return name


def for_prediction() -> str:
    """``native`` where it can be had, else ``reference``.

    The backends for training are none for prediction, which never imports torch: forcing one of
    them leaves the reference.

    Raises:
        ValueError: an unknown backend is forced.
        RuntimeError: the native one is forced and not available.
    """
    name = forced()
    if name == "native":
        _require_native()
    return "native" if name == "native" or (name == "auto" and native.available()) else "reference"


def for_training(device: str) -> str:
    """``triton`` on ``cuda`` and ``native`` on ``cpu`` where they can be had, else ``torch``.

    Raises:
        ValueError: a backend is forced that is unknown or of no use on ``device``.
        RuntimeError: a backend is forced that is not available.
    """
    name = forced()
    if name == "reference":
        raise ValueError(f"{VARIABLE}=reference has no gradients; force another one for training")
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


def lack(device: str) -> str:
    """What keeps a run on ``device`` from the native backend, to end a line with; or nothing."""
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
    compilers = (os.environ.get("CC"), "cc", "gcc", "clang")
    return importlib.util.find_spec("triton") is not None and any(
        shutil.which(compiler) for compiler in compilers if compiler
    )
