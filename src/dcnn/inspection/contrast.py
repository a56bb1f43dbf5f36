"""What a detector reacts to, by contrast with the corpus.

A word that is common everywhere is common among a detector's strongest n-grams too. What speaks is
how much more of it is there: the log-odds of the word among the n-grams against its log-odds in the
corpus, with a prior of ``PRIOR`` words drawn from the corpus itself, over its standard deviation
(Monroe, Colaresi and Quinn, 2008). Words below ``ENOUGH`` n-grams or ``CLEAR`` deviations are
chance.

In the first layer a filter has a weight for each place, so a word that stands at one place in
``ONE_PLACE`` of its n-grams is told at that place: ``_ _ not _ _`` is "not" as the third of five.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

PRIOR = 10.0
CLEAR = 3.0
ENOUGH = 0.1  # of the n-grams, and never fewer than two
ONE_PLACE = 0.75
MOST_TOLD = 4  # words


@dataclass(frozen=True)
class WordContrast:
    """A word that a detector's n-grams hold more of than the corpus does.

    Attributes:
        word: the word.
        score: log-odds ratio over its standard deviation.
        ngrams: in how many of the n-grams it is.
        place: where in the n-gram, from 0; none if at no one place.
    """

    word: str
    score: float
    ngrams: int
    place: int | None


def log_odds(count: float, total: float, corpus_count: float, corpus_total: float) -> float:
    """How much more frequent, in standard deviations; above 0 is more than in the corpus."""
    # Never the whole prior: in a corpus of one word nothing would be left for the others.
    prior = PRIOR * min(max(corpus_count, 1) / corpus_total, 0.99)
    here = log((count + prior) / (total + PRIOR - count - prior))
    there = log((corpus_count + prior) / (corpus_total + PRIOR - corpus_count - prior))
    return (here - there) / sqrt(1 / (count + prior) + 1 / (corpus_count + prior))


def contrast(
    ngrams: Sequence[Sequence[tuple[int, str]]], corpus: Counter[str], total: int
) -> list[WordContrast]:
    """The words of some n-grams, the most over-represented first.

    Args:
        ngrams: each as its words with their places.
        corpus: how often each word occurs; words that are not in it are left out.
        total: the words of the corpus.
    """
    counts: Counter[str] = Counter()
    holding: Counter[str] = Counter()
    places: dict[str, Counter[int]] = {}
    for ngram in ngrams:
        known = [(place, word) for place, word in ngram if word in corpus]
        counts.update(word for _, word in known)
        holding.update({word for _, word in known})
        for place, word in known:
            places.setdefault(word, Counter())[place] += 1
    here = sum(counts.values())
    found = []
    for word, count in counts.items():
        place, times = places[word].most_common(1)[0]
        placed = place if times >= ONE_PLACE * count else None
        score = log_odds(count, here, corpus[word], total)
        found.append(WordContrast(word, score, holding[word], placed))
    return sorted(found, key=lambda word: (-word.score, word.word))


def outstanding(found: Sequence[WordContrast], ngrams: int) -> list[WordContrast]:
    """Those that are no chance, the clearest first.

    Args:
        found: the words of some n-grams, in the order of ``contrast``.
        ngrams: how many n-grams.
    """
    enough = max(2.0, ENOUGH * ngrams)
    return [w for w in found if w.score >= CLEAR and w.ngrams >= enough]


def told(words: Sequence[WordContrast], width: int | None, unit: str = "word") -> str:
    """A name for a detector.

    Args:
        words: what stands out; the first ``MOST_TOLD`` are told.
        width: places of an n-gram; none where an n-gram has no fixed places.
        unit: what a reader calls one of them: ``word``, ``piece`` or ``character``.
    """
    words = words[:MOST_TOLD]
    placed = {w.word: w.place for w in words if w.place is not None} if width else {}
    elsewhere = "/".join(w.word for w in words if w.word not in placed)
    if not placed:
        return elsewhere or f"no {unit} stands out"
    at = [
        "/".join(word for word, place in placed.items() if place == here) or "_"
        for here in range(width or 0)
    ]
    return " ".join(at) + (f", anywhere {elsewhere}" if elsewhere else "")
