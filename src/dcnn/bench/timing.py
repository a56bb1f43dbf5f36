"""Timing what takes turns, so that a busy machine slows every contestant alike."""

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True)
class Measure:
    """What was measured several times: the median and, as spread, the quartiles."""

    median: float
    low: float
    high: float
    repetitions: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measure":
        """Sum up ``values``, of which there is at least one."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))

    def times(self, factor: float) -> "Measure":
        """The same in another unit."""
        return Measure(
            self.median * factor, self.low * factor, self.high * factor, self.repetitions
        )

    def rate(self, count: int) -> "Measure":
        """Seconds for ``count`` things, as things a second: the slowest is the lowest."""
        return Measure(count / self.median, count / self.high, count / self.low, self.repetitions)


@dataclass(frozen=True)
class Contestant:
    """What is timed: a call, and what holds around each of its turns, such as a backend."""

    name: str
    call: Callable[[], object]
    condition: Callable[[], AbstractContextManager[object]] = nullcontext


def take_turns(
    contestants: Sequence[Contestant],
    rounds: int,
    calls: int = 1,
    *,
    warm_up: bool = True,
    clock: Clock = time.perf_counter,
) -> dict[str, Measure]:
    """Seconds a call of each: ``rounds`` turns of ``calls`` calls.

    Args:
        contestants: what is timed, in the order of their turns.
        rounds: turns of each.
        calls: calls that are timed in a turn.
        warm_up: whether a turn begins with a call that does not count, since another's turn has
            left the caches full of other things.
        clock: seconds, from any start.
    """
    times: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for _ in range(rounds):
        for contestant in contestants:
            with contestant.condition():
                if warm_up:
                    contestant.call()
                for _ in range(calls):
                    started = clock()
                    contestant.call()
                    times[contestant.name].append(clock() - started)
    return {name: Measure.of(values) for name, values in times.items()}
