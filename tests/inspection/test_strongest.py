"""Short lists equal what sorting everything gives."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dcnn.inspection.detector_lists import MOST_WORDS, Met, StrongestLists, whole


@dataclass(frozen=True)
class Letters:
    """Offered n-grams: letters, the same for every detector."""

    letters: list[str]

    def key(self, _, place):
        return self.letters[place]

    def met(self, _, place):
        return Met((self.letters[place],), (0,), (), place)


# Few values and few letters, so that there are ties everywhere.
offers = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3)), max_size=40)


def told(lists):
    return [(entry.met.words[0], entry.value, entry.count) for entry in lists.entries(0)]


def offer(lists, letters, values, times):
    lists.offer(np.array([values], np.float32), np.array(times), Letters(letters))


@given(offers, st.integers(1, 5), st.integers(1, 7), st.data())
def test_the_strongest_of_each_key_and_how_often_that_value_was_met(offered, length, step, data):
    """A letter may have several values here, as the words seen by a node of a higher layer may."""
    best = {}
    for order, (letter, times) in enumerate(offered):
        value = float(data.draw(st.integers(0, 3)))
        offered[order] = (letter, times, value)
        if not times:
            continue
        known = best.get(letter)
        if known is None or value > known[0]:
            best[letter] = (value, times, order)
        elif value == known[0]:
            best[letter] = (value, known[1] + times, known[2])
    lists = StrongestLists(1, length)
    for start in range(0, len(offered), step):
        letters, times, values = zip(*offered[start : start + step], strict=True)
        offer(lists, list(letters), values, times)
    ranked = sorted(best.items(), key=lambda item: (-item[1][0], item[1][2]))
    expected = [(letter, value, count) for letter, (value, count, _) in ranked[:length]]
    assert told(lists) == expected


def test_among_equals_the_one_met_first_stays():
    lists = StrongestLists(1, 2)
    for letter in "abc":
        offer(lists, [letter], [1.0], [1])
    assert told(lists) == [("a", 1.0, 1), ("b", 1.0, 1)]
    offer(lists, ["d", "a"], [2.0, 1.0], [1, 3])
    assert told(lists) == [("d", 2.0, 1), ("a", 1.0, 4)]


def test_a_sentence_too_long_to_be_traced_is_not_kept():
    assert whole(["a"] * MOST_WORDS) == ("a",) * MOST_WORDS
    assert whole(["a"] * (MOST_WORDS + 1)) == ()
