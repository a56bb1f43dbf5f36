"""The search for settings, on Optuna: sample, train, prune what is behind, and keep to the time.

The search space is built around a config, the start, whose values are part of every range, so that
the start is a point of the space; settings that the user fixes are not searched. The start is the
first trial and is never pruned, so the best is at least as good on dev. Every trial depends on the
seed, its number and the trials before it only: a search that was stopped and resumed tries what it
would have tried. The study is Optuna's journal, a file that only grows, so that a kill loses no
finished trial.
"""

import hashlib
import json
import math
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna import Study, Trial
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from dcnn.artifact import Artifact, folder_size
from dcnn.config import RENAMED_SETTINGS, Config, DCNNConfig
from dcnn.data.labels import LabelledTexts
from dcnn.errors import TrainingError, TrainingStoppedError, UserError
from dcnn.text.encoder import Encoder, learn_tokenizer
from dcnn.text.vocabulary import Vocabulary
from dcnn.training.callbacks import Callback, EvaluationRecord, Progress

Value = int | float

SPACE_VERSION = 2  # a study is resumed only in the space it began in
RANDOM_TRIALS = 8  # before the sampler has seen enough to model
UNPRUNED_TRIALS = 4  # before a median means much
UNPRUNED_EVALUATIONS = 2  # the first ones only show which trial starts fast
REFIT_MARGIN = 1.1  # trainings of the same settings differ in time
MAX_TOO_LARGE_IN_A_ROW = 50  # then nothing else will fit either

COMPLETE, PRUNED, DIVERGED, TOO_LARGE = "complete", "pruned", "diverged", "too large"
# User attributes of a trial. One that was cut off has its time alone, and is tried again.
OUTCOME, SETTINGS, SECONDS, TRAINED = "outcome", "settings", "seconds", "trained"


_CHOICES = {
    "training.epochs": (6, 9, 12, 18),
    "training.batch_size": (16, 32, 64),
    "text.min_count": (1, 2, 3),
    "model.dim": (16, 32, 48, 64, 96, 144),
    "training.n_ensemble": (1, 4, 8),
    "model.width": (3, 4, 5, 6, 8),  # of Max-TDNN
}
_RANGES = {  # the highest value, and the lowest of a logarithmic scale; the others begin at 0
    "training.learning_rate": (0.4, 0.02),
    "training.l2_embeddings": (1e-3, 1e-6),
    "training.word_dropout": (0.4,),
    "training.label_smoothing": (0.2,),
    "model.dropout": (0.7,),
}


@dataclass(frozen=True)
class Parameter:
    """A setting that is searched."""

    name: str  # in the study and the report
    setting: str  # section.key
    start: Value  # its value in the start, which extends its choices or its range
    usual: tuple[Value, ...]  # choices, or a range as in ``_RANGES``
    layer: int = 0  # that it belongs to; a network with fewer layers does not have it

    def suggest(self, trial: Trial) -> Value:
        """A value of the trial; of a range with three digits, as people write settings."""
        if self.setting not in _RANGES:
            choices = tuple(sorted({*self.usual, self.start}))
            chosen: Value = trial.suggest_categorical(self.name, choices)
            return chosen
        high, *log_low = self.usual
        log = bool(log_low) and self.start != 0
        low = min(*log_low, self.start) if log else 0.0
        value = trial.suggest_float(self.name, low, max(high, self.start), log=log)
        return value if value == self.start else float(f"{value:.3g}")


