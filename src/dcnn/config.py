"""All settings of a model and of its training, with their rules, and the default recipe.

A configuration has three sections, the same in TOML, in the JSON of a model folder and in
``--set section.key=value``: ``[text]`` (string to ids), ``[model]`` (the network, Sect. 3) and
``[training]`` (objective, optimizer, loop; Sect. 5.1). Each section is a frozen dataclass whose
fields are the schema: type, default, and as an annotation the rule that a value must satisfy.
Rules are checked when a section is built, so no later code meets an impossible network.

``Config()`` is the paper's network for SST, trained alone. ``DEFAULT`` is what ``dcnn train``,
``dcnn tune`` and ``DCNNClassifier`` start from; docs/languages.md says how it was chosen. Some of
its values are ``auto``: ``TrainingConfig.for_examples`` decides them by the number of examples.
"""

import json
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar, cast

from dcnn.errors import ConfigError, DataError

Shapes = dict[str, tuple[int, ...]]
TokenizerName = Literal["words", "tweet", "whitespace", "bpe", "unigram", "characters"]
# The authors' initial values: N(0, 0.05) for embeddings, filters and fully connected weights,
# U(0, 1) for the biases of the layers.
WEIGHT_DEVIATION = 0.05
DECAYING = "embeddings"  # the parameter that ``decay_embeddings`` shrinks
MIN_ENSEMBLE_ROWS = 8  # rows of the sentence matrix; with fewer a network learns little
MAX_BUCKETS = 1 << 24
AUTO = "auto"  # in place of a value that the number of training examples decides

# Settings of release 0.1 by section, and their names since.
RENAMED_SETTINGS = {
    "text": {"subwords": "n_subwords"},
    "training": {
        "members": "n_ensemble",
        "evaluations": "evaluations_per_epoch",
        "l2_top": "l2_head",
    },
    "distillation": {"share": "teacher_weight"},
}

_LIMIT = 2**31  # beyond any sensible setting, and within what every library takes
_TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}


class Rule(NamedTuple):
    """What a value must satisfy, as a test and in words that follow "must be"."""

    holds: Callable[[Any], bool]
    words: str


def at_least(low: float) -> Rule:
    """A number of ``low`` or more."""
    return Rule(lambda value: value >= low, f"{low:g} or more")


def _each_at_least(low: int) -> Rule:
    words = f"one or more values of {low} or more"
    return Rule(lambda values: len(values) >= 1 and min(values) >= low, words)


Count = Annotated[int, at_least(1)]
CountOrZero = Annotated[int, at_least(0)]
Positive = Annotated[float, Rule(lambda value: value > 0, "above 0")]
NotNegative = Annotated[float, at_least(0)]
Fraction = Annotated[float, Rule(lambda value: 0 <= value < 1, "at least 0 and below 1")]


class Section:
    """A frozen dataclass of settings that checks the rules of its fields when it is built."""

    may_be_auto: ClassVar[tuple[str, ...]] = ()  # names of settings
    auto: tuple[str, ...] = ()  # those of them that are still to be decided

    def __post_init__(self) -> None:
        for name, type_ in settings_of(type(self)).items():
            value = getattr(self, name)
            for rule in getattr(type_, "__metadata__", ()):
                shown = list(value) if isinstance(value, tuple) else value
                require(rule.holds(value), f"{name}={shown} must be {rule.words}")


AnySection = TypeVar("AnySection", bound=Section)


def settings_of(section: type[Section]) -> dict[str, Any]:
    """The type of every setting of ``section``, by name."""
    types = {item.name: item.type for item in fields(cast("Any", section))}
    types.pop("auto", None)
    return types


def require(holds: bool, message: str) -> None:
    """Raise a ``ConfigError`` with ``message`` unless the rule holds."""
    if not holds:
        raise ConfigError(message)


