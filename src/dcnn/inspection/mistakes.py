"""The texts that a model gets wrong, the most confident mistakes first, and the words responsible.

A mistake of a single-label model is explained by the difference of two logits: what each word
contributes to the predicted label less what it contributes to the true one. For a multi-label
model the most confident wrong decision on a label is explained: a false positive or a false
negative.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.config import DCNNConfig
from dcnn.data.labels import Label
from dcnn.inspection.attribution import logit_coefficients, word_contributions
from dcnn.inspection.explanation import MOST_WORDS
from dcnn.inspection.trace import trace_sentence
from dcnn.metrics import apply_thresholds
from dcnn.predictor import Floats, Predictor

WORDS = 5  # responsible for a mistake, at most


@dataclass(frozen=True)
class Mistake:
    """A text with a wrong prediction.

    Attributes:
        index: of the text among those given.
        text: the text.
        true: its labels; one unless multi-label.
        predicted: the labels that it got.
        probability: of the predicted label; if multi-label, of the most confident wrong decision.
        words: those responsible with their contributions, the largest first; none if the model is
            no DCNN, or the text has no words or more than can be traced.
    """

    index: int
    text: str
    true: tuple[Label, ...]
    predicted: tuple[Label, ...]
    probability: float
    words: tuple[tuple[str, float], ...]


def find_mistakes(
    predictor: Predictor,
    texts: Sequence[str],
    targets: NDArray[Any],
    probabilities: Floats | None = None,
) -> list[Mistake]:
    """All texts with a wrong prediction, the most confident first.

    Args:
        predictor: the model.
        texts: N texts.
        targets: (N,) class numbers, or (N, classes) of 0 and 1 if multi-label.
        probabilities: (N, classes), if they are known already.
    """
    found = predictor.probabilities(texts) if probabilities is None else probabilities
    classes = len(predictor.classes)
    if predictor.artifact.thresholds is None:
        true = np.eye(classes, dtype=np.bool_)[targets]
        predicted = np.eye(classes, dtype=np.bool_)[found.argmax(axis=1)]
        confidences = np.where(predicted & ~true, found, 0)
    else:
        true = targets > 0
        predicted = apply_thresholds(found, predictor.artifact.thresholds)
        confidences = np.where(predicted != true, np.where(predicted, found, 1 - found), 0)
    wrong = np.flatnonzero((predicted != true).any(axis=1))
    worst = confidences.argmax(axis=1)
    order = wrong[np.argsort(-confidences[wrong, worst[wrong]], kind="stable")]
    mistakes = []
    for index in order.tolist():
        blamed = int(worst[index])
        sides = {blamed: 1.0 if predicted[index, blamed] else -1.0}
        if predictor.artifact.thresholds is None:
            sides[int(targets[index])] = -1.0
        labels, wrong_labels = (
            tuple(predictor.classes[number] for number in np.flatnonzero(rows[index]))
            for rows in (true, predicted)
        )
        words = _responsible_words(predictor, texts[index], sides)
        probability = float(confidences[index, blamed])
        mistakes.append(Mistake(index, texts[index], labels, wrong_labels, probability, words))
    return mistakes


def _responsible_words(
    predictor: Predictor, text: str, sides: dict[int, float]
) -> tuple[tuple[str, float], ...]:
    """The words that contribute most to a weighted sum of logits, given by class number."""
    words = predictor.artifact.encoder.tokenizer(text)
    if not isinstance(predictor.artifact.config.model, DCNNConfig):
        return ()
    if not 0 < len(words) <= MOST_WORDS:
        return ()
    trace = trace_sentence(predictor.artifact, words)
    coefficients = logit_coefficients(trace, list(sides), trace.depth)
    total = np.array(list(sides.values())) @ word_contributions(trace, coefficients)
    best = np.argsort(-total, kind="stable")[:WORDS]
    return tuple((words[i], float(total[i])) for i in best.tolist() if total[i] > 0)