@dataclass(frozen=True)
class SearchSpace:
    """All settings around ``start``, apart from those in ``fixed`` (``section.key``)."""

    start: Config
    fixed: frozenset[str] = frozenset()

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What may change; the depth comes first, since other parameters depend on it."""
        start, model = self.start.to_flat(), self.start.model
        parameters = self._layers(model) if isinstance(model, DCNNConfig) else []
        parameters += [
            Parameter(setting.partition(".")[2], setting, start[setting], usual)
            for setting, usual in (_CHOICES | _RANGES).items()
            if setting in start
        ]
        return tuple(one for one in parameters if one.setting not in self.fixed)

    def _layers(self, model: DCNNConfig) -> list[Parameter]:
        fixed_layers = not self.fixed.isdisjoint(("model.widths", "model.maps"))
        depths = (model.depth,) if fixed_layers else (1, 2)
        parameters = [
            Parameter("depth", "model.widths", model.depth, depths),
            Parameter("k_top", "model.k_top", model.k_top, (1, 2, 3, 4, 5)),
        ]
        for layer in range(1, max(*depths, model.depth) + 1):
            # A layer that the start does not have begins as the paper's second.
            width = model.widths[layer - 1] if layer <= model.depth else 5
            maps = model.maps[layer - 1] if layer <= model.depth else 14
            usual = ((5, 6, 7, 8, 10), (4, 6, 8, 12)) if layer == 1 else ((3, 4, 5), (8, 14, 20))
            parameters += [
                Parameter(f"width_{layer}", "model.widths", width, usual[0], layer),
                Parameter(f"maps_{layer}", "model.maps", maps, usual[1], layer),
            ]
        return parameters

    def start_values(self) -> dict[str, Value]:
        """The start as a point of the space."""
        depth = self.start.model.depth
        return {one.name: one.start for one in self.parameters if one.layer <= depth}

    def suggest(self, trial: Trial) -> Config:
        """The config of a trial."""
        values: dict[str, Value] = {}
        for one in self.parameters:
            if one.layer <= values.get("depth", self.start.model.depth):
                values[one.name] = one.suggest(trial)
        return self.config(values)

    def config(self, values: Mapping[str, Value]) -> Config:
        """The start with ``values`` replaced.

        Two rules of a network are satisfied by adjusting: ``k_top`` to the first width, and
        ``dim`` to the next size that can be folded.
        """
        sections = self.start.to_dict()
        for one in self.parameters:
            if one.name in values and one.name != "depth":
                section, key = one.setting.split(".")
                if one.layer:
                    sections[section][key][one.layer - 1 : one.layer] = [values[one.name]]
                else:
                    sections[section][key] = values[one.name]
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


class FolderSizes:
    """The sizes of the model folders of the training set, before anything is trained.

    The weights follow from the shapes, the vocabulary from the word counts; with an allowance for
    the metadata, a size is an upper bound. ``config`` splits the texts: a search does not change
    the tokenizer. ``limit`` is the maximum bytes of a folder.
    """

    def __init__(
        self, name: str, train: LabelledTexts, config: Config, limit: int | None = None
    ) -> None:
        self.name, self.classes, self.limit = name, tuple(train.classes), limit
        self.tokenizer, (words, ids, _) = learn_tokenizer(config.text, train.texts)
        counts = np.bincount(ids, minlength=len(words))
        order = np.argsort(-counts, kind="stable")
        self._counts = counts[order]
        lines = [len(json.dumps(words[i], ensure_ascii=False).encode()) + 2 for i in order]
        self._bytes = np.concatenate([[0], np.cumsum(lines, dtype=np.int64)])

    def words(self, config: Config) -> int:
        """The size of the vocabulary, as ``Encoder.learn`` decides."""
        frequent = int((self._counts >= config.text.min_count).sum())
        return min(frequent, config.text.max_size) if config.text.max_size else frequent

    def of(self, config: Config, words: int | None = None) -> int:
        """An upper bound of the folder's bytes, tight to a few kilobytes."""
        words = self.words(config) if words is None else words
        shapes = config.model.parameter_shapes(words + 1, len(self.classes))
        weights = sum(4 * math.prod(shape) + _TENSOR_HEADER for shape in shapes.values())
        empty = Encoder(self.tokenizer, Vocabulary([]))
        rest = folder_size(self.name, Artifact(config, self.classes, empty, {}))
        return weights + int(self._bytes[words]) + rest + _METADATA_BYTES

    def fitted(self, config: Config) -> Config | None:
        """``config`` with as many of its words, the most frequent, as the limit has room for.

        None where the network leaves room for hardly any.
        """
        if self.limit is None or self.of(config) <= self.limit:
            return config
        sizes = range(self.words(config))
        words = bisect_right(sizes, self.limit, key=lambda count: self.of(config, count)) - 1
        if words < min(MIN_WORDS, len(sizes)):
            return None
        return replace(config, text=replace(config.text, max_size=words))


