"""Timing of calls that alternate, so that other load on the machine slows all of them alike."""

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """Repeated measurements: the median, and the quartiles as spread."""

    median: float
    low: float
    high: float
    repetitions: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measure":
        """Summarize one or more ``values``."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))

    def times(self, factor: float) -> "Measure":
        """The same in another unit."""
        ends = (self.median * factor, self.low * factor, self.high * factor)
        return Measure(*ends, self.repetitions)

    def rate(self, count: int) -> "Measure":
        """Seconds for ``count`` items as items per second: the slowest is the lowest."""
        return Measure(count / self.median, count / self.high, count / self.low, self.repetitions)


@dataclass(frozen=True)
class TimedCall:
    """A call to time, and the context of its calls in each round, such as a backend."""

    name: str
    call: Callable[[], object]
    context: Callable[[], AbstractContextManager[object]] = nullcontext


def time_interleaved(
    timed: Sequence[TimedCall],
    rounds: int,
    calls: int = 1,
    *,
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Measure]:
    """Seconds per call of each: ``calls`` of the first, of the second and so on, ``rounds`` times.

    With ``warm_up``, one more call goes before them that does not count, since the calls of others
    have filled the caches.
    """
    times: dict[str, list[float]] = {one.name: [] for one in timed}
    for _ in range(rounds):
        for one in timed:
            with one.context():
                if warm_up:
                    one.call()
                for _ in range(calls):
                    started = clock()
                    one.call()
                    times[one.name].append(clock() - started)
    return {name: Measure.of(values) for name, values in times.items()}
