"""Feature detectors and the n-grams with their largest values (Sect. 5.5, Fig. 4).

    >>> index = rank_detectors(Predictor.load("my-model"), texts)
    >>> for detector in index.find("not"):
    ...     print(index.name(detector), *index.top(detector), sep=" | ")

Contributions of an n-gram are computed in the sentence of its first occurrence in the corpus: those
of its words to the detector's value, and its own to the logits, both exactly (``attribution``).

A detector is named after its distinctive words. A word that is common everywhere is common among a
detector's n-grams too, so words are scored by the log-odds of the word among the n-grams against
its log-odds in the corpus, with a prior of ``PRIOR`` words drawn from the corpus itself, as a
z-score (Monroe, Colaresi and Quinn, 2008). In the first layer a filter has one weight per place, so
a word that is at one place in ``ONE_PLACE`` of its n-grams is shown at that place: ``_ _ not _ _``
is "not" as the third of five.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache, partial
from math import log, sqrt
from typing import Any

import numpy as np

from dcnn.data.labels import Label
from dcnn.errors import DataError, UserError
from dcnn.inspection import attribution, detector_ranking
from dcnn.inspection.detector_ranking import NAMED_BY, NAMED_BY_HIGHER, Detection, Detector
from dcnn.inspection.explanation import class_number
from dcnn.inspection.trace import Doubles, Trace, trace_sentence
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import UNKNOWN

MOST_SHOWN = 200  # n-grams per detector: all detectors keep as many
WEAK = 0.1  # of the widest span in a layer
CACHED_TRACES = 64  # detectors of a map often have the same sentences
PRIOR = 10.0
LEAST_Z_SCORE = 3.0
LEAST_SHARE = 0.1  # of the n-grams with a distinctive word, and never fewer than two
ONE_PLACE = 0.75
MOST_NAMED = 4  # words in a name


@dataclass(frozen=True)
class SelectedDetector:
    """A detector, and why a search selected it."""

    detector: Detector
    label: Label | None = None  # ``for_class``: the class,
    amount: float = 0.0  # and the mean contribution of the detector's n-grams to its logit
    detection: Detection | None = None  # ``for_text``: the n-gram with the largest value,
    strength: float = 0.0  # from 0, its mean over the corpus, to 1, its largest value there

    @property
    def note(self) -> str:
        """For people."""
        return f"strength {self.strength:.2f} on: {self.detection}" if self.detection else ""

    @property
    def values(self) -> dict[str, Any]:
        """For JSON."""
        if self.detection:
            return {"strength": self.strength, "on": str(self.detection)}
        return {} if self.label is None else {"class": self.label, "amount": self.amount}


@dataclass(frozen=True)
class WordScore:
    """How much more frequent a word is in a detector's n-grams than in the corpus."""

    word: str
    z_score: float  # log-odds ratio over its standard deviation
    ngrams: int  # number of n-grams with the word
    place: int | None  # in the n-gram, from 0; none if the word is at several places


def log_odds_z_score(count: float, total: float, corpus_count: float, corpus_total: float) -> float:
    """Above 0 if more frequent than in the corpus."""
    # Never the whole prior: in a corpus of one word nothing would be left for the others.
    prior = PRIOR * min(max(corpus_count, 1) / corpus_total, 0.99)
    here = log((count + prior) / (total + PRIOR - count - prior))
    there = log((corpus_count + prior) / (corpus_total + PRIOR - corpus_count - prior))
    return (here - there) / sqrt(1 / (count + prior) + 1 / (corpus_count + prior))


def score_words(
    ngrams: Sequence[Sequence[tuple[int, str]]], corpus: Counter[str], total: int
) -> list[WordScore]:
    """The words of some n-grams, given with their places, the largest z-score first.

    ``corpus`` is how often each word occurs; words that are not in it are left out.
    """
    places: dict[str, Counter[int]] = {}
    containing: Counter[str] = Counter()
    for ngram in ngrams:
        known = [(place, word) for place, word in ngram if word in corpus]
        containing.update({word for _, word in known})
        for place, word in known:
            places.setdefault(word, Counter())[place] += 1
    here = sum(at.total() for at in places.values())
    scores = []
    for word, at in places.items():
        place, times = at.most_common(1)[0]
        z_score = log_odds_z_score(at.total(), here, corpus[word], total)
        one_place = place if times >= ONE_PLACE * at.total() else None
        scores.append(WordScore(word, z_score, containing[word], one_place))
    return sorted(scores, key=lambda score: (-score.z_score, score.word))


def distinctive(scores: Sequence[WordScore], ngrams: int) -> list[WordScore]:
    """The words that are more frequent by more than chance, of the scores of some n-grams."""
    enough = max(2.0, LEAST_SHARE * ngrams)
    return [w for w in scores if w.z_score >= LEAST_Z_SCORE and w.ngrams >= enough]


