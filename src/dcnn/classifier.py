"""``DCNNClassifier``: the network with the scikit-learn estimator API.

The constructor stores, ``fit`` learns, learned attributes end in an underscore; ``clone``,
``GridSearchCV`` and ``cross_val_score`` work on lists of strings, and on columns and frames of
pandas and polars.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcnn import artifact as model_folder
from dcnn.artifact import Artifact
from dcnn.config import (
    AUTO,
    DEFAULT,
    NETWORK,
    Config,
    DCNNConfig,
    TextConfig,
    TrainingConfig,
    settings_of,
    to_plain,
)
from dcnn.data.columns import Columns, Frame, is_frame, shown, shown_names
from dcnn.data.labels import LabelledTexts, label_texts
from dcnn.data.split import split_dev
from dcnn.errors import ConfigError, DataError, needs_extra
from dcnn.inspection import Explanation, explain
from dcnn.metrics import apply_thresholds, stored_curve
from dcnn.predictor import Predictor, checked_texts

with needs_extra("DCNNClassifier", "train"):
    from joblib import effective_n_jobs
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted

_OTHER_NAMES = {"class_weights": "class_weight", "seed": "random_state", "threads": "n_jobs"}
_SECTIONS = {"text": TextConfig, "model": DCNNConfig, "training": TrainingConfig}


@dataclass(kw_only=True, eq=False, repr=False)
class DCNNClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A Dynamic Convolutional Neural Network that learns from labelled texts.

    The parameters are the settings of ``dcnn.config``, under the same names; ``auto`` is decided by
    the number of texts. It has these of its own:

    Args:
        random_state: the seed of all randomness; none gives a different model each time.
        device: ``auto`` (a GPU where there is one), ``cpu`` or ``cuda``.
        class_weight: ``balanced`` (inverse to the frequency of the class), a dict of weights by
            label, or none.
        n_jobs: CPU threads of training; none is 1, and -1 as many as there are cores.
        verbose: whether to draw a progress bar.
        target_precision: the share of answers that should be correct; ``fit`` then chooses the
            threshold of abstention on dev, for ``predict`` with ``abstain``.
        keep_examples: how many texts of dev, or of ``X`` if there is no dev, ``save`` writes into
            the model folder with their labels: examples for the page, which ``partial_fit``
            learns again; 0 by default, since texts may be private.

    Where ``y`` is an indicator matrix of 0 and 1, or has a list of labels per text, the model is
    multi-label; ``predict`` then gives such a matrix, in the order of ``classes_``.

    Attributes:
        classes_: the labels, sorted, with those of later ``partial_fit`` after them; the columns'
            numbers where ``y`` is a matrix.
        thresholds_: the lowest probability at which each label is predicted, chosen on dev; none
            where a text has one label.
        n_epochs_: epochs trained.
        dev_accuracy_: accuracy on the dev set; where the examples are too few to hold any out, that
            of a cross-validation.
        history_: every evaluation on the dev set.
        text_column_: the column of the texts, if ``fit`` was given a frame.
        abstention_: the threshold of abstention and what it does on dev; none if there is none.
        distillation_: how teacher and student compare on dev, if ``fit`` was given a teacher.

    Examples:
        >>> model = DCNNClassifier(epochs=5).fit(texts, labels)
        >>> model.predict(["a text"])
    """

    dim: int = NETWORK.dim
    widths: Sequence[int] = NETWORK.widths
    maps: Sequence[int] = NETWORK.maps
    k_top: int = NETWORK.k_top
    fold: bool = NETWORK.fold
    dropout: float = NETWORK.dropout
    tokenizer: str = DEFAULT.text.tokenizer
    lowercase: bool = DEFAULT.text.lowercase
    n_subwords: int = DEFAULT.text.n_subwords
    char_ngrams: Sequence[int] = DEFAULT.text.char_ngrams
    n_buckets: int = DEFAULT.text.n_buckets
    min_count: int = DEFAULT.text.min_count
    max_size: int = DEFAULT.text.max_size
    vectors: str = DEFAULT.text.vectors
    vectors_scale: float = DEFAULT.text.vectors_scale
    vectors_projection: float = DEFAULT.text.vectors_projection
    vectors_words: int = DEFAULT.text.vectors_words
    n_ensemble: int = DEFAULT.training.n_ensemble
    epochs: int | str = AUTO
    batch_size: int | str = AUTO
    learning_rate: float = DEFAULT.training.learning_rate
    schedule: str = AUTO
    eps: float = DEFAULT.training.eps
    reset_every: int = DEFAULT.training.reset_every
    l2_embeddings: float = DEFAULT.training.l2_embeddings
    decay_embeddings: float = DEFAULT.training.decay_embeddings
    l2_projection: float = DEFAULT.training.l2_projection
    l2_filters: Sequence[float] = DEFAULT.training.l2_filters
    l2_head: float = DEFAULT.training.l2_head
    max_grad_norm: float = DEFAULT.training.max_grad_norm
    label_smoothing: float = DEFAULT.training.label_smoothing
    class_weight: Any = None
    word_dropout: float | str = AUTO
    ema: float = DEFAULT.training.ema
    keep: str = AUTO
    patience: int | str = AUTO
    evaluations_per_epoch: int = DEFAULT.training.evaluations_per_epoch
    dev_fraction: float | str = AUTO
    folds: int | str = AUTO
    calibrate: bool = DEFAULT.training.calibrate
    random_state: Any = DEFAULT.training.seed
    device: str = "auto"
    n_jobs: int | None = None
    verbose: bool = False
    target_precision: float | None = None
    keep_examples: int = 0

    def __new__(cls, *_: Any, **parameters: Any) -> Self:
        """Refuse names of settings that scikit-learn names otherwise."""
        for name in parameters.keys() & _OTHER_NAMES.keys():
            raise ConfigError(
                f"DCNNClassifier has no parameter {name}={parameters[name]!r:.60}; it is named "
                f"{_OTHER_NAMES[name]}, as in scikit-learn"
            )
        classifier: Self = super().__new__(cls)
        return classifier

    @property
    def config(self) -> Config:
        """The parameters as a checked config."""
        # A search may pass numbers and arrays of numpy.
        parameters = {
            name: value.tolist() if isinstance(value, np.generic | np.ndarray) else value
            for name, value in self.get_params().items()
        }
        if not isinstance(seed := parameters["random_state"], int):
            seed = int(check_random_state(seed).randint(2**31 - 1))
        weight = parameters["class_weight"]
        if not (weight is None or weight == "balanced" or isinstance(weight, Mapping)):
            raise ConfigError(
                f"class_weight={weight!r:.60} must be None, 'balanced' or a dict of weights by "
                "label"
            )
        parameters["class_weights"] = "balanced" if weight == "balanced" else "none"
        parameters["seed"] = seed
        sections = {
            name: {key: parameters[key] for key in settings_of(section)}
            for name, section in _SECTIONS.items()
        }
        return Config.from_dict(sections, where="DCNNClassifier")

    def fit(
        self,
        X: Any,  # noqa: N803
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        dev: Any = None,
        *,
        text_column: str | None = None,
        label_column: str | None = None,
        teacher: Any = None,
        unlabelled: Any = None,
        out_of_scope: Any = None,
        out_of_scope_texts: Any = None,
    ) -> Self:
        """Learn from texts ``X`` and labels ``y``, or from a frame that holds both.

        Args:
            X: N strings, in a list, an array or a column; or a frame of pandas, polars, pyarrow or
                Hugging Face.
            y: N labels of one type, N lists of labels, an indicator matrix (N, labels) of 0 and 1,
                or one of probabilities that sum to 1 in each row; in place of a label or a list,
                a dict of probabilities by label; may be left out where ``X`` is a frame with a
                column of these.
            sample_weight: N weights, or none.
            dev: texts and labels, or a frame like ``X``, to calibrate probabilities and, with
                ``keep="best"``, to select the weights; by default a stratified ``dev_fraction`` of
                the training set is held out, unless it is small and dev does not select weights.
            text_column: the column of the frame that holds the texts; guessed if not given.
            label_column: the column of the frame that holds the labels; guessed if not given.
            teacher: what labels all texts, so that the network learns its probabilities: an object
                with ``predict_proba``, a function of a list of texts, a pretrained encoder or a
                dcnn model folder by path or name, or a list of these, whose mean labels.
            unlabelled: further texts for the teacher to label; without them some are made from the
                words of ``X``.
            out_of_scope: the label in ``y`` whose texts should get no label.
            out_of_scope_texts: other texts that should get none, like ``X``.

        Raises:
            DataError: the data cannot be used; or ``target_precision`` is not reached on dev, and
                the model is fitted without a threshold.
        """
        from dcnn.training.callbacks import TrainingBar
        from dcnn.training.fit import RunOptions, fit
        from dcnn.training.warm_start import choose_examples

        config = self.config
        threads = self._threads()
        train, columns = _read("X", X, y, text_column, label_column)
        if not len(train):
            raise DataError("X has no texts; give at least two, of different labels")
        classes = np.array(train.classes)
        if not train.multi_label:
            check_classification_targets(classes[train.class_numbers])
        if len(classes) < 2:
            raise DataError(f"y has one class only, {classes.tolist()}; give two or more")
        train = _with_weights(train, sample_weight)
        if isinstance(self.class_weight, Mapping):
            train = _weighted(train, self.class_weight)
        outside = [] if out_of_scope_texts is None else self._texts(out_of_scope_texts)
        self._check_abstention(train, out_of_scope, outside)
        if unlabelled is not None and teacher is None:
            raise DataError("unlabelled texts need a teacher that labels them; pass teacher")
        if dev is not None:
            dev = _read_dev(dev, train, columns)
        labels = None
        if teacher is not None:
            with needs_extra("A teacher", "train"):
                from dcnn.training import distillation, encoders

            more = [] if unlabelled is None else self._texts(unlabelled)
            if dev is None:
                train, dev = distillation.hold_out_dev(train, None, more, config.training)
            chosen = encoders.as_teacher(teacher, train, dev, self.device)
            seed, cache = config.training.seed, distillation.cache()
            labels = distillation.pseudo_label(
                chosen, train, dev, None, more, seed=seed, cache=cache
            )
            train, dev, config = labels.examples, labels.dev_set, labels.student_config(config)
        elif dev is None:
            train, dev = split_dev(train, config.training)
        kept = choose_examples(
            train if dev is None else dev, self.keep_examples, config.training.seed
        )
        with TrainingBar() if self.verbose else nullcontext() as callback:
            options = RunOptions(
                device=self.device,
                callback=callback,
                threads=threads,
                target_precision=self.target_precision,
                out_of_scope=out_of_scope,
                out_of_scope_texts=outside,
            )
            artifact, summary = fit(train, dev, config, options)
        if labels is not None:
            self.distillation_ = distillation.compare(artifact, labels)
            artifact = self.distillation_.added_to(artifact)
        artifact = replace(artifact, examples=kept)
        self.history_ = summary.history
        self.text_column_ = None if columns is None else columns.text
        self._learned(artifact, classes, summary.epochs, summary.dev_accuracy)
        if self.target_precision is not None and self.abstention_ is None:
            if not (record := self.predictor_.abstention):
                found = "dev has those of the teacher"
                if labels is None:
                    found = "the examples are too few to hold any out"
                raise DataError(
                    f"target_precision needs a dev set with labels of its own, and {found}; pass "
                    "dev (the model is fitted, without a threshold)"
                )
            error = stored_curve(record).unreachable(self.target_precision, record["data"])
            raise DataError(f"{error} (the model is fitted, without a threshold)")
        return self

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        replay: Any = None,
        text_column: str | None = None,
        label_column: str | None = None,
    ) -> Self:
        """Continue training with new examples, which may have new words and new labels.

        All examples are trained on; nothing is held out or calibrated. A model that is not fitted
        yet starts from nothing. ``epochs``, ``schedule`` and such are decided by the number of
        examples; other settings are those of the model.

        Args:
            X: as for ``fit``.
            y: as for ``fit``.
            classes: labels that the model should know, if they are not in ``y`` yet.
            sample_weight: N weights, or none.
            replay: texts and labels, or a frame like ``X``, of old examples to learn again, so that
                they are not forgotten; by default those of ``keep_examples``, if there are any.
            text_column: as for ``fit``.
            label_column: as for ``fit``.
        """
        from dcnn.training import warm_start
        from dcnn.training.fit import RunOptions, fit

        more, columns = _read("X", X, y, text_column, label_column)
        more = _with_weights(more, sample_weight)
        if isinstance(self.class_weight, Mapping):
            more = _weighted(more, self.class_weight)
        if not len(more):
            raise DataError("X has no texts; give at least one")
        wanted = [] if classes is None else np.asarray(classes).tolist()
        known = list(self.classes_.tolist()) if hasattr(self, "predictor_") else []
        start = None
        if not known:
            labels = sorted({*wanted, *more.classes}, key=lambda one: (str(type(one)), one))
            if len(labels) < 2:
                raise DataError(
                    f"y has one class only, {labels}; pass all labels as classes, or give two"
                )
            if replay is not None:
                raise DataError("replay is for a model that has learned something; pass it as X")
            config = self.config.with_training(dev_fraction=0.0, folds=0)
            train = more.with_classes(labels)
        else:
            if list(more.classes) == list(range(len(known))) and getattr(y, "ndim", 1) == 2:
                more = replace(more, classes=known)  # a matrix has a column per label
            start = self.predictor_.artifact
            given, used = self.config.training, start.config.training
            changed = {
                name: value
                for name, value in to_plain(given).items()
                if value not in (to_plain(DEFAULT.training)[name], to_plain(used)[name])
            }
            changed |= {"dev_fraction": 0.0, "folds": 0, "seed": given.seed}
            config = warm_start.config_of(start, **changed)
            old = None if replay is None else _read_pair("replay", replay, columns)
            train = warm_start.join(start, more, None, old, config.training, wanted).train
        options = RunOptions(device=self.device, threads=self._threads(), start_from=start)
        artifact, summary = fit(train, None, config, options)
        kept = warm_start.choose_examples(train, self.keep_examples, config.training.seed)
        artifact = replace(artifact, examples=kept)
        self.history_ = summary.history
        if columns is not None or not hasattr(self, "text_column_"):
            self.text_column_ = None if columns is None else columns.text
        return self._learned(artifact, np.array(artifact.classes), summary.epochs, None)

    def _threads(self) -> int:
        if not isinstance(self.n_jobs, int | None) or self.n_jobs == 0:
            raise ConfigError(
                f"n_jobs={self.n_jobs!r} must be a number of threads, or -1 for one per core"
            )
        return int(effective_n_jobs(self.n_jobs))

    def _check_abstention(
        self, train: LabelledTexts, out_of_scope: Any, outside: Sequence[str]
    ) -> None:
        target = self.target_precision
        if target is not None and not 0 <= target <= 1:
            raise DataError(f"target_precision={target!r} must be from 0 to 1, such as 0.95")
        asked = target is not None or out_of_scope is not None or bool(outside)
        if asked and train.multi_label:
            raise DataError(
                "target_precision and out_of_scope are for one label per text; in multi-label data "
                "each label has a threshold of its own, and a text may have none"
            )
        if out_of_scope is not None and out_of_scope not in train.classes:
            names = shown_names([str(label) for label in train.classes])
            raise DataError(
                f"out_of_scope={out_of_scope!r} is no label of y, which has {names}; name one of "
                "them, or give out_of_scope_texts"
            )

    def _learned(
        self, artifact: Artifact, classes: NDArray[Any], epochs: int, dev_accuracy: float | None
    ) -> Self:
        self.classes_, self.thresholds_ = classes, artifact.thresholds
        self.predictor_ = Predictor(artifact)
        self.n_epochs_, self.dev_accuracy_ = epochs, dev_accuracy
        record = self.predictor_.abstention
        self.abstention_ = record if "threshold" in record else None
        return self

    def predict_proba(
        self,
        X: Any,  # noqa: N803
        *,
        text_column: str | None = None,
    ) -> NDArray[np.float32]:
        """Probabilities (N, classes), in the order of ``classes_``.

        Args:
            X: N strings, in a list, an array or a column; or a frame.
            text_column: the column of the frame that holds the texts; by default the one that
                ``fit`` found, or one that can be guessed.
        """
        check_is_fitted(self, "predictor_")
        return self.predictor_.probabilities(self._texts(X, text_column))

    def predict(
        self,
        X: Any,  # noqa: N803
        *,
        abstain: bool = False,
        text_column: str | None = None,
    ) -> NDArray[Any]:
        """The most probable label of each text; where multi-label, an indicator matrix of 0 and 1.

        Args:
            X: as for ``predict_proba``.
            abstain: whether a text below the threshold of abstention gets None, in an array of
                objects.
            text_column: as for ``predict_proba``.
        """
        probabilities = self.predict_proba(X, text_column=text_column)
        if abstain:
            below, numbers = self.predictor_.abstention_threshold(), probabilities.argmax(axis=1)
            best = probabilities.max(axis=1, initial=0).astype(np.float64)
            chosen: NDArray[Any] = self.classes_[numbers].astype(object)
            chosen[self.predictor_.abstains(numbers, best, below)] = None
            return chosen
        if self.thresholds_ is not None:
            return apply_thresholds(probabilities, self.thresholds_).astype(np.int64)
        labels: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return labels

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:  # noqa: N803
        """Accuracy; where multi-label, subset accuracy.

        Args:
            X: as for ``predict``.
            y: as for ``fit``, which takes lists of labels, where scikit-learn itself does not.
            sample_weight: N weights, or none.
        """
        check_is_fitted(self, "predictor_")
        if self.thresholds_ is not None and getattr(y, "ndim", 1) == 1:
            given = label_texts(self._texts(X), y, "y")
            if not given.multi_label:
                raise DataError("y has one label per text, where the model is multi-label")
            is_matrix = list(given.classes) == list(range(len(self.classes_)))
            y = given.targets if is_matrix else given.with_classes(self.classes_.tolist()).targets
        return float(super().score(X, y, sample_weight))

    @overload
    def explain(self, text: str, of_class: Any = None) -> Explanation: ...
    @overload
    def explain(self, text: Any, of_class: Any = None) -> Explanation | list[Explanation]: ...
    def explain(self, text: Any, of_class: Any = None) -> Explanation | list[Explanation]:
        """Why a text gets its label, or would get another; see ``dcnn.inspection``.

        Texts in a list, a column or a frame get one explanation each.
        """
        check_is_fitted(self, "predictor_")
        if isinstance(text, str):
            return explain(self.predictor_, text, of_class)
        return [explain(self.predictor_, one, of_class) for one in self._texts(text)]

    def _texts(self, given: Any, text_column: str | None = None) -> list[str]:
        if text_column is None and is_frame(given):
            # A model that was loaded, or learned from a list, has seen no column.
            text_column = getattr(self, "text_column_", None)
        return checked_texts(given, text_column)

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
        settings = {key.split(".")[1]: value for key, value in artifact.config.to_flat().items()}
        settings.pop("kind")
        weight = "balanced" if settings.pop("class_weights") == "balanced" else None
        target = artifact.metadata.get("abstention", {}).get("target_precision")
        seed = settings.pop("seed")
        classifier = cls(
            random_state=seed,
            class_weight=weight,
            target_precision=target,
            keep_examples=len(artifact.examples),
            **settings,
        )
        epochs, accuracy = (artifact.metadata.get(name) for name in ("epochs", "dev_accuracy"))
        return classifier._learned(artifact, np.array(artifact.classes), epochs or 0, accuracy)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.classifier_tags.multi_label = True
        return tags


