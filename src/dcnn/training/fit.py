"""From labelled texts to a trained model: encoder, network, initial weights, trainer, artifact.

Initial weights are drawn from the seed, or come from pretrained word vectors.
"""

import hashlib
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dcnn.artifact import Artifact, Label, Weights
from dcnn.config import MIN_ENSEMBLE_ROWS, Config
from dcnn.data.batching import Examples, Floats
from dcnn.data.labels import LabelledTexts
from dcnn.data.store import Corpus
from dcnn.errors import ConfigError, DataError
from dcnn.metrics import DEFAULT_THRESHOLD, calibrate, choose_thresholds, evaluate_labels
from dcnn.models import MODELS, SentenceModel
from dcnn.ops import select
from dcnn.ops.reference import sigmoid
from dcnn.text.encoder import Encoder
from dcnn.text.vectors import WordVectors, load_vectors, with_vector_words
from dcnn.training.batches import ALONE, StoreBatches
from dcnn.training.callbacks import Callback
from dcnn.training.checkpoint import Checkpoint
from dcnn.training.objective import logits_of, target_distributions
from dcnn.training.trainer import TrainingSummary
from dcnn.training.trainer import train as run_trainer

if TYPE_CHECKING:
    from dcnn.training.distributed import Workers


LARGEST_MODEL = 2**30  # weights; with the optimiser's state and the best weights, 16 GB


def find_vectors(encoder: Encoder, config: Config) -> WordVectors | None:
    """The pretrained vectors that the settings name, if they name any."""
    if not config.text.vectors:
        return None
    return load_vectors(Path(config.text.vectors), encoder.vocabulary)


def make_model(
    config: Config, vocabulary: int, classes: int, vectors: WordVectors | None = None
) -> SentenceModel:
    """The network, without values; with a projection of ``vectors`` if the settings ask for one.

    Raises:
        ConfigError: it would not fit any sensible memory.
    """
    shapes = config.model.parameter_shapes(vocabulary, classes)
    parameters = sum(math.prod(shape) for shape in shapes.values())
    if parameters > LARGEST_MODEL:
        raise ConfigError(
            f"this network would have {parameters:,} weights, above {LARGEST_MODEL:,}; "
            "lower model.dim, model.maps, model.widths or text.max_size"
        )
    model = MODELS[config.model.kind](config.model, vocabulary, classes)
    model.divide(config.n_ensemble)
    if vectors is not None and config.text.vectors_projection:
        table = torch.zeros(vocabulary, vectors.values.shape[1])
        table[torch.from_numpy(vectors.ids)] = torch.from_numpy(_projected_vectors(config, vectors))
        model.project(table)
    return model


def initialize(model: SentenceModel, config: Config, vectors: WordVectors | None) -> None:
    """Give ``model`` its starting values, which follow from the seed alone."""
    model.initialize(torch.Generator().manual_seed(config.training.seed))
    if vectors is None:
        return
    generator = np.random.default_rng(config.training.seed)
    dim, scale, known = config.model.dim, config.text.vectors_scale, torch.from_numpy(vectors.ids)
    with torch.no_grad():
        if model.projection is None:
            values = scale * vectors.in_dimensions(dim, generator)
            model.embeddings[known] = torch.from_numpy(values)
        else:
            factor = scale * _deviation(vectors) / config.text.vectors_projection
            reduction = factor * vectors.reduction(dim, generator)
            model.projection.copy_(torch.from_numpy(reduction))
            model.embeddings[known] = 0


def _projected_vectors(config: Config, vectors: WordVectors) -> Floats:
    """The vectors that a projection is learned of, in the scale that the settings ask for.

    Adagrad's steps do not depend on the size of a gradient: the smaller the vectors, the larger the
    projection and the less a step of the same size changes what comes out.
    """
    return config.text.vectors_projection * vectors.centred / _deviation(vectors)


def _deviation(vectors: WordVectors) -> float:
    deviation = float(vectors.values.std())
    if deviation == 0:
        raise DataError(f"{vectors.source}: all numbers are the same, so there is nothing to learn")
    return deviation


