import logging

import numpy as np

from dcnn.compare import (
    Candidate,
    ComparisonData,
    Fitted,
    Score,
    markdown,
    measure,
    rank,
    remarks,
    time_interleaved,
)
from dcnn.data.labels import number_labels


def score(name, hits, examples=400, runs=1, latency=1e-4, n_ensemble=1):
    correct = np.arange(examples)[None] < np.full((runs, 1), hits)
    return Score(name, "", correct, 0.5, 1.0, 1_500_000, n_ensemble, latency, 9_000.0)


def test_the_best_comes_first_and_ties_with_it_are_marked():
    ranking = rank([score("far", 200), score("close", 319), score("best", 320)])
    assert [one.name for one in ranking] == ["best", "close", "far"]
    assert [one.is_tied for one in ranking] == [False, True, False]
    assert ranking[2].behind.low > 0.2
    assert "= the test set cannot tell close from best." in remarks(ranking, 400, 1)


def test_of_equally_accurate_models_the_faster_comes_first():
    ranking = rank([score("slow", 300, latency=2e-3), score("fast", 300)])
    assert [one.name for one in ranking] == ["fast", "slow"]
    assert ranking[1].is_tied


def test_mean_and_deviation_are_over_the_runs():
    (one,) = rank([score("one", 300, runs=3)])
    assert (one.accuracy.mean, one.accuracy.deviation, one.accuracy.runs) == (0.75, 0.0, 3)
    assert one.cells()[1] == "75.00 ± 0.00"
    assert one.cells()[5:7] == ("1.50", "100")


def test_the_row_of_an_ensemble_says_so():
    ranking = rank([score("many", 300, n_ensemble=8), score("one", 200)])
    assert [one.cells()[0] for one in ranking] == ["many, 8 in one", "one"]
    assert [one.to_dict()["n_ensemble"] for one in ranking] == [8, 1]
    said = '"N in one": an ensemble of N networks, saved as one network.'
    assert said in remarks(ranking, 400, 1)
    assert said not in remarks(ranking[1:], 400, 1)


def test_the_table_is_markdown():
    text = markdown(rank([score("one", 300), score("two", 200)]), ["A remark."])
    lines = text.splitlines()
    assert len({line.count("|") for line in lines[:4]}) == 1
    assert text.endswith("A remark.\n")


def test_timed_calls_alternate_and_a_call_warms_up():
    log = []
    calls = {name: lambda name=name: log.append(name) for name in ("a", "b")}
    medians = time_interleaved(calls, rounds=2, repeats=2)
    assert log == ["a", "a", "a", "b", "b", "b"] * 2
    assert list(medians) == ["a", "b"]
    assert all(seconds >= 0 for seconds in medians.values())


def test_all_are_timed_on_one_core(tmp_path):
    import torch

    threads = []

    def fitted(*_):
        def probabilities(texts):
            threads.append((len(texts), torch.get_num_threads()))
            return np.tile([0.75, 0.25], (len(texts), 1))

        return Fitted(probabilities, 1)

    before, level = torch.get_num_threads(), logging.getLogger("dcnn").level
    torch.set_num_threads(2)
    data = number_labels(["x", "y", "z"], ["a", "b", "a"])
    candidates = [Candidate("one", "none", fitted, seeded=False)]
    try:
        measure(candidates, ComparisonData(data, None, data), 1, tmp_path, print)
        assert torch.get_num_threads() == 2
        assert logging.getLogger("dcnn").level == level
    finally:
        torch.set_num_threads(before)
    scored, *timed = threads
    assert scored == (3, 2)
    assert {count for _, count in timed} == {1}
