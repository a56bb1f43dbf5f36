"""From a model folder to labels and probabilities, without torch.

The forward pass of each network in evaluation mode: a DCNN on the native backend where that is
available, everything else on the reference operators in numpy. Nothing here imports torch: a
process that loads a model and classifies a sentence starts in a moment.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact, Label, Weights
from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig
from dcnn.data.batching import prediction_batches
from dcnn.errors import ConfigError, DataError, UserError
from dcnn.metrics import sigmoid, softmax
from dcnn.ops import reference
from dcnn.ops import select as backends
from dcnn.ops.native import Network
from dcnn.text.vocabulary import Ints, Sentences

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Prediction:
    """A text's labels with their probabilities, most probable first.

    Attributes:
        text: the text.
        ranked: every label with its probability.
        abstained: whether no label was probable enough to be an answer; ``label`` is then only
            the least improbable one.
        over_threshold: the labels that reach their thresholds, most probable first, where a text
            may have several; none where it has exactly one.
    """

    text: str
    ranked: tuple[tuple[Label, float], ...]
    abstained: bool = False
    over_threshold: tuple[Label, ...] | None = None

    @property
    def labels(self) -> tuple[Label, ...]:
        """All that the text is given: one label, or none, or several where it may have several."""
        if self.over_threshold is not None:
            return self.over_threshold
        return () if self.abstained else (self.label,)

    @property
    def ranked_labels(self) -> tuple[tuple[Label, float], ...]:
        """``labels`` with their probabilities."""
        return tuple(pair for pair in self.ranked if pair[0] in self.labels)

    @property
    def label(self) -> Label:
        """The most probable label."""
        return self.ranked[0][0]

    @property
    def probability(self) -> float:
        """The probability of the most probable label."""
        return self.ranked[0][1]


class Predictor:
    """A trained classifier, ready to use.

    Examples:
        >>> Predictor.load("my-model").predict(["a text"])[0].label

    Args:
        artifact: the model.
        threads: CPU threads of the native backend. They change no bit of the result.

    Raises:
        ConfigError: ``DCNN_BACKEND`` names a backend that is not there.
    """

    def __init__(self, artifact: Artifact, threads: int = 1) -> None:
        self.artifact = artifact
        self.classes = artifact.classes
        self.threads = threads
        self._network = _native_network(artifact)

    @classmethod
    def load(cls, path: str | Path, threads: int = 1) -> Self:
        """Open a model folder."""
        return cls(model_folder.load(Path(path)), threads)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process or on another machine finds its own backend.
        return type(self), (self.artifact, self.threads)

    @property
    def multi_label(self) -> bool:
        """Whether a text may have several labels."""
        return self.artifact.multi_label

    @property
    def backend(self) -> str:
        """What computes: ``native`` or ``reference``."""
        return "reference" if self._network is None else "native"

    def predict(self, texts: Iterable[str], abstain_below: float = 0.0) -> list[Prediction]:
        """Classify texts; those whose best probability is under ``abstain_below`` are marked.

        Raises:
            UserError: it is to abstain, and every label has a threshold of its own.
        """
        if abstain_below:
            self.check_abstains(abstain_below)
        texts = checked_texts(texts)
        probabilities = self.probabilities(texts)
        ranking = np.argsort(-probabilities, axis=1, kind="stable")
        return [
            Prediction(
                text,
                tuple((self.classes[i], float(row[i])) for i in order),
                abstained=float(row[order[0]]) < abstain_below,
                over_threshold=self._over_threshold(row, order),
            )
            for text, row, order in zip(texts, probabilities, ranking, strict=True)
        ]

    def check_abstains(self, below: float) -> None:
        """Refuse to abstain below a probability where every label has a threshold of its own.

        Raises:
            UserError: so it is.
        """
        if self.multi_label:
            raise UserError(
                f"abstaining below {below:g} is for models that give one label; this one "
                "gives every label from its threshold on, and may give none"
            )

    def _over_threshold(self, row: Floats, order: Ints) -> tuple[Label, ...] | None:
        thresholds = self.artifact.thresholds
        if thresholds is None:
            return None
        return tuple(self.classes[i] for i in order if float(row[i]) >= thresholds[i])

    def probabilities(self, texts: Iterable[str]) -> Floats:
        """(texts, classes), in the order of ``classes``; with ``multi_label`` each on its own."""
        return self.head(self.logits(self.artifact.encoder.encode_all(checked_texts(texts))))

    def head(self, logits: Floats) -> Floats:
        """Probabilities of logits (..., classes)."""
        return sigmoid(logits) if self.multi_label else softmax(logits)

    def logits(self, sentences: Sentences) -> Floats:
        """(sentences, classes), before the head."""
        if self._network is not None:
            return self._network.logits(sentences.ids, sentences.offsets, self.threads)
        weights = self.artifact.weights
        logits = np.empty((len(sentences), len(self.classes)), np.float32)
        for batch in prediction_batches(sentences):
            words = weights["embeddings"][batch.ids]  # (B, s, d)
            sentence_matrix = words.transpose(0, 2, 1)[:, None]  # (B, 1, d, s)
            features = self._features(sentence_matrix, batch.lengths)
            logits[batch.order] = features @ weights["head.weight"].T + weights["head.bias"]
        return logits

    def _features(self, x: Floats, lengths: Ints) -> Floats:
        match self.artifact.config.model:
            case DCNNConfig() as config:
                return _dcnn(config, self.artifact.weights, x, lengths)
            case MaxTDNNConfig() as config:
                return _max_tdnn(config, self.artifact.weights, x, lengths)
            case NBoWConfig():
                return _nbow(x, lengths)


def _native_network(artifact: Artifact) -> Network | None:
    try:
        backend = backends.for_prediction()
    except (ValueError, RuntimeError) as error:
        raise ConfigError(str(error)) from error
    config = artifact.config.model
    if backend == "native" and isinstance(config, DCNNConfig):
        return Network(artifact.weights, config.fold, config.k_top)
    return None


def checked_texts(texts: object) -> list[str]:
    """``texts``, which may be a column of a frame, as a list of strings.

    Raises:
        DataError: it is a single string, no sequence at all, or one of them is not a string.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise DataError(f"the texts must be a list of strings; got {texts!r:.60}")
    if isinstance(texts, list | tuple):
        checked = list(texts)
    else:
        from dcnn.data.frames import is_frame, values_of  # which a list of texts can do without

        if is_frame(texts):  # whose names would be taken for texts
            raise DataError(
                f"the texts must be a list of strings; got a {type(texts).__name__}: "
                "give one of its columns"
            )
        checked = values_of(texts)
    for index, text in enumerate(checked):
        if not isinstance(text, str):
            raise DataError(f"text {index} must be a string; got {text!r:.60}")
    return checked


