"""What a search may change, from where it starts, and how drawn values become a config.

The space is drawn around a config, the start: its values are part of every range, so that the
start is a point of the space like any other. Values that the user holds are not searched.


The trials of a study as plain values, and which of them is the best.

The file of a study: Optuna's journal, which only grows, so that a kill loses no ended trial.

The search: ask for settings, train, prune what lags behind, and keep to the time.

The start is the first trial and is never pruned, so the best is at least as good on dev. Every
trial is drawn from the seed, its number and the trials before it, and from nothing else: a search
that was stopped and resumed tries what it would have tried.

"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna import Study, Trial
from optuna.pruners import MedianPruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from dcnn.config import Config, DCNNConfig, MaxTDNNConfig
from dcnn.data.labels import LabelledTexts
from dcnn.errors import TrainingError, TrainingStoppedError, UserError
from dcnn.training.callbacks import Callback, EvaluationRecord, Progress

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
            _choice("training.n_ensemble", training.n_ensemble, (1, 4, 8)),
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


COMPLETE, PRUNED, DIVERGED, TOO_LARGE = "complete", "pruned", "diverged", "too large"
# Of a trial that was cut off nothing counts but the time it took; it is tried again.
OUTCOME, SETTINGS, SECONDS = "outcome", "settings", "seconds"


@dataclass(frozen=True)
class Trained:
    """What a training tells the search.

    Attributes:
        dev_accuracy: of the weights that were kept.
        dev_loss: theirs too.
        epochs: epochs done.
        size: bytes of the model folder.
    """

    dev_accuracy: float
    dev_loss: float
    epochs: int
    size: int


@dataclass(frozen=True)
class TrialRecord:
    """A trial that has ended.

    Attributes:
        number: its place among them, from 0, the start.
        outcome: complete, pruned, diverged or too large.
        config: its settings.
        parameters: what was drawn.
        seconds: time it took.
        curve: the best dev accuracy after each look at the dev set.
        trained: how it went; none unless it is complete.
    """

    number: int
    outcome: str
    config: Config
    parameters: dict[str, Any]
    seconds: float
    curve: tuple[float, ...]
    trained: Trained | None


def finished_trials(study: Study) -> list[TrialRecord]:
    """All that have ended, in their order; those that were cut off do not count."""
    ended = [
        trial
        for trial in study.get_trials(
            deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)
        )
        if OUTCOME in trial.user_attrs
    ]
    return [record_of(trial, number) for number, trial in enumerate(ended)]


def record_of(trial: FrozenTrial, number: int) -> TrialRecord:
    """A trial that has ended, as the one of that number."""
    return TrialRecord(
        number=number,
        outcome=trial.user_attrs[OUTCOME],
        config=Config.from_dict(trial.user_attrs[SETTINGS], "study"),
        parameters=dict(trial.params),
        seconds=trial.user_attrs[SECONDS],
        curve=tuple(value for _, value in sorted(trial.intermediate_values.items())),
        trained=Trained(**trial.user_attrs["trained"])
        if trial.state == TrialState.COMPLETE
        else None,
    )


def best_trial(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """The most accurate on dev of those that were not cut short; none if there is none.

    Equal accuracy is common on a small dev set: the loss then decides, and then the order.
    """
    complete = [(record.trained, record) for record in records if record.trained is not None]
    if not complete:
        return None
    ranked = [
        ((trained.dev_accuracy, -trained.dev_loss, -record.number), record)
        for trained, record in complete
    ]
    return max(ranked, key=lambda pair: pair[0])[1]


def seconds_spent(study: Study) -> float:
    """Time that all trials took, those that were cut off included."""
    trials = study.get_trials(deepcopy=False)
    return sum(float(trial.user_attrs.get(SECONDS, 0.0)) for trial in trials)


_NAME = "dcnn"
_IDENTITY = "identity"


def study_identity(
    train: LabelledTexts,
    dev: LabelledTexts,
    start: Config,
    held: Sequence[str],
    max_size: int | None,
    device: str,
) -> dict[str, Any]:
    """What makes a study this study: data, start, space and limit of size, as flat plain values."""
    return start.to_flat() | {
        "the data": _fingerprint(train),
        "the dev set": _fingerprint(dev),
        "what --set holds": sorted(held),
        "--max-size": max_size,
        "--device": device,
        "the search space": VERSION,
    }


def _fingerprint(examples: LabelledTexts) -> str:
    digest = hashlib.sha256()
    for part in (examples.texts, examples.labels):
        digest.update(json.dumps(list(part)).encode())
    if examples.weights is not None:
        digest.update(examples.weights.tobytes())
    return digest.hexdigest()[:16]


def is_study(path: Path) -> bool:
    """Whether ``path`` is a journal of Optuna's, or empty."""
    with path.open("rb") as stream:
        first = stream.readline(1 << 16)
    return not first or b'"op_code"' in first


