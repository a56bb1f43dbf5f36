"""Between plain values (TOML, JSON, ``--set``) and frozen dataclasses, with errors people can use.

Knows nothing of any particular setting: the fields and type hints of the dataclass are the schema.


Every setting of a model and its training, as frozen plain values.

A configuration is three sections, the same in TOML, in a model folder's JSON and in
``--set section.key=value``: ``[text]`` (string to ids), ``[model]`` (the network) and
``[training]`` (objective, optimiser, loop). Each rule that one or more settings must obey is
checked here, when the object is made, so that no later code meets an impossible network.


What is trained when nothing else is said, and files of settings that say something else.

``Config()`` is the network that the paper has for SST, and trains it alone. ``DEFAULT`` is what
``dcnn train``, ``DCNNClassifier`` and all that goes with them start from: chosen on the training
parts of fourteen corpora, see docs/languages.md. The rows of one wide network are its ensemble.

"""

import difflib
import json
import math
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

from dcnn.errors import ConfigError

Section = TypeVar("Section")

_LIMIT = 2**31  # beyond any sensible setting, and within what every library takes

_WANTED: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
}


def from_plain(section: type[Section], values: Mapping[str, Any], where: str) -> Section:
    """Build ``section`` from names and values; ``where`` says in an error where they come from.

    Raises:
        ConfigError: a name is unknown, a value has the wrong type, or the section refuses it.
    """
    check_names(where, values, [item.name for item in fields(cast("Any", section))])
    hints = typing.get_type_hints(section)
    checked: dict[str, Any] = {
        name: _checked(where, name, hints[name], value) for name, value in values.items()
    }
    try:
        return section(**checked)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def to_plain(section: object) -> dict[str, Any]:
    """A dataclass as JSON-ready values: tuples become lists."""
    return cast("dict[str, Any]", json.loads(json.dumps(asdict(cast("Any", section)))))


# Settings of release 0.1 by section, and what they are called now.
RENAMED_SETTINGS = {
    "text": {"subwords": "n_subwords"},
    "training": {
        "members": "n_ensemble",
        "evaluations": "evaluations_per_epoch",
        "l2_top": "l2_head",
    },
}


def renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of settings that release 0.1 wrote, with the names that the settings have now."""
    return {
        section: {RENAMED_SETTINGS.get(section, {}).get(name, name): v for name, v in table.items()}
        if isinstance(table, Mapping)
        else table
        for section, table in values.items()
    }


def check_names(where: str, values: Mapping[str, Any], known: list[str]) -> None:
    """Refuse names that are not ``known``, with the nearest one as a hint."""
    for name in values:
        if name in known:
            continue
        for names in RENAMED_SETTINGS.values():
            if names.get(name) in known:
                raise ConfigError(f"{where}: the setting '{name}' is now called {names[name]}")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        raise ConfigError(f"{where}: unknown setting '{name}'; {hint}")


def parse_setting(setting: str) -> tuple[str, str, object]:
    """Split ``section.key=value``; the value is written as in TOML, or is a bare word."""
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


def _short(value: object) -> str:
    """``value`` for a message; a number of 400 digits is not worth reading."""
    try:
        text = repr(value)
    except ValueError:  # more digits than Python prints
        return "a number of many digits"
    return text if len(text) <= 60 else f"{text[:60]}..."


def _checked(where: str, name: str, hint: Any, value: Any) -> object:
    """Return ``value`` as the type that ``hint`` asks for, or say what was expected."""
    match typing.get_origin(hint):
        case None:
            if hint is float and type(value) is int and abs(value) < _LIMIT:
                return float(value)
            fits, wanted = type(value) is hint, _WANTED[hint]
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
    if not fits:
        raise ConfigError(f"{where}: {name}={_short(value)} must be {wanted}")
    return cast("object", value)


Shapes = dict[str, tuple[int, ...]]
MIN_ENSEMBLE_ROWS = 8  # rows of the sentence matrix; with fewer a network learns little
TokenizerName = Literal["words", "tweet", "whitespace", "bpe", "unigram", "characters"]


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigError(message)


def _require_fraction(name: str, value: float) -> None:
    _require(0 <= value < 1, f"{name}={value} must be at least 0 and below 1")


@dataclass(frozen=True)
class TextConfig:
    """How a string becomes ids.

    Attributes:
        tokenizer: ``words`` (any language), ``tweet`` (USER, URL, squeezed letters),
            ``whitespace`` (text that is tokenized already), ``bpe`` or ``unigram`` (pieces of
            words, learned from the training texts) or ``characters``.
        lowercase: whether case is dropped; ``tweet`` always drops it.
        n_subwords: how many pieces ``bpe`` and ``unigram`` learn.
        min_count: a word seen less often in training becomes the unknown word.
        max_size: at most this many words are kept, the most frequent ones; 0 is no limit.
        vectors: a file of pretrained vectors to start the embeddings from, or empty.
        vectors_scale: the factor their values are multiplied with.
        vectors_projection: 0, or the share of the learning rate at which all words together learn
            each weight of a projection of the vectors; see ``SentenceModel.project``. With vectors
            of more dimensions a word moves by the sum of more such steps.
        vectors_words: how many words of the vectors file, from its start, join the vocabulary
            though training never shows them, so that the model can read them too.
    """

    tokenizer: TokenizerName = "words"
    lowercase: bool = True
    n_subwords: int = 4000
    min_count: int = 1
    max_size: int = 0
    vectors: str = ""
    vectors_scale: float = 1.0
    vectors_projection: float = 0.0
    vectors_words: int = 0

    def __post_init__(self) -> None:
        _require(self.vectors_scale > 0, f"vectors_scale={self.vectors_scale} must be above 0")
        _require(
            0 <= self.vectors_projection <= 1,
            f"vectors_projection={self.vectors_projection} must be from 0 to 1",
        )
        _require(
            bool(self.vectors) or not self.vectors_projection,
            f"vectors_projection={self.vectors_projection} needs vectors; name their file in "
            "text.vectors",
        )
        _require(
            not self.vectors or self.tokenizer in ("words", "tweet", "whitespace"),
            f"vectors={self.vectors!r} are of words, and tokenizer={self.tokenizer!r} gives other "
            "tokens; set text.tokenizer to words, tweet or whitespace",
        )
        _require(self.n_subwords >= 1, f"n_subwords={self.n_subwords} must be 1 or more")
        _require(self.vectors_words >= 0, f"vectors_words={self.vectors_words} must be 0 or more")
        _require(self.min_count >= 1, f"min_count={self.min_count} must be 1 or more")
        _require(self.max_size >= 0, f"max_size={self.max_size} must be 0 (no limit) or more")


@dataclass(frozen=True)
class DCNNConfig:
    """The Dynamic Convolutional Neural Network (Sect. 3); by default SST binary's (Sect. 5.2).

    Attributes:
        dim: d, the size of a word embedding: the rows of the sentence matrix.
        widths: m, the filter width of each convolutional layer.
        maps: the number of feature maps of each layer.
        k_top: the values a row keeps in the topmost pooling.
        fold: whether every layer sums its rows in pairs.
        dropout: the share of the penultimate layer dropped in training.
    """

    kind: ClassVar[str] = "dcnn"
    dim: int = 48
    widths: tuple[int, ...] = (7, 5)
    maps: tuple[int, ...] = (6, 14)
    k_top: int = 4
    fold: bool = True
    dropout: float = 0.5

    def __post_init__(self) -> None:
        _require(self.dim >= 1, f"dim={self.dim} must be 1 or more")
        _require(self.k_top >= 1, f"k_top={self.k_top} must be 1 or more")
        _require(len(self.widths) >= 1, "widths=() has no layer; give at least one filter width")
        _require(
            len(self.widths) == len(self.maps),
            f"widths={list(self.widths)} and maps={list(self.maps)} need one value a layer each",
        )
        _require(min(self.widths) >= 1, f"widths={list(self.widths)} must all be 1 or more")
        _require(min(self.maps) >= 1, f"maps={list(self.maps)} must all be 1 or more")
        # The first wide convolution makes s + m - 1 columns. With m >= k_top that is enough for
        # every s >= 1, and k never grows from one layer to the next.
        _require(
            self.widths[0] >= self.k_top,
            f"widths[0]={self.widths[0]} is below k_top={self.k_top}, so a one-word sentence "
            f"cannot fill the top pool; set widths[0] to {self.k_top} or more",
        )
        _require(
            self.dim % self.smallest_rows == 0,
            f"dim={self.dim} cannot be folded {self.depth} times; "
            f"set dim to a multiple of {self.smallest_rows} or fold to false",
        )
        _require_fraction("dropout", self.dropout)

    @property
    def depth(self) -> int:
        """L, the number of convolutional layers."""
        return len(self.widths)

    @property
    def smallest_rows(self) -> int:
        """The fewest rows that are a network; folding brings them together."""
        return 2**self.depth if self.fold else 1

    def rows(self, layer: int) -> int:
        """Rows of a map after ``layer`` (1 to L); layer 0 is the sentence matrix."""
        return self.dim // 2**layer if self.fold else self.dim

    @property
    def feature_shape(self) -> tuple[int, int, int]:
        """Maps, rows and values a row of the penultimate layer, the same for every sentence."""
        return self.maps[-1], self.rows(self.depth), self.k_top

    @property
    def features(self) -> int:
        """The length of the penultimate layer."""
        return math.prod(self.feature_shape)

    def parameter_shapes(self, vocabulary: int, classes: int) -> Shapes:
        """Name and shape of every parameter, for ``vocabulary`` words and ``classes`` labels."""
        shapes: Shapes = {"embeddings": (vocabulary, self.dim)}
        maps_below = 1
        for index, (width, maps) in enumerate(zip(self.widths, self.maps, strict=True)):
            shapes[f"layers.{index}.filters"] = (maps, maps_below, self.rows(index), width)
            shapes[f"layers.{index}.bias"] = (maps, self.rows(index + 1))
            maps_below = maps
        return shapes | _head_shapes(self.features, classes)


@dataclass(frozen=True)
class MaxTDNNConfig:
    """The Max-TDNN sentence model (Sect. 2.3): narrow convolution, tanh, max over time.

    The paper speaks of dropout for the DCNN alone, so there is none by default.
    """

    kind: ClassVar[str] = "max-tdnn"
    depth: ClassVar[int] = 1
    smallest_rows: ClassVar[int] = 1  # a row is a network already
    dim: int = 48
    width: int = 6
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _require(self.dim >= 1, f"dim={self.dim} must be 1 or more")
        _require(self.width >= 1, f"width={self.width} must be 1 or more")
        _require_fraction("dropout", self.dropout)

    @property
    def feature_shape(self) -> tuple[int, int, int]:
        """Maps, rows and values a row of the penultimate layer."""
        return 1, self.dim, 1

    def parameter_shapes(self, vocabulary: int, classes: int) -> Shapes:
        """Name and shape of every parameter, for ``vocabulary`` words and ``classes`` labels."""
        return {
            "embeddings": (vocabulary, self.dim),
            "layers.0.filters": (1, 1, self.dim, self.width),
            "layers.0.bias": (1, self.dim),
        } | _head_shapes(self.dim, classes)


@dataclass(frozen=True)
class NBoWConfig:
    """The Neural Bag-of-Words (Sect. 2.1): the sum of the word vectors, then tanh.

    The paper speaks of dropout for the DCNN alone, so there is none by default.
    """

    kind: ClassVar[str] = "nbow"
    depth: ClassVar[int] = 0
    smallest_rows: ClassVar[int] = 1  # a row is a network already
    dim: int = 48
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _require(self.dim >= 1, f"dim={self.dim} must be 1 or more")
        _require_fraction("dropout", self.dropout)

    @property
    def feature_shape(self) -> tuple[int, int, int]:
        """Maps, rows and values a row of the penultimate layer."""
        return 1, self.dim, 1

    def parameter_shapes(self, vocabulary: int, classes: int) -> Shapes:
        """Name and shape of every parameter, for ``vocabulary`` words and ``classes`` labels."""
        return {"embeddings": (vocabulary, self.dim)} | _head_shapes(self.dim, classes)


def _head_shapes(features: int, classes: int) -> Shapes:
    return {"head.weight": (classes, features), "head.bias": (classes,)}


ModelConfig = DCNNConfig | MaxTDNNConfig | NBoWConfig
MODEL_KINDS: dict[str, type[ModelConfig]] = {
    config.kind: config for config in (DCNNConfig, MaxTDNNConfig, NBoWConfig)
}


@dataclass(frozen=True)
class TrainingConfig:
    """How the objective is minimised (Sect. 5.1).

    Attributes:
        n_ensemble: at most this many equal parts of the rows learn each by itself, as networks of
            their own; what is kept is their mean, one network. See ``SentenceModel.divide``, and
            ``Config.n_ensemble`` for how many they are.
        epochs: passes over the training set, at most.
        batch_size: sentences a step.
        learning_rate: Adagrad's.
        schedule: ``constant``, or ``linear`` decay to zero over all epochs.
        eps: Adagrad's, added to the root of the accumulator.
        reset_every: epochs after which Adagrad's accumulators start again from zero; 0 is never.
        l2_embeddings: L2 on the word embeddings; with a projection, on each word's own part.
        decay_embeddings: decay of the word embeddings outside Adagrad, as a share a step of the
            learning rate.
        l2_projection: L2 on the projection of pretrained vectors, where there is one.
        l2_filters: L2 on the filters of each layer; the last value serves the layers above it too.
        l2_head: L2 on the fully connected weights.
        max_grad_norm: gradients are scaled down to this norm, of members to as much for each in the
            mean; 0 is no limit.
        label_smoothing: the share of a hard target spread over all classes.
        class_weights: ``none``, or ``balanced`` (inverse to a class's frequency).
        word_dropout: the share of words replaced by the unknown word in training.
        ema: decay of the moving average of the weights that is evaluated and kept; 0 is none.
        patience: evaluations without better weights (by dev accuracy, then by dev loss) before
            training stops; 0 is never.
        evaluations_per_epoch: times the dev set is evaluated in an epoch.
        dev_fraction: the share of the training set held out when no dev set is given.
        calibrate: whether the probabilities are made honest at the end, by a temperature found on
            the dev set; see ``dcnn.metrics``.
        seed: the one source of all randomness.
    """

    n_ensemble: int = 1
    epochs: int = 12
    batch_size: int = 32
    learning_rate: float = 0.1
    schedule: Literal["constant", "linear"] = "constant"
    eps: float = 1e-6
    reset_every: int = 0
    l2_embeddings: float = 1e-4
    decay_embeddings: float = 0.0
    l2_projection: float = 1e-3
    l2_filters: tuple[float, ...] = (3e-5, 3e-6)
    l2_head: float = 1e-4
    max_grad_norm: float = 5.0
    label_smoothing: float = 0.0
    class_weights: Literal["none", "balanced"] = "none"
    word_dropout: float = 0.1
    ema: float = 0.0
    patience: int = 5
    evaluations_per_epoch: int = 1
    dev_fraction: float = 0.1
    calibrate: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_ensemble", "epochs", "batch_size", "evaluations_per_epoch"):
            value = getattr(self, name)
            _require(value >= 1, f"{name}={value} must be 1 or more")
        for name in ("learning_rate", "eps"):
            value = getattr(self, name)
            _require(value > 0, f"{name}={value} must be above 0")
        for name in (
            "l2_embeddings",
            "decay_embeddings",
            "l2_projection",
            "l2_head",
            "max_grad_norm",
            "reset_every",
            "patience",
            "seed",
        ):
            value = getattr(self, name)
            _require(value >= 0, f"{name}={value} must be 0 or more")
        _require(
            len(self.l2_filters) >= 1 and min(self.l2_filters) >= 0,
            f"l2_filters={list(self.l2_filters)} must be one or more values of 0 or more",
        )
        for name in ("label_smoothing", "word_dropout", "ema"):
            _require_fraction(name, getattr(self, name))
        _require(
            0 < self.dev_fraction < 1,
            f"dev_fraction={self.dev_fraction} must be above 0 and below 1",
        )


@dataclass(frozen=True)
class Config:
    """The three sections together."""

    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=DCNNConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    @property
    def n_ensemble(self) -> int:
        """How many networks the rows are divided among: as many as the settings allow."""
        rows, unit = self.model.dim, self.model.smallest_rows
        most = min(self.training.n_ensemble, max(1, rows // MIN_ENSEMBLE_ROWS))
        return max(count for count in range(1, most + 1) if rows // unit % count == 0)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "config") -> Self:
        """Build from nested plain values; whatever is left out keeps its default."""
        check_names(where, values, [section.name for section in fields(cls)])
        sections = {name: values.get(name, {}) for name in ("text", "model", "training")}
        for name, section in sections.items():
            _require(
                isinstance(section, Mapping),
                f"{where}: {name}={section!r} must be a table of settings",
            )
        return cls(
            text=from_plain(TextConfig, sections["text"], f"{where}: text"),
            model=model_from_dict(sections["model"], f"{where}: model"),
            training=from_plain(TrainingConfig, sections["training"], f"{where}: training"),
        )

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
        """A copy with the settings of ``tables``, one a section, in the place of its own."""
        values = self.to_dict()
        check_names(where, tables, list(values))
        for name, table in tables.items():
            _require(
                isinstance(table, Mapping),
                f"{where}: {name}={table!r} must be a table of settings",
            )
        if tables.get("model", {}).get("kind", self.model.kind) != self.model.kind:
            # Another kind of network starts from its own defaults, undivided.
            values["model"], values["training"]["n_ensemble"] = {}, 1
        return self.from_dict({name: values[name] | tables.get(name, {}) for name in values}, where)

    def with_training(self, **changes: object) -> Self:
        """A copy with some training settings changed."""
        training = from_plain(TrainingConfig, to_plain(self.training) | changes, "training")
        return replace(self, training=training)


def model_from_dict(values: Mapping[str, Any], where: str) -> ModelConfig:
    """Build the model section; ``kind`` chooses the network (``dcnn`` if it is left out)."""
    settings = dict(values)
    kind = settings.pop("kind", DCNNConfig.kind)
    _require(
        isinstance(kind, str) and kind in MODEL_KINDS,
        f"{where}: kind={kind!r} must be one of {', '.join(MODEL_KINDS)}",
    )
    return from_plain(MODEL_KINDS[kind], settings, where)


NETWORK = DCNNConfig(dim=96, widths=(7,), maps=(8,), k_top=2)
DEFAULT = Config(model=NETWORK, training=TrainingConfig(n_ensemble=8))


def load_toml(path: Path) -> Config:
    """Read a config file; what it leaves out is as in ``DEFAULT``."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as UTF-8 text ({error})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return DEFAULT.with_tables(values, str(path))


def to_toml(config: Config) -> str:
    """The text of a config file that ``load_toml`` reads as an equal config."""
    sections = [
        "\n".join(
            [
                f"[{name}]",
                *(
                    f"{key} = {json.dumps(value, ensure_ascii=False)}"
                    for key, value in values.items()
                ),
            ]
        )
        for name, values in config.to_dict().items()
    ]
    return "\n\n".join(sections) + "\n"