def _dcnn(config: DCNNConfig, weights: Weights, x: Floats, lengths: Ints) -> Floats:
    """(B, 1, d, s) -> (B, maps * rows * k_top); the network of Fig. 3."""
    layers = [
        (weights[f"layers.{i}.filters"], weights[f"layers.{i}.bias"]) for i in range(config.depth)
    ]
    top = reference.forward(x, lengths, layers, config.fold, config.k_top)[-1]
    return top.values.reshape(len(x), -1)


def _max_tdnn(config: MaxTDNNConfig, weights: Weights, x: Floats, lengths: Ints) -> Floats:
    """(B, 1, d, s) -> (B, d): narrow convolution, tanh, maximum over time."""
    x = np.where(np.arange(x.shape[-1]) < lengths[:, None, None, None], x, np.float32(0))
    c = reference.wide_convolution(x, weights["layers.0.filters"])[:, 0]  # (B, d, s + m - 1)
    ends = np.arange(c.shape[-1])
    last = np.maximum(lengths, config.width)[:, None, None]
    inside = (ends >= config.width - 1) & (ends < last)
    maxima = np.where(inside, c, -np.inf).max(axis=-1).astype(np.float32)
    features: Floats = np.tanh(maxima + weights["layers.0.bias"][0])
    return features


def _nbow(x: Floats, lengths: Ints) -> Floats:
    """(B, 1, d, s) -> (B, d): the sum of the word vectors."""
    words = np.where(np.arange(x.shape[-1]) < lengths[:, None, None], x[:, 0], np.float32(0))
    features: Floats = np.tanh(words.sum(axis=-1))
    return features
