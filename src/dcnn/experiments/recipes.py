"""Recipes: all settings of an experiment in a plain file, ``experiments/sst2/tuned.toml``.

A recipe is a config (``[text]``, ``[model]``, ``[training]``, as for ``dcnn train``) and what an
experiment needs besides: ``[data]`` (which examples, which targets), ``[distillation]`` (teachers)
and, under the name of another network, what differs for that network.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from dcnn.config import (
    MODEL_KINDS,
    Config,
    DCNNConfig,
    check_names,
    from_plain,
    model_from_dict,
    parse_setting,
    to_plain,
)
from dcnn.errors import ConfigError
from dcnn.experiments.results import RECIPE_NAME_RULE, is_recipe_name

MOST_TEACHERS = 100
NGRAM_RECIPE = "ngram"

# Beside the package where it is installed, at the root of the repository in a checkout.
_FOLDERS = (Path(__file__).parent / "recipes", Path(__file__).parents[3] / "experiments")


@dataclass(frozen=True)
class DataConfig:
    """Which examples are learned, and as what; each experiment reads what concerns it.

    Attributes:
        phrases: SST: whether every phrase of a training tree is an example, or the sentence alone.
        soft_targets: SST binary: the probability of "positive" for the labels 0 to 4. Empty: hard
            targets, and neutral phrases are left out.
        neighbour_smoothing: SST fine: the share of a target given to the labels next to it.
        sentence_weight: SST: how much more a whole sentence counts than a phrase inside it.
        swaps: SST: new sentences made from each training sentence by swapping one of its phrases
            for another of the same label.
        authors_tokens: SST: split words at hyphens and drop the words of dev and test that
            training does not know, as the authors' code did.
        folds: TREC: parts of the cross-validation that dev accuracy is measured by.
        held_out: Twitter: the share of the training tweets that is kept for dev.
    """

    phrases: bool = True
    soft_targets: tuple[float, ...] = ()
    neighbour_smoothing: float = 0.0
    sentence_weight: float = 1.0
    swaps: int = 0
    authors_tokens: bool = False
    folds: int = 5
    held_out: float = 0.01

    def __post_init__(self) -> None:
        if self.soft_targets and (
            len(self.soft_targets) != 5 or not all(0 <= value <= 1 for value in self.soft_targets)
        ):
            raise ConfigError(
                f"soft_targets={list(self.soft_targets)} must be five probabilities, "
                "one a label from very negative to very positive"
            )
        if not 0 <= self.neighbour_smoothing < 1:
            raise ConfigError(
                f"neighbour_smoothing={self.neighbour_smoothing} must be at least 0 and below 1"
            )
        if not 0 < self.held_out <= 0.5:
            raise ConfigError(f"held_out={self.held_out} must be above 0 and at most 0.5")
        for name, least in (("folds", 2), ("swaps", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)} must be {least} or more")
        if self.sentence_weight <= 0:
            raise ConfigError(f"sentence_weight={self.sentence_weight} must be above 0")


_SST = ("phrases", "sentence_weight", "swaps", "authors_tokens")
CONCERNS = {
    "sst2": (*_SST, "soft_targets"),
    "sst5": (*_SST, "neighbour_smoothing"),
    "trec": ("folds",),
    "twitter": ("held_out",),
}


def corpus_of(experiment: str) -> str:
    """The corpus of an experiment: both Stanford experiments have the same trees."""
    return "sst" if experiment.startswith("sst") else experiment


def check_settings(experiment: str, recipe: "Recipe") -> None:
    """Refuse a setting that another experiment reads: it would be recorded and do nothing."""
    data, distillation = recipe.data, recipe.distillation
    if distillation.swaps and corpus_of(experiment) != "sst":
        raise ConfigError(
            f"distillation.swaps={distillation.swaps} has no effect in {experiment}, whose "
            "examples are no trees; leave it out"
        )
    if distillation.swaps and recipe.config.training.class_weights == "balanced":
        raise ConfigError(
            f"distillation.swaps={distillation.swaps} gives sentences without a label, which "
            "training.class_weights='balanced' would weigh as nothing; leave out one of them"
        )
    for name, value in to_plain(data).items():
        default = to_plain(DataConfig())[name]
        if value != default and name not in CONCERNS[experiment]:
            raise ConfigError(
                f"data.{name}={value} has no effect in {experiment}; its own settings are "
                f"{', '.join(CONCERNS[experiment])}"
            )


@dataclass(frozen=True)
class DistillationConfig:
    """Learning from the averaged predictions of networks of the same kind.

    Attributes:
        teachers: how many; each student has its own. 0 is no distillation.
        share: of the teachers' prediction in the target; the rest is the original target.
        swaps: SST: sentences that the student learns besides, as many for each training sentence,
            made by swapping one of its phrases for another of the same label. Only its teachers
            say what they are; they have not learned from them.
        word_dropout: the student's, where it is to be more than ``training.word_dropout``, which
            is that of its teachers.
    """

    teachers: int = 0
    share: float = 0.5
    swaps: int = 0
    word_dropout: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.teachers <= MOST_TEACHERS:
            raise ConfigError(f"teachers={self.teachers} must be from 0 to {MOST_TEACHERS}")
        if not 0 < self.share <= 1:
            raise ConfigError(f"share={self.share} must be above 0 and at most 1")
        if self.swaps < 0:
            raise ConfigError(f"swaps={self.swaps} must be 0 or more")
        if not 0 <= self.word_dropout < 1:
            raise ConfigError(f"word_dropout={self.word_dropout} must be at least 0 and below 1")
        for name in ("swaps", "word_dropout"):
            if getattr(self, name) and not self.teachers:
                raise ConfigError(f"{name}={getattr(self, name)} needs teachers; set teachers too")


@dataclass(frozen=True)
class Recipe:
    """All settings of one network in one experiment."""

    name: str
    config: Config
    data: DataConfig = field(default_factory=DataConfig)
    distillation: DistillationConfig = field(default_factory=DistillationConfig)

    @classmethod
    def from_dict(cls, name: str, model: str, values: Mapping[str, Any], where: str) -> Self:
        """Build from the tables of a file, for the network ``model``."""
        sections = [*(section.name for section in fields(Config)), "data", "distillation"]
        networks = [kind for kind in MODEL_KINDS if kind != DCNNConfig.kind]
        check_names(where, values, [*sections, *networks])
        for section, table in values.items():
            _require_table(f"{where}: {section}", table)
        settings = {section: dict(values.get(section, {})) for section in sections}
        if model != DCNNConfig.kind:
            # Another network shares dimensions, data and training, unless its own table differs.
            settings["model"] = {"kind": model, "dim": settings["model"].get("dim", 48)}
            settings["distillation"] = {}
            own = values.get(model, {})
            check_names(f"{where}: {model}", own, sections)
            for section, changes in own.items():
                _require_table(f"{where}: {model}.{section}", changes)
                settings[section] |= changes
        _refuse_what_is_not_the_recipes(settings, model, where)
        data = settings.pop("data")
        distillation = settings.pop("distillation")
        return cls(
            name,
            Config.from_dict(settings, where),
            from_plain(DataConfig, data, f"{where}: data"),
            from_plain(DistillationConfig, distillation, f"{where}: distillation"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values, for the record of a run."""
        return self.config.to_dict() | {
            "data": to_plain(self.data),
            "distillation": to_plain(self.distillation),
        }

    def with_settings(self, settings: Sequence[str]) -> Self:
        """A copy with ``section.key=value`` strings applied; values are written as in TOML."""
        values = self.to_dict()
        for setting in settings:
            section, key, value = parse_setting(setting)
            check_names("--set", {section: None}, list(values))
            values[section][key] = value
        kind = values["model"].pop("kind")
        network = values["model"]
        recipe = self.from_dict(self.name, DCNNConfig.kind, values | {"model": {}}, "--set")
        model = model_from_dict({"kind": kind} | network, "--set: model")
        return replace(recipe, config=replace(recipe.config, model=model))


