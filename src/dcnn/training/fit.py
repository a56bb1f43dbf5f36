"""From labelled texts to a trained model: encoder, network, initial weights, trainer, artifact.

Initial weights are drawn from the seed, or come from pretrained word vectors.
"""

import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dcnn.artifact import Artifact, Label
from dcnn.config import MIN_ENSEMBLE_ROWS, Config
from dcnn.data.batching import Examples
from dcnn.data.labels import LabelledTexts
from dcnn.data.store import Corpus
from dcnn.errors import ConfigError, DataError
from dcnn.metrics import DEFAULT_THRESHOLD, calibrate, choose_thresholds, evaluate_labels
from dcnn.models import MODELS, SentenceModel
from dcnn.ops import select
from dcnn.ops.reference import sigmoid
from dcnn.text.encoder import Encoder
from dcnn.text.vectors import WordVectors, load_vectors, with_vector_words
from dcnn.training.batches import RunSpec
from dcnn.training.callbacks import Callback
from dcnn.training.objective import target_distributions
from dcnn.training.trainer import Checkpoint, Trainer, TrainingSummary

if TYPE_CHECKING:
    from dcnn.training.distributed import Workers

logger = logging.getLogger("dcnn")

LARGEST_MODEL = 2**30  # weights; with the optimiser's state and the best weights, 16 GB


def find_vectors(encoder: Encoder, config: Config) -> WordVectors | None:
    """The pretrained vectors that the settings name, if they name any."""
    path = config.text.vectors
    return load_vectors(Path(path), encoder.vocabulary) if path else None


def make_model(
    config: Config, vocabulary: int, classes: int, vectors: WordVectors | None = None
) -> SentenceModel:
    """The network, without values; with a projection of ``vectors`` if the settings ask for one."""
    shapes = config.model.parameter_shapes(vocabulary, classes)
    parameters = sum(math.prod(shape) for shape in shapes.values())
    if parameters > LARGEST_MODEL:
        raise ConfigError(
            f"this network would have {parameters:,} weights, above {LARGEST_MODEL:,}; "
            "lower model.dim, model.maps, model.widths or text.max_size"
        )
    model = MODELS[config.model.kind](config.model, vocabulary, classes)
    model.n_ensemble = config.n_ensemble
    if vectors is not None and config.text.vectors_projection:
        # Adagrad's steps do not depend on the size of a gradient: the smaller the vectors, the
        # larger the projection and the less a step of the same size changes what comes out.
        values = config.text.vectors_projection * vectors.centred / _deviation(vectors)
        table = torch.zeros(vocabulary, values.shape[1])
        table[torch.from_numpy(vectors.ids)] = torch.from_numpy(values)
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


def _deviation(vectors: WordVectors) -> float:
    deviation = float(vectors.values.std())
    if deviation == 0:
        raise DataError(f"{vectors.source}: all numbers are the same, so there is nothing to learn")
    return deviation


@dataclass(frozen=True)
class RunOptions:
    """How a training runs; none of it decides what is learned.

    One CPU thread is the default: more help little on an idle machine, wait for one another on a
    busy one, and round differently.
    """

    device: str = "auto"  # or cpu, or cuda
    checkpoint_path: Path | None = None  # where an unfinished run is kept
    resume: bool = False  # whether to continue from there
    checkpoint_seconds: float = 15.0  # between checkpoints
    callback: Callback | None = None
    threads: int = 1
    workers: "Workers | None" = None  # the processes that train together, this among them


