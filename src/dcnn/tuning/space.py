"""What ``dcnn tune`` may change, as data, and the size of the model folder that results.

``SPACE`` has a line per setting. The space is built around a config, the start, whose values are
part of every range, so that the start is a point of the space; settings that the user fixes are
not searched. Characters are not among the tokens: they are far behind words and subwords on all
but a few corpora (docs/languages.md) and take several times as long.
"""

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from optuna import Trial

from dcnn.artifact import Artifact, find_bags, folder_size
from dcnn.config import Config, DCNNConfig, TextConfig
from dcnn.data.labels import LabelledTexts
from dcnn.errors import ConfigError
from dcnn.text import encoder as encoding
from dcnn.text.encoder import Encoder, library_version
from dcnn.text.tokenizer import LEARNED, AnyTokenizer
from dcnn.text.vocabulary import Vocabulary

Value = int | float | str | bool


@dataclass(frozen=True)
class Parameter:
    """A setting that is searched: one of ``choices``, or a number from ``low`` to ``high``."""

    setting: str  # ``section.key``
    choices: tuple[Value, ...] = ()  # none if it has a range
    low: float = 0.0
    high: float = 0.0
    log: bool = False  # whether the range is logarithmic; it is linear from 0 if the start is 0
    # Another setting, and the values of it with which this one has an effect.
    when: tuple[str, tuple[Value, ...]] | None = None
    # Values that are tried alone, right after the start: one change at a time tells more than a
    # random point, where many changes together are mostly worse.
    alone: tuple[Value, ...] = ()
    name: str = ""  # in the study and the report; by default the key
    start: Value = 0  # the value in the start, which extends the choices or the range
    layer: int = 0  # that it belongs to; a network with fewer layers does not have it

    def suggest(self, trial: Trial) -> Value:
        """A value of the trial; of a range with three digits, as people write settings."""
        if self.choices:
            return cast("Value", trial.suggest_categorical(self.name, self.choices))
        log, start = self.log and self.start != 0, float(self.start)
        low = min(self.low, start) if log else 0.0
        value = trial.suggest_float(self.name, low, max(self.high, start), log=log)
        return value if value == start else float(f"{value:.3g}")


_WITH_CASE = ("words", "whitespace", "bpe", "unigram", "characters")  # tweet always lower-cases
_WITH_NGRAMS = ("words", "tweet", "whitespace", "bpe", "unigram")
SPACE = (
    Parameter("text.tokenizer", ("words", "tweet", "bpe", "unigram"), alone=("bpe", "unigram")),
    Parameter("text.lowercase", (True, False), alone=(False,), when=("text.tokenizer", _WITH_CASE)),
    Parameter("text.n_subwords", (1000, 2000, 4000, 8000), when=("text.tokenizer", LEARNED)),
    Parameter(
        "text.char_ngrams",
        ("[]", "[3, 5]", "[2, 5]"),
        alone=("[]", "[3, 5]"),
        when=("text.tokenizer", _WITH_NGRAMS),
    ),
    Parameter("text.min_count", (1, 2, 3)),
    Parameter("text.max_size", (0, 3000, 10000)),
    Parameter("training.epochs", (6, 9, 12, 18), alone=(18,)),
    Parameter("training.batch_size", (16, 32, 64)),
    Parameter("training.n_ensemble", (1, 4, 8)),
    Parameter("training.learning_rate", low=0.02, high=0.4, log=True),
    Parameter("training.l2_embeddings", low=1e-6, high=1e-3, log=True),
    Parameter("training.word_dropout", high=0.4),
    Parameter("training.label_smoothing", high=0.2),
    Parameter("model.dim", (16, 32, 48, 64, 96, 144)),
    Parameter("model.dropout", high=0.7),
    Parameter("model.width", (3, 4, 5, 6, 8)),  # of Max-TDNN
)
# Of the DCNN: the number of layers, k_top, and widths and maps of the first layer and of others.
DEPTHS, K_TOP = (1, 2), (1, 2, 3, 4, 5)
FIRST_LAYER, OTHER_LAYERS = ((5, 6, 7, 8, 10), (4, 6, 8, 12)), ((3, 4, 5), (8, 14, 20))


def _setting(value: Value) -> Any:
    """The value of a setting from that of a study."""
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


