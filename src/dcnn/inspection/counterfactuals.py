"""What would have to be otherwise: words that decide the label, values that were nearly dropped."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dcnn.artifact import Label
from dcnn.heads import softmax
from dcnn.inspection.trace import Trace
from dcnn.predictor import Predictor
from dcnn.text.sentences import Sentences
from dcnn.text.vocabulary import UNKNOWN


@dataclass(frozen=True)
class Deletion:
    """The sentence without one word.

    Attributes:
        position: of the word in the sentence.
        word: the word.
        label: the network's answer without it.
        probability: of that label.
        changes: whether it is another label than that of the whole sentence.
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


def deletions(predictor: Predictor, words: Sequence[str]) -> list[Deletion]:
    """Predict the sentence without each of its words in turn.

    That is the network's own answer to the shorter sentence, pooled anew with the k of its length.
    Without its only word a sentence is one unknown word, as an empty text is.
    """
    ids = predictor.artifact.encoder.vocabulary.ids(words)
    shorter = [ids[:i] + ids[i + 1 :] or [UNKNOWN] for i in range(len(ids))]
    logits = predictor.logits(Sentences.from_lists([ids, *shorter]))
    answers, probabilities = logits.argmax(axis=1), softmax(logits).max(axis=1)
    return [
        Deletion(
            position=i,
            word=word,
            label=predictor.classes[answers[i + 1]],
            probability=float(probabilities[i + 1]),
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
