"""Going on from a trained model with new examples, new words and new labels (warm start).

``fit`` with ``RunOptions.start_from`` keeps all weights of the model. A word that it did not know
starts where the model had it: at the vector of the unknown word, plus those of its character
n-grams. A new label gets an output of its own. So before the first step the old labels have the
logits that the model gives them.

What new examples do not show is forgotten. Training on old examples too (rehearsal) prevents most
of that, and ``compare`` shows how much was forgotten: the scores of both models on examples of
either kind that neither of them was trained on here.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dcnn import metrics
from dcnn.artifact import Artifact, Label
from dcnn.config import Config, TrainingConfig
from dcnn.data.columns import shown
from dcnn.data.labels import LabelledTexts, check_form
from dcnn.data.split import hold_out
from dcnn.errors import ConfigError, DataError
from dcnn.predictor import Predictor

# Adagrad's sums are not part of a model, and start from zero again: with the usual learning rate
# the first steps would be as large as those of a new network.
RATE_FACTOR = 0.3
DEV_FRACTION = 0.1  # of new and of old examples, however few, to measure what is forgotten


def config_of(start: Artifact, settings: Sequence[str] = (), **training: object) -> Config:
    """Settings to go on with: those of the model, for the number of new examples.

    The text and the network are the model's own. Pretrained vectors are part of its weights.
    """
    for setting in settings:
        if not setting.strip().startswith("training."):
            raise ConfigError(
                f"--set {setting}: tokens and network are those of the model to start from; only "
                "training.* can be set"
            )
    text = replace(start.config.text, vectors="", vectors_projection=0.0, vectors_words=0)
    before = start.config.training
    auto = tuple(
        name for name in TrainingConfig.may_be_auto if name not in ("dev_fraction", "folds")
    )
    plan = replace(
        before,
        learning_rate=RATE_FACTOR * before.learning_rate,
        dev_fraction=DEV_FRACTION,
        folds=0,
        auto=auto,
    )
    config = replace(start.config, text=text, training=plan).with_settings(settings)
    return config.with_training(**{k: value for k, value in training.items() if value is not None})


@dataclass(frozen=True)
class Growth:
    """What a model that goes on is trained on and selected on: the new examples and the old."""

    start: Artifact
    train: LabelledTexts  # new examples, then those of the replay
    dev: LabelledTexts | None  # of both
    parts: dict[str, LabelledTexts]  # the dev examples by kind, "new" and "old"


def join(
    start: Artifact,
    more: LabelledTexts,
    dev: LabelledTexts | None,
    replay: LabelledTexts | None,
    training: TrainingConfig,
    classes: Sequence[Label] = (),
) -> Growth:
    """Number the labels as the model does, new ones after its own, and hold out dev examples.

    ``dev`` is of the new examples, of which a part is held out if it is none. ``classes`` are
    labels that the model should know even if no example has them yet.
    """
    given = [part for part in (more, dev, replay) if part is not None]
    for part in given:
        check_form(part, multi_label=start.multi_label, of="the model to start from")
    known = {str(label): label for label in start.classes}
    found = (label for labels in (classes, *(part.classes for part in given)) for label in labels)
    new = {str(label): _typed(label, start.classes) for label in found if str(label) not in known}
    all_classes = (*start.classes, *new.values())

    def numbered(part: LabelledTexts) -> LabelledTexts:
        typed = [(known | new)[str(label)] for label in part.classes]
        return replace(part, classes=typed).with_classes(all_classes)

    train, parts = [], {}
    for name, examples, held_out in (("new", more, dev), ("old", replay, None)):
        if examples is None:
            continue
        kept = numbered(examples)
        if held_out is not None:
            parts[name] = numbered(held_out)
        elif training.dev_fraction:
            # One example of every label: all of them are needed.
            with suppress(DataError):
                kept, parts[name] = hold_out(kept, training.dev_fraction, training.seed)
        train.append(kept)
    held = list(parts.values())
    return Growth(start, _concatenate(train), _concatenate(held) if held else None, parts)


def _typed(label: Label, classes: Sequence[Label]) -> Label:
    """A new label as the model's are: files have strings, where a model may have numbers."""
    kind = type(classes[0])
    if isinstance(label, kind):
        return label
    try:
        return kind(label)
    except ValueError:
        raise DataError(
            f"the new label {shown(label)} is a string, where those of the model are of the type "
            f"{kind.__name__}; write it like them"
        ) from None


def _concatenate(parts: Sequence[LabelledTexts]) -> LabelledTexts:
    """One set of examples; soft targets if any part has them."""
    if len(parts) == 1:
        return parts[0]
    first, classes = parts[0], len(parts[0].classes)
    soft = any(part.targets.ndim == 2 for part in parts)
    targets = [
        np.eye(classes, dtype=np.float32)[part.targets] if soft and part.targets.ndim == 1
        else part.targets
        for part in parts
    ]  # fmt: skip
    weights = None
    if any(part.weights is not None for part in parts):
        one = [
            np.ones(len(part), np.float32) if part.weights is None else part.weights
            for part in parts
        ]
        weights = np.concatenate(one)
    texts = [text for part in parts for text in part.texts]
    return replace(
        first, texts=texts, targets=np.concatenate(targets), weights=weights, places=None
    )


def compare(growth: Growth, artifact: Artifact) -> list[dict[str, Any]]:
    """Accuracy, or micro F1 if multi-label, of both models on new and old dev examples."""
    found = []
    for name, part in growth.parts.items():
        before, after = (_score(Predictor(one), part) for one in (growth.start, artifact))
        found.append({"examples": name, "number": len(part), "before": before, "after": after})
    return found


def _score(predictor: Predictor, examples: LabelledTexts) -> float:
    probabilities = predictor.probabilities(examples.texts)
    missing = len(examples.classes) - probabilities.shape[1]
    # A model that does not know a label never assigns it.
    probabilities = np.pad(probabilities, ((0, 0), (0, missing)))
    if (thresholds := predictor.artifact.thresholds) is not None:
        padded = (*thresholds, *[1.0] * missing)
        return metrics.evaluate_labels(
            examples.targets, probabilities, padded, examples.classes
        ).micro_f1
    return float((probabilities.argmax(axis=1) == examples.class_numbers).mean())
