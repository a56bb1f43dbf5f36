"""Compile the kernels of a training step in several processes, before they are first called.

A first training on a GPU calls some forty variants of the kernels, and Triton compiles each when it
is called, one after the other: a minute, in which one core works. Here a step is recorded first,
and processes compile its kernels into Triton's cache on disk, from where the step proper loads
them. They do not import torch, which would take each of them longer than its kernels, and they are
not started for kernels that are in the cache already. Threads were tried and gave nothing.

    python -m dcnn.ops.compile_kernels   # such a process: pickled kernels in, a line for each out
"""

import hashlib
import importlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MOST_PROCESSES = 16
FEWEST_KERNELS = 4  # for which processes are started: that takes two seconds
Kernel = dict[str, Any]  # a variant of a kernel, as Triton's compiler takes it


@contextmanager
def recording() -> Iterator[list[Kernel]]:
    """Kernels are not run when called; variants not in memory yet are added to the list."""
    from triton import __version__, knobs
    from triton.runtime import JITFunction, driver

    found: dict[Any, Kernel] = {}
    target = driver.active.get_current_target()

    def record(*, fn: Any, compile: dict[str, Any], **_: Any) -> bool:  # noqa: A002
        options = json.loads(compile["specialization_data"])["options"].items()
        identity = (__version__, fn.jit_function.cache_key, target, compile["key"])
        found[identity] = {
            "name": hashlib.sha256(repr(identity).encode()).hexdigest(),  # of this variant
            "function": (fn.module, fn.name),
            "source": (compile["signature"], compile["constants"], compile["configs"][0]),
            "target": (target.backend, target.arch, target.warp_size),
            "options": {k: tuple(v) if isinstance(v, list) else v for k, v in options},
        }
        return True

    # No kernel may run, not even one in memory: its inputs would come from kernels that did not.
    kernels: list[Kernel] = []
    run, hook = JITFunction.run, knobs.runtime.jit_cache_hook
    JITFunction.run = lambda *args, **given: run(*args, **given | {"warmup": True})
    knobs.runtime.jit_cache_hook = record
    try:
        yield kernels
    finally:
        JITFunction.run, knobs.runtime.jit_cache_hook = run, hook
        kernels += found.values()


def compile_in_processes(kernels: list[Kernel]) -> None:
    """Compile the kernels that have not been compiled before, in up to one process per core.

    A kernel that fails to compile is left to the call that needs it, which reports why.
    """
    from triton import knobs

    # One empty file per kernel, inside Triton's cache, so that both are deleted together.
    compiled = Path(knobs.cache.dir) / "dcnn"
    kernels = [kernel for kernel in kernels if not (compiled / kernel["name"]).exists()]
    count = min(MOST_PROCESSES, os.cpu_count() or 1, len(kernels))
    if len(kernels) < FEWEST_KERNELS or count < 2 or not sys.executable:
        return
    # Those of long sentences, recorded last, take longest and go first: none is left at the end.
    left, pipe = reversed(kernels), subprocess.PIPE  # all threads take from the one iterator
    command = [sys.executable, "-P", "-m", __name__]  # -P: no module of the user's folder

    def feed(_: int) -> None:
        with (
            suppress(OSError),  # it could not start, or died, or nothing can be written
            subprocess.Popen(  # noqa: S603 - this module
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
            ) as process,
        ):
            assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
            for kernel in left:
                pickle.dump(kernel, process.stdin)
                process.stdin.flush()
                if not process.stdout.readline():
                    return
                compiled.mkdir(parents=True, exist_ok=True)
                (compiled / kernel["name"]).touch()

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(feed, range(count)))


def compile_kernel(kernel: Kernel) -> None:
    """Write it to Triton's cache on disk, unless it is there."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, name = kernel["function"]
    source = ASTSource(getattr(importlib.import_module(module), name), *kernel["source"])
    triton.compile(source, target=GPUTarget(*kernel["target"]), options=kernel["options"])


if __name__ == "__main__":
    while True:
        try:
            compile_kernel(pickle.load(sys.stdin.buffer))  # noqa: S301 - from who started it
        except EOFError:
            break
        print(flush=True)
