"""From a model folder to labels and probabilities, without torch.

The forward pass in evaluation mode: a DCNN on the native backend if it is available, everything
else in numpy. Nothing here imports torch, so that a process that loads a model and classifies a
sentence starts fast.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.config import DCNNConfig, MaxTDNNConfig, NBoWConfig
from dcnn.errors import ConfigError, DataError, UserError
from dcnn.ops import native, reference, select
from dcnn.text.encoder import in_parts
from dcnn.text.native import NativeTokenizer
from dcnn.text.vocabulary import Ints, Sentences, marked

if TYPE_CHECKING:
    from dcnn.data.labels import Label

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Prediction:
    """The labels of a text with their probabilities, most probable first.

    Attributes:
        text: the text.
        ranked: every label with its probability.
        abstained: whether the text gets no label: the best probability is below the threshold, or
            the label is the model's out-of-scope class.
        over_threshold: of a multi-label model, the labels that reach their thresholds, most
            probable first; None for a single-label model.
    """

    text: str
    ranked: "tuple[tuple[Label, float], ...]"
    abstained: bool = False
    over_threshold: "tuple[Label, ...] | None" = None

    @property
    def labels(self) -> "tuple[Label, ...]":
        """All labels of the text: one, or none if it abstained; several or none if multi-label."""
        if self.over_threshold is not None:
            return self.over_threshold
        return () if self.abstained else (self.label,)

    @property
    def ranked_labels(self) -> "tuple[tuple[Label, float], ...]":
        """``labels`` with their probabilities."""
        return tuple(pair for pair in self.ranked if pair[0] in self.labels)

    @property
    def label(self) -> "Label":
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
        threads: CPU threads of the native backend. The result does not depend on them.

    Raises:
        ConfigError: ``DCNN_BACKEND`` names a backend that is not available.
        ModelFolderError: a weight is not finite.
    """

    def __init__(self, artifact: Artifact, threads: int = 1) -> None:
        model_folder.check_finite(artifact.weights)
        self.artifact = artifact
        self.classes = artifact.classes
        self.multi_label = artifact.multi_label
        self.threads = threads
        label = self.abstention.get("out_of_scope")
        self.out_of_scope = -1 if label is None else list(map(str, self.classes)).index(str(label))
        try:
            backend = select.for_prediction()
        except (ValueError, RuntimeError) as error:
            raise ConfigError(str(error)) from error
        self._network = None
        if backend == "native" and isinstance(artifact.config.model, DCNNConfig):
            self._network = self._native(artifact.weights)

    def _native(self, weights: model_folder.Weights) -> native.Network:
        model: Any = self.artifact.config.model
        return native.Network(weights, model.fold, model.k_top, self.artifact.encoder.char_ngrams)

    @classmethod
    def load(cls, path: str | Path, threads: int = 1) -> Self:
        """Open a model folder."""
        return cls(model_folder.load(Path(path)), threads)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process or on another machine finds its own backend.
        return type(self), (self.artifact, self.threads)

    @property
    def backend(self) -> str:
        """``native`` or ``reference``."""
        return "reference" if self._network is None else "native"

    @property
    def abstention(self) -> dict[str, Any]:
        """The stored threshold, how it was chosen, and its curve; empty if there is none."""
        stored: dict[str, Any] = self.artifact.metadata.get("abstention", {})
        return stored

    def abstention_threshold(self, target_precision: float | None = None) -> float:
        """The stored probability below which a text should get no label.

        ``target_precision`` chooses it again, on the stored curve of the dev set.

        Raises:
            UserError: there is none, the precision is not reached, or the model is multi-label.
        """
        if self.multi_label:
            raise UserError(
                "a threshold of abstention is for models that give one label; this one gives every "
                "label from its threshold on, and may give none"
            )
        stored, target = self.abstention, target_precision
        if "threshold" in stored and target in (None, stored["target_precision"]):
            return float(stored["threshold"])
        if target is None or not stored:
            raise UserError(
                "the model stores no threshold of abstention; choose one with `dcnn evaluate MODEL "
                "FILE --target-precision 0.95 --store-threshold`, where FILE has labelled texts"
            )
        from dcnn.metrics import stored_curve

        curve = stored_curve(stored)
        place = curve.choose(target)
        if place is None:
            raise curve.unreachable(target, stored["data"])
        return float(curve.thresholds[place])

    def abstains(self, number: Any, probability: Any, below: float) -> Any:
        """Whether a text gets no label; for its best class and probability, or arrays of them."""
        return (probability < below) | (number == self.out_of_scope)

    def predict(
        self,
        texts: Any,
        abstain_below: float = 0.0,
        *,
        abstain: bool = False,
        target_precision: float | None = None,
        text_column: str | None = None,
    ) -> list[Prediction]:
        """Classify texts.

        Args:
            texts: strings, in a list, an array or a column of pandas, polars or pyarrow; or a frame
                of these or of Hugging Face.
            abstain_below: a text whose best probability is lower is marked as abstained.
            abstain: whether to take the stored threshold for this.
            target_precision: take the threshold of this precision on dev.
            text_column: the column of a frame that holds the texts; guessed if not given.

        Raises:
            DataError: the texts are no strings, or the frame has no such column.
            UserError: it should abstain, and the model is multi-label or has no threshold.
        """
        if abstain_below:
            self.check_abstains(abstain_below)
        elif abstain or target_precision is not None:
            abstain_below = self.abstention_threshold(target_precision)
        texts, thresholds = checked_texts(texts, text_column), self.artifact.thresholds
        least = None if thresholds is None else dict(zip(self.classes, thresholds, strict=True))
        predictions, second = [], itemgetter(1)
        for text, row in zip(texts, self.probabilities(texts).tolist(), strict=True):
            pairs = zip(self.classes, row, strict=True)
            ranked = tuple(sorted(pairs, key=second, reverse=True))
            over = None
            if least is not None:
                over = tuple(label for label, share in ranked if share >= least[label])
            best = ranked[0][1]
            abstained = abstain_below > 0 and self.abstains(row.index(best), best, abstain_below)
            predictions.append(Prediction(text, ranked, abstained, over))
        return predictions

    def check_abstains(self, below: float) -> None:
        """Raise UserError if the model is multi-label, where each label has its own threshold."""
        if self.multi_label:
            raise UserError(
                f"abstaining below {below:g} is for models that give one label; this one "
                "gives every label from its threshold on, and may give none"
            )

    def probabilities(self, texts: Any, text_column: str | None = None) -> Floats:
        """(texts, classes), in the order of ``classes``; rows sum to 1 unless multi-label.

        The arguments are those of ``predict``.
        """
        checked = checked_texts(texts, text_column)
        if self._network is not None:
            output = native.SIGMOID if self.multi_label else native.SOFTMAX
            return self._from_texts(self._network, checked, output)
        encoder = self.artifact.encoder
        # Each part has new words of its own: what a text gets does not depend on the others.
        parts = in_parts(map(encoder.tokenizer, checked), len(checked))
        logits = [self.logits(encoder.encode_words(part)) for part in parts]
        none = np.empty((0, len(self.classes)), np.float32)
        return self.head(np.concatenate([none, *logits]))

    def _from_texts(self, network: native.Network, texts: list[str], output: int) -> Floats:
        tokenizer = self._tokenizer
        given = tokenizer.prepared(texts)
        return network.texts(tokenizer.handle, *given, output, self.threads)

    @cached_property
    def _tokenizer(self) -> NativeTokenizer:
        encoder = self.artifact.encoder
        return NativeTokenizer(encoder.tokenizer, encoder.vocabulary.words)

    def head(self, logits: Floats) -> Floats:
        """Probabilities of logits (..., classes)."""
        return reference.sigmoid(logits) if self.multi_label else reference.softmax(logits)

    def logits(self, sentences: Sentences) -> Floats:
        """(sentences, classes), before softmax or sigmoid."""
        if self._network is not None:
            new_words = [marked(word) for word in sentences.new_words]
            return self._network.logits(sentences.ids, sentences.offsets, self.threads, new_words)
        weights = self.artifact.weights
        logits = np.empty((len(sentences), len(self.classes)), np.float32)
        for order, features in self._feature_batches(sentences):
            logits[order] = features @ weights["head.weight"].T + weights["head.bias"]
        return logits

    def features(self, texts: Iterable[str]) -> Floats:
        """(texts, features) what the output layer reads: the network's representation of texts."""
        encoder, checked = self.artifact.encoder, checked_texts(texts)
        if self._network is not None:
            return self._from_texts(self._feature_network, checked, native.LOGITS)
        found = np.empty((len(checked), self.artifact.weights["head.weight"].shape[1]), np.float32)
        first = 0
        for part in in_parts(map(encoder.tokenizer, checked), len(checked)):
            for order, features in self._feature_batches(encoder.encode_words(part)):
                found[first + order] = features
            first += len(part)
        return found

    @cached_property
    def _feature_network(self) -> native.Network:
        """The network with the identity as output layer, so that its logits are the features."""
        artifact, width = self.artifact, self.artifact.weights["head.weight"].shape[1]
        head: model_folder.Weights = {
            "head.weight": np.eye(width, dtype=np.float32),
            "head.bias": np.zeros(width, np.float32),
        }
        return self._native(artifact.weights | head)

    def _feature_batches(self, sentences: Sentences) -> Iterator[tuple[Ints, Floats]]:
        """Numbers of sentences (B,) and their features (B, features), in numpy."""
        from dcnn.data.batching import prediction_batches  # not needed with the native backend

        for batch in prediction_batches(sentences):
            words = self.artifact.embed(batch.ids, sentences.new_words)  # (B, s, d)
            sentence_matrix = words.transpose(0, 2, 1)[:, None]  # (B, 1, d, s)
            yield batch.order, self._features(sentence_matrix, batch.lengths)

    def _features(self, x: Floats, lengths: Ints) -> Floats:
        """(B, 1, d, s) -> (B, features)."""
        config, weights = self.artifact.config.model, self.artifact.weights
        exists = np.arange(x.shape[-1]) < lengths[:, None, None, None]
        match config:
            case DCNNConfig():
                layers = self.artifact.layers
                last = reference.forward(x, lengths, layers, config.fold, config.k_top)[-1]
                features = last.values.reshape(len(x), -1)
            case MaxTDNNConfig():  # narrow convolution, maximum over time, tanh
                x = np.where(exists, x, np.float32(0))
                c = reference.wide_convolution(x, weights["layers.0.filters"])[:, 0]
                ends = np.arange(c.shape[-1])  # c is (B, d, s + m - 1)
                stop = np.maximum(lengths, config.width)[:, None, None]
                inside = (ends >= config.width - 1) & (ends < stop)
                maxima = np.where(inside, c, -np.inf).max(axis=-1).astype(np.float32)
                features = np.tanh(maxima + weights["layers.0.bias"][0])
            case NBoWConfig():
                features = np.tanh(np.where(exists, x, np.float32(0))[:, 0].sum(axis=-1))
        return features


def checked_texts(texts: object, text_column: str | None = None) -> list[str]:
    """``texts``, which may be a column, or a frame with a column of them, as a list of strings."""
    if isinstance(texts, list | tuple) and text_column is None:
        checked = list(texts)
    else:
        from dcnn.data.columns import Frame, is_frame, shown, values_of  # not needed for a list

        if is_frame(texts):
            frame = Frame(texts, "X")
            checked = frame.column(frame.choose(text_column, None, labels=False).text)
        elif text_column is not None:
            raise DataError(
                f"text_column {shown(text_column)} names a column, and the texts are a "
                f"{type(texts).__name__} without any; give a frame, or leave it out"
            )
        elif isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
            raise DataError(
                f"the texts must be a list of strings; got {texts!r:.60}; give a list, a column or "
                "a frame"
            )
        else:
            checked = values_of(texts)
    for index, text in enumerate(checked):
        if not isinstance(text, str):
            raise DataError(f"text {index} must be a string; got {text!r:.60}")
    return checked
