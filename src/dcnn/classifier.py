"""Examples in memory, as ``DCNNClassifier`` is given them, made into what training takes.

Texts are in a list, an array or a column, and labels likewise; or both are in a frame of pandas,
polars, pyarrow or Hugging Face. ``dcnn.data.labels`` knows the labels alone.


``DCNNClassifier``: the network with scikit-learn's manners.

The constructor stores, ``fit`` learns, learned names end in an underscore; ``clone``,
``GridSearchCV`` and ``cross_val_score`` work on lists of strings, and on columns and frames of
pandas and polars.

"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcnn import artifact as model_folder
from dcnn.config import DEFAULT, NETWORK, Config, DCNNConfig, TextConfig, TrainingConfig
from dcnn.data.columns import Columns, shown
from dcnn.data.frames import Frame, is_frame
from dcnn.data.labels import LabelSets, checked_labels, dev_targets
from dcnn.data.split import split_label_sets, stratified_split
from dcnn.errors import DataError, MissingExtraError
from dcnn.inspection import Explanation, explain
from dcnn.metrics import over
from dcnn.predictor import Predictor, checked_texts


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
    def multi_label(self) -> bool:
        """Whether a text may have several labels."""
        return isinstance(self.labels, LabelSets)


class TargetedTexts(NamedTuple):
    """Texts with class numbers, or noughts and ones (N, classes); and weights, or none."""

    texts: list[str]
    targets: NDArray[Any]
    weights: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class TrainDevSplit:
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
) -> TrainDevSplit:
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
        return TrainDevSplit(*_hold_out(train, given.labels, config), classes)
    apart = _dev_examples(dev, given.columns)
    if not apart.texts:
        raise DataError("dev has no texts; give at least one, or leave dev out")
    numbers = dev_targets(apart.labels, classes, given.multi_label)
    return TrainDevSplit(train, TargetedTexts(apart.texts, numbers), classes)


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


try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingExtraError("DCNNClassifier", "train") from None

_OWN = ("random_state", "device", "n_jobs", "verbose")
_TEXT = tuple(field.name for field in fields(TextConfig))
_MODEL = ("dim", "widths", "maps", "k_top", "fold", "dropout")


class DCNNClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A Dynamic Convolutional Neural Network that learns from labelled texts.

    The parameters are the settings of ``dcnn.config``, under the same names, with these of its own:

    Args:
        random_state: the seed of all randomness; none gives another model each time.
        device: ``auto`` (a GPU where there is one), ``cpu`` or ``cuda``.
        n_jobs: CPU threads of training.
        verbose: whether to draw a progress bar.

    Where ``y`` is a matrix of noughts and ones, or a list of labels for each text, a text may have
    several labels, or none; ``predict`` then gives such a matrix, in the order of ``classes_``.

    Attributes:
        classes_: the labels, sorted; the columns' numbers where ``y`` is a matrix.
        thresholds_: the probability from which on each label is given, chosen on dev; none where a
            text has one label.
        n_epochs_: epochs trained.
        dev_accuracy_: accuracy on the examples held out for early stopping.
        history_: every look at the dev set.
        text_column_: the column of the texts, where ``fit`` was given a frame, else none.

    Examples:
        >>> model = DCNNClassifier(epochs=5).fit(texts, labels)
        >>> model.predict(["a text"])
    """

    def __init__(
        self,
        *,
        dim: int = NETWORK.dim,
        widths: Sequence[int] = NETWORK.widths,
        maps: Sequence[int] = NETWORK.maps,
        k_top: int = NETWORK.k_top,
        fold: bool = NETWORK.fold,
        dropout: float = NETWORK.dropout,
        tokenizer: str = DEFAULT.text.tokenizer,
        lowercase: bool = DEFAULT.text.lowercase,
        subwords: int = DEFAULT.text.n_subwords,
        min_count: int = DEFAULT.text.min_count,
        max_size: int = DEFAULT.text.max_size,
        vectors: str = DEFAULT.text.vectors,
        vectors_scale: float = DEFAULT.text.vectors_scale,
        vectors_projection: float = DEFAULT.text.vectors_projection,
        vectors_words: int = DEFAULT.text.vectors_words,
        n_ensemble: int = DEFAULT.training.n_ensemble,
        epochs: int = DEFAULT.training.epochs,
        batch_size: int = DEFAULT.training.batch_size,
        learning_rate: float = DEFAULT.training.learning_rate,
        schedule: str = DEFAULT.training.schedule,
        eps: float = DEFAULT.training.eps,
        reset_every: int = DEFAULT.training.reset_every,
        l2_embeddings: float = DEFAULT.training.l2_embeddings,
        decay_embeddings: float = DEFAULT.training.decay_embeddings,
        l2_projection: float = DEFAULT.training.l2_projection,
        l2_filters: Sequence[float] = DEFAULT.training.l2_filters,
        l2_head: float = DEFAULT.training.l2_head,
        max_grad_norm: float = DEFAULT.training.max_grad_norm,
        label_smoothing: float = DEFAULT.training.label_smoothing,
        class_weights: str = DEFAULT.training.class_weights,
        word_dropout: float = DEFAULT.training.word_dropout,
        ema: float = DEFAULT.training.ema,
        patience: int = DEFAULT.training.patience,
        evaluations: int = DEFAULT.training.evaluations_per_epoch,
        dev_fraction: float = DEFAULT.training.dev_fraction,
        calibrate: bool = DEFAULT.training.calibrate,
        random_state: Any = DEFAULT.training.seed,
        device: str = "auto",
        n_jobs: int = 1,
        verbose: bool = False,
    ) -> None:
        self.dim = dim
        self.widths = widths
        self.maps = maps
        self.k_top = k_top
        self.fold = fold
        self.dropout = dropout
        self.tokenizer = tokenizer
        self.lowercase = lowercase
        self.subwords = subwords
        self.min_count = min_count
        self.max_size = max_size
        self.vectors = vectors
        self.vectors_scale = vectors_scale
        self.vectors_projection = vectors_projection
        self.vectors_words = vectors_words
        self.n_ensemble = n_ensemble
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.eps = eps
        self.reset_every = reset_every
        self.l2_embeddings = l2_embeddings
        self.decay_embeddings = decay_embeddings
        self.l2_projection = l2_projection
        self.l2_filters = l2_filters
        self.l2_head = l2_head
        self.max_grad_norm = max_grad_norm
        self.label_smoothing = label_smoothing
        self.class_weights = class_weights
        self.word_dropout = word_dropout
        self.ema = ema
        self.patience = patience
        self.evaluations = evaluations
        self.dev_fraction = dev_fraction
        self.calibrate = calibrate
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def config(self) -> Config:
        """The parameters as a checked config."""
        parameters = {name: _plain(value) for name, value in self.get_params().items()}
        training = {
            name: value
            for name, value in parameters.items()
            if name not in (*_TEXT, *_MODEL, *_OWN)
        }
        return Config.from_dict(
            {
                "text": {name: parameters[name] for name in _TEXT},
                "model": {name: parameters[name] for name in _MODEL},
                "training": training | {"seed": self._seed()},
            },
            where="DCNNClassifier",
        )

    def _seed(self) -> int:
        """``random_state`` as a seed; none, or a generator, gives another one each time."""
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def fit(
        self,
        X: Any,  # noqa: N803
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        dev: Any = None,
        *,
        text_column: str | None = None,
        label_column: str | None = None,
    ) -> Self:
        """Learn from texts ``X`` and labels ``y``, or from a frame that holds both.

        Args:
            X: N strings, in a list, an array or a column; or a frame of pandas, polars, pyarrow or
                Hugging Face.
            y: N labels of any one type, or N lists of labels, or noughts and ones (N, labels); may
                be left out where ``X`` is a frame with a column of labels or lists.
            sample_weight: N weights, or none.
            dev: texts and labels, or a frame like ``X``, for early stopping; by default a
                stratified ``dev_fraction`` of the training set is held out.
            text_column: the column of the frame that holds the texts; guessed if not given.
            label_column: the column of the frame that holds the labels; guessed if not given.
        """
        try:
            from dcnn.training.fit import TextSet, fit
        except ImportError:
            raise MissingExtraError("Training", "train") from None

        config = self.config
        given = given_examples(X, y, text_column, label_column)
        if not given.multi_label:
            check_classification_targets(given.labels)
        lesson = make_lesson(given, sample_weight, dev, config.training)
        with _progress_bar() if self.verbose else nullcontext() as callback:
            artifact, summary = fit(
                TextSet(*lesson.train),
                TextSet(*lesson.dev),
                lesson.classes.tolist(),
                config,
                device=self.device,
                callback=callback,
                threads=self.n_jobs,
                multi_label=given.multi_label,
            )
        self.classes_ = lesson.classes
        self.thresholds_ = artifact.thresholds
        self.predictor_ = Predictor(artifact)
        self.n_epochs_ = summary.epochs
        self.dev_accuracy_ = summary.dev_accuracy
        self.history_ = summary.history
        self.text_column_ = None if given.columns is None else given.columns.text
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """Probabilities (N, classes), in the order of ``classes_``.

        Args:
            X: N strings, in a list, an array or a column; or a frame, which has the column of texts
                that ``fit`` found, or one that can be guessed.
        """
        check_is_fitted(self, "predictor_")
        return self.predictor_.probabilities(self._texts(X))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The most probable label of each text; ``X`` is as for ``predict_proba``.

        Where a text may have several labels, noughts and ones (N, labels).
        """
        probabilities = self.predict_proba(X)
        if self.thresholds_ is not None:
            return over(probabilities, self.thresholds_).astype(np.int64)
        labels: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return labels

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:  # noqa: N803
        """Accuracy; where a text may have several labels, the share that gets all of them alone.

        Args:
            X: as for ``predict``.
            y: as for ``fit``: scikit-learn itself takes no lists of labels.
            sample_weight: N weights, or none.
        """
        check_is_fitted(self, "predictor_")
        if self.thresholds_ is not None and getattr(y, "ndim", 1) == 1:
            y = given_indicators(y, self._texts(X), self.classes_)
        return float(super().score(X, y, sample_weight))

    @overload
    def explain(self, text: str, of_class: Any = None) -> Explanation: ...
    @overload
    def explain(self, text: Any, of_class: Any = None) -> Explanation | list[Explanation]: ...
    def explain(self, text: Any, of_class: Any = None) -> Explanation | list[Explanation]:
        """Why a text gets its label, or would get another; see ``dcnn.inspection``.

        Texts in a list, a column or a frame get an explanation each.
        """
        check_is_fitted(self, "predictor_")
        if isinstance(text, str):
            return explain(self.predictor_, text, of_class)
        return [explain(self.predictor_, one, of_class) for one in self._texts(text)]

    def _texts(self, given: Any) -> list[str]:
        # A model that was loaded, or learned from a list, has seen no column.
        return given_texts(given, getattr(self, "text_column_", None))

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the model folder; ``dcnn predict`` and ``DCNNClassifier.load`` read it."""
        check_is_fitted(self, "predictor_")
        model_folder.save(Path(path), self.predictor_.artifact, overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model folder that holds a DCNN."""
        artifact = model_folder.load(Path(path))
        if not isinstance(artifact.config.model, DCNNConfig):
            raise DataError(f"{path} holds a {artifact.config.model.kind}; use dcnn.Predictor")
        sections = artifact.config.to_dict()
        training = sections["training"]
        random_state = training.pop("seed")
        sections["model"].pop("kind")
        classifier = cls(
            **sections["text"], **sections["model"], **training, random_state=random_state
        )
        classifier.classes_ = np.array(artifact.classes)
        classifier.thresholds_ = artifact.thresholds
        classifier.predictor_ = Predictor(artifact)
        classifier.n_epochs_ = artifact.metadata.get("epochs", 0)
        classifier.dev_accuracy_ = artifact.metadata.get("dev_accuracy")
        return classifier

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.classifier_tags.multi_label = True
        return tags


def _plain(value: object) -> object:
    """A number or array of numpy's, which a search may try, as plain values."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _progress_bar() -> Any:
    from dcnn.terminal import TrainingBar

    return TrainingBar()
