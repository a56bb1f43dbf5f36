"""Recipes: all settings of an experiment in a plain file, ``experiments/sst2/tuned.toml``.

A recipe is a config (``[text]``, ``[model]``, ``[training]``, as for ``dcnn train``) with three
sections of its own: ``[data]`` (which examples, which targets), ``[distillation]`` (teachers) and
``[storage]`` (float32, float16 or int8).
A table under the name of another network holds what differs for that network.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Self

from dcnn import config
from dcnn.artifact import StoredDtype
from dcnn.config import Config, CountOrZero, Fraction, NotNegative, Positive, Rule, Section
from dcnn.errors import ConfigError
from dcnn.experiments.results import RECIPE_NAME_RULE, is_recipe_name

NGRAM_RECIPE = "ngram"
_MAX_TEACHERS = 100

# Beside the package where it is installed, at the root of the repository in a checkout.
_FOLDERS = (Path(__file__).parent / "recipes", Path(__file__).parents[3] / "experiments")

_FIVE_PROBABILITIES = Rule(
    lambda values: not values or (len(values) == 5 and all(0 <= value <= 1 for value in values)),
    "five probabilities, one per label from very negative to very positive",
)


@dataclass(frozen=True)
class DataConfig(Section):
    """Which examples are learned, and with which targets; each experiment has its own settings.

    Attributes:
        phrases: SST: whether every phrase of a training tree is an example, or only the sentence.
        soft_targets: SST binary: the probability of "positive" for the labels 0 to 4. Empty: hard
            targets, and neutral phrases are left out.
        neighbour_smoothing: SST fine: the fraction of a target given to the neighbouring labels.
        sentence_weight: SST: the weight of a whole sentence relative to a phrase inside it.
        swaps: SST: new sentences per training sentence, made by swapping one of its phrases for
            another of the same label.
        authors_tokens: SST: split words at hyphens and drop the words of dev and test that are
            not in the training set, as the authors' code did.
        folds: TREC: folds of the cross-validation that gives the dev accuracy.
        held_out: Twitter: the fraction of the training tweets held out as dev set.
    """

    phrases: bool = True
    soft_targets: Annotated[tuple[float, ...], _FIVE_PROBABILITIES] = ()
    neighbour_smoothing: Fraction = 0.0
    sentence_weight: Positive = 1.0
    swaps: CountOrZero = 0
    authors_tokens: bool = False
    folds: Annotated[int, config.at_least(2)] = 5
    held_out: Annotated[float, Rule(lambda v: 0 < v <= 0.5, "above 0 and at most 0.5")] = 0.01


_SST = ("phrases", "sentence_weight", "swaps", "authors_tokens")
DATA_SETTINGS = {
    "sst2": (*_SST, "soft_targets"),
    "sst5": (*_SST, "neighbour_smoothing"),
    "trec": ("folds",),
    "twitter": ("held_out",),
}
# The data settings of networks that learn from trees, and settings without effect on them.
_OF_NODES = ("sentence_weight", "soft_targets", "neighbour_smoothing")
_NOT_OF_TREES = (
    *("text.char_ngrams", "text.vectors", "training.n_ensemble", "training.class_weights"),
    *("training.label_smoothing", "training.evaluations_per_epoch", "training.reset_every"),
)


@dataclass(frozen=True)
class DistillationConfig(Section):
    """Learning from the mean predictions of networks of the same kind, or from an encoder.

    Attributes:
        teachers: the number of teachers of each student; 0 means none of the same kind.
        teacher_weight: of the teachers' prediction in the target; the rest is the true label.
        swaps: SST: extra sentences per training sentence for the student, made by swapping one of
            its phrases for another of the same label. The teachers label them and have not been
            trained on them.
        word_dropout: the student's word dropout where it is above ``training.word_dropout``,
            which is that of the teachers.
        encoder: a pretrained encoder, fine-tuned on the training texts, that teaches all students;
            empty means none. With it, the dev accuracy of TREC is that of a tenth held out.
        teacher_per_seed: whether each seed has a teacher of its own, fine-tuned with that seed.
        unlabelled: corpora whose sentences the encoder labels: imdb, questions.
        spans: n-grams of unlabelled sentences that it labels too, per sentence.
        copies: augmented texts per training text that it labels too; see ``dcnn.data.augment``.
        fine_tuning_epochs: passes over the training texts; 0 decides by their number.
        fine_tuning_batch: texts per step of the fine-tuning.
    """

    teachers: Annotated[
        int, Rule(lambda v: 0 <= v <= _MAX_TEACHERS, f"from 0 to {_MAX_TEACHERS}")
    ] = 0
    teacher_weight: Annotated[float, Rule(lambda v: 0 < v <= 1, "above 0 and at most 1")] = 0.5
    swaps: CountOrZero = 0
    word_dropout: Fraction = 0.0
    encoder: str = ""
    teacher_per_seed: bool = False
    unlabelled: tuple[str, ...] = ()
    spans: NotNegative = 0.0
    copies: CountOrZero = 0
    fine_tuning_epochs: CountOrZero = 0
    fine_tuning_batch: Annotated[int, config.at_least(1)] = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        config.require(
            not self.teachers or not self.encoder,
            f"teachers={self.teachers} and encoder={self.encoder!r}: leave out one of them",
        )
        for name in ("swaps", "word_dropout"):
            value = getattr(self, name)
            some = self.teachers > 0 or (name == "swaps" and bool(self.encoder))
            config.require(not value or some, f"{name}={value} needs teachers; set teachers")
        for name in ("teacher_per_seed", "unlabelled", "spans", "copies"):
            value = getattr(self, name)
            config.require(
                not value or bool(self.encoder), f"{name}={value} needs an encoder; set encoder"
            )


@dataclass(frozen=True)
class StorageConfig(Section):
    """How the network is stored, which is how it predicts the test set.

    Attributes:
        dtype: float32, float16 or int8; see ``dcnn.artifact``.
    """

    dtype: StoredDtype = "float32"


_OWN_SECTIONS: dict[str, Any] = {
    "data": DataConfig,
    "distillation": DistillationConfig,
    "storage": StorageConfig,
}


@dataclass(frozen=True)
class Recipe:
    """All settings of one network in one experiment."""

    name: str
    config: Config
    data: DataConfig = field(default_factory=DataConfig)
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)

    @classmethod
    def from_dict(cls, name: str, model: str, values: Mapping[str, Any], where: str) -> Self:
        """Build from the tables of a file, for the network ``model``."""
        sections = [*(section.name for section in fields(Config)), *_OWN_SECTIONS]
        networks = [kind for kind in config.RECIPE_KINDS if kind != "dcnn"]
        config.check_names(where, values, [*sections, *networks])
        for section, table in values.items():
            config.require_table(f"{where}: {section}", table)
        settings = {section: dict(values.get(section, {})) for section in sections}
        if model != "dcnn":
            # Another network shares dimensions, data and training, unless its own table differs.
            settings["model"] = {"kind": model, "dim": settings["model"].get("dim", 48)}
            settings["distillation"], settings["storage"] = {}, {}
            own = values.get(model, {})
            config.check_names(f"{where}: {model}", own, sections)
            for section, changes in own.items():
                config.require_table(f"{where}: {model}.{section}", changes)
                settings[section] |= changes
        return cls.from_sections(name, model, settings, where)

    @classmethod
    def from_sections(
        cls, name: str, model: str, settings: dict[str, dict[str, Any]], where: str
    ) -> Self:
        """Build from the six sections.

        What the command decides, and what an experiment does not do, cannot be set: it would be
        recorded and not applied.
        """
        training = {"patience": 0, "calibrate": False} | settings["training"]
        other_kind = settings["model"].get("kind", model) != model
        for reason, is_set in (
            ("patience: an experiment never stops early", training["patience"] != 0),
            ("calibrate: an experiment counts labels", training["calibrate"]),
            ("seed: --seeds sets how many seeds are run", training.get("seed", 0) != 0),
            ("kind: --models sets which network is trained", other_kind),
        ):
            config.require(not is_set, f"{where}: {reason}; leave it out")
        return cls(
            name,
            Config.from_dict(
                {"text": settings["text"], "model": settings["model"], "training": training},
                where,
                config.RECIPE_KINDS,
            ),
            *(
                config.from_plain(kind, settings[section], f"{where}: {section}")
                for section, kind in _OWN_SECTIONS.items()
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values, for the record of a run."""
        own = {name: config.to_plain(getattr(self, name)) for name in _OWN_SECTIONS}
        return self.config.to_dict() | own


