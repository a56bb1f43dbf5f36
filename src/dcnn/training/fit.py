"""From labelled texts to a trained model: encoder, network, initial weights, trainer, artifact.

Initial weights are drawn from the seed, come from pretrained word vectors, or are those of a model
to continue.
"""

import ctypes
import hashlib
import logging
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dcnn import metrics
from dcnn.artifact import EMBEDDINGS, NGRAMS, Artifact, find_bags, pack, unpack
from dcnn.config import ENOUGH_SCORED, MIN_ENSEMBLE_ROWS, Config, DCNNConfig
from dcnn.data.batching import Examples
from dcnn.data.labels import Label, LabelledTexts
from dcnn.data.split import cross_validate, fold_numbers
from dcnn.data.store import Corpus
from dcnn.errors import ConfigError, DataError, needs_extra
from dcnn.metrics import DEFAULT_THRESHOLD, OUT_OF_SCOPE, evaluate_logits
from dcnn.ops import select
from dcnn.ops.reference import sigmoid, softmax
from dcnn.text.encoder import Encoder
from dcnn.text.vectors import WordVectors, load_vectors
from dcnn.text.vocabulary import Ints, Sentences
from dcnn.training.batches import RunSpec
from dcnn.training.callbacks import Callback
from dcnn.training.native_run import NativeDCNN
from dcnn.training.trainer import Checkpoint, Trainer, TrainingSummary

if TYPE_CHECKING:
    from dcnn.models import SentenceModel
    from dcnn.training.distributed import Workers

logger = logging.getLogger("dcnn")

# Adagrad's sums are not part of a model, and start from zero again when it is trained further:
# with the usual learning rate the first steps would be as large as those of a new network.
WARM_START_RATE = 0.3
LARGEST_MODEL = 2**30  # weights; with the optimiser's state and the best weights, 16 GB


def find_vectors(encoder: Encoder, config: Config) -> WordVectors | None:
    """The pretrained vectors that the settings name, if they name any."""
    path = config.text.vectors
    return load_vectors(Path(path), encoder.vocabulary) if path else None


def make_model(
    config: Config,
    encoder: Encoder,
    classes: int,
    vectors: WordVectors | None = None,
    new_words: Sequence[str] = (),
) -> "SentenceModel":
    """The network as a torch module, without values.

    It has a projection of ``vectors``, and the character n-grams of the vocabulary and of the
    training examples' ``new_words``, if the settings ask for them.
    """
    import torch

    from dcnn.models import MODELS

    bags = _bags(config, encoder, classes, new_words)
    model = MODELS[config.model.kind](config.model, len(encoder.vocabulary), classes)
    model.n_ensemble = config.n_ensemble
    if vectors is not None and config.text.vectors_projection:
        # Adagrad's steps do not depend on the size of a gradient: the smaller the vectors, the
        # larger the projection and the less a step of the same size changes what comes out.
        values = config.text.vectors_projection * vectors.centred / _deviation(vectors)
        table = torch.zeros(len(encoder.vocabulary) + len(new_words), values.shape[1])
        table[torch.from_numpy(vectors.ids)] = torch.from_numpy(values)
        model.project(table)
    if bags is not None:
        offsets, buckets, n_buckets = bags
        model.add_ngrams(torch.from_numpy(offsets), torch.from_numpy(buckets), n_buckets)
    return model


def make_native_model(
    config: Config, encoder: Encoder, classes: int, new_words: Sequence[str] = ()
) -> NativeDCNN:
    """As ``make_model``, on numpy arrays; a DCNN without projection."""
    bags = _bags(config, encoder, classes, new_words)
    assert isinstance(config.model, DCNNConfig)  # noqa: S101
    model = NativeDCNN(config.model, len(encoder.vocabulary), classes)
    model.n_ensemble = config.n_ensemble
    if bags is not None:
        model.add_ngrams(*bags)
    return model


