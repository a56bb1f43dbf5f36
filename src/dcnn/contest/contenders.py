"""Who takes part: our networks with their default settings, and the n-gram models."""

import logging
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn import artifact as model_folder
from dcnn.config import MODEL_KINDS, Config, NBoWConfig
from dcnn.data.splitting import hold_out
from dcnn.data.tables import LabelledTexts
from dcnn.ngram import NGRAM_MODELS, ngram_classifier
from dcnn.predictor import Predictor
from dcnn.recipe import DEFAULT
from dcnn.training.fit import TextSet, fit

Probabilities = NDArray[Any]  # (texts, classes)


@dataclass(frozen=True)
class Course:
    """What every contender is given.

    Attributes:
        train: all of the training file.
        dev: a dev set of the user's own, or none.
        test: what they are scored on.
        classes: the labels, in the order of the class numbers.
    """

    train: LabelledTexts
    dev: LabelledTexts | None
    test: LabelledTexts
    classes: Sequence[str]


@dataclass(frozen=True)
class Fitted:
    """A trained contender: what it says to texts, and its bytes on disk."""

    probabilities: Callable[[Sequence[str]], Probabilities]
    size: int


@dataclass(frozen=True)
class Contender:
    """A model that can be trained.

    Attributes:
        name: as in ``--models``.
        recipe: how it is trained, in a few words.
        seeded: whether another seed gives another model.
        fit: trains it with a seed; what it keeps on disk goes to the folder, which it makes.
    """

    name: str
    recipe: str
    seeded: bool
    fit: Callable[[Course, int, Path], Fitted]


def our_contenders() -> dict[str, Contender]:
    """The networks and the n-gram models, by name."""
    networks = [
        Contender(name, "default settings, stopped by dev", True, _network(name))
        for name in MODEL_KINDS
    ]
    grams = [
        Contender(
            name, f"{'unigrams' if name == 'nb' else 'uni- and bigrams'}", False, _grams(name)
        )
        for name in NGRAM_MODELS
    ]
    return {contender.name: contender for contender in (*networks, *grams)}


def warm_up() -> None:
    """Train a network of two texts: torch loads some of itself at its first step only.

    It also says which backend computes, once and not for every run.
    """
    two = TextSet(["a", "b"], np.array([0, 1]))
    config = Config(model=NBoWConfig(dim=2)).with_training(epochs=1)
    fit(two, two, ("a", "b"), config, device="cpu")
    logging.getLogger("dcnn").setLevel(logging.WARNING)


def size_on_disk(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def one_hot(numbers: NDArray[Any], classes: int) -> Probabilities:
    """Certainty, for a model that gives a class and no probabilities."""
    certain: Probabilities = np.eye(classes)[numbers]
    return certain


def _network(kind: str) -> Callable[[Course, int, Path], Fitted]:
    def train(course: Course, seed: int, folder: Path) -> Fitted:
        config = DEFAULT.with_settings([f"model.kind={kind}"]).with_training(seed=seed)
        # As `dcnn train` would: the same split for the same seed, hence the same model.
        learned, dev = course.train, course.dev
        if dev is None:
            learned, dev = hold_out(course.train, config.training)
        sets = (
            TextSet(learned.texts, learned.class_numbers(course.classes)),
            TextSet(dev.texts, dev.class_numbers(course.classes)),
        )
        artifact, _ = fit(*sets, course.classes, config, device="cpu")
        model_folder.save(folder, artifact)
        return Fitted(Predictor.load(folder).probabilities, size_on_disk(folder))

    return train


def _grams(name: str) -> Callable[[Course, int, Path], Fitted]:
    def train(course: Course, seed: int, folder: Path) -> Fitted:  # noqa: ARG001
        truth = course.train.class_numbers(course.classes)
        model = ngram_classifier(name).fit(course.train.texts, truth)

        def probabilities(texts: Sequence[str]) -> Probabilities:
            return one_hot(model.predict(texts), len(course.classes))

        # It has no format of its own; a pickle is what people keep such a model as.
        return Fitted(probabilities, len(pickle.dumps(model)))

    return train
