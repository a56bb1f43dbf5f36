"""Feature detectors and the n-grams that they react to (Sect. 5.5, Fig. 4).

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
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dcnn.artifact import Label
from dcnn.config import DCNNConfig
from dcnn.errors import DataError, UserError
from dcnn.inspection.contrast import WordContrast, contrast, outstanding, told
from dcnn.inspection.corpus_ranking import (
    NAMED_BY,
    NAMED_BY_HIGHER,
    Progress,
    RankedCorpus,
    rank_corpus,
)
from dcnn.inspection.detections import Detection, Detector, Push, Reaction
from dcnn.inspection.explanation import class_number
from dcnn.inspection.origins import Origins
from dcnn.inspection.strongest import MOST_WORDS, Entry
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import UNKNOWN

__all__ = ["Detection", "Detector", "DetectorIndex", "Push", "Reaction", "rank_detectors"]

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
        """What it reacts to, by contrast with the corpus; see ``dcnn.inspection.contrast``.

        ``_ _ not _ _ _ _`` is "not" as the third word of seven; words that may stand anywhere come
        after it, or alone. Above the first layer words have no fixed places.

        Raises:
            UserError: there is no such detector, or its layer was not ranked.
        """
        width = self._origins.width if detector.layer == 1 else None
        return told(self.outstanding(detector), width, self.unit)

    def outstanding(self, detector: Detector) -> Sequence[WordContrast]:
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

    def by_contrast(self) -> Sequence[Detector]:
        """All detectors, those first whose name stands out most; the faint ones last."""

        def clearest(detector: Detector) -> tuple[bool, float]:
            words = self.outstanding(detector)
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
            found = {w.word: w.score for w in self.outstanding(detector)}
            if all(word in found for word in words):
                score = min(found[word] for word in words)
                scores[detector] = (not self.is_faint(detector), score)
        return sorted(scores, key=scores.__getitem__, reverse=True)

    def for_class(self, label: Label) -> Sequence[Push]:
        """All detectors by what they push towards a class, the strongest push first.

        Raises:
            UserError: there is no such class.
        """
        number = class_number(self.predictor, label)
        pushes = [Push(detector, self.push(detector)[number]) for detector in self.corpus.entries]
        return sorted(pushes, key=lambda push: -push.amount)

    def push(self, detector: Detector) -> tuple[float, ...]:
        """What its strongest n-grams carry of each class's logit, in the mean; see ``carried``."""
        if detector not in self._push:
            carried = self.carried(detector) or [[0.0] * len(self.predictor.classes)]
            self._push[detector] = tuple(np.mean(carried, axis=0).tolist())
        return self._push[detector]

    def carried(self, detector: Detector) -> list[list[float]]:
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

    def for_text(self, text: str) -> Sequence[Reaction]:
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
            reactions.append(Reaction(detector, strength, self._detection(detector, entry[0])))
        return sorted(reactions, key=lambda r: (self.is_faint(r.detector), -r.strength))

    @property
    def unit(self) -> str:
        """What a reader calls a token of the corpus: ``word``, ``piece`` or ``character``."""
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
        """One detector as plain values: layer, map, row, name, mean, faint, push, top."""
        names = map(str, self.predictor.classes)
        return {
            "layer": detector.layer,
            "map": detector.map,
            "row": detector.row,
            "name": self.name(detector),
            "mean": self.corpus.means[detector],
            "faint": self.is_faint(detector),
            "push": dict(zip(names, self.push(detector), strict=True)),
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