def _bags(
    config: Config, encoder: Encoder, classes: int, new_words: Sequence[str]
) -> tuple[Ints, NDArray[np.int32], int] | None:
    """Offsets, buckets and number of buckets of the n-grams; none if the settings ask for none.

    Raises:
        ConfigError: the network would be too large.
    """
    shapes = config.model.parameter_shapes(len(encoder.vocabulary), classes)
    parameters, bags = sum(math.prod(shape) for shape in shapes.values()), None
    if (ngrams := encoder.char_ngrams) is not None:
        offsets, buckets = find_bags(ngrams, ["", *encoder.vocabulary.words, *new_words])
        parameters += len(np.unique(buckets)) * config.model.dim
        bags = offsets, buckets, ngrams.n_buckets
    if parameters > LARGEST_MODEL:
        raise ConfigError(
            f"this network would have {parameters:,} weights, above {LARGEST_MODEL:,}; "
            "lower model.dim, model.maps, model.widths, text.max_size or text.n_buckets"
        )
    return bags


def initialize(
    model: "SentenceModel | NativeDCNN", config: Config, vectors: WordVectors | None
) -> None:
    """Give ``model`` its starting values, which follow from the seed alone."""
    if isinstance(model, NativeDCNN):
        model.initialize(config.training.seed)
    else:
        import torch

        model.initialize(torch.Generator().manual_seed(config.training.seed))
    if vectors is None:
        return
    generator, weights = np.random.default_rng(config.training.seed), _weights(model)
    dim, scale = config.model.dim, config.text.vectors_scale
    if (projection := weights.get("projection")) is None:
        weights[EMBEDDINGS][vectors.ids] = scale * vectors.in_dimensions(dim, generator)
    else:
        factor = scale * _deviation(vectors) / config.text.vectors_projection
        projection[:] = factor * vectors.reduction(dim, generator)
        weights[EMBEDDINGS][vectors.ids] = 0


def _weights(model: "SentenceModel | NativeDCNN") -> dict[str, NDArray[Any]]:
    """The weights of a model by name: its own memory, on a CPU."""
    if isinstance(model, NativeDCNN):
        return model.weights
    return {name: value.detach().numpy() for name, value in model.named_parameters()}


def _deviation(vectors: WordVectors) -> float:
    deviation = float(vectors.values.std())
    if deviation == 0:
        raise DataError(f"{vectors.source}: all numbers are the same, so there is nothing to learn")
    return deviation