@dataclass(frozen=True)
class TextConfig(Section):
    """How a string becomes ids.

    Attributes:
        tokenizer: ``words`` (any language), ``tweet`` (USER, URL, repeated letters shortened),
            ``whitespace`` (text that is already tokenized), ``bpe`` or ``unigram`` (subwords,
            learned from the training texts) or ``characters``.
        lowercase: whether text is lower-cased; ``tweet`` always lower-cases.
        n_subwords: the number of subwords that ``bpe`` and ``unigram`` learn.
        char_ngrams: the shortest and the longest character n-grams of a word, such as [3, 5], whose
            vectors are added to the word's own, so that rare and new words are known by their
            spelling; empty means none. With ``characters`` there are none.
        n_buckets: the number of vectors that all character n-grams share by their hash.
        min_count: words with fewer occurrences in the training texts become the unknown word,
            unless they have a pretrained vector; where there are character n-grams, these remain.
        max_size: the maximum size of the vocabulary, the most frequent words; 0 means no limit.
        vectors: a file of pretrained word vectors to initialize the embeddings from, or empty.
        vectors_scale: a factor for the values of the pretrained vectors.
        vectors_projection: 0, or the learning rate, relative to ``training.learning_rate``, of a
            projection of the pretrained vectors that all words share; see
            ``SentenceModel.project``.
        vectors_words: how many words of the vectors file, from its start, are added to the
            vocabulary although they do not occur in the training texts.
    """

    tokenizer: TokenizerName = "words"
    lowercase: bool = True
    n_subwords: Count = 4000
    char_ngrams: Annotated[
        tuple[int, ...],
        Rule(
            lambda value: not value or (len(value) == 2 and 1 <= value[0] <= value[1] <= 64),
            "[] or two numbers from 1 to 64 such as [3, 5]",
        ),
    ] = ()
    n_buckets: Annotated[
        int, Rule(lambda value: 1 <= value < MAX_BUCKETS, f"1 or more and below {MAX_BUCKETS}")
    ] = 1 << 15
    min_count: Count = 1
    max_size: Annotated[int, Rule(lambda value: value >= 0, "0 (no limit) or more")] = 0
    vectors: str = ""
    vectors_scale: Positive = 1.0
    vectors_projection: Annotated[float, Rule(lambda value: 0 <= value <= 1, "from 0 to 1")] = 0.0
    vectors_words: CountOrZero = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("vectors_projection", "vectors_words"):
            value = getattr(self, name)
            words = f"{name}={value} needs vectors; name their file in text.vectors, or set it to 0"
            require(bool(self.vectors) or not value, words)
        require(
            not self.vectors or self.tokenizer in ("words", "tweet", "whitespace"),
            f"vectors={self.vectors!r} are of words, and tokenizer={self.tokenizer!r} gives other "
            "tokens; set text.tokenizer to words, tweet or whitespace",
        )


class NetworkConfig(Section):
    """The sizes of a network; here those of one without layers, a bag of words."""

    kind: ClassVar[str]
    dim: int
    dropout: float
    widths: tuple[int, ...] = ()
    maps: tuple[int, ...] = ()
    k_top: int = 1
    fold: bool = False

    @property
    def depth(self) -> int:
        """L, the number of convolutional layers."""
        return len(self.maps)

    @property
    def smallest_rows(self) -> int:
        """The fewest rows that make a network: those that folding sums into one."""
        return 2**self.depth if self.fold else 1

    def rows(self, layer: int) -> int:
        """Rows of a map after ``layer`` (1 to L); layer 0 is the sentence matrix."""
        return self.dim // 2**layer if self.fold else self.dim

    @property
    def feature_shape(self) -> tuple[int, int, int]:
        """Maps, rows and values per row of the penultimate layer, the same for every sentence."""
        return (1, *self.maps)[-1], self.rows(self.depth), self.k_top

    def parameter_shapes(self, vocabulary: int, classes: int) -> Shapes:
        """Name and shape of every parameter, for ``vocabulary`` words and ``classes`` labels."""
        shapes: Shapes = {"embeddings": (vocabulary, self.dim)}
        maps_below = 1
        for index, (width, maps) in enumerate(zip(self.widths, self.maps, strict=True)):
            shapes[f"layers.{index}.filters"] = (maps, maps_below, self.rows(index), width)
            shapes[f"layers.{index}.bias"] = (maps, self.rows(index + 1))
            maps_below = maps
        features = math.prod(self.feature_shape)
        return shapes | {"head.weight": (classes, features), "head.bias": (classes,)}


MAX_LAYERS = 32  # far above any that was seen to help, and folding halves the rows in each