def study_identity(
    train: LabelledTexts, dev: LabelledTexts, space: SearchSpace, max_size: int | None, device: str
) -> dict[str, Any]:
    """What a resumed search must have in common with the first, as flat plain values."""
    return space.start.to_flat() | {
        "the data": _fingerprint(train),
        "the dev set": _fingerprint(dev),
        "what --set holds": sorted(space.fixed),
        "--max-size": max_size,
        "--device": device,
        "the search space": SPACE_VERSION,
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


_NEW_NAMES = {old: new for names in RENAMED_SETTINGS.values() for old, new in names.items()}
# A name in quotes, which are escaped where a JSON text is a value.
_OLD_NAME = re.compile(rf'("(?:text\.|training\.)?)({"|".join(_NEW_NAMES)})(?=\\*")')


class _Journal(JournalFileBackend):
    """The file of a study; settings and parameters of release 0.1 are read by today's names."""

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        for log in super().read_logs(log_number_from):
            text = _OLD_NAME.sub(lambda name: name[1] + _NEW_NAMES[name[2]], json.dumps(log))
            yield json.loads(text)


def open_study(path: Path, identity: dict[str, Any]) -> Study:
    """The study in ``path``, or a new one."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    identity = json.loads(json.dumps(identity))
    try:
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(_Journal(str(path))),
            study_name="dcnn",
            direction="maximize",
            load_if_exists=True,
        )
        stored = study.user_attrs.get("identity")
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"{path} is not a readable study ({error}); "
            "delete it and search from the start, without --resume"
        ) from error
    if stored is None:
        study.set_user_attr("identity", identity)
    elif stored != identity:
        differences = [
            f"{name} was {stored.get(name)!r} and is now {identity.get(name)!r}"
            for name in sorted(stored.keys() | identity.keys())
            if stored.get(name) != identity.get(name)
        ]
        raise UserError(
            f"{path} belongs to another search: {'; '.join(differences)}; repeat the command "
            "as it was, or search from the start, with --overwrite instead of --resume"
        )
    return study


@dataclass(frozen=True)
class Trained:
    """The outcome of a training: scores of the saved weights, epochs run, bytes of the folder."""

    dev_accuracy: float
    dev_loss: float
    epochs: int
    size: int


Train = Callable[[Config, Callback], Trained]


@dataclass(frozen=True)
class TrialRecord:
    """A finished trial."""

    number: int  # among the finished ones, from 0, the start
    outcome: str  # complete, pruned, diverged or too large
    config: Config
    parameters: dict[str, Any]  # the sampled values
    seconds: float
    curve: tuple[float, ...]  # the best dev accuracy so far, per evaluation
    trained: Trained | None  # none unless it is complete


def finished(study: Study) -> list[FrozenTrial]:
    """The trials of a study that have an outcome, in order; those that were cut off have none."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return [trial for trial in trials if OUTCOME in trial.user_attrs]


def _record(trial: FrozenTrial, number: int) -> TrialRecord:
    attributes = trial.user_attrs
    return TrialRecord(
        number=number,
        outcome=attributes[OUTCOME],
        config=Config.from_dict(attributes[SETTINGS], "study"),
        parameters=dict(trial.params),
        seconds=attributes[SECONDS],
        curve=tuple(value for _, value in sorted(trial.intermediate_values.items())),
        trained=Trained(**attributes[TRAINED]) if trial.state == TrialState.COMPLETE else None,
    )


def ranked_trials(records: Sequence[TrialRecord]) -> list[tuple[TrialRecord, Trained]]:
    """The complete trials, the most accurate on dev first.

    Equal accuracy is common on a small dev set: the loss then decides, and then the order.
    """
    complete = [(record, record.trained) for record in records if record.trained is not None]
    return sorted(complete, key=lambda one: (-one[1].dev_accuracy, one[1].dev_loss, one[0].number))


@dataclass(frozen=True)
class Limits:
    """When a search ends, whichever comes first; none means no limit."""

    seconds: float | None = None  # of all trials, over all resumptions, with the refit of the best
    trials: int | None = None  # how many, the start included


class SearchCallback(Callback):
    """A training callback that is called for trials too; ``stop`` ends the search."""

    def on_trial(self, number: int) -> None:
        """A trial starts training."""

    def on_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        """A trial has finished; ``best`` is the best so far."""

    def on_time(self, seconds_left: float | None) -> None:
        """The time left for trials; none where there is no limit."""


@dataclass
class Search:
    """A study, and what is needed to continue it."""

    study: Study
    space: SearchSpace
    fitted: Callable[[Config], Config | None]  # makes a config fit the size limit, if it can
    train: Train
    limits: Limits
    seed: int = 0
    callback: SearchCallback = field(default_factory=SearchCallback)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self.study.tell(trial.number, state=TrialState.FAIL)  # left by a killed search
        self.records = [_record(trial, number) for number, trial in enumerate(finished(self.study))]
        self.study.pruner = optuna.pruners.MedianPruner(UNPRUNED_TRIALS, UNPRUNED_EVALUATIONS + 1)
        trials = self.study.get_trials(deepcopy=False)
        self._seconds_before = sum(float(one.user_attrs.get(SECONDS, 0.0)) for one in trials)
        self._began = self.clock()
        self._out_of_time = False

    @property
    def best(self) -> TrialRecord | None:
        """The best complete trial so far."""
        ranked = ranked_trials(self.records)
        return ranked[0][0] if ranked else None

    @property
    def seconds(self) -> float:
        """Time spent, over all resumptions, including trials that were cut off."""
        return self._seconds_before + self.clock() - self._began

    @property
    def is_done(self) -> bool:
        """Whether a limit is reached."""
        enough = self.limits.trials is not None and len(self.records) >= self.limits.trials
        last = [record.outcome for record in self.records[-MAX_TOO_LARGE_IN_A_ROW:]]
        if self._out_of_time or enough or last.count(TOO_LARGE) == MAX_TOO_LARGE_IN_A_ROW:
            return True
        left = self.seconds_left(0.0)
        if left is None or not self.records:  # the start is trained whatever it takes
            return False
        trainings = [record.seconds for record in self.records if record.trained is not None]
        return left <= min(trainings, default=0.0)  # too little for the fastest

    def run(self) -> None:
        """Try until a limit is reached, or the callback stops the training; trials are kept."""
        while not self.is_done:
            self._try(len(self.records))

    def seconds_left(self, trial_seconds: float) -> float | None:
        """Time left for trials, with a refit of the running one reserved in case it is the best."""
        if self.limits.seconds is None:
            return None
        best = self.best
        refit = max(trial_seconds, best.seconds if best is not None else 0.0)
        return self.limits.seconds - self.seconds - REFIT_MARGIN * refit

    def _try(self, number: int) -> None:
        state = np.random.SeedSequence((self.seed, number)).generate_state(1)
        self.study.sampler = optuna.samplers.TPESampler(
            seed=int(state[0]), n_startup_trials=RANDOM_TRIALS
        )
        waiting = self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if number == 0 and not waiting:  # a killed search may have left it waiting
            self.study.enqueue_trial(self.space.start_values())
        trial = self.study.ask()
        began = self.clock()
        suggested = self.space.suggest(trial)
        config = self.fitted(suggested)
        trial.set_user_attr(SETTINGS, (config or suggested).to_dict())
        if config is None:
            self._finish(trial, TOO_LARGE, began)
            return
        self.callback.on_trial(number)
        watch = _TrialCallback(self, trial, number, began)
        outcome, accuracy = None, None  # of a trial that is cut off
        try:
            trained = self.train(config, watch)
            trial.set_user_attr(TRAINED, asdict(trained))
            outcome, accuracy = COMPLETE, trained.dev_accuracy
        except TrainingStoppedError:
            if watch.pruned:
                outcome = PRUNED
            elif watch.out_of_time:
                self._out_of_time = True
            else:
                raise
        except TrainingError:
            outcome = DIVERGED
        finally:
            self._finish(trial, outcome, began, accuracy)

    def _finish(
        self, trial: Trial, outcome: str | None, began: float, value: float | None = None
    ) -> None:
        trial.set_user_attr(SECONDS, self.clock() - began)
        if outcome is None:
            self.study.tell(trial, state=TrialState.FAIL)
            return
        trial.set_user_attr(OUTCOME, outcome)
        state = TrialState.COMPLETE if outcome == COMPLETE else TrialState.PRUNED
        self.records.append(_record(self.study.tell(trial, value, state), len(self.records)))
        self.callback.on_finished(self.records[-1], self.best)


class _TrialCallback(Callback):
    """Follows the training of one trial, and ends it where it is behind or time is up."""

    def __init__(self, search: Search, trial: Trial, number: int, began: float) -> None:
        self.search, self.trial, self.number, self.began = search, trial, number, began
        self.pruned = self.out_of_time = False
        self._evaluations, self._best = 0, 0.0

    @property
    def stop(self) -> bool:  # type: ignore[override]
        return self.pruned or self.out_of_time or self.search.callback.stop

    def on_step(self, progress: Progress) -> None:
        self.search.callback.on_step(progress)
        left = self.search.seconds_left(self.search.clock() - self.began)
        self.search.callback.on_time(left)
        if left is not None and left < 0 and self.number > 0:
            self.out_of_time = True

    def on_evaluation(self, record: EvaluationRecord) -> None:
        self.search.callback.on_evaluation(record)
        self._evaluations += 1
        # Training keeps its best weights, so its best is what it has reached.
        self._best = max(self._best, record.dev_accuracy)
        self.trial.report(self._best, self._evaluations)
        if self.number > 0 and self.trial.should_prune():
            self.pruned = True
