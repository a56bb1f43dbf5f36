"""Score shards on Ray Data: a pool of workers, each with the model, one task per shard.

Only paths go to the workers and only counts come back; model, texts and predictions are read from
and written to the disk, which all machines must share. Ray restarts a worker that dies and repeats
its task; ``dcnn.batch_predict.shards`` ensures that no row is then lost or written twice.
"""

import logging
import os
import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dcnn.batch_predict.shards import Outcome, ScoringConfig, Shard, load_scorer, score_shard
from dcnn.errors import DcnnError, UserError

CONNECT_SECONDS = 5.0
OBJECT_STORE = 1 << 27  # bytes; only paths and counts go through it


class ScoringWorker:
    """A worker of the pool: loads the model once, then scores shards."""

    def __init__(self, model: str, config: ScoringConfig) -> None:
        self.predictor = load_scorer(Path(model), config)
        self.config = config

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Score the shard in ``row``."""
        shard = Shard(Path(row["source"]), Path(row["target"]))
        return asdict(score_shard(self.predictor, self.config, shard))


def score_on_ray(
    model: Path,
    config: ScoringConfig,
    shards: Sequence[Shard],
    workers: int | None = None,
    address: str | None = None,
) -> Generator[Outcome, None, None]:
    """Score shards in any order; yield the outcome of each as soon as it is known.

    ``workers`` are by default one per CPU of the cluster at ``address``, by default that of
    ``RAY_ADDRESS``, or else a new Ray on this machine.
    """
    import ray
    from ray.data import ActorPoolStrategy

    with _ray(address, workers) as cpus:
        rows = [{"source": str(s.source), "target": str(s.target)} for s in shards]
        data = ray.data.from_items(rows, override_num_blocks=len(rows))
        data.context.enable_progress_bars = False
        # By default Ray restarts a worker that died, and repeats its task, without limit.
        scored = data.map(
            ScoringWorker,
            fn_constructor_args=(str(model.absolute()), config),
            compute=ActorPoolStrategy(size=min(workers or cpus, len(shards))),
            num_cpus=1,
        )
        try:
            for values in scored.iter_rows():
                yield Outcome(**values)
        except ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())
            raise DcnnError(
                f"Ray failed ({reason:.300}); scored shards are kept, and the same command "
                "continues"
            ) from error


@contextmanager
def _ray(address: str | None, workers: int | None) -> Iterator[int]:
    """Yield the number of CPUs of a Ray; one that was already running stays running."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # Ray Data warns of its own actors
    for name in ("ray", "ray.data"):  # the second has a level of its own
        logging.getLogger(name).setLevel(logging.ERROR)
    started = not ray.is_initialized()
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    address = address or os.environ.get("RAY_ADDRESS")
    if started and address is None:
        quiet |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE}
        ray.init("local", num_cpus=workers, **quiet)
    elif started and address is not None:
        check_reachable(address)
        try:
            ray.init(address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise _unreachable(address, " ".join(str(error).split())) from error
    try:
        cpus = int(ray.cluster_resources().get("CPU", 0))
        if cpus < (workers or 1):
            raise UserError(
                f"--workers {workers or 1} needs as many CPUs and this Ray has {cpus}; ask for "
                "fewer, or name a larger cluster with --ray-address"
            )
        yield cpus
    finally:
        if started:
            ray.shutdown()


def check_reachable(address: str) -> None:
    """Raise UserError within seconds if nothing listens at ``HOST:PORT``; Ray takes minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():  # such as "auto"
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error


def _unreachable(address: str, reason: str) -> UserError:
    return UserError(
        f"there is no Ray at {address} ({reason:.120}); start one with `ray start --head`, or "
        "leave out --ray-address (and RAY_ADDRESS) to use this machine alone"
    )