@dataclass(frozen=True)
class DCNNConfig(NetworkConfig):
    """The Dynamic Convolutional Neural Network (Sect. 3); the defaults are SST binary's (5.2).

    Attributes:
        dim: d, the size of a word embedding: the rows of the sentence matrix.
        widths: m, the filter width of each convolutional layer. The first must be ``k_top`` or
            more, so that a one-word sentence fills the top pooling.
        maps: the number of feature maps of each layer.
        k_top: the values per row that the topmost pooling keeps.
        fold: whether every layer sums its rows in pairs; ``dim`` must then be a multiple of 2 to
            the number of layers.
        dropout: the dropout rate of the penultimate layer.
    """

    kind: ClassVar[str] = "dcnn"
    dim: Count = 48
    widths: Annotated[tuple[int, ...], _each_at_least(1)] = (7, 5)
    maps: Annotated[tuple[int, ...], _each_at_least(1)] = (6, 14)
    k_top: Count = 4
    fold: bool = True
    dropout: Fraction = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            len(self.widths) <= MAX_LAYERS,
            f"widths has {len(self.widths)} values, and a network has at most "
            f"{MAX_LAYERS} layers; leave some out",
        )
        require(
            len(self.widths) == len(self.maps),
            f"widths={list(self.widths)} and maps={list(self.maps)} need one value per layer each",
        )
        # The first wide convolution makes s + m - 1 columns. With m >= k_top that is enough for
        # every s >= 1, and k never grows from one layer to the next.
        require(
            self.widths[0] >= self.k_top,
            f"widths[0]={self.widths[0]} is below k_top={self.k_top}, so a one-word sentence "
            f"cannot fill the top pool; set widths[0] to {self.k_top} or more",
        )
        require(
            self.dim % self.smallest_rows == 0,
            f"dim={self.dim} cannot be folded {self.depth} times; "
            f"set dim to a multiple of {self.smallest_rows} or fold to false",
        )


@dataclass(frozen=True)
class MaxTDNNConfig(NetworkConfig):
    """The Max-TDNN sentence model (Sect. 2.3): narrow convolution, tanh, max over time.

    The paper mentions dropout for the DCNN alone, so there is none by default.

    Attributes:
        dim: the size of a word embedding.
        width: the filter width.
        dropout: the dropout rate of the penultimate layer.
    """

    kind: ClassVar[str] = "max-tdnn"
    dim: Count = 48
    width: Count = 6
    dropout: Fraction = 0.0
    maps = (1,)

    @property
    def widths(self) -> tuple[int, ...]:  # type: ignore[override]
        """Of its one layer."""
        return (self.width,)


@dataclass(frozen=True)
class NBoWConfig(NetworkConfig):
    """The Neural Bag-of-Words (Sect. 2.1): the sum of the word vectors, then tanh.

    The paper mentions dropout for the DCNN alone, so there is none by default.

    Attributes:
        dim: the size of a word embedding.
        dropout: the dropout rate of the penultimate layer.
    """

    kind: ClassVar[str] = "nbow"
    dim: Count = 48
    dropout: Fraction = 0.0


@dataclass(frozen=True)
class ComposedConfig(NetworkConfig):
    """A network that composes vectors by one layer, again and again (Sect. 2.1).

    Attributes:
        dim: the size of a word embedding and of every composed vector.
        dropout: the dropout rate of the vectors that are classified.
    """

    dim: Count = 48
    dropout: Fraction = 0.0

    @property
    def smallest_rows(self) -> int:
        """All of them: every value of a composed vector comes from all values of its parts."""
        return self.dim

    @property
    def composition(self) -> Shapes:
        """The parameters of the layer: of two vectors of size ``dim`` one is made."""
        return {"weight": (self.dim, 2 * self.dim), "bias": (self.dim,)}

    def parameter_shapes(self, vocabulary: int, classes: int) -> Shapes:
        """Name and shape of every parameter, for ``vocabulary`` words and ``classes`` labels."""
        own = {f"composition.{name}": shape for name, shape in self.composition.items()}
        return super().parameter_shapes(vocabulary, classes) | own


class RNNConfig(ComposedConfig):
    """The recurrent network (Sect. 2.1): the recursive one along a linear chain."""

    kind: ClassVar[str] = "rnn"


class LSTMConfig(RNNConfig):
    """The same chain with gates and a memory cell (Hochreiter and Schmidhuber 1997)."""

    kind: ClassVar[str] = "lstm"

    @property
    def composition(self) -> Shapes:
        """Three gates and the new content, each from a word and the state before it."""
        return {"weight": (4 * self.dim, 2 * self.dim), "bias": (4 * self.dim,)}