def name_by_words(words: Sequence[WordScore], width: int | None, unit: str = "word") -> str:
    """A name for a detector, of its distinctive words; ``width`` if an n-gram has fixed places."""
    words = words[:MOST_NAMED]
    placed = {w.word: w.place for w in words if w.place is not None} if width else {}
    elsewhere = "/".join(w.word for w in words if w.word not in placed)
    if not placed:
        return elsewhere or f"no distinctive {unit}"
    at = [
        "/".join(word for word, place in placed.items() if place == here) or "_"
        for here in range(width or 0)
    ]
    return " ".join(at) + (f", anywhere {elsewhere}" if elsewhere else "")


@dataclass(frozen=True)
class DescribedNGram:
    """An n-gram of the corpus that activates a detector; see ``Detection``."""

    text: str  # the words, with an ellipsis for every gap
    words: tuple[str, ...]
    positions: tuple[int, ...]
    strongest: tuple[int, ...]
    value: float
    count: int


@dataclass(frozen=True)
class DetectorDescription(Detector):
    """A detector and the n-grams of the corpus that activate it most."""

    name: str
    mean: float  # of its values over the corpus
    weak: bool  # whether its values vary little compared with those of its layer
    contributions: dict[str, float]  # mean over its n-grams, to the logit of each class
    top: tuple[DescribedNGram, ...]


