"""Examples in memory, as ``DCNNClassifier`` is given them, made into what training takes.

Texts are in a list, an array or a column, and labels likewise; or both are in a frame of pandas,
polars, pyarrow or Hugging Face. ``dcnn.data.given_labels`` knows the labels alone.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcnn.config import TrainingConfig
from dcnn.data.columns import Columns
from dcnn.data.frames import Frame, is_frame
from dcnn.data.given_labels import LabelSets, checked_labels, dev_targets
from dcnn.data.messages import shown
from dcnn.data.splitting import split_label_sets, stratified_split
from dcnn.errors import DataError
from dcnn.predictor import checked_texts


@dataclass(frozen=True)
class GivenExamples:
    """Texts and what each of them is.

    Attributes:
        texts: N strings.
        labels: one a text, or sets of them.
        columns: where they were found, if they were in a frame.
    """

    texts: list[str]
    labels: NDArray[Any] | LabelSets
    columns: Columns | None

    @property
    def many(self) -> bool:
        """Whether a text may have several labels."""
        return isinstance(self.labels, LabelSets)


class TargetedTexts(NamedTuple):
    """Texts with class numbers, or noughts and ones (N, classes); and weights, or none."""

    texts: list[str]
    targets: NDArray[Any]
    weights: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Lesson:
    """What to learn from, what to stop by, and the labels, sorted."""

    train: TargetedTexts
    dev: TargetedTexts
    classes: NDArray[Any]


def given_examples(
    given: Any, y: Any, text_column: str | None, label_column: str | None
) -> GivenExamples:
    """The examples to learn from, checked.

    Args:
        given: texts, or a frame.
        y: their labels; none where the frame has a column of them.
        text_column: the column of the texts, or none to guess it.
        label_column: the column of the labels, or none to guess it.

    Raises:
        DataError: there are no texts, or they and the labels cannot be used together.
    """
    examples = _examples("X", given, y, text_column, label_column)
    if not examples.texts:
        raise DataError("X has no texts; give at least two, of different labels")
    return examples


def given_texts(given: Any, text_column: str | None) -> list[str]:
    """Texts without labels; ``text_column`` is that of a frame, or none to guess it."""
    if not is_frame(given):
        return checked_texts(given)
    frame = Frame(given, "X")
    return checked_texts(frame.column(frame.choose(text_column, None, labels=False).text))


def given_indicators(y: Any, texts: list[str], classes: NDArray[Any]) -> NDArray[np.float32]:
    """(N, classes) one where a label applies, for a model that gives several.

    Raises:
        DataError: ``y`` has one label a text, or one that the model does not know.
    """
    given = checked_labels(y, texts)
    if not isinstance(given, LabelSets):
        raise DataError("y has one label a text, where the model gives several")
    by_place = given.classes.tolist() == list(range(len(classes)))  # rows of flags
    return given.indicators if by_place else given.among(classes, "y")


def make_lesson(
    given: GivenExamples, sample_weight: ArrayLike | None, dev: Any, config: TrainingConfig
) -> Lesson:
    """Number the labels, and take the dev set or hold one out.

    Args:
        given: the examples to learn from.
        sample_weight: a weight for each of them, or none.
        dev: texts and labels, or a frame; none is to hold out a part of ``given``.
        config: how much to hold out, and the seed.

    Raises:
        DataError: there is one class only, or the weights or the dev set cannot be used.
    """
    targets: NDArray[Any]
    if isinstance(given.labels, LabelSets):
        classes, targets = given.labels.classes, given.labels.indicators
    else:
        classes, targets = np.unique(given.labels, return_inverse=True)
    if len(classes) < 2:
        raise DataError(f"y has one class only, {classes.tolist()}; give two or more")
    weights = None if sample_weight is None else _checked_weights(sample_weight, len(given.texts))
    train = TargetedTexts(given.texts, targets, weights)
    if dev is None:
        return Lesson(*_hold_out(train, given.labels, config), classes)
    apart = _dev_examples(dev, given.columns)
    if not apart.texts:
        raise DataError("dev has no texts; give at least one, or leave dev out")
    numbers = dev_targets(apart.labels, classes, given.many)
    return Lesson(train, TargetedTexts(apart.texts, numbers), classes)


def _checked_weights(sample_weight: ArrayLike, count: int) -> NDArray[np.float32]:
    weights = np.asarray(sample_weight, np.float32)
    if weights.shape != (count,) or not np.all(np.isfinite(weights) & (weights >= 0)):
        raise DataError("sample_weight must be one finite number of 0 or more for each text")
    return weights


def _hold_out(
    train: TargetedTexts, labels: NDArray[Any] | LabelSets, config: TrainingConfig
) -> tuple[TargetedTexts, TargetedTexts]:
    """What is left of ``train``, and a dev set, whose texts weigh the same."""
    texts, targets, weights = train
    how = (config.dev_fraction, config.seed)
    if isinstance(labels, LabelSets):
        kept, held_out = split_label_sets(labels.sets, *how)
    else:
        kept, held_out = stratified_split(targets.tolist(), *how)
    if not len(held_out):
        raise DataError(
            "every label of y occurs once, so none can be held out; give more examples, "
            "or examples of your own as dev=(texts, labels)"
        )
    return (
        TargetedTexts(
            [texts[i] for i in kept], targets[kept], None if weights is None else weights[kept]
        ),
        TargetedTexts([texts[i] for i in held_out], targets[held_out]),
    )


def _examples(
    name: str, given: Any, y: Any, text_column: str | None, label_column: str | None
) -> GivenExamples:
    """Texts and labels, perhaps none; ``name`` is the argument they came as, for messages."""
    if not is_frame(given):
        if text_column is not None or label_column is not None:
            option = "text_column" if text_column is not None else "label_column"
            raise DataError(
                f"{option} names a column, and {name} is a {type(given).__name__} without any; "
                "give a frame, or leave it out"
            )
        texts = checked_texts(given)
        return GivenExamples(texts, checked_labels(y, texts), None)
    if y is not None and label_column is not None:
        raise DataError(
            f"both y and label_column {shown(label_column)} give the labels; leave out one of them"
        )
    frame = Frame(given, name)
    columns = frame.choose(text_column, label_column, labels=y is None)
    texts = checked_texts(frame.column(columns.text))
    y = y if columns.label is None else frame.column(columns.label)
    return GivenExamples(texts, checked_labels(y, texts), columns)


def _dev_examples(dev: Any, columns: Columns | None) -> GivenExamples:
    """A dev set, whose frame has the columns of the training set's."""
    text, label = (None, None) if columns is None else (columns.text, columns.label)
    if is_frame(dev):
        return _examples("dev", dev, None, text, label)
    texts, labels = dev
    return _examples("dev", texts, labels, text if is_frame(texts) else None, None)
