"""What a search may change, from where it starts, and how drawn values become a config.

The space is drawn around a config, the start: its values are part of every range, so that the
start is a point of the space like any other. Values that the user holds are not searched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from optuna import Trial

from dcnn.config import Config, DCNNConfig, MaxTDNNConfig

Value = int | float
VERSION = 2  # a study goes on only in the space it began in


@dataclass(frozen=True)
class Knob:
    """One thing that may change.

    Attributes:
        name: of the parameter in the study and the report.
        setting: ``section.key`` that it belongs to.
        start: its value in the start.
        choices: the values to choose from; none where it is a range.
        low: the lowest of a range.
        high: the highest.
        log: whether the range is searched by order of magnitude.
        layer: the layer it belongs to; a network of fewer layers has no such knob.
    """

    name: str
    setting: str
    start: Value
    choices: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    layer: int = 0

    def draw(self, trial: Trial) -> Value:
        """A value of the trial's; of a range, with three digits, as people write settings."""
        if self.choices:
            chosen: Value = trial.suggest_categorical(self.name, self.choices)
            return chosen
        value = trial.suggest_float(self.name, self.low, self.high, log=self.log)
        return value if value == self.start else float(f"{value:.3g}")


@dataclass(frozen=True)
class SearchSpace:
    """All settings within reach of ``start``, apart from those in ``held`` (``section.key``)."""

    start: Config
    held: frozenset[str] = frozenset()

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        """What may change; the depth comes first, since other knobs hang on it."""
        training, model = self.start.training, self.start.model
        ranges = [
            _log_range("training.learning_rate", training.learning_rate, 0.02, 0.4),
            _log_range("training.l2_embeddings", training.l2_embeddings, 1e-6, 1e-3),
            _range("training.word_dropout", training.word_dropout, 0.4),
            _range("training.label_smoothing", training.label_smoothing, 0.2),
            _range("model.dropout", model.dropout, 0.7),
        ]
        choices = [
            _choice("training.epochs", training.epochs, (6, 9, 12, 18)),
            _choice("training.batch_size", training.batch_size, (16, 32, 64)),
            _choice("text.min_count", self.start.text.min_count, (1, 2, 3)),
            _choice("model.dim", model.dim, (16, 32, 48, 64, 96, 144)),
            _choice("training.members", training.members, (1, 4, 8)),
        ]
        if isinstance(model, DCNNConfig):
            choices = [*self._layers(model), *choices]
        elif isinstance(model, MaxTDNNConfig):
            choices.append(_choice("model.width", model.width, (3, 4, 5, 6, 8)))
        return tuple(knob for knob in (*choices, *ranges) if knob.setting not in self.held)

    def _layers(self, model: DCNNConfig) -> list[Knob]:
        held_layers = not self.held.isdisjoint(("model.widths", "model.maps"))
        depths = (model.depth,) if held_layers else (1, 2)
        knobs = [
            _choice("model.widths", model.depth, depths, "depth"),
            _choice("model.k_top", model.k_top, (1, 2, 3, 4, 5)),
        ]
        for layer in range(1, max(*depths, model.depth) + 1):
            # A layer that the start does not have begins as the paper's second.
            width = model.widths[layer - 1] if layer <= model.depth else 5
            maps = model.maps[layer - 1] if layer <= model.depth else 14
            usual = ((5, 6, 7, 8, 10), (4, 6, 8, 12)) if layer == 1 else ((3, 4, 5), (8, 14, 20))
            knobs += [
                _choice("model.widths", width, usual[0], f"width_{layer}", layer),
                _choice("model.maps", maps, usual[1], f"maps_{layer}", layer),
            ]
        return knobs

    def start_values(self) -> dict[str, Value]:
        """The start as a point of the space."""
        return {
            knob.name: knob.start for knob in self.knobs if knob.layer <= self.start.model.depth
        }

    def draw(self, trial: Trial) -> Config:
        """The config of a trial."""
        values: dict[str, Value] = {}
        for knob in self.knobs:
            if knob.layer <= values.get("depth", self.start.model.depth):
                values[knob.name] = knob.draw(trial)
        return self.config(values)

    def config(self, values: Mapping[str, Value]) -> Config:
        """The start, with ``values`` in the place of its own.

        Two rules of a network are kept by giving way: ``k_top`` to the first width, and ``dim`` to
        the next size that can be folded.
        """
        sections = self.start.to_dict()
        model = sections["model"]
        for knob in self.knobs:
            if knob.name in values and not knob.layer and knob.name != "depth":
                section, key = knob.setting.split(".")
                sections[section][key] = values[knob.name]
        if model["kind"] == "dcnn":
            depth = int(values.get("depth", len(model["widths"])))
            for key, name in (("widths", "width"), ("maps", "maps")):
                model[key] = [
                    int(values[f"{name}_{layer}"])
                    if f"{name}_{layer}" in values
                    else model[key][layer - 1]
                    for layer in range(1, depth + 1)
                ]
            if "model.k_top" not in self.held:
                model["k_top"] = min(model["k_top"], model["widths"][0])
            else:
                model["widths"][0] = max(model["widths"][0], model["k_top"])
            if model["fold"]:
                halvings = 2**depth
                model["dim"] = -(-model["dim"] // halvings) * halvings
        return Config.from_dict(sections, "tune")


def _name(setting: str) -> str:
    return setting.rpartition(".")[2]


def _range(setting: str, start: float, high: float) -> Knob:
    return Knob(_name(setting), setting, start, low=0.0, high=max(high, start))


def _log_range(setting: str, start: float, low: float, high: float) -> Knob:
    if start == 0:  # has no order of magnitude
        return _range(setting, start, high)
    return Knob(
        _name(setting), setting, start, low=min(low, start), high=max(high, start), log=True
    )


def _choice(
    setting: str, start: int, usual: tuple[int, ...], name: str = "", layer: int = 0
) -> Knob:
    choices = tuple(sorted({*usual, start}))
    return Knob(name or _name(setting), setting, start, choices, layer=layer)
