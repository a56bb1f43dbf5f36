from collections import Counter

import pytest

from dcnn.inspection.detectors import WordContrast, contrast, log_odds, outstanding, told

CORPUS = Counter({"the": 600, "film": 90, "not": 30, "bad": 10, "as": 20})


def placed(text):
    return list(enumerate(text.split()))


def test_a_common_word_is_no_contrast_and_a_rare_one_is():
    ngrams = [placed("the not film"), placed("the not bad"), placed("film not the")]
    found = contrast(ngrams, CORPUS, 1000)
    assert found[0].word == "not"
    assert found[0].ngrams == 3
    assert found[0].place == 1
    assert {w.word: w.score > 0 for w in found}["the"] is False


def test_as_much_as_in_the_corpus_is_none():
    assert log_odds(30, 1000, 300, 10_000) == pytest.approx(0, abs=1e-6)
    assert log_odds(60, 1000, 300, 10_000) > 0 > log_odds(15, 1000, 300, 10_000)
    assert log_odds(3, 100, 300, 10_000) > log_odds(0, 100, 300, 10_000)


def test_a_word_of_one_ngram_is_chance_however_rare_it_is():
    ngrams = [placed("the film rare"), *[placed("the film seldom")] * 9]
    corpus = CORPUS + Counter({"rare": 1, "seldom": 9})
    found = contrast(ngrams, corpus, 1_000_000)
    scores = {w.word: w.score for w in found}
    assert scores["rare"] > 3
    clear = {w.word for w in outstanding(found, len(ngrams))}
    assert "seldom" in clear
    assert "rare" not in clear


def test_words_outside_the_vocabulary_are_left_out():
    assert contrast([placed("xyzzy not")], CORPUS, 1000)[0].word == "not"
    assert [w.word for w in contrast([placed("xyzzy")], CORPUS, 1000)] == []


def test_a_word_at_two_places_has_none():
    ngrams = [placed("as good as"), placed("as bad as")]
    assert {w.word: w.place for w in contrast(ngrams, CORPUS, 1000)}["as"] is None


@pytest.mark.parametrize(
    ("words", "width", "name"),
    [
        ([], 3, "no word stands out"),
        ([("not", 1)], 3, "_ not _"),
        ([("not", 1), ("never", 1), ("bad", 2)], 4, "_ not/never bad _"),
        ([("not", 0), ("film", None)], 2, "not _, anywhere film"),
        ([("film", None), ("movie", None)], 5, "film/movie"),
        ([("not", 7), ("bad", 9)], None, "not/bad"),
    ],
)
def test_names_tell_places_where_there_are_any(words, width, name):
    assert told([WordContrast(word, 9.0, 5, place) for word, place in words], width) == name