class DetectorIndex:
    """The detectors of a network with their n-grams of a corpus; made by ``rank_detectors``.

    Methods raise ``UserError`` for a detector that does not exist or was not ranked.
    """

    def __init__(
        self, predictor: Predictor, corpus: detector_ranking.RankedCorpus, shown: int
    ) -> None:
        self.predictor, self.corpus = predictor, corpus
        self.shown = shown  # n-grams per detector in ``top``
        self._distinctive_words: dict[Detector, list[WordScore]] = {}
        self._class_contributions: dict[Detector, tuple[float, ...]] = {}
        self._trace = lru_cache(CACHED_TRACES)(partial(trace_sentence, predictor.artifact))

    @property
    def detectors(self) -> Sequence[Detector]:
        """All of them, by layer, map and row."""
        return list(self.corpus.detections)

    @property
    def unit(self) -> str:
        """What a token of the corpus is: ``word``, ``subword`` or ``character``."""
        return self.predictor.artifact.encoder.unit

    def top(self, detector: Detector) -> Sequence[Detection]:
        """The distinct n-grams with its largest values, the largest first."""
        found = self._detections(detector)[: self.shown]
        return [replace(one, strongest=self.strongest_words(detector, one)) for one in found]

    def strongest_words(self, detector: Detector, found: Detection) -> tuple[int, ...]:
        """Positions of the fewest words that contribute half of what makes the value large."""
        if detector.layer > 1:
            trace: Trace = self._trace(found.sentence)
            shape = trace.values(detector.layer).shape
            node = np.ravel_multi_index((detector.map, detector.row, found.column), shape)
            words = attribution.node_word_contributions(trace, detector.layer, np.array([node]))
            return attribution.fewest_words(words)[0]
        artifact = self.predictor.artifact
        encoded = artifact.encoder.encode_words([found.words])
        filters = artifact.weights["layers.0.filters"][detector.map, 0, detector.row]
        values = artifact.embed(encoded.ids, encoded.new_words)[:, detector.row]
        contributions = values * filters[: len(values)]
        return attribution.fewest_words(contributions.astype(np.float64)[None])[0]

    def name(self, detector: Detector) -> str:
        """Its distinctive words; see ``dcnn.inspection.detectors``.

        ``_ _ not _ _ _ _`` is "not" as the third word of seven; words without a fixed place come
        after it, or alone. Above the first layer words have no fixed places.
        """
        width = (
            detector_ranking.check_dcnn(self.predictor).widths[0] if detector.layer == 1 else None
        )
        return name_by_words(self.distinctive_words(detector), width, self.unit)

    def distinctive_words(self, detector: Detector) -> Sequence[WordScore]:
        """The words that its n-grams (above the first layer, the strongest words) have most."""
        if detector not in self._distinctive_words:
            # A fixed number of n-grams, however many are shown.
            count = NAMED_BY if detector.layer == 1 else NAMED_BY_HIGHER
            ngrams = []
            for found in self._detections(detector)[:count]:
                words = list(zip(found.positions, found.words, strict=True))
                if detector.layer > 1:
                    strongest = self.strongest_words(detector, found)
                    words = [(position, word) for position, word in words if position in strongest]
                ngrams.append(words)
            scores = score_words(ngrams, self.corpus.words, self.corpus.total)
            self._distinctive_words[detector] = distinctive(scores, len(ngrams))
        return self._distinctive_words[detector]

    def by_distinctiveness(self) -> Sequence[Detector]:
        """All detectors, those first whose words are most distinctive; weak ones last."""
        words = {detector: self.distinctive_words(detector) for detector in self.corpus.detections}
        return self._best_first({one: of[0].z_score if of else 0.0 for one, of in words.items()})

    def _best_first(self, scores: dict[Detector, float]) -> list[Detector]:
        return sorted(scores, key=lambda one: (not self.is_weak(one), scores[one]), reverse=True)

    def is_weak(self, detector: Detector) -> bool:
        """Whether its span is below a tenth of the widest in its layer.

        L2 and folding leave many rows of a trained network with next to no weight. Such a detector
        ranks n-grams as any other does, but hardly contributes to anything.
        """
        return self.span(detector) < WEAK * self._widest[detector.layer]

    def span(self, detector: Detector) -> float:
        """From its mean over the corpus to its largest value there."""
        return self._detections(detector)[0].value - self.corpus.means[detector]

    @cached_property
    def _widest(self) -> dict[int, float]:
        widest: defaultdict[int, float] = defaultdict(float)
        for detector in self.corpus.detections:
            widest[detector.layer] = max(self.span(detector), widest[detector.layer])
        return widest

    def find(self, word: str) -> Sequence[Detector]:
        """The detectors with a distinctive word, best first; weak ones come last.

        Args:
            word: a word, or several that must all be distinctive.

        Raises:
            UserError: there is no word in it, or one is not in the vocabulary.
        """
        words = known_words(self.predictor, word)
        scores = {}
        for detector in self.corpus.detections:
            found = {w.word: w.z_score for w in self.distinctive_words(detector)}
            if all(word in found for word in words):
                scores[detector] = min(found[word] for word in words)
        return self._best_first(scores)

    def for_class(self, label: Label) -> Sequence[SelectedDetector]:
        """All detectors by their contribution to a class, the largest first.

        Raises:
            UserError: there is no such class.
        """
        number = class_number(self.predictor, label)
        found = [
            SelectedDetector(one, label=label, amount=self.class_contributions(one)[number])
            for one in self.corpus.detections
        ]
        return sorted(found, key=lambda one: -one.amount)

    def class_contributions(self, detector: Detector) -> tuple[float, ...]:
        """The mean of ``ngram_contributions``: one value per class."""
        if detector not in self._class_contributions:
            found = self.ngram_contributions(detector) or [[0.0] * len(self.predictor.classes)]
            self._class_contributions[detector] = tuple(np.mean(found, axis=0).tolist())
        return self._class_contributions[detector]

    def ngram_contributions(self, detector: Detector) -> list[list[float]]:
        """The contribution of each n-gram of ``top`` to each logit; of the first 30 at most.

        That is the sum over the paths of the feature graph through it, in the sentence of its first
        occurrence; 0 if pooling dropped it. Of a single-label model the mean over the classes is
        subtracted, since the softmax ignores what is added to all logits. N-grams of sentences that
        are too long to be traced are left out.
        """
        shown = self._detections(detector)[: min(self.shown, NAMED_BY)]
        found = [self.logit_contributions(detector, one) for one in shown if one.sentence]
        if not self.predictor.multi_label:
            found = [logits - logits.mean() for logits in found]
        return [logits.tolist() for logits in found]

    def logit_contributions(self, detector: Detector, found: Detection) -> Doubles:
        """(classes,) the contribution of one n-gram to each logit; 0 if pooling dropped it."""
        trace: Trace = self._trace(found.sentence)
        contributions = np.zeros(len(trace.classes))
        layer, row, place, slope = trace.layers[detector.layer - 1], detector.row, found.column, 1.0
        if detector.layer == 1:
            # The detector's row is before folding; an m-gram is in the column of its last position.
            row %= layer.bias.shape[1]
            end = place + layer.filters.shape[-1] - 1
            kept = np.flatnonzero(layer.positions[detector.map, row] == end)
            if not len(kept):
                return contributions
            place = int(kept[0])
            slope = layer.gains[detector.map, row, place]
        node = np.ravel_multi_index((detector.map, row, place), layer.values.shape)
        classes = range(len(trace.classes))
        of_row = attribution.logit_coefficients(trace, classes, detector.layer, row)
        at = of_row.nodes == node
        contributions[of_row.outputs[at]] = of_row.values[at] * slope * found.value
        return contributions

    def for_text(self, text: str) -> Sequence[SelectedDetector]:
        """The detectors by their activation on an example, the strongest first.

        Strengths are relative to the detector's values in the corpus, so a detector with large
        weights does not always come first; above 1 it is stronger than anywhere there. Weak ones
        come last.

        Raises:
            UserError: the text has no words.
        """
        words = self.predictor.artifact.encoder.tokenizer(text)
        if not words:
            raise UserError("the text has no words, so no detector can react; give at least one")
        layers = sorted({detector.layer for detector in self.corpus.detections})
        here = detector_ranking.rank_corpus([words], self.predictor, layers, 1).detections
        selected = []
        for detector, (found, *_) in here.items():
            span, above = self.span(detector), found.value - self.corpus.means[detector]
            detection = replace(found, strongest=self.strongest_words(detector, found))
            strength = above / span if span > 0 else 0.0
            selected.append(SelectedDetector(detector, detection=detection, strength=strength))
        return sorted(selected, key=lambda one: (self.is_weak(one.detector), -one.strength))

    def to_dict(self, selected: Iterable[SelectedDetector] | None = None) -> dict[str, Any]:
        """The selected detectors, or all, as plain values: see ``describe`` for their fields."""
        if selected is None:
            selected = map(SelectedDetector, self.corpus.detections)
        return {
            "classes": list(self.predictor.classes),
            "sentences": self.corpus.sentences,
            "words": self.corpus.total,
            "detectors": [asdict(self.describe(one.detector)) | one.values for one in selected],
        }

    def to_json(self, selected: Iterable[SelectedDetector] | None = None) -> str:
        """``to_dict`` as JSON."""
        return json.dumps(self.to_dict(selected), ensure_ascii=False)

    def describe(self, detector: Detector) -> DetectorDescription:
        """One detector as plain values."""
        names = map(str, self.predictor.classes)
        return DetectorDescription(
            **vars(detector),
            name=self.name(detector),
            mean=self.corpus.means[detector],
            weak=self.is_weak(detector),
            contributions=dict(zip(names, self.class_contributions(detector), strict=True)),
            top=tuple(
                DescribedNGram(str(n), n.words, n.positions, n.strongest, n.value, n.count)
                for n in self.top(detector)
            ),
        )

    def _detections(self, detector: Detector) -> list[Detection]:
        if detector not in self.corpus.detections:
            known = self.detectors
            raise UserError(
                f"there is no detector {detector} here; they are "
                f"{known[0]} to {known[-1]} (layer:map:row)"
            )
        return self.corpus.detections[detector]