def load_recipe(experiment: str, name: str, model: str = "dcnn") -> Recipe:
    """Read a recipe by name (``paper``, ``tuned``, ``best``) or from a ``.toml`` file."""
    path = Path(name) if name.endswith(".toml") else _find(experiment, name)
    if not is_recipe_name(path.stem):
        raise ConfigError(f"recipe={path.stem!r} must be {RECIPE_NAME_RULE}; rename {path}")
    recipe = Recipe.from_dict(path.stem, model, config.read_toml(path), str(path))
    # A setting that only another experiment uses would be recorded and do nothing.
    swaps = recipe.distillation.swaps
    config.require(
        not swaps or corpus_of(experiment) == "sst",
        f"distillation.swaps={swaps} has no effect in {experiment}, whose examples are not trees; "
        "leave it out",
    )
    config.require(
        not swaps or recipe.config.training.class_weights != "balanced",
        f"distillation.swaps={swaps} gives sentences without a label, which "
        "training.class_weights='balanced' would give no weight; leave out one of them",
    )
    defaults, used, where = config.to_plain(DataConfig()), DATA_SETTINGS[experiment], experiment
    if model in config.TREE_KINDS:
        where = f"{experiment} with {model}"
        used = tuple(setting for setting in used if setting in _OF_NODES)
    for setting, value in config.to_plain(recipe.data).items():
        config.require(
            value == defaults[setting] or setting in used,
            f"data.{setting}={value} has no effect in {where}; its own settings are "
            f"{', '.join(used)}",
        )
    for setting in _NOT_OF_TREES if model in config.TREE_KINDS else ():
        section, _, key = setting.partition(".")
        value, usual = (
            getattr(getattr(one, section), key) for one in (recipe.config, config.Config())
        )
        config.require(
            value == usual, f"{setting}={value} has no effect in {where}; leave it at {usual!r}"
        )
    return recipe


def corpus_of(experiment: str) -> str:
    """The corpus of an experiment: both Stanford experiments use the same trees."""
    return "sst" if experiment.startswith("sst") else experiment


def _find(experiment: str, name: str) -> Path:
    paths = [path for folder in _FOLDERS for path in sorted((folder / experiment).glob("*.toml"))]
    found = {path.stem: path for path in reversed(paths)}  # the first folder goes first
    if name in found:
        return found[name]
    known = [path.stem for path in paths if path.stem != NGRAM_RECIPE]
    raise ConfigError(
        f"recipe={name!r} is not known for {experiment}; "
        f"take one of {', '.join(known)}, or the path of a .toml file"
    )