def space_digest() -> str:
    """Of all that may change: a study is resumed only in the space it began in."""
    has_subwords = library_version() is not None
    space = (SPACE, DEPTHS, K_TOP, FIRST_LAYER, OTHER_LAYERS, has_subwords)
    return hashlib.sha256(repr(space).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class SearchSpace:
    """All settings around ``start``, apart from those in ``fixed`` (``section.key``)."""

    start: Config
    fixed: frozenset[str] = frozenset()

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What may change; what others depend on comes first."""
        flat, model = self.start.to_flat(), self.start.model
        # As a study has them, a list as its text.
        start = {k: json.dumps(v) if isinstance(v, list) else v for k, v in flat.items()}
        parameters = [
            self._around(one, start[one.setting]) for one in SPACE if one.setting in start
        ]
        parameters += self._layers(model) if isinstance(model, DCNNConfig) else []
        return tuple(one for one in parameters if one.setting not in self.fixed)

    def _around(self, one: Parameter, start: Value) -> Parameter:
        """``one`` with the value of the start, and without choices that are impossible beside it.

        Pretrained vectors, for instance, are of words; subwords need a library.
        """
        choices = dict.fromkeys((*one.choices, start)) if one.choices else {}
        possible = tuple(value for value in choices if self._allows(one.setting, value))
        name = one.name or one.setting.partition(".")[2]
        return replace(one, name=name, start=start, choices=possible)

    def _allows(self, setting: str, value: Value) -> bool:
        section, key = setting.split(".")
        if setting == "text.tokenizer" and value in LEARNED and library_version() is None:
            return False
        try:
            self.start.with_tables({section: {key: _setting(value)}}, "tune")
        except ConfigError:
            return False
        return True

    def _layers(self, model: DCNNConfig) -> list[Parameter]:
        fixed_layers = not self.fixed.isdisjoint(("model.widths", "model.maps"))
        depths = (model.depth,) if fixed_layers else tuple(sorted({*DEPTHS, model.depth}))

        def layer_parameter(
            name: str, setting: str, start: int, usual: tuple[int, ...], layer: int = 0
        ) -> Parameter:
            choices = tuple(sorted({*usual, start}))
            return Parameter(setting, choices, name=name, start=start, layer=layer)

        parameters = [
            Parameter("model.widths", depths, alone=depths, name="depth", start=model.depth),
            layer_parameter("k_top", "model.k_top", model.k_top, K_TOP),
        ]
        for layer in range(1, max(depths) + 1):
            # A layer that the start does not have begins as the paper's second.
            width = model.widths[layer - 1] if layer <= model.depth else 5
            maps = model.maps[layer - 1] if layer <= model.depth else 14
            widths, numbers = FIRST_LAYER if layer == 1 else OTHER_LAYERS
            parameters += [
                layer_parameter(f"width_{layer}", "model.widths", width, widths, layer),
                layer_parameter(f"maps_{layer}", "model.maps", maps, numbers, layer),
            ]
        return parameters

    def _applies(self, one: Parameter, values: Mapping[str, Value]) -> bool:
        """Whether a parameter has an effect beside ``values``, by name, and the start's."""
        if one.layer > int(values.get("depth", self.start.model.depth)):
            return False
        if one.when is None:
            return True
        setting, needed = one.when
        value = values.get(setting.partition(".")[2], self.start.to_flat()[setting])
        return value in needed

    def point(self, changes: Mapping[str, Value]) -> dict[str, Value]:
        """The start as a point of the space, with ``changes`` by name."""
        values: dict[str, Value] = {}
        for one in self.parameters:
            if self._applies(one, values):
                values[one.name] = changes.get(one.name, one.start)
        return values

    @cached_property
    def first_points(self) -> tuple[dict[str, Value], ...]:
        """The start, then the start with one setting changed, as ``Parameter.alone`` says."""
        single = [
            {one.name: value}
            for one in self.parameters
            for value in one.alone
            if value != one.start and value in one.choices and self._applies(one, {})
        ]
        return tuple(self.point(changes) for changes in ({}, *single))

    def suggest(self, trial: Trial) -> Config:
        """The config of a trial."""
        values: dict[str, Value] = {}
        for one in self.parameters:
            if self._applies(one, values):
                values[one.name] = one.suggest(trial)
        return self.config(values)

    def config(self, values: Mapping[str, Value]) -> Config:
        """The start with ``values`` replaced.

        Two rules of a network are satisfied by adjusting: ``k_top`` to the first width, and
        ``dim`` to the next size that can be folded. A setting that has no effect any more, such as
        the number of subwords, returns to its default: ``dcnn train`` refuses it otherwise.
        """
        sections = self.start.to_dict()
        for one in SPACE:
            if one.when and self._applies(one, {}) and not self._applies(one, values):
                section, key = one.setting.split(".")
                sections[section][key] = Config().to_dict()[section][key]
        for one in self.parameters:
            if one.name in values and one.name != "depth":
                section, key = one.setting.split(".")
                if one.layer:
                    sections[section][key][one.layer - 1 : one.layer] = [values[one.name]]
                else:
                    sections[section][key] = _setting(values[one.name])
        model = sections["model"]
        if model["kind"] == DCNNConfig.kind:
            depth = int(values.get("depth", self.start.model.depth))
            model["widths"], model["maps"] = model["widths"][:depth], model["maps"][:depth]
            if "model.k_top" not in self.fixed:
                model["k_top"] = min(model["k_top"], model["widths"][0])
            else:
                model["widths"][0] = max(model["widths"][0], model["k_top"])
            if model["fold"]:
                model["dim"] = -(-model["dim"] // 2**depth) * 2**depth
        return Config.from_dict(sections, "tune")


MIN_WORDS = 100  # a network that leaves room for fewer is not worth training
_METADATA_BYTES = 4096  # of what a run adds to config.json and the card; not known beforehand
_TENSOR_HEADER = 160


class _Tokens(NamedTuple):
    """The tokens of the training texts, the most frequent first."""

    tokenizer: AnyTokenizer
    buckets: int  # that their character n-grams reach
    counts: NDArray[np.int64]
    bytes: NDArray[np.int64]  # of the first n tokens in a folder, from n = 0


class FolderSizes:
    """The sizes of the model folders of the training set, before anything is trained.

    The weights follow from the shapes, the vocabulary from the word counts; with an allowance for
    the metadata, a size is an upper bound. ``limit`` is the maximum bytes of a folder. The texts
    are split once per tokenizer, and not at all without a limit.
    """

    def __init__(self, name: str, train: LabelledTexts, limit: int | None = None) -> None:
        self.name, self.train, self.limit = name, train, limit
        self._tokens: dict[TextConfig, _Tokens] = {}

    def _tokens_of(self, text: TextConfig) -> _Tokens:
        key = replace(text, min_count=1, max_size=0)
        if key not in self._tokens:
            tokenizer, (words, ids, _) = encoding.learn_tokenizer(key, self.train.texts)
            counts = np.bincount(ids, minlength=len(words))
            order = np.argsort(-counts, kind="stable")
            lines = [len(json.dumps(words[i], ensure_ascii=False).encode()) + 2 for i in order]
            sizes = np.concatenate([[0], np.cumsum(lines, dtype=np.int64)])
            ngrams = encoding.char_ngrams_of(key)
            buckets = 0 if ngrams is None else len(np.unique(find_bags(ngrams, words).buckets))
            self._tokens[key] = _Tokens(tokenizer, buckets, counts[order], sizes)
        return self._tokens[key]

    def words(self, config: Config) -> int:
        """The size of the vocabulary that ``Encoder.learn`` gives; with vectors, an upper bound."""
        least = 1 if config.text.vectors else config.text.min_count  # rare ones may have a vector
        frequent = int((self._tokens_of(config.text).counts >= least).sum())
        return min(frequent, config.text.max_size) if config.text.max_size else frequent

    def of(self, config: Config, words: int | None = None) -> int:
        """An upper bound of the folder's bytes, tight to a few kilobytes."""
        words = self.words(config) if words is None else words
        shapes = config.model.parameter_shapes(words + 1, len(self.train.classes))
        weights = sum(4 * math.prod(shape) + _TENSOR_HEADER for shape in shapes.values())
        tokens = self._tokens_of(config.text)
        empty = Encoder(tokens.tokenizer, Vocabulary([]), encoding.char_ngrams_of(config.text))
        if empty.char_ngrams is not None:  # int8 values and a float16 scale; which are used
            weights += tokens.buckets * (config.model.dim + 2) + config.text.n_buckets
            weights += 3 * _TENSOR_HEADER
        classes = tuple(self.train.classes)
        rest = folder_size(self.name, Artifact(config, classes, empty, {}))
        return weights + int(tokens.bytes[words]) + rest + _METADATA_BYTES

    def fitted(self, config: Config) -> Config | None:
        """``config`` with its vocabulary cut to the most frequent words that fit the limit.

        If hardly any fit, character n-grams are left out too; None if the network alone is too
        large.
        """
        if self.limit is None or self.of(config) <= self.limit:
            return config
        sizes = range(self.words(config))
        words = bisect_right(sizes, self.limit, key=lambda count: self.of(config, count)) - 1
        if words < min(MIN_WORDS, len(sizes)):
            plain = replace(config, text=replace(config.text, char_ngrams=()))
            return self.fitted(plain) if plain != config else None
        return replace(config, text=replace(config.text, max_size=words))