def _weighted(train: LabelledTexts, by_label: Mapping[Any, float]) -> LabelledTexts:
    """``train`` with the weights of labels; a label that has none counts as 1."""
    if train.multi_label:
        raise DataError(
            "class_weight is for one label per text, and y is multi-label; give sample_weight"
        )
    if unknown := [label for label in by_label if label not in train.classes]:
        raise DataError(
            f"class_weight has a weight for {unknown[0]!r}, which is no label of y; the labels are "
            f"{shown_names([str(label) for label in train.classes])}"
        )
    weights = np.array([by_label.get(label, 1) for label in train.labels], np.float32)
    if not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.any():
        raise DataError("class_weight must have finite numbers of 0 or more, and one above 0")
    return replace(train, weights=weights if train.weights is None else weights * train.weights)


def _read(
    name: str, given: Any, y: Any, text_column: str | None, label_column: str | None
) -> tuple[LabelledTexts, Columns | None]:
    """Labelled texts of the argument ``name``, and the columns they have if it is a frame."""
    if not is_frame(given):
        if text_column is not None or label_column is not None:
            option = "label_column" if text_column is None else "text_column"
            raise DataError(
                f"{option} names a column, and {name} is a {type(given).__name__} without any; "
                "give a frame, or leave it out"
            )
        return label_texts(checked_texts(given), y, name), None
    if y is not None and label_column is not None:
        raise DataError(
            f"both y and label_column {shown(label_column)} give the labels; leave out one of them"
        )
    frame = Frame(given, name)
    columns = frame.choose(text_column, label_column, labels=y is None)
    texts = checked_texts(frame.column(columns.text))
    y = y if columns.label is None else frame.column(columns.label)
    return label_texts(texts, y, name), columns


