"""What a node carries of the logits, and what words bring to a node, in one sentence.

With gains (tanh(z)/z, see ``attribution``) every node is linear in what it reads, so
both are one pass down through the layers: from the root to the node's layer, or from the node to
the words. The attribution of a word is the first, carried on down to the words.


Where the n-grams of a detector come from: the sentences in which they were first met.

What the words of an n-gram bring to the detector, and what the n-gram carries of the logits there.
Both are exact, since a node is linear in what it reads; see ``dcnn.inspection.detectors``.


What a detector reacts to, by contrast with the corpus.

A word that is common everywhere is common among a detector's strongest n-grams too. What speaks is
how much more of it is there: the log-odds of the word among the n-grams against its log-odds in the
corpus, with a prior of ``PRIOR`` words drawn from the corpus itself, over its standard deviation
(Monroe, Colaresi and Quinn, 2008). Words below ``ENOUGH`` n-grams or ``CLEAR`` deviations are
chance.

In the first layer a filter has a weight for each place, so a word that stands at one place in
``ONE_PLACE`` of its n-grams is told at that place: ``_ _ not _ _`` is "not" as the third of five.


Feature detectors and the n-grams that they react to (Sect. 5.5, Fig. 4).

    >>> index = rank_detectors(Predictor.load("my-model"), texts)
    >>> for detector in index.find("not"):
    ...     print(index.name(detector), *index.top(detector), sep=" | ")

A detector of the first layer is the filter of one row of one map, before folding (6 maps of 48 rows
are the paper's 288); it ranks the m-grams of the corpus by its dot product with them. A detector of
a higher layer is a row of a map, after folding; it ranks the nodes that pooling kept there by their
values, and a node's n-gram is the words that have a way to it: they may be separated.

The corpus is read once, some thousand sentences at a time, and never held.

"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.artifact import Artifact, Label
from dcnn.config import DCNNConfig
from dcnn.errors import DataError, UserError
from dcnn.inspection.attribution import fewest
from dcnn.inspection.detector_lists import (
    MOST_WORDS,
    Activation,
    ClassContribution,
    Detection,
    Detector,
    Entry,
)
from dcnn.inspection.detector_ranking import (
    NAMED_BY,
    NAMED_BY_HIGHER,
    Progress,
    RankedCorpus,
    rank_corpus,
)
from dcnn.inspection.explanation import class_number
from dcnn.inspection.trace import Trace, TracedLayer, trace_sentence
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import UNKNOWN

Doubles = NDArray[np.float64]


def carried_by_nodes(trace: Trace, layer: int) -> Doubles:
    """(o, d', k, classes): what a unit of each node's value is worth to each logit.

    A node's value times this is what it carries of the logits; over all nodes of a layer, with the
    biases above it, that adds up to the logits.
    """
    top = trace.layers[-1].values.shape
    carried = trace.top_weight.T.astype(np.float64).reshape(*top, -1)  # (o, d', k, classes)
    for number in range(len(trace.layers), layer, -1):
        below = trace.layers[number - 2].values
        carried = below_of(trace.layers[number - 1], carried, below.shape[-1])
    return carried


def brought_by_words(trace: Trace, layer: int, map_: int, row: int, place: int) -> Doubles:
    """(s,): what each word brings to a node's value; with what the biases bring, that is it.

    Args:
        trace: the sentence.
        layer: of the node, from 1.
        map_: of the node.
        row: of the node, after folding.
        place: of the node among the values that its row kept.
    """
    carried = np.zeros((*trace.layers[layer - 1].values.shape, 1))
    carried[map_, row, place] = 1
    for number in range(layer, 0, -1):
        below = trace.layers[number - 2].values if number > 1 else trace.matrix[None]
        carried = below_of(trace.layers[number - 1], carried, below.shape[-1])
    brought: Doubles = np.einsum("ds,ds->s", carried[0, :, :, 0], trace.matrix)
    return brought


def gains(layer: TracedLayer) -> Doubles:
    """(o, d', k): value over what tanh was taken of; tanh has slope 1 at the origin."""
    z = (layer.pooled + layer.bias[:, :, None]).astype(np.float64)
    return np.divide(layer.values, z, out=np.ones_like(z), where=z != 0)


def below_of(layer: TracedLayer, carried: Doubles, columns: int) -> Doubles:
    """(o, d', k, classes) of a layer's nodes -> (n, d, columns, classes) of what it reads."""
    through = carried * gains(layer)[..., None]
    maps, rows, width = layer.convolution.shape
    spread = np.zeros((maps, rows, width, carried.shape[-1]))
    np.put_along_axis(spread, layer.positions[..., None], through, axis=2)
    if layer.folded:  # both rows of a pair get what their sum carries
        spread = np.concatenate([spread, spread], axis=1)  # (o, d, w, classes)
    filters = layer.filters.astype(np.float64)
    m = filters.shape[-1]
    below = np.zeros((*filters.shape[1:3], columns, carried.shape[-1]))
    for i in range(m):  # weight i meets word t at column t + m - 1 - i
        start = m - 1 - i
        part = spread[:, :, start : start + columns]
        below += np.einsum("odsc,ond->ndsc", part, filters[..., i])
    return below


TRACES = 64  # kept at hand; detectors of a map often react to the same sentences


class Origins:
    """The sentences of n-grams, traced again when asked for.

    Args:
        artifact: a DCNN.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self.width = int(artifact.weights["layers.0.filters"].shape[-1])
        self._trace = lru_cache(TRACES)(self._traced)

    def strongest_words(self, detector: Detector, entry: Entry) -> tuple[int, ...]:
        """Positions of the fewest words that bring half of what raises the value."""
        met = entry.met
        if detector.layer > 1:
            node = detector.layer, detector.map, detector.row, met.column
            return fewest(brought_by_words(self._trace(met.sentence), *node))
        weights = self._artifact.weights
        ids = self._artifact.encoder.vocabulary.ids(met.words)
        filters = weights["layers.0.filters"][detector.map, 0, detector.row]
        brought = weights["embeddings"][ids, detector.row] * filters[: len(ids)]
        return fewest(brought.astype(np.float64))

    def carried(self, detector: Detector, entry: Entry) -> Doubles:
        """(classes,) what the n-gram carries of each logit; nothing if pooling dropped it."""
        trace = self._trace(entry.met.sentence)
        worth = carried_by_nodes(trace, detector.layer)  # (o, d', k, classes)
        layer, row, place = trace.layers[detector.layer - 1], detector.row, entry.met.column
        if detector.layer == 1:  # an m-gram that starts at a word is at the column of its end
            row %= layer.bias.shape[1]
            kept = np.flatnonzero(layer.positions[detector.map, row] == place + self.width - 1)
            if not len(kept):
                return np.zeros(len(trace.classes))
            place = int(kept[0])
            worth = worth * gains(layer)[..., None]  # of what tanh is taken of
        carried: Doubles = worth[detector.map, row, place] * entry.value
        return carried

    def _traced(self, words: tuple[str, ...]) -> Trace:
        return trace_sentence(self._artifact, words)


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
        unit: what a reader calls one of them: ``word``, ``subword`` or ``character``.
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


@dataclass(frozen=True)
class SelectedDetector:
    """A detector of a report.

    Attributes:
        detector: which.
        note: why it was selected, for people; may be empty.
        values: the same for programs.
    """

    detector: Detector
    note: str = ""
    values: dict[str, Any] = field(default_factory=dict)


__all__ = [
    "Activation",
    "ClassContribution",
    "Detection",
    "Detector",
    "DetectorIndex",
    "rank_detectors",
]

MOST_SHOWN = 200  # n-grams of a detector: all detectors keep as many
FAINT = 0.1  # of the widest span in a layer


class DetectorIndex:
    """The detectors of a network with what a corpus shows of them; made by ``rank_detectors``.

    Attributes:
        predictor: the network.
        corpus: what was seen of the corpus.
        shown: how many n-grams of each detector are told.
    """

    def __init__(self, predictor: Predictor, corpus: RankedCorpus, shown: int) -> None:
        self.predictor, self.corpus, self.shown = predictor, corpus, shown
        self._contrast: dict[Detector, list[WordContrast]] = {}
        self._push: dict[Detector, tuple[float, ...]] = {}
        self._origins = Origins(predictor.artifact)

    @property
    def detectors(self) -> Sequence[Detector]:
        """All of them, by layer, map and row."""
        return list(self.corpus.entries)

    def top(self, detector: Detector) -> Sequence[Detection]:
        """The distinct n-grams that it reacts to most strongly, the strongest first.

        Raises:
            UserError: there is no such detector, or its layer was not ranked.
        """
        return [self._detection(detector, entry) for entry in self._of(detector)[: self.shown]]

    def name(self, detector: Detector) -> str:
        """What it reacts to, by contrast with the corpus; see ``dcnn.inspection.detectors``.

        ``_ _ not _ _ _ _`` is "not" as the third word of seven; words that may stand anywhere come
        after it, or alone. Above the first layer words have no fixed places.

        Raises:
            UserError: there is no such detector, or its layer was not ranked.
        """
        width = self._origins.width if detector.layer == 1 else None
        return told(self.distinctive_words(detector), width, self.unit)

    def distinctive_words(self, detector: Detector) -> Sequence[WordContrast]:
        """The words of ``contrast`` that are there by more than chance."""
        return outstanding(self.contrast(detector), len(self._naming(detector)))

    def contrast(self, detector: Detector) -> Sequence[WordContrast]:
        """The words of its strongest n-grams, the most over-represented first."""
        if detector not in self._contrast:
            ngrams = []
            for entry in self._naming(detector):
                at = dict(zip(entry.met.positions, entry.met.words, strict=True))
                kept = at if detector.layer == 1 else self._origins.strongest_words(detector, entry)
                ngrams.append([(position, at[position]) for position in kept])
            self._contrast[detector] = contrast(ngrams, self.corpus.words, self.corpus.total)
        return self._contrast[detector]

    def by_distinctiveness(self) -> Sequence[Detector]:
        """All detectors, those first whose name stands out most; the faint ones last."""

        def clearest(detector: Detector) -> tuple[bool, float]:
            words = self.distinctive_words(detector)
            return not self.is_faint(detector), words[0].score if words else 0.0

        return sorted(self.corpus.entries, key=clearest, reverse=True)

    def is_faint(self, detector: Detector) -> bool:
        """Whether its span is below a tenth of the widest in its layer.

        L2 and folding leave many rows of a trained network with next to no weight. Such a detector
        ranks n-grams as any other does, but nothing above it hears.
        """
        return self.span(detector) < FAINT * self._widest[detector.layer]

    def span(self, detector: Detector) -> float:
        """From its mean over the corpus to its strongest n-gram there."""
        return self._of(detector)[0].value - self.corpus.means[detector]

    @cached_property
    def _widest(self) -> dict[int, float]:
        widest: dict[int, float] = {}
        for detector in self.corpus.entries:
            here = self.span(detector)
            widest[detector.layer] = max(here, widest.get(detector.layer, 0.0))
        return widest

    def find(self, word: str) -> Sequence[Detector]:
        """The detectors whose strongest n-grams hold clearly more of a word than the corpus.

        Best first; the faint ones (``is_faint``) come last.

        Args:
            word: a word, or several that must all be so.

        Raises:
            UserError: there is no word in it, or the network does not know one.
        """
        words = known_words(self.predictor, word)
        scores = {}
        for detector in self.corpus.entries:
            found = {w.word: w.score for w in self.distinctive_words(detector)}
            if all(word in found for word in words):
                score = min(found[word] for word in words)
                scores[detector] = (not self.is_faint(detector), score)
        return sorted(scores, key=scores.__getitem__, reverse=True)

    def for_class(self, label: Label) -> Sequence[ClassContribution]:
        """All detectors by what they push towards a class, the strongest push first.

        Raises:
            UserError: there is no such class.
        """
        number = class_number(self.predictor, label)
        pushes = [
            ClassContribution(detector, self.class_contributions(detector)[number])
            for detector in self.corpus.entries
        ]
        return sorted(pushes, key=lambda push: -push.amount)

    def class_contributions(self, detector: Detector) -> tuple[float, ...]:
        """Mean of ``ngram_contributions``: one value per class."""
        if detector not in self._push:
            carried = self.ngram_contributions(detector) or [[0.0] * len(self.predictor.classes)]
            self._push[detector] = tuple(np.mean(carried, axis=0).tolist())
        return self._push[detector]

    def ngram_contributions(self, detector: Detector) -> list[list[float]]:
        """What each n-gram of ``top`` carries of each class's logit; of the first 30 at most.

        An n-gram is looked at in the sentence it was first met in. What it carries of a logit is
        the sum over the paths of the feature graph that go through it (its value times the weights
        and gains above it); if pooling dropped it, that is 0. The mean over the classes is taken
        off, since what is added to all logits decides nothing. N-grams of sentences that are too
        long to be traced are left out.
        """
        told = self._of(detector)[: min(self.shown, NAMED_BY)]
        entries = [e for e in told if e.met.sentence]
        carried = [self._origins.carried(detector, entry) for entry in entries]
        return [(logits - logits.mean()).tolist() for logits in carried]

    def for_text(self, text: str) -> Sequence[Activation]:
        """The detectors by how strongly they fire on an example, the strongest first.

        Strengths are relative to what the detector does in the corpus, so that a detector with
        large weights does not always come first; above 1 it fires more strongly than anywhere
        there. The faint ones (``is_faint``) come last.

        Raises:
            UserError: the text has no words.
        """
        words = self.predictor.artifact.encoder.tokenizer(text)
        if not words:
            raise UserError("the text has no words, so no detector can react; give at least one")
        reactions = []
        layers = sorted({detector.layer for detector in self.corpus.entries})
        found = rank_corpus([words], self.predictor, layers, 1).entries
        for detector, entry in found.items():
            span = self.span(detector)
            above = entry[0].value - self.corpus.means[detector]
            strength = above / span if span > 0 else 0.0
            reactions.append(Activation(detector, strength, self._detection(detector, entry[0])))
        return sorted(reactions, key=lambda r: (self.is_faint(r.detector), -r.strength))

    @property
    def unit(self) -> str:
        """What a reader calls a token of the corpus: ``word``, ``subword`` or ``character``."""
        return self.predictor.artifact.encoder.unit

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return self.summary() | {
            "detectors": [self.describe(detector) for detector in self.corpus.entries]
        }

    def summary(self) -> dict[str, Any]:
        """What was looked at: classes, sentences, words."""
        return {
            "classes": list(self.predictor.classes),
            "sentences": self.corpus.sentences,
            "words": self.corpus.total,
        }

    def to_json(self) -> str:
        """All of it as JSON: see ``describe`` for a detector's fields."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def describe(self, detector: Detector) -> dict[str, Any]:
        """One detector as plain values: layer, map, row, name, mean, faint, contributions, top."""
        names = map(str, self.predictor.classes)
        return {
            "layer": detector.layer,
            "map": detector.map,
            "row": detector.row,
            "name": self.name(detector),
            "mean": self.corpus.means[detector],
            "faint": self.is_faint(detector),
            "contributions": dict(zip(names, self.class_contributions(detector), strict=True)),
            "top": [
                {
                    "text": str(detection),
                    "words": list(detection.words),
                    "positions": list(detection.positions),
                    "strongest": list(detection.strongest),
                    "value": detection.value,
                    "count": detection.count,
                }
                for detection in self.top(detector)
            ],
        }

    def _of(self, detector: Detector) -> list[Entry]:
        if detector not in self.corpus.entries:
            known = self.detectors
            raise UserError(
                f"there is no detector {detector} here; they are "
                f"{known[0]} to {known[-1]} (layer:map:row)"
            )
        return self.corpus.entries[detector]

    def _naming(self, detector: Detector) -> list[Entry]:
        """The n-grams that name it: no more of them than that takes, however many are shown."""
        return self._of(detector)[: NAMED_BY if detector.layer == 1 else NAMED_BY_HIGHER]

    def _detection(self, detector: Detector, entry: Entry) -> Detection:
        met = entry.met
        core = self._origins.strongest_words(detector, entry)
        return Detection(met.words, met.positions, entry.value, entry.count, core)


def known_words(predictor: Predictor, text: str) -> list[str]:
    """The words of a text that is looked for.

    Raises:
        UserError: there is no word in it, or the network does not know one.
    """
    encoder = predictor.artifact.encoder
    words = encoder.tokenizer(text)
    if not words:
        raise UserError("there is no word to find; give at least one")
    for word, id_ in zip(words, encoder.vocabulary.ids(words), strict=True):
        if id_ == UNKNOWN:
            raise UserError(
                f"the network does not know the {encoder.unit} {word!r}, so no detector can tell "
                f"it from other unknown {encoder.unit}s; find another one"
            )
    return words


def check_dcnn(predictor: Predictor) -> DCNNConfig:
    """The settings of a DCNN.

    Raises:
        UserError: the model is of another kind.
    """
    config = predictor.artifact.config.model
    if not isinstance(config, DCNNConfig):
        raise UserError(
            f"the model is of the kind {config.kind}, whose detectors cannot be ranked; "
            "only those of dcnn can"
        )
    return config


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """The texts, each looked at when it is its turn."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise DataError(f"the texts must be strings, one after the other; got {texts!r:.60}")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"text {number} must be a string; got {text!r:.60}")
        yield text


def rank_detectors(
    predictor: Predictor,
    texts: Iterable[str],
    top: int = 5,
    layers: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> DetectorIndex:
    """Show a corpus to every detector, once, in bounded memory.

    Args:
        predictor: a DCNN.
        texts: the corpus, of any length; texts without words are passed over. Layers above the
            first pass over texts of more than 1,000 words too.
        top: how many n-grams of each detector to tell.
        layers: which layers, from 1; all if not given.
        progress: called with the number of texts read so far, every few thousand.

    Raises:
        UserError: the model is no DCNN, has no such layer, or no text has a word.
        DataError: a text is not a string.
    """
    config = check_dcnn(predictor)
    if not 1 <= top <= MOST_SHOWN:
        raise UserError(f"top={top} must be from 1 to {MOST_SHOWN:,}")
    chosen = sorted(set(range(1, config.depth + 1) if layers is None else layers))
    if not chosen or chosen[0] < 1 or chosen[-1] > config.depth:
        raise UserError(f"layers={chosen} must be one or more from 1 to {config.depth}")
    encoder = predictor.artifact.encoder
    sentences = (encoder.tokenizer(text) for text in _checked(texts))
    ranked = rank_corpus(sentences, predictor, chosen, top, progress)
    if not ranked.sentences:
        raise UserError("the corpus has no text with a word in it; give at least one")
    if not ranked.entries:
        raise UserError(
            f"every text of the corpus has more than {MOST_WORDS:,} {encoder.unit}s, too many for "
            "layers above the first; split them, for instance into sentences"
        )
    return DetectorIndex(predictor, ranked, top)
