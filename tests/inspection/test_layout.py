"""Places: words in order and apart, layers above one another, everything on the sheet."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcnn.inspection.layout import MANY_WORDS, caption, place, shortened, spread
from dcnn.inspection.picture import make_picture
from small_networks import example, inspected

LONG = "the plot is not dull but acting was good and ending bad " * 6


@given(st.lists(st.floats(0, 1000), max_size=12).map(sorted), st.floats(1, 50))
def test_spreading_keeps_order_distance_and_bounds(wishes, spacing):
    places = spread(wishes, spacing, 0, 1000)
    assert len(places) == len(wishes)
    for before, after in pairwise(places):
        assert after - before >= spacing - 1e-6
    assert all(-1e-6 <= x <= 1000 + 1e-6 for x in places)


def test_spreading_moves_nothing_that_has_room_and_shares_the_rest():
    assert spread([10, 50, 90], 20, 0, 100) == [10, 50, 90]
    assert spread([50, 50, 50], 20, 0, 100) == [30, 50, 70]
    assert spread([0, 0], 20, 0, 100) == [0, 20]


@given(inspected())
@settings(max_examples=40)
def test_everything_stands_on_the_sheet_and_words_do_not_overlap(seen):
    layout = place(make_picture(seen.graph, 0))
    for before, after in pairwise(layout.words):
        assert before.x + before.width / 2 < after.x - after.width / 2
    for word in layout.words:
        assert word.x - word.width / 2 >= 0
        assert word.x + word.width / 2 <= layout.width
    for node in layout.nodes:
        assert node.radius <= node.x <= layout.width - node.radius
        assert layout.root[1] < node.y < layout.words[0].y
    heights = {node.id: node.y for node in layout.nodes}
    for edge in layout.edges:
        assert edge.start[1] > edge.end[1]
        assert edge.start[1] == heights.get(edge.source, edge.start[1])
    assert all(0 < y < layout.height for y, _ in layout.caption)


def test_a_long_sentence_is_drawn_without_the_words_that_carry_nothing():
    seen = example(LONG)
    assert len(seen.words) > MANY_WORDS
    picture = make_picture(seen.graph, 0, top=3, edges=1)
    layout = place(picture)
    drawn = {edge.source for edge in picture.edges if edge.source.startswith("word:")}
    assert {word.id for word in layout.words if word.id} == drawn
    gaps = [word for word in layout.words if not word.id]
    assert gaps
    assert all(gap.opacity == 0 for gap in gaps)
    for before, after in pairwise(layout.words):
        assert before.id or after.id


def test_the_caption_states_the_share():
    picture = make_picture(example().graph, 0, top=4)
    lines = " ".join(line for _, line in place(picture).caption)
    assert f"The 4 strongest of {picture.top} topmost nodes" in lines
    assert (f"({picture.share:.0%})" in lines) == (0 <= picture.share <= 1)
    biases = picture.logit - sum(picture.attributions)
    assert f"biases, not drawn: {biases:+.2f}" in lines


@pytest.mark.parametrize(("shown", "said"), [(0.5, True), (-0.5, False), (1.5, False)])
def test_a_share_that_is_none_is_not_stated(shown, said):
    picture = replace(make_picture(example().graph, 0, top=4), logit=1.0, shown=shown)
    assert (f"({shown:.0%})" in " ".join(caption(picture))) == said


@pytest.mark.parametrize(("text", "short"), [("good", "good"), ("a" * 30, "a" * 19 + "…")])
def test_a_long_word_is_cut(text, short):
    assert shortened(text) == short