def load_recipe(experiment: str, name: str, model: str = "dcnn") -> Recipe:
    """Read a recipe by name (``paper``, ``tuned``, ``best``) or from a file of one's own.

    Raises:
        ConfigError: there is no such recipe, or it holds a setting that cannot be.
    """
    path = Path(name) if name.endswith(".toml") else _find(experiment, name)
    if not is_recipe_name(path.stem):
        raise ConfigError(f"recipe={path.stem!r} must be {RECIPE_NAME_RULE}; rename {path}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); name a TOML file") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    recipe = Recipe.from_dict(path.stem, model, values, str(path))
    check_settings(experiment, recipe)
    return recipe


def _refuse_what_is_not_the_recipes(
    settings: dict[str, dict[str, Any]], model: str, where: str
) -> None:
    """The command says model and seeds, and a stack trains all its epochs.

    A setting that is recorded and not applied would only mislead.
    """
    if settings["training"].setdefault("patience", 0) != 0:
        raise ConfigError(f"{where}: patience: an experiment never stops early; leave it out")
    if settings["training"].setdefault("calibrate", False):
        raise ConfigError(f"{where}: calibrate: an experiment counts labels; leave it out")
    if settings["training"].get("seed", 0) != 0:
        raise ConfigError(f"{where}: seed: the command says how many seeds are run; leave it out")
    if settings["model"].get("kind", model) != model:
        raise ConfigError(f"{where}: kind: --models says which network is trained; leave it out")


def _require_table(where: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}={value!r} must be a table of settings")


def _find(experiment: str, name: str) -> Path:
    known: list[str] = []
    for folder in _FOLDERS:
        for path in sorted((folder / experiment).glob("*.toml")):
            if path.stem == name:
                return path
            known += [path.stem] if path.stem != NGRAM_RECIPE else []
    raise ConfigError(
        f"recipe={name!r} is not known for {experiment}; "
        f"take one of {', '.join(known)}, or the path of a .toml file"
    )
