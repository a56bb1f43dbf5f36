"""From labelled texts to a trained model: encoder, network, loop, artifact."""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dcnn.artifact import Artifact, Label
from dcnn.calibration import calibrate
from dcnn.config import Config
from dcnn.data.batching import Examples, Floats
from dcnn.errors import ConfigError
from dcnn.heads import sigmoid
from dcnn.label_scores import UNDECIDED, choose_thresholds, evaluate_labels
from dcnn.ops import backends
from dcnn.ops.choice import backend_name
from dcnn.stored_weights import Weights
from dcnn.text.encoder import Encoder
from dcnn.text.vectors import WordVectors, with_vector_words
from dcnn.training.checkpoint import Checkpoint
from dcnn.training.dev_set import logits_of
from dcnn.training.initial import find_vectors, initialize, make_model
from dcnn.training.loop import train
from dcnn.training.objective import target_distributions
from dcnn.training.progress import Listener
from dcnn.training.run import TrainingSummary

logger = logging.getLogger("dcnn")


@dataclass(frozen=True)
class TextSet:
    """Texts with their class numbers.

    Attributes:
        texts: N strings.
        targets: (N,) class numbers, or (N, classes) probabilities; noughts and ones where a text
            may have several labels.
        weights: (N,) or none.
    """

    texts: Sequence[str]
    targets: NDArray[Any]
    weights: Floats | None = None


def fit(
    data: TextSet,
    dev: TextSet | None,
    classes: Sequence[Label],
    config: Config,
    *,
    device: str = "auto",
    checkpoint_path: Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 15.0,
    listener: Listener | None = None,
    threads: int = 1,
    many: bool = False,
) -> tuple[Artifact, TrainingSummary]:
    """Train a classifier of ``classes`` on ``data``; the best weights on ``dev`` are kept.

    A temperature found on ``dev`` is part of the weights unless ``training.calibrate`` is false.

    With ``many`` a text may have several of them, or none, and every label gets a threshold on
    ``dev``.

    ``threads`` are the CPU threads. One is the default: more help little on an idle machine, wait
    for one another on a busy one, and round differently.
    """
    if many and config.training.class_weights != "none":
        raise ConfigError(
            "class_weights='balanced' is for texts of one label; leave it out where a text may "
            "have several: each label has a threshold of its own"
        )
    place = choose_device(device)
    if threads < 1:
        raise ConfigError(f"threads={threads} must be 1 or more")
    backend = backend_name(place)
    logger.info(
        "training on %s with the %s backend%s", place.type, backend, backends.lack(place.type)
    )
    encoder, sentences = Encoder.learn(data.texts, config.text)
    encoder = with_vector_words(encoder, config.text)
    examples = Examples(sentences, data.targets, data.weights)
    dev_examples = _encode(encoder, dev) if dev is not None else None
    vectors = find_vectors(encoder, config)
    model = make_model(config, len(encoder.vocabulary), len(classes), vectors)
    initialize(model, config, vectors)
    checkpoint = None
    if checkpoint_path is not None:
        identity = _identity(config, encoder, classes, examples, dev_examples, vectors)
        identity |= {"device": place.type, "threads": threads, "torch": torch.__version__}
        identity |= {"backend": backend}  # another one rounds differently
        identity |= {"labels": "many"} if many else {}
        checkpoint = Checkpoint(checkpoint_path, identity)
    with _cpu_threads(threads):
        summary = train(
            model,
            examples,
            dev_examples,
            config.training,
            device=place,
            checkpoint=checkpoint,
            resume=resume,
            checkpoint_seconds=checkpoint_seconds,
            listener=listener,
            many=many,
        )
    trained = model.merged(model.state_dict())
    weights = {name: value.cpu().numpy() for name, value in trained.items()}
    facts: dict[str, Any] = {
        "examples": {"train": len(examples), "dev": len(dev_examples) if dev_examples else 0},
        "dev_accuracy": summary.dev_accuracy,
        "epochs": summary.epochs,
        "seconds": round(summary.seconds, 1),
        "sentences_per_second": round(summary.sentences_per_second),
        "device": str(place),
        "threads": threads,
        "backend": backend,
    }
    thresholds = (UNDECIDED,) * len(classes) if many else None
    if dev_examples is not None and (many or config.training.calibrate):
        logits = logits_of(model, dev_examples.sentences)
        targets = target_distributions(dev_examples.targets, len(classes))
        if config.training.calibrate:
            calibration = calibrate(logits, targets, many=many)
            _cool(weights, calibration.temperature)
            logits = logits / np.float32(calibration.temperature)
            facts["calibration"] = calibration.to_dict()
        if many:
            thresholds = choose_thresholds(targets, sigmoid(logits))
            scores = evaluate_labels(targets, sigmoid(logits), thresholds, classes)
            facts |= {"dev_micro_f1": scores.micro_f1, "dev_macro_f1": scores.macro_f1}
    return Artifact(config, tuple(classes), encoder, weights, facts, thresholds=thresholds), summary


def _cool(weights: Weights, temperature: float) -> None:
    """Divide the logits of ``weights`` by ``temperature``.

    As part of the top layer it reaches every backend, export and explanation, and no label.
    """
    for name in ("top.weight", "top.bias"):
        weights[name] = weights[name] / np.float32(temperature)


@contextmanager
def _cpu_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def choose_device(name: str) -> torch.device:
    """Resolve ``auto``, ``cpu`` or ``cuda``; ``auto`` takes a GPU where there is one.

    Raises:
        ConfigError: the device does not exist here, or ``DCNN_BACKEND`` forces a backend that is
            not there or cannot train on it.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device={name!r} must be auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device='cuda' was asked for and no GPU can be used; take auto or cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    place = torch.device(name)
    try:
        backend_name(place)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(str(error)) from error
    return place


def _encode(encoder: Encoder, data: TextSet) -> Examples:
    return Examples(encoder.encode_all(data.texts), data.targets, data.weights)


def _identity(
    config: Config,
    encoder: Encoder,
    classes: Sequence[Label],
    examples: Examples,
    dev: Examples | None,
    vectors: WordVectors | None,
) -> dict[str, Any]:
    """What makes a run this run: every setting, and a fingerprint of the data."""
    digest = hashlib.sha256(encoder.to_json().encode())
    digest.update(repr(list(classes)).encode())
    for part in (examples, dev):
        if part is not None:
            arrays = (part.sentences.ids, part.sentences.offsets, part.targets, part.weights)
            for array in arrays:
                digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    if vectors is not None:  # a projection goes on reading them
        digest.update(vectors.values.tobytes())
    settings = {
        f"{section}.{name}": value
        for section, values in config.to_dict().items()
        for name, value in values.items()
    }
    return settings | {"data": digest.hexdigest()[:16]}