def fit(
    train: LabelledTexts | Corpus,
    dev: LabelledTexts | None,
    config: Config,
    options: RunOptions = RunOptions(),  # noqa: B008
) -> tuple[Artifact, TrainingSummary]:
    """Train a classifier; the best weights on ``dev``, which has the same classes, are kept.

    A corpus that is larger than memory may hold out a dev set itself. A temperature found on dev is
    part of the weights unless ``training.calibrate`` is false. If multi-label, each label gets a
    threshold on dev.
    """
    multi_label = isinstance(train, LabelledTexts) and train.multi_label
    if multi_label and config.training.class_weights != "none":
        raise ConfigError(
            "class_weights='balanced' is for texts of one label; leave it out where a text may "
            "have several: each label has a threshold of its own"
        )
    if multi_label and options.workers is not None:
        raise ConfigError(
            "several processes train on texts of one label only; where a text may have several, "
            "start without torchrun"
        )
    place = choose_device(options.device)
    if options.threads < 1:
        raise ConfigError(f"threads={options.threads} must be 1 or more")
    backend, reason = select.for_training(place.type), select.why_not_native(place.type)
    logger.info("training on %s with the %s backend%s", place.type, backend, reason)
    encoder, examples, dev_examples = _encode(train, dev, config)
    vectors = find_vectors(encoder, config)
    model = make_model(config, len(encoder.vocabulary), len(train.classes), vectors)
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
    checkpoint = None
    if options.checkpoint_path is not None:
        identity = config.to_flat() | {
            "data": _fingerprint(encoder, train.classes, examples, dev_examples, vectors),
            "device": place.type,
            "backend": backend,  # another one rounds differently
            "threads": options.threads,
            "torch": torch.__version__,
        }
        identity |= {"multi_label": True} if multi_label else {}
        checkpoint = Checkpoint(
            options.checkpoint_path, identity, options.checkpoint_seconds, options.resume
        )
        if options.workers is not None:
            digest = hashlib.sha256(repr(sorted(identity.items())).encode()).hexdigest()[:16]
            options.workers.require_agreement("their files or settings", digest)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        trainer = Trainer(
            model,
            examples,
            [RunSpec(config.training)],
            dev_examples,
            device=place,
            callback=options.callback,
            workers=options.workers,
            multi_label=multi_label,
        )
        (summary,) = trainer.train(checkpoint)
    finally:
        torch.set_num_threads(threads_before)
    metadata: dict[str, Any] = {
        "examples": {"train": len(examples), "dev": len(dev_examples) if dev_examples else 0},
        "dev_accuracy": summary.dev_accuracy,
        "epochs": summary.epochs,
        "seconds": round(summary.seconds, 1),
        "sentences_per_second": round(summary.sentences_per_second),
        "device": str(place),
        "threads": options.threads,
        "backend": backend,
    }
    if model.n_ensemble > 1:
        metadata["n_ensemble"] = model.n_ensemble
    if options.workers is not None:
        metadata["processes"] = options.workers.size
    weights = {name: value.cpu().numpy() for name, value in trainer.weights_of(0).items()}
    thresholds = (DEFAULT_THRESHOLD,) * len(train.classes) if multi_label else None
    classes = tuple(train.classes)
    artifact = Artifact(config, classes, encoder, weights, metadata, thresholds=thresholds)
    if dev_examples is not None and (multi_label or config.training.calibrate):
        artifact = _calibrated(artifact, trainer.logits(dev_examples.sentences)[0], dev_examples)
    return artifact, summary


def _encode(
    train: LabelledTexts | Corpus, dev: LabelledTexts | None, config: Config
) -> tuple[Encoder, Examples | Corpus, Examples | None]:
    examples: Examples | Corpus
    if isinstance(train, Corpus):
        encoder, examples = train.encoder, train
    else:
        encoder, sentences = Encoder.learn(train.texts, config.text)
        examples = Examples(sentences, train.targets, train.weights)
    if config.text.vectors:
        encoder = with_vector_words(encoder, config.text)
    if dev is None:
        return encoder, examples, train.dev() if isinstance(train, Corpus) else None
    encoded = encoder.encode_all(dev.texts)
    return encoder, examples, Examples(encoded, dev.targets, dev.weights)


def _calibrated(artifact: Artifact, logits: NDArray[np.float32], dev: Examples) -> Artifact:
    """With the temperature, if the settings ask for one, and the thresholds found on ``dev``.

    As part of the output layer the temperature reaches every backend, export and explanation, and
    no label.
    """
    multi_label, metadata = artifact.thresholds is not None, dict(artifact.metadata)
    weights, thresholds = dict(artifact.weights), artifact.thresholds
    targets = target_distributions(dev.targets, len(artifact.classes))
    if artifact.config.training.calibrate:
        calibration = calibrate(logits, targets, multi_label=multi_label)
        temperature = np.float32(calibration.temperature)
        weights |= {name: weights[name] / temperature for name in ("head.weight", "head.bias")}
        logits = logits / temperature
        metadata["calibration"] = calibration.to_dict()
    if multi_label:
        thresholds = choose_thresholds(targets, sigmoid(logits))
        scores = evaluate_labels(targets, sigmoid(logits), thresholds, artifact.classes)
        metadata |= {"dev_micro_f1": scores.micro_f1, "dev_macro_f1": scores.macro_f1}
    return replace(artifact, weights=weights, metadata=metadata, thresholds=thresholds)


def choose_device(name: str) -> torch.device:
    """Resolve ``auto``, ``cpu`` or ``cuda``, and check that a backend trains there."""
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device={name!r} must be auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device='cuda' was asked for and no GPU can be used; take auto or cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        select.for_training(name)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(str(error)) from error
    return torch.device(name)


def _fingerprint(
    encoder: Encoder,
    classes: Sequence[Label],
    examples: Examples | Corpus,
    dev: Examples | None,
    vectors: WordVectors | None,
) -> str:
    """Of all data that the run reads."""
    digest = hashlib.sha256(encoder.to_json().encode())
    digest.update(repr(list(classes)).encode())
    for part in (examples, dev):
        if isinstance(part, Corpus):
            digest.update(part.key.encode())
        elif part is not None:
            for array in (part.sentences.ids, part.sentences.offsets, part.targets, part.weights):
                digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    if vectors is not None:  # a projection reads them during training
        digest.update(vectors.values.tobytes())
    return digest.hexdigest()[:16]