def _with_weights(examples: LabelledTexts, sample_weight: ArrayLike | None) -> LabelledTexts:
    if sample_weight is None:
        return examples
    weights = np.asarray(sample_weight, np.float32)
    if weights.shape != (len(examples),) or not np.all(np.isfinite(weights) & (weights >= 0)):
        raise DataError("sample_weight must be one finite number of 0 or more for each text")
    return replace(examples, weights=weights)


def _read_pair(name: str, given: Any, columns: Columns | None) -> LabelledTexts:
    """Texts and labels, or a frame that has the columns of the training set."""
    text, label = (None, None) if columns is None else (columns.text, columns.label)
    if is_frame(given):
        return _read(name, given, None, text, label)[0]
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise DataError(
            f"{name}={given!r:.60} must be a pair of texts and labels, or a frame that holds both"
        )
    texts, labels = given
    return _read(name, texts, labels, text if is_frame(texts) else None, None)[0]


def _read_dev(dev: Any, train: LabelledTexts, columns: Columns | None) -> LabelledTexts:
    """A dev set with the classes of ``train``; a frame has the columns of the training set."""
    examples = _read_pair("dev", dev, columns)
    if not len(examples):
        raise DataError("dev has no texts; give at least one, or leave dev out")
    if examples.multi_label != train.multi_label:
        forms = ("single-label", "multi-label")
        raise DataError(
            f"dev is {forms[examples.multi_label]}, where y is {forms[train.multi_label]}; "
            "give both alike"
        )
    return examples.with_classes(train.classes).with_hard_labels()
