"""Several processes that train one network together, as ``torchrun`` starts them.

Each process computes a part of every batch. The gradients are summed over all processes, and each
then takes the same step. The weights are those of a single process except for the order of the
sums, and are bit-identical in all processes, since all add up the same numbers in the same order.

NCCL transfers what is on GPUs, gloo all else. The native backend's gradient of the embeddings is
sparse and is sent as such: a batch has some thousand words, the table may have millions.
"""

import gc
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from dcnn.errors import ConfigError, UserError, WorkerLostError

# Timeout for a host that stops responding; a process that dies is noticed at once. Long, since
# other processes may be encoding their files, or preparing the whole corpus.
PATIENCE = timedelta(hours=1)

_GROUP_NAME = "dcnn/group"  # a key of torchrun's store


@dataclass(frozen=True)
class Workers:
    """One of several processes, and how it communicates with the others."""

    rank: int  # from 0; the first one writes and prints
    size: int
    local_rank: int  # on this host

    def add_up(
        self, gradients: dict[str, Tensor], loss: Tensor, stop: bool
    ) -> tuple[Tensor, Tensor]:
        """Replace ``gradients`` by their sums over all processes.

        Returns the sum of the losses, and how many of the processes want to stop.
        """
        dense = [gradient for gradient in gradients.values() if not gradient.is_sparse]
        sparse = [name for name, gradient in gradients.items() if gradient.is_sparse]
        rows = [gradients[name].coalesce() for name in sparse]
        # One message for all that is small: loss, stop, who has how many rows, gradients.
        head = loss.new_zeros(2 + self.size * len(rows), dtype=torch.float32)
        head[0], head[1] = loss, float(stop)
        for number, part in enumerate(rows):
            head[2 + number * self.size + self.rank] = part._nnz()
        message = torch.cat([head, *(gradient.reshape(-1) for gradient in dense)])
        with _communication():
            dist.all_reduce(message)
        sizes = [len(head), *(gradient.numel() for gradient in dense)]
        head, *sums = torch.split(message, sizes)
        for gradient, total in zip(dense, sums, strict=True):
            gradient.copy_(total.view_as(gradient))
        counts = head[2:].view(len(rows), self.size).tolist()
        for name, part, of_ranks in zip(sparse, rows, counts, strict=True):
            gradients[name] = self._add_rows(part, [int(count) for count in of_ranks])
        return head[0].to(loss.dtype), head[1]

    def _add_rows(self, part: Tensor, counts: Sequence[int]) -> Tensor:
        """The sum of sparse gradients, of which each process has ``counts`` rows."""
        width = part.shape[1]
        # Ids and values in one message; the bits of an id are stored as a float32.
        own = part.values().new_zeros(max(counts), 1 + width)
        own[: len(part.values()), 0] = part.indices()[0].int().view(torch.float32)
        own[: len(part.values()), 1:] = part.values()
        gathered = [torch.empty_like(own) for _ in counts]
        with _communication():
            dist.all_gather(gathered, own)
        rows = torch.cat([rows[:count] for rows, count in zip(gathered, counts, strict=True)])
        ids = rows[:, 0].contiguous().view(torch.int32).long()
        total = torch.sparse_coo_tensor(ids[None], rows[:, 1:], part.shape, check_invariants=False)
        return total.coalesce()

    def sums(self, *values: float) -> list[float]:
        """Each value added up over all processes."""
        total = torch.tensor(values, dtype=torch.float64)
        with _communication():
            dist.all_reduce(total)
        return [float(value) for value in total]

    def wait(self) -> None:
        """Until all processes are here; a barrier would go through NCCL where there is one."""
        self.sums(0)

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """Run the block in the first process before the others, so that only it reports errors."""
        if self.rank > 0:
            self.wait()
        yield
        if self.rank == 0:
            self.wait()

    def text_of_first(self, text: str) -> str:
        """What the first process has for ``text``."""
        data = torch.tensor(list(text.encode().ljust(1024, b"\0")), dtype=torch.uint8)
        with _communication():
            dist.broadcast(data, 0)
        return bytes(data.tolist()).rstrip(b"\0").decode()

    def require_agreement(self, what: str, value: str) -> None:
        """Check that all processes have the same value."""
        of_first = self.text_of_first(value)
        if self.sums(float(of_first != value))[0]:
            raise UserError(
                f"the processes differ in {what}: {of_first} in process 0 and {value} in process "
                f"{self.rank}; give all hosts the same files and settings, and an --out that all "
                "of them see"
            )


@contextmanager
def _communication() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo and NCCL have no other
        reason = str(error).partition("\n")[0][:200]
        raise WorkerLostError(
            f"another process of this training has ended or cannot be reached ({reason}); its own "
            "message says why; the same command with --resume continues from the last checkpoint"
        ) from error


@contextmanager
def joined(device: str) -> Iterator[Workers]:
    """Join the other processes that ``torchrun`` started, and leave them in the end.

    ``device`` is where to train: ``auto``, ``cpu`` or ``cuda``.
    """
    rank, size, local_rank, local_size = (
        int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    on_gpus = device != "cpu" and torch.cuda.is_available()
    if on_gpus:
        gpus = torch.cuda.device_count()
        if local_size > gpus:
            raise ConfigError(
                f"torchrun started {local_size} processes on this host, which has {gpus} GPUs; "
                f"pass it --nproc-per-node {gpus}, or train with --device cpu"
            )
        torch.cuda.set_device(local_rank)
    with _communication():
        _form_group("cpu:gloo,cuda:nccl" if on_gpus else "gloo", rank)
    workers = Workers(rank, size, local_rank)
    try:
        yield workers
        # A model or an optimizer that is alive when gloo's threads end may abort the process.
        gc.collect()
        workers.wait()
    finally:
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _form_group(backend: str, rank: int) -> None:
    """Form the process group under a new name.

    ``torchrun`` keeps the store by which processes find one another when it restarts them, with the
    addresses of those that were killed in it. So the first process chooses a new name every time,
    and deletes it as soon as all have joined, so that nobody reads an old one.
    """
    store, _, size = next(rendezvous("env://", timeout=PATIENCE))
    if rank == 0:
        store.set(_GROUP_NAME, uuid.uuid4().hex)
    name = store.get(_GROUP_NAME).decode()
    dist.init_process_group(
        backend,
        timeout=PATIENCE,
        store=dist.PrefixStore(name, store),  # type: ignore[attr-defined]
        rank=rank,
        world_size=size,
    )
    dist.all_reduce(torch.zeros(1))
    if rank == 0:
        store.delete_key(_GROUP_NAME)
