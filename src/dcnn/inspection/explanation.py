"""Why the network gave a text its label, and what changes between two texts.

An explanation has the attributions of words and n-grams (``attribution``), the predictions for the
text without each of its words and with other words in their place, the closest pooling choices, and
the feature graph. The difference between the logits of two texts is the sum, over the detectors
(rows of the topmost maps), of the differences of their contributions: the bias of the root is the
same for both.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.artifact import EMBEDDINGS
from dcnn.data.labels import Label
from dcnn.errors import UserError
from dcnn.files import write_atomically
from dcnn.inspection import attribution
from dcnn.inspection.attribution import (
    COVERAGE,
    Coefficients,
    ExplainedClass,
    NGram,
    NGramTable,
    ngram_table,
)
from dcnn.inspection.feature_graph import FeatureGraph, build_graph
from dcnn.inspection.picture import EDGES_PER_NODE, TOP_NODES, Picture, ngram_picture, node_picture
from dcnn.inspection.render import GRAPH_WRITERS, choose_writer
from dcnn.inspection.trace import Doubles, Trace, trace_sentence
from dcnn.predictor import Prediction, Predictor, checked_texts
from dcnn.text.vocabulary import UNKNOWN, Ints, Sentences

# The graph grows with the length of a text, and its deletions with the square of it.
MOST_WORDS = 1000
CLOSEST = 10  # pooling choices in the JSON
CHANGES = 12  # detectors of a comparison; the rest is one number
REPLACED, CANDIDATES = 8, 16  # words that are replaced, the strongest; words tried for each


@dataclass(frozen=True)
class Deletion:
    """The sentence without one word.

    Attributes:
        position: of the word in the sentence.
        word: the word.
        label: the prediction without it; of a multi-label model, the label that is explained.
        probability: of that label.
        changes: whether the label differs from that of the whole sentence; of a multi-label model,
            whether the explained label is predicted only with the word, or only without it.
    """

    position: int
    word: str
    label: Label
    probability: float
    changes: bool


@dataclass(frozen=True)
class Replacement(Deletion):
    """The sentence with one word replaced by another: a counterfactual.

    Attributes:
        replacement: the word of the vocabulary that is there instead, of those tried the one that
            changes the prediction most.
    """

    replacement: str


@dataclass(frozen=True)
class PoolingChoice:
    """A value that pooling kept, and how close it was to being dropped."""

    layer: int  # from 1
    map: int
    row: int
    position: int  # column of the convolution that was kept
    rival: int  # column that replaces it when the value falls by more than the margin
    margin: float  # the value less the rival's


@dataclass(frozen=True)
class DescribedWord:
    """A token of the text.

    Attributes:
        word: the token.
        spelled: what it adds to a text, with the space before it if it has one.
        attribution: for the class.
        known: whether it is in the vocabulary.
    """

    word: str
    spelled: str
    attribution: float
    known: bool


@dataclass(frozen=True)
class Explanation(ExplainedClass):
    """The explanation of one class of one text.

    Words have been attributed; graph, n-grams, deletions and replacements are computed when they
    are asked for.
    """

    predictor: Predictor = field(repr=False)
    prediction: Prediction
    unknown: tuple[int, ...]  # positions of the words outside the vocabulary
    spelled: tuple[str, ...]  # what each word adds to a text, with the space before it

    @cached_property
    def graph(self) -> FeatureGraph:
        """The feature graph."""
        return build_graph(self.trace)

    @cached_property
    def table(self) -> NGramTable:
        """The contributions of every word through every n-gram."""
        return ngram_table(self.trace, self.of_class)

    @cached_property
    def deletions(self) -> tuple[Deletion, ...]:
        """The sentence without each of its words."""
        return tuple(deletions(self.predictor, self.words, self.of_class))

    @cached_property
    def replacements(self) -> tuple[Replacement, ...]:
        """Other words in place of the strongest ones; those that change most first."""
        return tuple(replacements(self.predictor, self.trace, self.of_class))

    @property
    def ngrams(self) -> list[NGram]:
        """The n-grams of all topmost nodes, the largest attribution first."""
        return sorted(self.table.ngrams, key=lambda ngram: -abs(ngram.attribution))

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens of the text."""
        return self.trace.words

    @property
    def changes(self) -> list[Deletion]:
        """The deletions that change the label."""
        return [deletion for deletion in self.deletions if deletion.changes]

    def phrase_attribution(self, positions: Sequence[int]) -> float:
        """The attribution of the words at some positions together.

        Raises:
            ValueError: there is no position, or one is outside the sentence.
        """
        return attribution.phrase_attribution(self.trace, self.of_class, positions)

    def closest_choices(self, count: int | None = None) -> list[PoolingChoice]:
        """The pooled values closest to being dropped, the closest first; all without ``count``."""
        choices = []
        for number, layer in enumerate(self.trace.layers, start=1):
            if not np.isfinite(layer.margins[0, 0, 0]):  # nothing was dropped
                continue
            for place in np.argsort(layer.margins, axis=None, kind="stable")[:count]:
                map_, row, _ = at = np.unravel_index(place, layer.margins.shape)
                position, rival = int(layer.positions[at]), int(layer.rivals[map_, row])
                margin = float(layer.margins[at])
                choices.append(PoolingChoice(number, int(map_), int(row), position, rival, margin))
        return sorted(choices, key=lambda choice: choice.margin)[:count]

    def picture(
        self,
        nodes: int | None = None,
        edges: int = EDGES_PER_NODE,
        ngram: Sequence[int] | None = None,
        coverage: float = COVERAGE,
    ) -> Picture:
        """The part of the graph that contributes most: n-grams that have ``coverage`` of it.

        With ``nodes``, that many single nodes of the last layer, and ``edges`` into each; with
        ``ngram``, the positions of the words of an n-gram, only nodes that have it.

        Raises:
            UserError: no node has that n-gram.
        """
        if nodes is None and ngram is None:
            return ngram_picture(self.trace, self.of_class, coverage, self.table)
        among = None
        if ngram is not None:
            known = {one.positions: i for i, one in enumerate(self.table.ngrams)}
            if (number := known.get(tuple(ngram))) is None:
                raise UserError(
                    f"ngram={list(ngram)} is no n-gram of this text and class; take the positions "
                    "of one of its n-grams"
                )
            among = self.table.ngrams[number], self.table.nodes[number]
        return node_picture(self.trace, self.of_class, nodes or TOP_NODES, edges, among)

    def save(self, path: str | Path, nodes: int | None = None) -> None:
        """Write the graph to a file: .json and .graphml whole, .svg, .png and .html as a picture.

        With ``nodes``, the picture has that many single nodes in place of n-grams.

        Raises:
            UserError: another ending.
            MissingExtraError: the format needs a package that is not installed.
            StorageError: the disk refused.
        """
        path = Path(path)
        content = choose_writer(path, GRAPH_WRITERS)(self.trace, self.of_class, nodes)
        with write_atomically(path) as stream:
            stream.write(content)

    def described_words(self) -> list[DescribedWord]:
        """Every word with its spelling and attribution."""
        known = [position not in self.unknown for position in range(len(self.words))]
        return list(map(DescribedWord, self.words, self.spelled, self.attributions, known))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; the graph itself is not among them."""
        return {
            "text": self.prediction.text,
            "label": self.prediction.label,
            **({"labels": list(self.prediction.labels)} if self.trace.multi_label else {}),
            "probabilities": {str(label): p for label, p in self.prediction.ranked},
            "class": self.label,
            "logit": self.logit,
            "biases": self.biases,
            "char_ngrams": self.trace.char_ngrams,
            "words": [asdict(word) for word in self.described_words()],
            "ngrams": [asdict(ngram) for ngram in self.ngrams],
            "deletions": [asdict(deletion) for deletion in self.deletions],
            "replacements": [asdict(one) for one in self.replacements],
            "closest_choices": [asdict(choice) for choice in self.closest_choices(CLOSEST)],
        }


def explain(predictor: Predictor, text: str, of_class: Label | None = None) -> Explanation:
    """Explain the prediction of a text.

    Examples:
        >>> explain(Predictor.load("my-model"), "not a dull moment").save("graph.svg")

    Args:
        predictor: a DCNN.
        text: a text of at least one word.
        of_class: the label to explain; the most probable one if not given.

    Raises:
        UserError: the model is no DCNN, has no such label, or the text has no words or too many.
    """
    checked_texts([text])
    encoder = predictor.artifact.encoder
    words = encoder.tokenizer(text)
    if len(words) > MOST_WORDS:
        raise UserError(
            f"the text has {len(words):,} {encoder.unit}s, too many for a graph that anyone can "
            f"read; give {MOST_WORDS:,} or fewer, for instance a sentence"
        )
    trace = trace_sentence(predictor.artifact, words)
    (prediction,) = predictor.predict([text])
    number = class_number(predictor, prediction.label if of_class is None else of_class)
    return Explanation(
        prediction=prediction,
        of_class=number,
        trace=trace,
        predictor=predictor,
        attributions=tuple(attribution.word_attributions(trace, number).tolist()),
        unknown=tuple(i for i, id_ in enumerate(encoder.vocabulary.ids(words)) if id_ == UNKNOWN),
        spelled=tuple(map(encoder.tokenizer.spell, words)),
    )


def explain_each(predictor: Predictor, text: str) -> list[Explanation]:
    """Explain every predicted label of a text, the most probable first.

    If none is predicted, the most probable label is explained: why it was not enough.
    """
    (prediction,) = predictor.predict(checked_texts([text]))
    return [explain(predictor, text, one) for one in prediction.labels or (prediction.label,)]


def class_number(predictor: Predictor, label: Label) -> int:
    """The number of a class, given as it is or as its text: ``1`` and ``"1"`` are the same."""
    names = [str(known) for known in predictor.classes]
    if str(label) not in names:
        raise UserError(
            f"the model has no class {str(label)!r}; its classes are {', '.join(names)}"
        )
    return names.index(str(label))


def deletions(predictor: Predictor, words: Sequence[str], of_class: int = 0) -> list[Deletion]:
    """Predict the sentence without each of its words in turn.

    That is the network's own answer to the shorter sentence, pooled again with the k of its length.
    Without its only word a sentence is one unknown word, as an empty text is. ``of_class`` is used
    by multi-label models only.
    """
    encoded = predictor.artifact.encoder.encode_words([words])
    ids = encoded.ids.tolist()
    shorter = [ids[:i] + ids[i + 1 :] or [UNKNOWN] for i in range(len(ids))]
    answers = _variants(predictor, [ids, *shorter], encoded.new_words, of_class)
    return [Deletion(i, word, *answers[i]) for i, word in enumerate(words)]


def _variants(
    predictor: Predictor, ids: list[list[int]], new_words: Sequence[str], of_class: int
) -> list[tuple[Label, float, bool]]:
    """Label, probability and whether the label changes, of all but the first of the sentences."""
    logits = predictor.logits(Sentences.from_lists(ids, new_words))
    probabilities = predictor.head(logits)
    thresholds = predictor.artifact.thresholds
    if thresholds is None:
        labels = answers = logits.argmax(axis=1)
    else:
        labels = np.full(len(logits), of_class)
        answers = probabilities[:, of_class].astype(np.float64) >= thresholds[of_class]
    shares = probabilities[np.arange(len(labels)), labels].tolist()
    changes = (answers != answers[0]).tolist()
    names = [predictor.classes[label] for label in labels.tolist()]
    return list(zip(names, shares, changes, strict=True))[1:]


def replacements(predictor: Predictor, trace: Trace, of_class: int) -> list[Replacement]:
    """Predict the sentence with another word in place of each of its strongest words.

    The candidates are the words of the vocabulary that move the logits most from the predicted
    class to the explained class, or to the second most probable class if these are the same, in the
    feature graph with fixed gains, which is linear. The network's own predictions decide among the
    candidates. In a multi-label model, they move the explained class's logit across its threshold.
    """
    artifact, s = predictor.artifact, len(trace.words)
    table, known = artifact.weights[EMBEDDINGS], artifact.encoder.vocabulary.words
    first, second = np.argsort(-trace.logits, kind="stable")[:2].tolist()
    towards = [(first, -1.0), (second if of_class == first else of_class, 1.0)]
    if artifact.thresholds is not None:
        share = predictor.head(trace.logits)[of_class]
        towards = [(of_class, -1.0 if share >= artifact.thresholds[of_class] else 1.0)]
    slope = np.zeros((trace.matrix.shape[0], s))  # (d, s) of a value of the sentence matrix
    for number, sign in towards:
        found = attribution.logit_coefficients(trace, [number], 0)
        slope.ravel()[found.nodes] += sign * found.values
    own = np.abs(attribution.word_attributions(trace, of_class))
    encoded = artifact.encoder.encode_words([trace.words])
    ids = encoded.ids.tolist()
    tried = []
    for i in np.argsort(-own, kind="stable")[:REPLACED].tolist():
        gains = table[1:] @ slope[:, i].astype(np.float32)
        best = np.argpartition(-gains, min(CANDIDATES, len(gains) - 1))[:CANDIDATES] + 1
        tried += [(i, one) for one in sorted(best.tolist()) if one != ids[i]]
    swapped = [[*ids[:i], one, *ids[i + 1 :]] for i, one in tried]
    answers = _variants(predictor, [ids, *swapped], encoded.new_words, of_class)
    kept: dict[int, Replacement] = {}
    falls = artifact.thresholds is None or towards[0][1] < 0
    whole = trace.classes[of_class if artifact.thresholds is not None else first]

    def effect(one: Replacement) -> float:
        """How far the prediction moved; labels that change come first."""
        share = one.probability if one.label == whole else 1 - one.probability
        return one.changes + (1 - share if falls else share)

    for (i, one), answer in zip(tried, answers, strict=True):
        new = Replacement(i, trace.words[i], *answer, known[one - 1])
        if i not in kept or effect(new) > effect(kept[i]):
            kept[i] = new
    return sorted(kept.values(), key=effect, reverse=True)


@dataclass(frozen=True)
class DetectorChange:
    """A row of a topmost map, in both sentences."""

    layer: int
    map: int
    row: int
    contributions: tuple[float, float]  # of its values to the logit of the class
    # Contribution of every word of each sentence to ``contributions``; the rest is biases.
    word_contributions: tuple[tuple[float, ...], tuple[float, ...]]
    name: str = ""  # words of a corpus that activate it, if they are known


@dataclass(frozen=True)
class Comparison:
    """Two explanations of one class."""

    difference: float  # the second logit less the first
    changes: tuple[DetectorChange, ...]  # the largest, for or against
    others: float  # the sum of all other changes
    aligned: tuple[tuple[int | None, int | None], ...]  # positions of corresponding words


def compare(first: Explanation, second: Explanation, count: int = CHANGES) -> Comparison:
    """Find the ``count`` largest changes from one sentence to another, by the same network.

    Raises:
        UserError: the explanations are of different classes.
    """
    if first.label != second.label:
        raise UserError(
            f"the first explanation is of {first.label!r} and the second of {second.label!r}; "
            "explain the same class of both"
        )
    shape = first.trace.values(first.trace.depth).shape
    before, after = (
        one.trace.contributions[one.of_class].astype(np.float64).reshape(shape).sum(axis=-1)
        for one in (first, second)
    )  # (maps, rows)
    change = (after - before).ravel()
    largest = np.argsort(-np.abs(change), kind="stable")[:count]
    changes = []
    for number, *words in zip(
        largest,
        *(_detector_word_contributions(one, largest) for one in (first, second)),
        strict=True,
    ):
        map_, row = np.unravel_index(number, shape[:2])
        changes.append(
            DetectorChange(
                layer=first.trace.depth,
                map=int(map_),
                row=int(row),
                contributions=(float(before[map_, row]), float(after[map_, row])),
                word_contributions=(tuple(words[0].tolist()), tuple(words[1].tolist())),
            )
        )
    return Comparison(
        difference=second.logit - first.logit,
        changes=tuple(changes),
        others=float(change.sum() - change[largest].sum()),
        aligned=tuple(align(first.words, second.words)),
    )


def _detector_word_contributions(explanation: Explanation, detectors: Ints) -> Doubles:
    """(detectors, s) the contribution of every word to the logit through each of some rows."""
    trace = explanation.trace
    kept = trace.values(trace.depth).shape[-1]
    nodes = (detectors[:, None] * kept + np.arange(kept)).ravel()
    weights = trace.head_weight[explanation.of_class, nodes].astype(np.float64)
    outputs = np.repeat(np.arange(len(detectors)), kept)
    coefficients = Coefficients(trace.depth, nodes, outputs, weights)
    return attribution.word_contributions(trace, coefficients)


def align(first: tuple[str, ...], second: tuple[str, ...]) -> list[tuple[int | None, int | None]]:
    """Positions of corresponding words: equal ones first of all, and replaced ones in order."""
    pairs: list[tuple[int | None, int | None]] = []
    # Without its heuristic, which ignores the frequent words of a long text.
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    for _, start, end, other_start, other_end in matcher.get_opcodes():
        pairs += zip_longest(range(start, end), range(other_start, other_end))
    return pairs
