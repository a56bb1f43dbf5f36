"""Kernels that are compiled ahead, in processes: none is run, and the call proper compiles nothing.

In a process of its own, where Triton compiles rather than interprets: for a GPU that is not here.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")
from dcnn.ops import compile_kernels  # noqa: E402

SCRIPT = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver


class Driver:  # of a GPU that is not here
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    get_current_stream = get_active_torch_device = lambda self, *_: 0


driver.set_active(Driver())
from dcnn.ops import compile_kernels, triton_kernels

words = triton_kernels.Words(dim=4, rows=4, places=16, depth=1, k_top=1)
ids, lengths = torch.zeros(2, 3, dtype=torch.int64), torch.tensor([3, 1])
x, embeddings = torch.full((2, 3, 4), 7.0), torch.zeros(9, 4)
with compile_kernels.recording() as kernels:
    for _ in range(2):
        triton_kernels.gather[(2,)](ids, lengths, embeddings, x, lengths, 3, 3, 2, 9, words)
        triton_kernels.scatter[(2,)](ids, lengths, x, embeddings, 3, 2, 9, words)
assert [one["function"][1] for one in kernels] == ["gather", "scatter"]
assert (x == 7).all(), "a kernel has run"
compile_kernels.FEWEST_KERNELS = 2
compile_kernels.os.cpu_count = lambda: 2
compile_kernels.compile_in_processes(kernels)
print("in processes")
for kernel in kernels:
    compile_kernels.compile_kernel(kernel)
compile_kernels.subprocess = None  # no process can start
compile_kernels.compile_in_processes(kernels)  # nothing is left to do
"""


def test_what_is_compiled_ahead_is_found_and_nothing_runs(tmp_path):
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    environment["PYTHONUNBUFFERED"] = "1"
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in processes\n"
        compiled = kernels_in(tmp_path)
        assert process.wait() == 0
    assert {path.name for path in compiled} == {"gather.cubin", "scatter.cubin"}
    assert kernels_in(tmp_path) == compiled


@pytest.mark.parametrize("executable", ["/nonexistent", "/bin/true", None])
def test_processes_that_fail_leave_the_kernels_to_the_call(executable, monkeypatch, tmp_path):
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    kernels = [{"name": str(number), "function": ("dcnn", "none")} for number in range(8)]
    monkeypatch.setattr(sys, "executable", executable)
    compile_kernels.compile_in_processes(kernels)
    assert not list(tmp_path.iterdir())  # none of them counts as compiled


def test_the_processes_need_not_import_torch():
    modules = "dcnn.ops.triton_kernels, dcnn.training.triton_step_kernels, triton.compiler"
    script = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def kernels_in(folder: Path) -> dict[Path, int]:
    """With the time of their last change."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.cubin")}