logger = logging.getLogger("dcnn")


@dataclass(frozen=True)
class RunOptions:
    """How a training runs; none of it decides what is learned.

    Attributes:
        device: ``auto``, ``cpu`` or ``cuda``.
        checkpoint_path: where an unfinished run is kept; none is nowhere.
        resume: whether to go on from there.
        checkpoint_seconds: time between checkpoints.
        callback: called at every evaluation.
        threads: CPU threads. One is the default: more help little on an idle machine, wait for one
            another on a busy one, and round differently.
        workers: the processes that train together, this among them; none is this one alone.
    """

    device: str = "auto"
    checkpoint_path: Path | None = None
    resume: bool = False
    checkpoint_seconds: float = 15.0
    callback: Callback | None = None
    threads: int = 1
    workers: "Workers | None" = None


def fit(
    train: LabelledTexts,
    dev: LabelledTexts | None,
    config: Config,
    options: RunOptions = RunOptions(),  # noqa: B008
) -> tuple[Artifact, TrainingSummary]:
    """Train a classifier; the best weights on ``dev``, which has the same classes, are kept.

    A temperature found on ``dev`` is part of the weights unless ``training.calibrate`` is false.
    Where a text may have several labels, each gets a threshold on ``dev``.
    """
    if train.multi_label and config.training.class_weights != "none":
        raise ConfigError(
            "class_weights='balanced' is for texts of one label; leave it out where a text may "
            "have several: each label has a threshold of its own"
        )
    if train.multi_label and options.workers is not None:
        raise ConfigError(
            "several processes train on texts of one label only; where a text may have several, "
            "start without torchrun"
        )
    place = _start(options)
    encoder, sentences = Encoder.learn(train.texts, config.text)
    if config.text.vectors:
        encoder = with_vector_words(encoder, config.text)
    examples = Examples(sentences, train.targets, train.weights)
    dev_examples = _encode(encoder, dev) if dev is not None else None
    return _fit_encoded(
        encoder,
        examples,
        dev_examples,
        train.classes,
        config,
        options,
        place,
        train.multi_label,
    )


def fit_corpus(
    corpus: Corpus, dev: LabelledTexts | None, config: Config, run_options: RunOptions
) -> tuple[Artifact, TrainingSummary]:
    """As ``fit``, for a corpus that is larger than memory; it may hold out a dev set itself."""
    place = _start(run_options)
    encoder = corpus.encoder
    if config.text.vectors:
        encoder = with_vector_words(encoder, config.text)
    dev_examples = corpus.dev() if dev is None else _encode(encoder, dev)
    return _fit_encoded(encoder, corpus, dev_examples, corpus.classes, config, run_options, place)


def _start(run_options: RunOptions) -> torch.device:
    """The device; and say which backend computes."""
    place = choose_device(run_options.device)
    if run_options.threads < 1:
        raise ConfigError(f"threads={run_options.threads} must be 1 or more")
    logger.info(
        "training on %s with the %s backend%s",
        place.type,
        select.for_training(place.type),
        select.why_not_native(place.type),
    )
    return place


