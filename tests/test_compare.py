from contextlib import contextmanager

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dcnn.compare import Measure, Score, TimedCall, markdown, rank, remarks, time_in_turns


def score(name, hits, examples=400, runs=1, latency=1e-4):
    correct = np.arange(examples)[None] < np.full((runs, 1), hits)
    return Score(name, "", correct, 0.5, 1.0, 1_500_000, Measure.of([latency]), 9_000.0)


def test_the_best_comes_first_and_ties_with_it_are_marked():
    ranking = rank([score("far", 200), score("close", 319), score("best", 320)])
    assert [one.score.name for one in ranking] == ["best", "close", "far"]
    assert [one.is_tied for one in ranking] == [False, True, False]
    assert ranking[2].behind.low > 0.2
    assert "= the test set cannot tell close from best." in remarks(ranking, 400, 1)


def test_of_equally_accurate_models_the_faster_comes_first():
    ranking = rank([score("slow", 300, latency=2e-3), score("fast", 300)])
    assert [one.score.name for one in ranking] == ["fast", "slow"]
    assert ranking[1].is_tied


def test_mean_and_deviation_are_over_the_runs():
    (one,) = rank([score("one", 300, runs=3)])
    assert (one.accuracy.mean, one.accuracy.deviation, one.accuracy.runs) == (0.75, 0.0, 3)
    assert one.cells()[1] == "75.00 ± 0.00"
    assert one.cells()[5:7] == ("1.50", "100")


def test_the_table_is_markdown():
    text = markdown(rank([score("one", 300), score("two", 200)]), ["A remark."])
    lines = text.splitlines()
    assert len({line.count("|") for line in lines[:4]}) == 1
    assert text.endswith("A remark.\n")


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


def test_calls_take_turns_each_in_its_own_context():
    time = FakeTime()
    timed = [time.timed_call("a", *[1] * 9), time.timed_call("b", *[2] * 9)]
    time_in_turns(timed, rounds=2, calls=1, warm_up=False, clock=time.clock)
    one = ["a begins", "a", "a ends", "b begins", "b", "b ends"]
    assert time.log == one * 2


def test_the_call_that_warms_up_does_not_count():
    time = FakeTime()
    measures = time_in_turns(
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