@dataclass(frozen=True)
class RecNNConfig(ComposedConfig):
    """The recursive network along a parse tree (Sect. 2.1): one matrix composes two children."""

    kind: ClassVar[str] = "recnn"
    dim: Count = 25


class RecNTNConfig(RecNNConfig):
    """The recursive network whose composition has a tensor too (Table 1; Socher et al. 2013)."""

    kind: ClassVar[str] = "recntn"

    @property
    def composition(self) -> Shapes:
        """A bilinear form of both children per value."""
        return super().composition | {"tensor": (self.dim, 2 * self.dim, 2 * self.dim)}


ModelConfig = DCNNConfig | MaxTDNNConfig | NBoWConfig | RNNConfig | RecNNConfig
# What a model folder can hold; and with the networks that only experiments compare with.
MODEL_KINDS: dict[str, type[ModelConfig]] = {
    config.kind: config for config in (DCNNConfig, MaxTDNNConfig, NBoWConfig)
}
TREE_KINDS: dict[str, type[ModelConfig]] = {
    config.kind: config for config in (RecNNConfig, RecNTNConfig)
}
RECIPE_KINDS = MODEL_KINDS | {"rnn": RNNConfig, "lstm": LSTMConfig} | TREE_KINDS


FEW_EXAMPLES = 5000  # below that, a tenth more to learn from is worth more than a dev set
BATCH_SIZE, EPOCHS = 32, 8  # where the learning rate decays
# From 1,000 examples to those few: chosen on corpora of such sizes (docs/languages.md).
SMALL_CORPUS, SMALL_BATCH_SIZE, SMALL_EPOCHS = 1000, 16, 5
MIN_UPDATES = 120
# A second minimum of updates, per class; capped, as an update is slower with more classes.
UPDATES_PER_CLASS, MOST_UPDATES = 5, 2000
MIN_PATIENCE = 40  # in updates
FOLDS = 5
ENOUGH_SCORED = 500  # examples: further folds would hardly change the temperature


