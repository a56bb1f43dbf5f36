"""Continuing a trained model with new examples, new words and new labels (warm start).

``fit`` with ``RunOptions.start_from`` keeps all weights of the model. A word that it did not know
starts where the model had it: at the vector of the unknown word, plus those of its character
n-grams. A new label gets an output of its own. So before the first step the old labels have the
logits that the model gives them.

What new examples do not show is forgotten. Training on old examples too (rehearsal) prevents most
of that, and ``compare`` shows how much was forgotten: the scores of both models on examples of
either kind that neither of them was trained on here.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from typing import Any

import numpy as np

from dcnn import metrics
from dcnn.artifact import MOST_EXAMPLES, Artifact, Example
from dcnn.config import Config, TrainingConfig
from dcnn.data.columns import shown
from dcnn.data.labels import Label, LabelledTexts, check_form, number_labels
from dcnn.data.split import hold_out
from dcnn.errors import ConfigError, DataError
from dcnn.metrics import target_distributions
from dcnn.predictor import Predictor

LONGEST_EXAMPLE = 500  # characters of a text that is kept
DEV_FRACTION = 0.1  # of new and of old examples, however few, to measure what is forgotten
# Fewer dev examples decide nothing: the model keeps its temperature and its thresholds.
FEWEST_DECIDING = 100


def config_of(start: Artifact, settings: Sequence[str] = (), **training: object) -> Config:
    """Settings to continue with: those of the model, for the number of new examples.

    The text and the network are the model's own. Pretrained vectors are part of its weights.
    """
    for setting in settings:
        if not setting.strip().startswith("training."):
            raise ConfigError(
                f"--set {setting}: tokens and network are those of the model to start from; only "
                "training.* can be set"
            )
    text = replace(start.config.text, vectors="", vectors_projection=0.0, vectors_words=0)
    own = ("batch_size", "dev_fraction", "folds")
    auto = tuple(name for name in TrainingConfig.may_be_auto if name not in own)
    before = replace(start.config.training, dev_fraction=DEV_FRACTION, folds=0, auto=auto)
    config = replace(start.config, text=text, training=before).with_settings(settings)
    if config.training.folds:
        raise ConfigError(
            f"training.folds={config.training.folds} must be 0 with a model to start from: folds "
            "would be trained from nothing; leave it out, or give a dev set"
        )
    return config.with_training(**{k: value for k, value in training.items() if value is not None})


@dataclass(frozen=True)
class Growth:
    """What a continued model is trained on and selected on: the new examples and the old."""

    start: Artifact
    train: LabelledTexts  # new examples, then the old ones
    dev: LabelledTexts | None  # of both, if they are enough to decide anything
    parts: dict[str, LabelledTexts]  # the dev examples by kind, "new" and "old"
    replay: str  # where the old ones come from


def choose_examples(examples: LabelledTexts, count: int, seed: int) -> tuple[Example, ...]:
    """A random sample of the short texts with their labels, of each label in turn."""
    if not 0 <= count <= MOST_EXAMPLES:
        raise ConfigError(f"keep_examples={count} must be from 0 to {MOST_EXAMPLES:,}")
    if count == 0:
        return ()
    by_label: dict[Any, list[Example]] = defaultdict(list)
    labels = examples.labels
    for index in np.random.default_rng(seed).permutation(len(examples)):
        text, label = examples.texts[index], labels[index]
        named = tuple(map(str, label)) if isinstance(label, tuple) else str(label)
        if text.strip() and len(text) <= LONGEST_EXAMPLE:
            by_label[named].append((text, named))
    rounds = zip_longest(*(by_label[named] for named in sorted(by_label)))
    return tuple(islice(filter(None, chain.from_iterable(rounds)), count))


def join(
    start: Artifact,
    more: LabelledTexts,
    dev: LabelledTexts | None,
    replay: LabelledTexts | None,
    training: TrainingConfig,
    classes: Sequence[Label] = (),
) -> Growth:
    """Number the labels as the model does, new ones after its own, and hold out dev examples.

    ``dev`` is the dev set of the new examples; if None, a part is held out. Without ``replay``
    the old examples are those that the model folder keeps, if any. ``classes`` are labels that the
    model should know even if no example has them yet.
    """
    if replay is None and start.examples:
        texts, labels = zip(*start.examples, strict=True)
        source = f"{len(texts):,} examples kept in the model folder"
        replay = number_labels(texts, labels, multi_label=start.multi_label, source=source)
        logging.getLogger("dcnn").info("rehearsing the %s", source)
    given = [part for part in (more, dev, replay) if part is not None]
    for part in given:
        check_form(part, multi_label=start.multi_label, of="the model to start from")
    found = (label for labels in (classes, *(part.classes for part in given)) for label in labels)
    all_classes = list(dict.fromkeys((*start.classes, *(_typed(one, start) for one in found))))
    if new := all_classes[len(start.classes) :]:
        names = ", ".join(map(repr, new[:5])) + (", ..." if len(new) > 5 else "")
        logging.getLogger("dcnn").info("labels that are new to the model: %s", names)
    train, parts = [], {}
    for name, examples, held_out in (("new", more, dev), ("old", replay, None)):
        if examples is None:
            continue
        kept = numbered(examples, start, all_classes)
        if held_out is not None:
            parts[name] = numbered(held_out, start, all_classes)
        elif training.dev_fraction:
            # Raised if every label has one example: then all are needed for training.
            with suppress(DataError):
                kept, parts[name] = hold_out(kept, training.dev_fraction, training.seed)
        train.append(kept)
    held = list(parts.values())
    decides = sum(map(len, held)) >= FEWEST_DECIDING
    source = "none" if replay is None else replay.source
    both = _concatenate(held) if decides else None
    return Growth(start, _concatenate(train), both, parts, source)


def numbered(examples: LabelledTexts, start: Artifact, classes: Sequence[Label]) -> LabelledTexts:
    """The examples with labels as the model's are, numbered by ``classes``."""
    typed = [_typed(label, start) for label in examples.classes]
    return replace(examples, classes=typed).with_classes(classes)


def _typed(label: Label, start: Artifact) -> Label:
    """A label as the model's are: files have strings, where a model may have numbers."""
    known = {str(one): one for one in start.classes}
    kind = type(start.classes[0])
    if str(label) in known or type(label) is kind:
        return known.get(str(label), label)
    try:
        if kind is bool:
            raise ValueError  # noqa: TRY301
        typed = kind(label)
        if not isinstance(label, str) and typed != label:
            raise ValueError  # noqa: TRY301
    except ValueError:
        raise DataError(
            f"the new label {shown(label)} is of the type {type(label).__name__}, where those of "
            f"the model are of the type {kind.__name__}; write it like them"
        ) from None
    return typed  # equal to a known label where it is one


def _concatenate(parts: Sequence[LabelledTexts]) -> LabelledTexts:
    """One set of examples; soft targets if any part has them."""
    if len(parts) == 1:
        return parts[0]
    first, classes = parts[0], len(parts[0].classes)
    soft = any(part.targets.ndim == 2 for part in parts)
    targets = [part.targets for part in parts]
    if soft:
        targets = [target_distributions(own, classes) for own in targets]
    weights = None
    if any(part.weights is not None for part in parts):
        own = ((len(part), part.weights) for part in parts)
        weights = np.concatenate([np.ones(n, np.float32) if w is None else w for n, w in own])
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
        truth = examples.with_hard_labels().targets > 0
        return metrics.micro_f1(truth, metrics.apply_thresholds(probabilities, padded))
    return float((probabilities.argmax(axis=1) == examples.class_numbers).mean())