@dataclass(frozen=True)
class RunOptions:
    """How a training runs, where it starts, and when its model abstains.

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
    target_precision: float | None = None  # of the answers; chooses the threshold of abstention
    out_of_scope: Label | None = None  # the class whose texts should get no label
    out_of_scope_texts: Sequence[str] = ()  # other texts that should get none
    start_from: Artifact | None = None  # the model to continue; its classes are the first


def fit(
    train: LabelledTexts | Corpus,
    dev: LabelledTexts | None,
    config: Config,
    options: RunOptions = RunOptions(),
) -> tuple[Artifact, TrainingSummary]:
    """Train a classifier; ``dev`` has the same classes and decides what ``training.keep`` says.

    Settings that are ``auto`` are decided by the number of examples. A ``Corpus`` may have a dev
    set held out of it. Unless ``training.calibrate`` is false, a temperature is fitted on dev and
    becomes part of the weights. If multi-label, a threshold per label is chosen on dev; else the
    metadata gets the risk-coverage curve on dev, and the threshold for
    ``options.target_precision`` if that is reached. Without dev the last weights are kept, and
    cross-validation with ``training.folds`` may replace dev for the rest.
    """
    multi_label = isinstance(train, LabelledTexts) and train.multi_label
    _check_options(config, options, multi_label)
    device = check_backend(config, options.device, alone=options.workers is None)
    options = replace(options, device=device)
    backend, reason = select.for_network(config.model.kind, device), select.why_not_native(device)
    logger.info("training on %s with the %s backend%s", device, backend, reason)
    config = _for_examples(train, dev, config)
    logger.debug("all settings: %s", config.to_flat())
    start = options.start_from
    encoder, examples, dev_examples = _encode(train, dev, config, start)
    # Each set of texts is encoded with the new words of those before it.
    new_words = _new_words(examples if dev_examples is None else dev_examples)
    outside = encoder.encode_all(options.out_of_scope_texts, new_words)
    model, vectors = _initial_model(encoder, train.classes, config, outside, options)
    if start is not None:
        _load_weights(model, start)
    if model.n_ensemble < config.training.n_ensemble:
        logger.info(
            "training.n_ensemble=%d: model.dim=%d rows make an ensemble of %d, each of %d rows or "
            "more",
            config.training.n_ensemble,
            config.model.dim,
            model.n_ensemble,
            MIN_ENSEMBLE_ROWS,
        )
    checkpoint = None
    if options.checkpoint_path is not None:
        parts = [examples, dev_examples, outside if len(outside) else None]
        data = _fingerprint(encoder, train.classes, parts, vectors, start)
        identity = config.to_flat() | {"data": data, "device": device, "backend": backend}
        if _needs_torch(config, device, alone=True) is not None:
            import torch

            identity["torch"] = torch.__version__  # another one rounds differently
        checkpoint = _checkpoint(options, identity, multi_label)
    schedule = config.training
    if start is not None:
        schedule = replace(schedule, learning_rate=WARM_START_RATE * schedule.learning_rate)
    with _threads(model, options.threads):
        trainer = Trainer(
            model,
            examples,
            [RunSpec(schedule)],
            dev_examples,
            device=device,
            callback=options.callback,
            workers=options.workers,
            multi_label=multi_label,
            threads=options.threads,
        )
        (summary,) = trainer.train(checkpoint)
        artifact = _artifact(trainer, encoder, train.classes, config)
        if start is not None:
            artifact = _with_rest_of(start, artifact, model)
        held_out = None  # logits and targets of examples that were not trained on
        if dev_examples is not None:
            dev_logits = _stored_logits(trainer, artifact, dev_examples.sentences)
            held_out = dev_logits, dev_examples.targets
        outside_logits = [_stored_logits(trainer, artifact, outside)] if len(outside) else []
    folds, scored_folds = config.training.folds, 0
    if held_out is None and folds and isinstance(train, LabelledTexts):
        held_out, scored_folds = _cross_validate(train, config, options)
    if held_out is not None:
        accuracy, _, micro_f1 = evaluate_logits(*held_out, multi_label)
        summary = replace(summary, dev_accuracy=accuracy, dev_micro_f1=micro_f1)
    metadata: dict[str, Any] = {
        "examples": {"train": len(examples), "dev": len(dev_examples) if dev_examples else 0},
        "dev_accuracy": summary.dev_accuracy,
        "epochs": summary.epochs,
        "seconds": round(summary.seconds, 1),
        "sentences_per_second": round(summary.sentences_per_second),
        "device": device,
        "threads": options.threads,
        "backend": backend,
    }
    if dev_examples is None and held_out is not None:
        record = {"folds": folds, "scored_folds": scored_folds, "examples": len(held_out[1])}
        metadata["cross_validation"] = record
    if model.n_ensemble > 1:
        metadata["n_ensemble"] = model.n_ensemble
    if options.workers is not None:
        metadata["processes"] = options.workers.size
    artifact = replace(artifact, metadata=metadata)
    if held_out is not None:
        logits, targets = [held_out[0], *outside_logits], held_out[1]
        source = "dev"
        if not dev_examples:
            few = f"{scored_folds} of " if scored_folds < folds else ""
            source = f"{few}{folds} folds of the training set"
        artifact = _decided_on_dev(artifact, logits, targets, source, options)
        if dev_examples is None and multi_label:
            names = ("dev_accuracy", "dev_micro_f1")
            summary = replace(summary, **{name: artifact.metadata[name] for name in names})
    return artifact, summary


def check_backend(config: Config, device: str, *, alone: bool = True) -> str:
    """The device that a training is on, in one process or not; what it needs is installed."""
    device = choose_device(device)
    if (feature := _needs_torch(config, device, alone)) is not None:
        with needs_extra(feature, "train"):
            import torch  # noqa: F401
    return device


def _needs_torch(config: Config, device: str, alone: bool) -> str | None:
    """What of a training only torch can do; none where the native backend computes whole steps."""
    if (backend := select.for_training(device)) != "native":
        return f"Training on {device} with the {backend} backend"
    if config.model.kind != "dcnn":
        return f"Training with model.kind={config.model.kind}"
    if config.text.vectors and config.text.vectors_projection:
        return "Training with text.vectors_projection"
    return None if alone else "Training in several processes"


def _check_options(config: Config, options: RunOptions, multi_label: bool) -> None:
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
    if options.threads < 1:
        raise ConfigError(f"threads={options.threads} must be 1 or more")


def _checkpoint(options: RunOptions, identity: dict[str, Any], multi_label: bool) -> Checkpoint:
    """The checkpoint of a run; processes that train together must have the same ``identity``."""
    identity |= {"threads": options.threads}  # another number of them rounds differently
    identity |= {"multi_label": True} if multi_label else {}
    if options.workers is not None:
        digest = hashlib.sha256(repr(sorted(identity.items())).encode()).hexdigest()[:16]
        options.workers.require_agreement("their files or settings", digest)
    assert options.checkpoint_path is not None  # noqa: S101
    return Checkpoint(options.checkpoint_path, identity, options.checkpoint_seconds, options.resume)


def _with_rest_of(
    start: Artifact, artifact: Artifact, model: "SentenceModel | NativeDCNN"
) -> Artifact:
    """The continued model, with what ``start`` knows and the new texts did not touch."""
    if NGRAMS in artifact.weights:
        ngrams = start.weights[NGRAMS].copy()
        used = np.asarray(model.used_buckets)
        ngrams[used] = artifact.weights[NGRAMS][used]
        artifact = replace(artifact, weights=artifact.weights | {NGRAMS: ngrams})
    if artifact.thresholds is not None and start.thresholds is not None:
        kept = start.thresholds  # until dev decides otherwise
        artifact = replace(artifact, thresholds=kept + artifact.thresholds[len(kept) :])
    return artifact


def _artifact(
    trainer: Trainer, encoder: Encoder, classes: Sequence[Label], config: Config
) -> Artifact:
    """The model that was trained, with n-grams as every folder stores them."""
    weights = trainer.weights_of(0)
    if NGRAMS in weights:
        weights |= unpack(pack({NGRAMS: weights[NGRAMS]}, "float32"))
    thresholds = (DEFAULT_THRESHOLD,) * len(classes) if trainer.multi_label else None
    return Artifact(config, tuple(classes), encoder, weights, thresholds=thresholds)


def _stored_logits(
    trainer: Trainer, artifact: Artifact, sentences: Sentences
) -> NDArray[np.float32]:
    """Logits (N, classes) of the weights as they are stored, not as they were trained."""
    if NGRAMS not in artifact.weights:
        logits: NDArray[np.float32] = trainer.logits(sentences)[0]
        return logits
    used, ids = np.unique(sentences.ids, return_inverse=True)
    plain = artifact.weights | {EMBEDDINGS: artifact.embed(used, sentences.new_words)}
    del plain[NGRAMS]
    return trainer.runs.logits_of_plain(plain, replace(sentences, ids=ids))


def _for_examples(
    train: LabelledTexts | Corpus, dev: LabelledTexts | None, config: Config
) -> Config:
    """``config`` without ``auto``; logs the values that differ from those for many examples."""
    held_out = len(train.held_out) if isinstance(train, Corpus) else 0
    n_dev = held_out if dev is None else len(dev)
    training = config.training.for_examples(len(train), n_dev, len(train.classes))
    of_many = config.training.for_examples(1 << 30)
    changed = [
        f"training.{name}={getattr(training, name)}"
        for name in config.training.auto
        if getattr(training, name) != getattr(of_many, name)
    ]
    if changed:
        logger.info("settings for %d examples: %s", len(train), ", ".join(changed))
    return replace(config, training=training)


def _initial_model(
    encoder: Encoder,
    classes: Sequence[Label],
    config: Config,
    last: Sentences,
    options: RunOptions,
) -> tuple["SentenceModel | NativeDCNN", WordVectors | None]:
    """A network with initial weights on ``options.device``, which is no longer ``auto``.

    ``last``, encoded last, has the new words of all texts.
    """
    vectors = find_vectors(encoder, config)
    model: SentenceModel | NativeDCNN
    if _needs_torch(config, options.device, options.workers is None) is None:
        model = make_native_model(config, encoder, len(classes), last.new_words)
    else:
        model = make_model(config, encoder, len(classes), vectors, last.new_words)
    initialize(model, config, vectors)
    return model, vectors


@contextmanager
def _threads(model: "SentenceModel | NativeDCNN", number: int) -> Iterator[None]:
    """Torch with so many threads, if it computes."""
    if isinstance(model, NativeDCNN):
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _StopOnly(Callback):
    """Ends the training of a fold when ``callback`` wants to end the run."""

    def __init__(self, callback: Callback) -> None:
        self.callback = callback

    @property
    def stop(self) -> bool:  # type: ignore[override]
        return self.callback.stop


def _cross_validate(
    train: LabelledTexts, config: Config, options: RunOptions
) -> tuple[tuple[NDArray[np.float32], NDArray[Any]] | None, int]:
    """Out-of-fold logits (N, classes) and targets, and of how many folds; None of none.

    Each fold has its own vocabulary: words that occur only in its held-out texts are unknown. The
    only example of a label is in no fold.
    """

    def logits_of(kept: LabelledTexts, held_out: LabelledTexts) -> NDArray[np.float32]:
        fold, sizes = next(folds), (len(kept), len(train))
        logger.info("fold %d of %d: training on %d examples of %d", *fold, *sizes)
        encoder, examples, _ = _encode(kept, None, config)
        sentences = encoder.encode_all(held_out.texts, _new_words(examples))
        model, _ = _initial_model(encoder, train.classes, config, sentences, options)
        with _threads(model, options.threads):
            trainer = Trainer(
                model,
                examples,
                [RunSpec(config.training)],
                device=options.device,
                callback=_StopOnly(options.callback or Callback()),
                multi_label=train.multi_label,
                threads=options.threads,
            )
            trainer.train()
            artifact = _artifact(trainer, encoder, train.classes, config)
            return _stored_logits(trainer, artifact, sentences)

    numbers = fold_numbers(train, config.training.folds, config.training.seed)
    totals = np.cumsum(np.bincount(numbers[numbers >= 0], minlength=config.training.folds))
    numbers[numbers > np.searchsorted(totals, ENOUGH_SCORED)] = -1
    scored = np.flatnonzero(numbers >= 0)
    if not len(scored):
        return None, 0
    used = len(np.unique(numbers[scored]))
    folds = iter([(place + 1, used) for place in range(used)])
    logits = cross_validate(train, numbers, logits_of)
    return (logits[scored], train.select(scored).with_hard_labels().targets), used


def _load_weights(model: "SentenceModel | NativeDCNN", start: Artifact) -> None:
    """Give ``model``, which may have more words and labels, the weights of ``start``."""
    weights, own = _weights(model), start.weights[EMBEDDINGS]
    words, labels = len(own), len(start.weights["head.bias"])
    for name, value in weights.items():
        if name.startswith("layers."):
            value[:] = start.weights[name]
    ngrams = weights.get(NGRAMS)
    if ngrams is not None:  # a stored vector has those of its n-grams added
        ngrams[:] = start.weights[NGRAMS][np.asarray(model.used_buckets)]
        bags = np.asarray(model.bag_offsets), np.asarray(model.bag_buckets)
        compose = select.compose_for_prediction()
        own = own - compose(np.arange(words), bags, np.zeros_like(own), ngrams)
    weights[EMBEDDINGS][:words] = own
    weights[EMBEDDINGS][words:] = own[0]  # that of the unknown word
    weights["head.weight"][:labels] = start.weights["head.weight"] * model.n_ensemble
    weights["head.bias"][:labels] = start.weights["head.bias"]


def _encode(
    train: LabelledTexts | Corpus,
    dev: LabelledTexts | None,
    config: Config,
    start: Artifact | None = None,
) -> tuple[Encoder, Examples | Corpus, Examples | None]:
    examples: Examples | Corpus
    if isinstance(train, Corpus):
        encoder, examples = train.encoder, train
    elif start is not None:
        encoder = start.encoder.extended(train.texts, config.text)
        examples = Examples(encoder.encode_all(train.texts), train.targets, train.weights)
    else:
        encoder, sentences = Encoder.learn(train.texts, config.text)
        examples = Examples(sentences, train.targets, train.weights)
    if dev is None:
        if isinstance(train, Corpus) and len(train.held_out):
            return encoder, examples, train.dev()
        return encoder, examples, None
    encoded = encoder.encode_all(dev.texts, _new_words(examples))
    return encoder, examples, Examples(encoded, dev.targets, dev.weights)


def _new_words(examples: Examples | Corpus) -> Sequence[str]:
    return examples.new_words if isinstance(examples, Corpus) else examples.sentences.new_words


def _decided_on_dev(
    artifact: Artifact,
    logits: list[NDArray[np.float32]],
    targets: NDArray[Any],
    source: str,
    options: RunOptions,
) -> Artifact:
    """The artifact with the temperature, if the settings ask for one, and thresholds from dev.

    The output layer is divided by the temperature, so it applies in every backend, export and
    explanation; it changes no label. ``logits`` are those of dev, whose name is ``source``, and of
    the out-of-scope texts, if there are any.
    """
    multi_label, metadata = artifact.thresholds is not None, dict(artifact.metadata)
    weights, thresholds = dict(artifact.weights), artifact.thresholds
    if artifact.config.training.calibrate:
        calibration = metrics.calibrate(logits[0], targets, multi_label=multi_label)
        temperature = np.float32(calibration.temperature)
        weights |= {name: weights[name] / temperature for name in ("head.weight", "head.bias")}
        logits = [part / temperature for part in logits]
        metadata["calibration"] = calibration.to_dict()
    if multi_label:
        probabilities = sigmoid(logits[0])
        thresholds = metrics.choose_thresholds(targets, probabilities)
        fair = metrics.cross_fitted_thresholds(targets, probabilities)
        scores = metrics.evaluate_labels(targets, probabilities, fair, artifact.classes)
        metadata |= {"dev_micro_f1": scores.micro_f1, "dev_macro_f1": scores.macro_f1}
        metadata["dev_accuracy"] = scores.subset_accuracy
    else:
        label, classes = options.out_of_scope, artifact.classes
        number = OUT_OF_SCOPE if label is None else list(map(str, classes)).index(str(label))
        truth = np.full(sum(map(len, logits)), OUT_OF_SCOPE)
        truth[: len(targets)] = targets if targets.ndim == 1 else targets.argmax(axis=1)
        curve = metrics.risk_coverage(truth, softmax(np.concatenate(logits)), number)
        no_answer = None if label is None else classes[number]  # as it is stored, not as given
        target = options.target_precision
        metadata["abstention"] = metrics.abstention_record(curve, source, no_answer, target)
    return replace(artifact, weights=weights, metadata=metadata, thresholds=thresholds)


def choose_device(name: str) -> str:
    """Resolve ``auto``, ``cpu`` or ``cuda``, and check that a backend trains there."""
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device={name!r} must be auto, cpu or cuda")
    if name == "cuda":
        with needs_extra("Training on a GPU", "train"):
            import torch  # noqa: F401
    if name == "cuda" and not _has_gpu():
        raise ConfigError("device='cuda' was asked for and no GPU can be used; take auto or cpu")
    if name == "auto":
        name = "cuda" if _has_gpu() else "cpu"
    try:
        select.for_training(name)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(str(error)) from error
    return name


def _has_gpu() -> bool:
    """Whether torch can use a GPU; it is asked only where there is a driver, or it is imported."""
    if "torch" not in sys.modules and not _has_gpu_driver():
        return False
    try:
        import torch
    except ModuleNotFoundError:
        logger.info("if there is a GPU, training on it needs the extra 'train'")
        return False
    return torch.cuda.is_available()


def _has_gpu_driver() -> bool:
    """Whether this system may have a GPU that torch calls cuda."""
    if not sys.platform.startswith("linux"):
        return sys.platform != "darwin"
    if Path("/dev/kfd").exists() or Path("/dev/dxg").exists():  # of AMD; of Windows below Linux
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _fingerprint(
    encoder: Encoder,
    classes: Sequence[Label],
    parts: Iterable[Examples | Corpus | Sentences | None],
    vectors: WordVectors | None,
    start: Artifact | None,
) -> str:
    """A hash of all data that the run reads."""
    digest = hashlib.sha256(encoder.to_json().encode())
    digest.update(repr(list(classes)).encode())
    for part in parts:
        if isinstance(part, Corpus):
            digest.update(part.key.encode())
            continue
        sentences = part.sentences if isinstance(part, Examples) else part
        if sentences is None:
            continue
        arrays: list[NDArray[Any] | None] = [sentences.ids, sentences.offsets]
        arrays += [part.targets, part.weights] if isinstance(part, Examples) else []
        for array in arrays:
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        if words := sentences.new_words:  # their n-grams are part of the data
            digest.update("\n".join(words).encode("utf-8", "surrogatepass"))
    if vectors is not None:  # a projection reads them during training
        digest.update(vectors.values.tobytes())
    for name, value in sorted(start.weights.items()) if start is not None else ():
        digest.update(name.encode() + value.tobytes())
    return digest.hexdigest()[:16]