@dataclass(frozen=True)
class TrainingConfig(Section):
    """How the objective is minimized (Sect. 5.1).

    Settings named in ``may_be_auto`` may be ``auto``; ``for_examples`` then decides them.

    Attributes:
        n_ensemble: the maximum number of networks in the ensemble. The rows of the sentence
            matrix are divided among them, each is trained on its own, and their mean is saved as
            one network; ``Config.n_ensemble`` is the number that the rows allow.
        epochs: the maximum number of passes over the training set.
        batch_size: sentences per step.
        learning_rate: Adagrad's learning rate.
        schedule: ``constant``, or ``linear`` decay to zero over all epochs.
        eps: Adagrad's epsilon, added to the root of the accumulator.
        reset_every: epochs after which Adagrad's accumulators are reset to zero; 0 means never.
        l2_embeddings: L2 on the word embeddings; with a projection, on the part of each word.
        decay_embeddings: decoupled weight decay of the word embeddings per step, relative to the
            learning rate.
        l2_projection: L2 on the projection of pretrained vectors, where there is one.
        l2_filters: L2 on the filters of each layer; the last value also applies to all layers
            above it.
        l2_head: L2 on the weights of the output layer.
        max_grad_norm: gradients are clipped to this norm, in an ensemble to as much per network in
            the mean; 0 means no limit.
        label_smoothing: the fraction of a hard target that is spread over all classes.
        class_weights: ``none``, or ``balanced`` (inverse to the frequency of the class).
        word_dropout: the fraction of words replaced by the unknown word in training.
        ema: decay of the moving average of the weights that is evaluated and saved; 0 means none.
        keep: with a dev set, ``best`` keeps the weights that score best on it (by accuracy, then
            by loss) and stops early, ``last`` keeps the last ones.
        patience: evaluations without improvement before training stops early; 0 means never.
        evaluations_per_epoch: how often the dev set is evaluated per epoch.
        dev_fraction: the fraction of the training set held out when no dev set is given; 0 means
            that all examples are trained on, for all epochs.
        folds: where there is no dev set, the folds of the cross-validation that gives dev accuracy,
            temperature and thresholds, as many of them as score 500 examples; 0 means none.
        calibrate: whether the probabilities are calibrated at the end, with a temperature fitted
            on the dev set; see ``dcnn.metrics``.
        seed: the one source of all randomness.
    """

    may_be_auto: ClassVar[tuple[str, ...]] = (
        *("epochs", "batch_size", "schedule", "word_dropout"),
        *("keep", "patience", "dev_fraction", "folds"),
    )
    n_ensemble: Count = 1
    epochs: Count = 12
    batch_size: Count = 32
    learning_rate: Positive = 0.1
    schedule: Literal["constant", "linear"] = "constant"
    eps: Positive = 1e-6
    reset_every: CountOrZero = 0
    l2_embeddings: NotNegative = 1e-4
    decay_embeddings: NotNegative = 0.0
    l2_projection: NotNegative = 1e-3
    l2_filters: Annotated[tuple[float, ...], _each_at_least(0)] = (3e-5, 3e-6)
    l2_head: NotNegative = 1e-4
    max_grad_norm: NotNegative = 5.0
    label_smoothing: Fraction = 0.0
    class_weights: Literal["none", "balanced"] = "none"
    word_dropout: Fraction = 0.1
    ema: Fraction = 0.0
    keep: Literal["best", "last"] = "best"
    patience: CountOrZero = 5
    evaluations_per_epoch: Count = 1
    dev_fraction: Fraction = 0.1
    folds: Annotated[int, Rule(lambda value: value == 0 or value >= 2, "0 or 2 or more")] = 0
    calibrate: bool = True
    seed: CountOrZero = 0
    auto: tuple[str, ...] = ()

    def l2_of(self, name: str) -> float:
        """The L2 term of a parameter by its name; biases have none."""
        match name.split("."):
            case ["embeddings"]:
                return self.l2_embeddings
            case ["projection"]:
                return self.l2_projection
            case ["head", "weight"]:
                return self.l2_head
            case ["layers", index, "filters"]:
                return self.l2_filters[min(int(index), len(self.l2_filters) - 1)]
            case ["composition", "weight" | "tensor" as part]:
                return self.l2_filters[-1 if part == "tensor" else 0]
        return 0.0

    def decay_of(self, name: str) -> float:
        """The decay of a parameter by its name; only embeddings decay."""
        return self.decay_embeddings if name == DECAYING else 0.0

    def for_examples(self, train: int, dev: int = 0, classes: int = 2) -> "TrainingConfig":
        """A copy with ``auto`` settings decided for these numbers of examples and classes.

        By default the learning rate decays to zero in few epochs, without word dropout, and the
        last weights are kept. If a constant rate, the best weights or early stopping are asked for,
        the weights are selected on dev as in ``Config()``.

        With few examples an epoch has few updates, and a tenth of the examples is too small a dev
        set to decide anything. So there are more epochs and, unless dev is to select the weights,
        all examples are trained on, and cross-validation replaces dev. From 1,000 examples on,
        smaller batches and fewer epochs are used, which fit the examples less closely.
        """
        dev_decides = (
            ("schedule" not in self.auto and self.schedule == "constant")
            or ("keep" not in self.auto and self.keep == "best")
            or ("patience" not in self.auto and self.patience > 0)
        )
        few = train + dev < FEW_EXAMPLES
        small = few and train + dev >= SMALL_CORPUS and not dev_decides
        batch_size = self.batch_size
        if "batch_size" in self.auto:
            batch_size = SMALL_BATCH_SIZE if small else BATCH_SIZE
        # Larger batches, if they were set, mean fewer updates, so they need more epochs.
        epochs = SMALL_EPOCHS if small and batch_size <= SMALL_BATCH_SIZE else EPOCHS
        steps = math.ceil(max(train, 1) / batch_size)  # per epoch
        updates = max(MIN_UPDATES, min(UPDATES_PER_CLASS * classes, MOST_UPDATES))
        dev_fraction = self.dev_fraction
        if "dev_fraction" in self.auto and few and not dev_decides:
            dev_fraction = 0.0
        values: dict[str, Any] = {
            "epochs": max(self.epochs if dev_decides else epochs, math.ceil(updates / steps)),
            "batch_size": batch_size,
            "schedule": "constant" if dev_decides else "linear",
            "word_dropout": self.word_dropout if dev_decides else 0.0,
            "keep": "best" if dev_decides else "last",
            "patience": max(self.patience, math.ceil(MIN_PATIENCE / steps)),
            "dev_fraction": dev_fraction,
            "folds": FOLDS if few and not dev and not (dev_decides and dev_fraction) else 0,
        }
        return replace(self, **{name: values[name] for name in self.auto}, auto=())


