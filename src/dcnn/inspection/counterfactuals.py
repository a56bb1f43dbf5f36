"""What would have to be otherwise: words that decide the label, values that were nearly dropped."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dcnn.artifact import Label
from dcnn.inspection.trace import Trace
from dcnn.predictor import Predictor
from dcnn.text.vocabulary import UNKNOWN, Sentences


@dataclass(frozen=True)
class Deletion:
    """The sentence without one word.

    Attributes:
        position: of the word in the sentence.
        word: the word.
        label: the network's answer without it; where a text may have several labels, the one that
            is explained.
        probability: of that label.
        changes: whether it is another label than that of the whole sentence; where a text may have
            several, whether the label is given without the word and not with it, or only with it.
    """

    position: int
    word: str
    label: Label
    probability: float
    changes: bool


@dataclass(frozen=True)
class PoolingChoice:
    """A value that pooling kept, and what it would take to drop it.

    Attributes:
        layer: from 1.
        map: feature map.
        row: row of the map.
        position: column of the convolution that was kept.
        rival: column that takes its place when the value falls by more than the margin.
        margin: how far the convolution's value is above the rival's.
    """

    layer: int
    map: int
    row: int
    position: int
    rival: int
    margin: float


def deletions(predictor: Predictor, words: Sequence[str], of_class: int = 0) -> list[Deletion]:
    """Predict the sentence without each of its words in turn.

    That is the network's own answer to the shorter sentence, pooled anew with the k of its length.
    Without its only word a sentence is one unknown word, as an empty text is.

    Args:
        predictor: the network.
        words: the sentence.
        of_class: the label that is asked for, where a text may have several; else it is not looked
            at.
    """
    ids = predictor.artifact.encoder.vocabulary.ids(words)
    shorter = [ids[:i] + ids[i + 1 :] or [UNKNOWN] for i in range(len(ids))]
    logits = predictor.logits(Sentences.from_lists([ids, *shorter]))
    probabilities = predictor.head(logits)
    thresholds = predictor.artifact.thresholds
    if thresholds is None:
        labels = answers = logits.argmax(axis=1)
    else:
        labels = np.full(len(logits), of_class)
        answers = probabilities[:, of_class].astype(np.float64) >= thresholds[of_class]
    return [
        Deletion(
            position=i,
            word=word,
            label=predictor.classes[labels[i + 1]],
            probability=float(probabilities[i + 1, labels[i + 1]]),
            changes=bool(answers[i + 1] != answers[0]),
        )
        for i, word in enumerate(words)
    ]


def closest_choices(trace: Trace, count: int | None = None) -> list[PoolingChoice]:
    """Pooled values by how near they are to being dropped, the nearest first.

    Args:
        trace: the sentence.
        count: how many; all of them if not given.

    Returns:
        The values of rows in which something was dropped: where nothing was, nothing can be.
    """
    choices = []
    for number, layer in enumerate(trace.layers, start=1):
        if not np.isfinite(layer.margins[0, 0, 0]):
            continue
        margins = layer.margins.ravel()
        for place in np.argsort(margins, kind="stable")[:count]:
            at = np.unravel_index(place, layer.margins.shape)
            choices.append(
                PoolingChoice(
                    layer=number,
                    map=int(at[0]),
                    row=int(at[1]),
                    position=int(layer.positions[at]),
                    rival=int(layer.rivals[at[:2]]),
                    margin=float(margins[place]),
                )
            )
    return sorted(choices, key=lambda choice: choice.margin)[:count]
