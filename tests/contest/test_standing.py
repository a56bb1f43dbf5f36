import numpy as np

from dcnn.compare import Measure, Score, cells, markdown, ranked, remarks


def score(name, hits, examples=400, runs=1, latency=1e-4):
    correct = np.arange(examples)[None] < np.full((runs, 1), hits)
    return Score(name, "", correct, 0.5, 1.0, 1_500_000, Measure.of([latency]), 9_000.0)


def test_the_best_comes_first_and_what_cannot_be_told_from_it_is_marked():
    places = ranked([score("far", 200), score("close", 319), score("best", 320)])
    assert [place.score.name for place in places] == ["best", "close", "far"]
    assert [place.is_tied for place in places] == [False, True, False]
    assert places[2].behind.low > 0.2
    assert "= the test set does not tell close from best." in remarks(places, 400, 1)


def test_of_equally_accurate_ones_the_quicker_comes_first():
    places = ranked([score("slow", 300, latency=2e-3), score("quick", 300)])
    assert [place.score.name for place in places] == ["quick", "slow"]
    assert places[1].is_tied


def test_mean_and_deviation_are_over_the_runs():
    (place,) = ranked([score("one", 300, runs=3)])
    assert (place.accuracy.mean, place.accuracy.deviation, place.accuracy.runs) == (0.75, 0.0, 3)
    assert cells(place)[1] == "75.00 ± 0.00"
    assert cells(place)[5:7] == ("1.50", "100")


def test_the_table_is_markdown():
    text = markdown(ranked([score("one", 300), score("two", 200)]), ["A remark."])
    lines = text.splitlines()
    assert len({line.count("|") for line in lines[:4]}) == 1
    assert text.endswith("A remark.\n")