def known_words(predictor: Predictor, text: str) -> list[str]:
    """The words of a search; an error if there is none, or one is not in the vocabulary."""
    encoder = predictor.artifact.encoder
    words = encoder.tokenizer(text)
    if not words:
        raise UserError("there is no word to find; give at least one")
    for word, id_ in zip(words, encoder.encode_words([words]).ids, strict=True):
        if id_ == UNKNOWN:
            raise UserError(
                f"the network does not know the {encoder.unit} {word!r}, so no detector can tell "
                f"it from other unknown {encoder.unit}s; find another one"
            )
    return words


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """The texts, each checked when it is read."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise DataError(f"the texts must be an iterable of strings; got {texts!r:.60}")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"text {number} must be a string; got {text!r:.60}")
        yield text


def rank_detectors(
    predictor: Predictor,
    texts: Iterable[str],
    top: int = 5,
    layers: Sequence[int] | None = None,
    progress: detector_ranking.Progress | None = None,
) -> DetectorIndex:
    """Rank the n-grams of a corpus for every detector, in one pass and bounded memory.

    Args:
        predictor: a DCNN.
        texts: the corpus, of any length; texts without words are skipped. Layers above the first
            skip texts of more than 1,000 words too.
        top: number of n-grams per detector.
        layers: which layers, from 1; all if not given.
        progress: called with the number of texts read so far, every few thousand.

    Raises:
        UserError: the model is no DCNN, has no such layer, or no text has a word.
        DataError: a text is not a string.
    """
    config = detector_ranking.check_dcnn(predictor)
    if not 1 <= top <= MOST_SHOWN:
        raise UserError(f"top={top} must be from 1 to {MOST_SHOWN:,}")
    chosen = sorted(set(range(1, config.depth + 1) if layers is None else layers))
    if not chosen or chosen[0] < 1 or chosen[-1] > config.depth:
        raise UserError(f"layers={chosen} must be one or more from 1 to {config.depth}")
    encoder = predictor.artifact.encoder
    sentences = (encoder.tokenizer(text) for text in _checked(texts))
    ranked = detector_ranking.rank_corpus(sentences, predictor, chosen, top, progress)
    if not ranked.sentences:
        raise UserError("the corpus has no text with a word in it; give at least one")
    if not ranked.detections:
        raise UserError(
            f"every text of the corpus has more than {detector_ranking.MOST_WORDS:,} "
            f"{encoder.unit}s, too many for layers above the first; split them, for instance into "
            "sentences"
        )
    return DetectorIndex(predictor, ranked, top)