def _fit_encoded(
    encoder: Encoder,
    examples: Examples | Corpus,
    dev: Examples | None,
    classes: Sequence[Label],
    config: Config,
    run_options: RunOptions,
    place: torch.device,
    multi_label: bool = False,
) -> tuple[Artifact, TrainingSummary]:
    vectors = find_vectors(encoder, config)
    model = make_model(config, len(encoder.vocabulary), len(classes), vectors)
    if model.n_ensemble < config.training.n_ensemble:
        logger.info(
            "training.n_ensemble=%d: model.dim=%d rows make an ensemble of %d, each of %d rows or "
            "more",
            config.training.n_ensemble,
            config.model.dim,
            model.n_ensemble,
            MIN_ENSEMBLE_ROWS,
        )
    initialize(model, config, vectors)
    backend, checkpoint = select.for_training(place.type), None
    if run_options.checkpoint_path is not None:
        identity = _identity(config, encoder, classes, examples, dev, vectors)
        identity |= {
            "device": place.type,
            "threads": run_options.threads,
            "torch": torch.__version__,
        }
        identity |= {"backend": backend}  # another one rounds differently
        identity |= {"multi_label": True} if multi_label else {}
        checkpoint = Checkpoint(run_options.checkpoint_path, identity)
    workers = run_options.workers
    if workers is not None and checkpoint is not None:
        workers.require_agreement("their files or settings", _digest(checkpoint.identity))
    rank = (workers.rank, workers.size) if workers is not None else ALONE
    batches = (
        examples
        if isinstance(examples, Examples)
        else StoreBatches(examples, config.training, rank)
    )
    with _cpu_threads(run_options.threads):
        summary = run_trainer(
            model,
            batches,
            dev,
            config.training,
            device=place,
            checkpoint=checkpoint,
            resume=run_options.resume,
            checkpoint_seconds=run_options.checkpoint_seconds,
            callback=run_options.callback,
            workers=workers,
            multi_label=multi_label,
        )
    trained = model.merged(model.state_dict())
    weights = {name: value.cpu().numpy() for name, value in trained.items()}
    metadata: dict[str, Any] = {
        "examples": {"train": len(examples), "dev": len(dev) if dev else 0},
        "dev_accuracy": summary.dev_accuracy,
        "epochs": summary.epochs,
        "seconds": round(summary.seconds, 1),
        "sentences_per_second": round(summary.sentences_per_second),
        "device": str(place),
        "threads": run_options.threads,
        "backend": backend,
    }
    if model.n_ensemble > 1:
        metadata["n_ensemble"] = model.n_ensemble
    if workers is not None:
        metadata["processes"] = workers.size
    thresholds = (DEFAULT_THRESHOLD,) * len(classes) if multi_label else None
    if dev is not None and (multi_label or config.training.calibrate):
        logits = logits_of(model, dev.sentences)
        targets = target_distributions(dev.targets, len(classes))
        if config.training.calibrate:
            calibration = calibrate(logits, targets, multi_label=multi_label)
            _cool(weights, calibration.temperature)
            logits = logits / np.float32(calibration.temperature)
            metadata["calibration"] = calibration.to_dict()
        if multi_label:
            thresholds = choose_thresholds(targets, sigmoid(logits))
            scores = evaluate_labels(targets, sigmoid(logits), thresholds, classes)
            metadata |= {"dev_micro_f1": scores.micro_f1, "dev_macro_f1": scores.macro_f1}
    return Artifact(
        config, tuple(classes), encoder, weights, metadata, thresholds=thresholds
    ), summary


def _cool(weights: Weights, temperature: float) -> None:
    """Divide the logits of ``weights`` by ``temperature``.

    As part of the top layer it reaches every backend, export and explanation, and no label.
    """
    for name in ("head.weight", "head.bias"):
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
        select.for_training(place.type)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(str(error)) from error
    return place


def _encode(encoder: Encoder, data: LabelledTexts) -> Examples:
    return Examples(encoder.encode_all(data.texts), data.targets, data.weights)


def _digest(identity: dict[str, Any]) -> str:
    return hashlib.sha256(repr(sorted(identity.items())).encode()).hexdigest()[:16]


def _identity(
    config: Config,
    encoder: Encoder,
    classes: Sequence[Label],
    examples: Examples | Corpus,
    dev: Examples | None,
    vectors: WordVectors | None,
) -> dict[str, Any]:
    """What makes a run this run: every setting, and a fingerprint of the data."""
    digest = hashlib.sha256(encoder.to_json().encode())
    digest.update(repr(list(classes)).encode())
    for part in (examples, dev):
        if isinstance(part, Corpus):
            digest.update(part.key.encode())
        elif part is not None:
            arrays = (part.sentences.ids, part.sentences.offsets, part.targets, part.weights)
            for array in arrays:
                digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    if vectors is not None:  # a projection goes on reading them
        digest.update(vectors.values.tobytes())
    return config.to_flat() | {"data": digest.hexdigest()[:16]}