@dataclass(frozen=True)
class Config:
    """The three sections together."""

    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=DCNNConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    @property
    def n_ensemble(self) -> int:
        """The number of networks in the ensemble: as many as settings and rows allow."""
        rows, unit = self.model.dim, self.model.smallest_rows
        most = min(self.training.n_ensemble, max(1, rows // MIN_ENSEMBLE_ROWS))
        return max(count for count in range(1, most + 1) if rows // unit % count == 0)

    @classmethod
    def from_dict(
        cls,
        values: Mapping[str, Any],
        where: str = "config",
        kinds: Mapping[str, type[ModelConfig]] = MODEL_KINDS,
    ) -> Self:
        """Build from nested plain values; whatever is left out keeps its default."""
        cls._check_tables(values, where)
        model = dict(values.get("model", {}))
        kind = model.pop("kind", DCNNConfig.kind)
        require(
            isinstance(kind, str) and kind in kinds,
            f"{where}: model: kind={kind!r} must be one of {', '.join(kinds)}",
        )
        return cls(
            text=from_plain(TextConfig, values.get("text", {}), f"{where}: text"),
            model=from_plain(kinds[kind], model, f"{where}: model"),
            training=from_plain(TrainingConfig, values.get("training", {}), f"{where}: training"),
        )

    @classmethod
    def _check_tables(cls, tables: Mapping[str, Any], where: str) -> None:
        check_names(where, tables, [section.name for section in fields(cls)])
        for name, table in tables.items():
            require_table(f"{where}: {name}", table)

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values that ``from_dict`` turns back into an equal config."""
        return {
            "text": to_plain(self.text),
            "model": {"kind": self.model.kind} | to_plain(self.model),
            "training": to_plain(self.training),
        }

    def to_flat(self) -> dict[str, Any]:
        """Plain values by ``section.key``."""
        return {
            f"{section}.{name}": value
            for section, values in self.to_dict().items()
            for name, value in values.items()
        }

    def with_settings(self, settings: Sequence[str]) -> Self:
        """Apply ``section.key=value`` strings; values are written as in TOML."""
        tables: dict[str, dict[str, object]] = {}
        for section, key, value in map(parse_setting, settings):
            tables.setdefault(section, {})[key] = value
        return self.with_tables(tables, "--set")

    def with_tables(self, tables: Mapping[str, Any], where: str) -> Self:
        """A copy with the settings of ``tables``, one table per section, replaced."""
        self._check_tables(tables, where)
        values = self.to_dict()
        if tables.get("model", {}).get("kind", self.model.kind) != self.model.kind:
            # Another kind of network starts from its own defaults, without an ensemble.
            values["model"], values["training"]["n_ensemble"] = {}, 1
        return self.from_dict({name: values[name] | tables.get(name, {}) for name in values}, where)

    def with_training(self, **changes: object) -> Self:
        """A copy with some training settings changed."""
        training = from_plain(TrainingConfig, to_plain(self.training) | changes, "training")
        return replace(self, training=training)


NETWORK = DCNNConfig(dim=96, widths=(7,), maps=(8,), k_top=2, dropout=0.3)
DEFAULT = Config(
    text=TextConfig(char_ngrams=(3, 5), min_count=2),
    model=NETWORK,
    training=TrainingConfig(n_ensemble=8, auto=TrainingConfig.may_be_auto),
)


def default_of(kind: str) -> Config:
    """The default recipe with another kind of network, to compare the default with.

    It is an ensemble of as many networks. Each has twice the rows of a DCNN's: a row of these kinds
    is one feature, and as few rows as a DCNN needs would make the ensemble worse than one network.
    """
    if kind == DEFAULT.model.kind:
        return DEFAULT
    model = {"kind": kind, "dim": 2 * DEFAULT.model.dim}
    training = {"n_ensemble": DEFAULT.training.n_ensemble}
    return DEFAULT.with_tables({"model": model, "training": training}, "default")


def from_plain(section: type[AnySection], values: Mapping[str, Any], where: str) -> AnySection:
    """Build ``section`` from plain values; ``where`` says in an error where they come from."""
    types = settings_of(section)
    check_names(where, values, list(types))
    auto = tuple(name for name in section.may_be_auto if values.get(name) == AUTO)
    checked: dict[str, Any] = {
        name: _checked(where, name, types[name], value, section.may_be_auto)
        for name, value in values.items()
        if name not in auto
    }
    try:
        return section(**checked, **{"auto": auto} if auto else {})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def to_plain(section: object) -> dict[str, Any]:
    """A dataclass as JSON-ready values: tuples become lists."""
    values = json.loads(json.dumps(asdict(cast("Any", section))))
    return cast("dict[str, Any]", values | dict.fromkeys(values.pop("auto", ()), AUTO))


def renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of settings written by release 0.1, under the names that the settings have now."""
    result = dict(values)
    for section, names in RENAMED_SETTINGS.items():
        if isinstance(table := values.get(section), Mapping):
            result[section] = {names.get(name, name): value for name, value in table.items()}
    return result


def check_names(where: str, values: Mapping[str, Any], known: list[str]) -> None:
    """Refuse names that are not ``known``, with the nearest one as a hint."""
    for name in values:
        if name in known:
            continue
        import difflib  # not needed to predict

        for names in RENAMED_SETTINGS.values():
            if names.get(name) in known:
                raise ConfigError(f"{where}: the setting '{name}' is now called {names[name]}")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        raise ConfigError(f"{where}: unknown setting '{name}'; {hint}")


def require_table(where: str, value: object) -> None:
    """Refuse what is not a table of settings."""
    require(isinstance(value, Mapping), f"{where}={value!r} must be a table of settings")


def _checked(
    where: str, name: str, hint: Any, value: Any, may_be_auto: tuple[str, ...] = ()
) -> Any:
    """Return ``value`` as the type that ``hint`` asks for, or raise with what was expected."""
    match typing.get_origin(hint):
        case typing.Annotated:
            return _checked(where, name, hint.__origin__, value, may_be_auto)
        case None:
            if hint is float and type(value) is int and abs(value) < _LIMIT:
                return float(value)
            fits, wanted = type(value) is hint, _TYPE_NAMES[hint]
            if fits and hint in (int, float) and not abs(value) < _LIMIT:
                fits, wanted = False, f"a finite number below {_LIMIT}"
        case typing.Literal:
            options = typing.get_args(hint)
            fits, wanted = value in options, f"one of {', '.join(options)}"
        case _:  # tuple[item, ...]
            item = typing.get_args(hint)[0]
            if isinstance(value, list | tuple):
                return tuple(_checked(where, f"{name}[{i}]", item, v) for i, v in enumerate(value))
            fits, wanted = False, "a list such as [7, 5]"
    wanted += f" or {AUTO}" if name in may_be_auto else ""
    require(fits, f"{where}: {name}={_shortened(value)} must be {wanted}")
    return value


def _shortened(value: object) -> str:
    """``value`` for a message, at most 60 characters of it."""
    try:
        text = repr(value)
    except ValueError:  # more digits than Python prints
        return "a number of many digits"
    return text if len(text) <= 60 else f"{text[:60]}..."


def parse_setting(setting: str) -> tuple[str, str, object]:
    """Split ``section.key=value``; the value is written as in TOML, or is a bare word."""
    import tomllib  # not needed to predict

    path, equals, text = setting.partition("=")
    section, dot, key = path.strip().partition(".")
    if not (equals and dot and key):
        raise ConfigError(
            f"--set {setting!r} must look like section.key=value, for instance training.epochs=5"
        )
    try:
        return section, key, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return section, key, text.strip()
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--set {path}=...: the value cannot be read ({error})") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    import tomllib  # not needed to predict

    from dcnn.files import check_readable

    try:
        check_readable(path)
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except DataError as error:
        raise ConfigError(str(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as UTF-8 text ({error})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def load_toml(path: Path) -> Config:
    """Read a config file; what it leaves out is as in ``DEFAULT``."""
    return DEFAULT.with_tables(read_toml(path), str(path))


def to_toml(config: Config) -> str:
    """The text of a config file that ``load_toml`` reads as an equal config."""
    lines: list[str] = []
    for name, values in config.to_dict().items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {json.dumps(v, ensure_ascii=False)}" for key, v in values.items()]
    return "\n".join(lines[1:]) + "\n"
