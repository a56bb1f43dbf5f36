from contextlib import contextmanager

from hypothesis import given
from hypothesis import strategies as st

from timing import Measure, TimedCall, time_interleaved


class FakeTime:
    """A clock that only the timed move."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def clock(self) -> float:
        return self.now

    def timed_call(self, name: str, *seconds: float) -> TimedCall:
        remaining = iter(seconds)

        def call() -> None:
            self.log.append(name)
            self.now += next(remaining)

        @contextmanager
        def context():
            self.now += 1000  # the time of a context does not count
            self.log.append(f"{name} begins")
            yield
            self.log.append(f"{name} ends")

        return TimedCall(name, call, context)


def test_calls_alternate_each_in_its_own_context():
    time = FakeTime()
    timed = [time.timed_call("a", *[1] * 9), time.timed_call("b", *[2] * 9)]
    time_interleaved(timed, rounds=2, calls=1, warm_up=False, clock=time.clock)
    one = ["a begins", "a", "a ends", "b begins", "b", "b ends"]
    assert time.log == one * 2


def test_the_call_that_warms_up_does_not_count():
    time = FakeTime()
    measures = time_interleaved(
        [time.timed_call("a", 90, 1, 2, 80, 3, 4)], rounds=2, calls=2, clock=time.clock
    )
    assert measures == {"a": Measure(median=2.5, low=1.75, high=3.25, repetitions=4)}


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=30))
def test_the_median_is_between_the_quartiles_in_any_unit(values):
    for measure in (Measure.of(values), Measure.of(values).times(1e6), Measure.of(values).rate(64)):
        assert measure.low <= measure.median <= measure.high
        assert measure.repetitions == len(values)


def test_a_rate_turns_the_slowest_into_the_lowest():
    rate = Measure(median=2, low=1, high=4, repetitions=3).rate(8)
    assert rate == Measure(median=4, low=2, high=8, repetitions=3)


def test_one_value_is_its_own_spread():
    assert Measure.of([3.0]) == Measure(3.0, 3.0, 3.0, 1)
