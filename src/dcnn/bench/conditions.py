"""What holds while a contestant is timed: a backend and a number of threads."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dcnn.ops import native
from dcnn.ops import select as backends

TORCH = "eager torch"


@contextmanager
def computing_with(backend: str, threads: int = 1) -> Iterator[None]:
    """Force ``backend`` and torch's number of threads, and go back to what was before."""
    forced, torch_threads = os.environ.get(backends.VARIABLE), torch.get_num_threads()
    os.environ[backends.VARIABLE] = backend
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(torch_threads)
        if forced is None:
            del os.environ[backends.VARIABLE]
        else:
            os.environ[backends.VARIABLE] = forced


def describe_backend(backend: str) -> str:
    """The backend in words, with the instruction set of the native one."""
    return f"native ({native.instruction_set()})" if backend == "native" else backend


def missing_native() -> list[str]:
    """A note that says what ours is where the native backend is not what computes; or none."""
    if backends.forced() not in ("auto", "native"):
        return [f"ours: {backends.VARIABLE}={backends.forced()} is forced, not the native backend"]
    if native.available():
        return []
    return [
        f"ours: the native backend is not available ({native.reason()}), so prediction is numpy "
        "and training is torch itself; install a C++ compiler and run `make native`"
    ]


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def too_few_cores(threads: int) -> list[str]:
    """A note where ``threads`` threads have to share cores; or none."""
    if (available := cores()) >= threads:
        return []
    return [f"{threads} threads share {available} core here, so they gain nothing over one"]


def busy_machine(load: float) -> list[str]:
    """A note where other programs kept every core busy; or none."""
    if load < cores():
        return []
    return [
        f"the machine was busy (load {load:.1f}, {cores()} cores): measure again on a quiet one"
    ]