def open_study(path: Path, identity: dict[str, Any]) -> optuna.Study:
    """The study in ``path``, or a new one.

    Raises:
        UserError: the file is damaged, or belongs to another search.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    identity = json.loads(json.dumps(identity))
    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        study = optuna.create_study(
            storage=storage, study_name=_NAME, direction="maximize", load_if_exists=True
        )
        there = study.user_attrs.get(_IDENTITY)
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"{path} is not a readable study ({error}); "
            "delete it and search from the start, without --resume"
        ) from error
    if there is None:
        study.set_user_attr(_IDENTITY, identity)
    elif there != identity:
        differences = [
            f"{name} was {there.get(name)!r} and is now {identity.get(name)!r}"
            for name in sorted(there.keys() | identity.keys())
            if there.get(name) != identity.get(name)
        ]
        raise UserError(
            f"{path} belongs to another search: {'; '.join(differences)}; repeat the command "
            "as it was, or search from the start, with --overwrite instead of --resume"
        )
    return study


RANDOM_TRIALS = 8  # before the sampler has seen enough to model
UNPRUNED_TRIALS = 4  # before there is a median worth the name
UNPRUNED_LOOKS = 2  # at the dev set: the first ones only tell who starts quickly
REFIT_MARGIN = 1.1  # a training takes not always as long
TOO_LARGE_IN_A_ROW = 50  # then nothing else will fit either

Train = Callable[[Config, Callback], Trained]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Limits:
    """When a search ends, whichever comes first; none is no limit.

    Attributes:
        seconds: of all trials, over all resumptions, with the training of the best again.
        trials: how many, the start included.
    """

    seconds: float | None = None
    trials: int | None = None


class SearchListener(Callback):
    """Hears of trials as well; ``stop`` ends the search."""

    def on_trial(self, number: int) -> None:
        """A trial begins to train."""

    def on_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        """A trial has ended; ``best`` is the best so far."""

    def on_time(self, seconds_left: float | None) -> None:
        """So much time is left to the trials; none where there is no limit."""


class Search:
    """A study, and all that is needed to go on with it.

    Args:
        study: where trials are kept.
        space: what may change.
        fitted: makes a config fit the limit of size, or gives none.
        train: trains one.
        limits: when to end.
        seed: of what is drawn.
        callback: hears how it goes.
        clock: seconds, from any start.
    """

    def __init__(
        self,
        study: Study,
        space: SearchSpace,
        fitted: Callable[[Config], Config | None],
        train: Train,
        limits: Limits,
        seed: int = 0,
        callback: SearchListener | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.study, self.space, self.fitted, self.train = study, space, fitted, train
        self.limits, self.seed, self.clock = limits, seed, clock
        self.callback = callback or SearchListener()
        _close_what_was_left_open(study)
        self.records = finished_trials(study)
        self.study.pruner = MedianPruner(UNPRUNED_TRIALS, UNPRUNED_LOOKS + 1)
        self._spent_before, self._began = seconds_spent(study), clock()
        self._out_of_time = False

    @property
    def best(self) -> TrialRecord | None:
        """The best trial so far."""
        return best_trial(self.records)

    @property
    def seconds(self) -> float:
        """Time spent, over all resumptions."""
        return self._spent_before + self.clock() - self._began

    @property
    def is_done(self) -> bool:
        """Whether a limit is reached."""
        if self.limits.trials is not None and len(self.records) >= self.limits.trials:
            return True
        if self._out_of_time:
            return True
        last = [record.outcome for record in self.records[-TOO_LARGE_IN_A_ROW:]]
        if last.count(TOO_LARGE) == TOO_LARGE_IN_A_ROW:
            return True
        left = self.seconds_left(0.0)
        if left is None or not self.records:  # the start is tried whatever it takes
            return False
        trainings = [record.seconds for record in self.records if record.trained is not None]
        return left <= min(trainings, default=0.0)  # too little for the quickest

    def run(self) -> None:
        """Try until a limit is reached.

        Raises:
            TrainingStoppedError: the listener asked to stop; what has ended is kept.
        """
        while not self.is_done:
            self._try(len(self.records))

    def seconds_left(self, trial_seconds: float) -> float | None:
        """Time left to trials, if the one that now runs were to be trained again as the best."""
        if self.limits.seconds is None:
            return None
        best = self.best
        again = max(trial_seconds, best.seconds if best is not None else 0.0)
        return self.limits.seconds - self.seconds - REFIT_MARGIN * again

    def _ask(self, number: int) -> Trial:
        state = np.random.SeedSequence((self.seed, number)).generate_state(1)
        self.study.sampler = TPESampler(seed=int(state[0]), n_startup_trials=RANDOM_TRIALS)
        waiting = self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if number == 0 and not waiting:  # a killed search may have left it waiting
            self.study.enqueue_trial(self.space.start_values())
        return self.study.ask()

    def _try(self, number: int) -> None:
        trial = self._ask(number)
        began = self.clock()
        drawn = self.space.draw(trial)
        config = self.fitted(drawn)
        trial.set_user_attr(SETTINGS, (config or drawn).to_dict())
        if config is None:
            self._end(trial, TOO_LARGE, began)
            return
        self.callback.on_trial(number)
        watch = TrialWatch(self, trial, number, began)
        try:
            trained = self.train(config, watch)
        except TrainingStoppedError:
            if watch.pruned:
                self._end(trial, PRUNED, began)
                return
            self._cut_off(trial, began)
            if not watch.out_of_time:
                raise
            self._out_of_time = True
        except TrainingError:
            self._end(trial, DIVERGED, began)
        except BaseException:
            self._cut_off(trial, began)
            raise
        else:
            trial.set_user_attr("trained", asdict(trained))
            self._end(trial, COMPLETE, began, trained.dev_accuracy)

    def _end(self, trial: Trial, outcome: str, began: float, value: float | None = None) -> None:
        trial.set_user_attr(SECONDS, self.clock() - began)
        trial.set_user_attr(OUTCOME, outcome)
        state = TrialState.COMPLETE if outcome == COMPLETE else TrialState.PRUNED
        ended = self.study.tell(trial, value, state)
        self.records.append(record_of(ended, len(self.records)))
        self.callback.on_finished(self.records[-1], self.best)

    def _cut_off(self, trial: Trial, began: float) -> None:
        trial.set_user_attr(SECONDS, self.clock() - began)
        self.study.tell(trial, state=TrialState.FAIL)


class TrialWatch(Callback):
    """Follows the training of one trial, and ends it where it lags behind or time is up."""

    def __init__(self, search: Search, trial: Trial, number: int, began: float) -> None:
        self.search, self.trial, self.number, self.began = search, trial, number, began
        self.pruned = self.out_of_time = False
        self._looks, self._best = 0, 0.0

    @property
    def stop(self) -> bool:  # type: ignore[override]
        """Whether to end after this step, for whatever reason."""
        return self.pruned or self.out_of_time or self.search.callback.stop

    def on_step(self, progress: Progress) -> None:
        """Look at the clock."""
        self.search.callback.on_step(progress)
        left = self.search.seconds_left(self.search.clock() - self.began)
        self.search.callback.on_time(left)
        if left is not None and left < 0 and self.number > 0:
            self.out_of_time = True

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """Report, and compare with the others at the same point."""
        self.search.callback.on_evaluation(record)
        self._looks += 1
        # Training keeps its best weights, so its best is what it has reached.
        self._best = max(self._best, record.dev_accuracy)
        self.trial.report(self._best, self._looks)
        if self.number > 0 and self.trial.should_prune():
            self.pruned = True


def _close_what_was_left_open(study: Study) -> None:
    """A search that was killed leaves a trial running for ever."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
