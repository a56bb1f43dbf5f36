"""The search for settings, on Optuna: propose, train, prune what is behind, and keep to the time.

The start is the first trial and is never pruned, so the best is at least as good in the same
evaluation; the next trials change one setting of it each, and Optuna's TPE sampler proposes the
others. Trial n depends on the seed, its number and the trials up to n - ``AHEAD`` only. So trials
may run in several processes and finish in any order, and a search that was stopped and resumed
tries what it would have tried.

The study is Optuna's journal, a file that only grows. It has finished trials alone, each written at
once: a kill loses no finished trial, and one that was cut off is tried again.
"""

import hashlib
import json
import multiprocessing
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import optuna
from optuna import Study, Trial
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from dcnn.config import Config
from dcnn.data.labels import LabelledTexts
from dcnn.errors import DcnnError, TrainingError, TrainingStoppedError, UserError
from dcnn.files import file_lock
from dcnn.text.vocabulary import worker_pool
from dcnn.training.callbacks import Callback, EvaluationRecord, Progress
from dcnn.tuning.space import SearchSpace, space_digest

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

AHEAD = 4  # trials that are proposed without waiting for one another
RANDOM_TRIALS = 8  # before the sampler has seen enough to model
UNPRUNED_TRIALS = 4  # before a median means much
UNPRUNED_EVALUATIONS = 2  # on dev the first ones only show which trial starts fast
UNPRUNED_FOLDS = 1  # of a cross-validation: the first fold has few examples
REFIT_MARGIN = 1.1  # trainings of the same settings differ in time
MAX_TOO_LARGE_IN_A_ROW = 50  # then nothing else will fit either
POLL_SECONDS = 0.1  # between looks at Ctrl-C and the clock while processes train

COMPLETE, PRUNED, DIVERGED, TOO_LARGE = "complete", "pruned", "diverged", "too large"
# User attributes of a trial; the study has SECONDS too, its time over all resumptions.
NUMBER, OUTCOME, SETTINGS, SECONDS, TRAINED = "number", "outcome", "settings", "seconds", "trained"


def study_identity(
    train: LabelledTexts, dev: LabelledTexts, space: SearchSpace, **options: Any
) -> dict[str, Any]:
    """What a resumed search must have in common with the first, as flat plain values."""
    return (
        space.start.to_flat()
        | {
            "the data": _fingerprint(train),
            "the dev set": _fingerprint(dev),
            "what --set holds": sorted(space.fixed),
            "the search space": space_digest(),
        }
        | options
    )


def _fingerprint(examples: LabelledTexts) -> str:
    digest = hashlib.sha256()
    for part in (examples.texts, examples.labels):
        digest.update(json.dumps(list(part)).encode())
    if examples.weights is not None:
        digest.update(examples.weights.tobytes())
    return digest.hexdigest()[:16]


def is_study(path: Path) -> bool:
    """Whether ``path`` is a journal of Optuna's, or empty, or ends inside its first record."""
    begins = b'{"op_code":'
    with path.open("rb") as stream:
        first = stream.read(len(begins))
    return begins.startswith(first)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the lines that Optuna logs for every study."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


class _JournalLock(JournalFileOpenLock):
    """A lock that the system releases; a killed process would leave Optuna's own for ever."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path, self._held = path, ExitStack()

    def acquire(self) -> bool:
        self._held.enter_context(file_lock(self._path, lambda: None))
        return True

    def release(self) -> None:
        self._held.close()


@_quiet()
def open_study(path: Path, identity: dict[str, Any]) -> Study:
    """The study in ``path``, or a new one."""
    identity = json.loads(json.dumps(identity))
    with file_lock(path, lambda: None):
        content = path.read_bytes()
        # The last record of a process that was killed, or had no room, may be incomplete.
        if is_study(path) and not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)
    try:
        backend = JournalFileBackend(str(path), _JournalLock(path))
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
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
        if isinstance(stored.get("the search space"), int):  # before spaces were compared
            differences = ["another release of dcnn, with another search space, began it"]
        raise UserError(
            f"{path} belongs to another search: {'; '.join(differences)}; repeat the command "
            "as it was, or search from the start, with --overwrite instead of --resume"
        )
    return study


@dataclass(frozen=True)
class Trained:
    """The outcome of the training of a trial, or of those of its folds."""

    accuracy: float  # on dev, or cross-validated
    loss: float  # cross-entropy on the same examples
    epochs: int  # that were run; the mean over folds
    size: int  # bytes of the model folder; the largest of the folds
    correct: str  # one bit per evaluated example, in hexadecimal: 1,250 digits for 5,000 examples


Train = Callable[[Config, Callback], Trained]


@dataclass(frozen=True)
class TrialRecord:
    """A finished trial."""

    number: int  # from 0, the start
    outcome: str  # complete, pruned, diverged or too large
    config: Config
    parameters: dict[str, Any]  # the sampled values
    seconds: float
    curve: tuple[float, ...]  # the best dev accuracy so far, or that of the folds so far
    trained: Trained | None  # none unless it is complete


def finished(study: Study) -> list[FrozenTrial]:
    """The trials of a study, in the order of their numbers."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return sorted(trials, key=lambda trial: trial.user_attrs[NUMBER])


def _record(trial: FrozenTrial) -> TrialRecord:
    attributes = trial.user_attrs
    return TrialRecord(
        number=attributes[NUMBER],
        outcome=attributes[OUTCOME],
        config=Config.from_dict(attributes[SETTINGS], "study"),
        parameters=dict(trial.params),
        seconds=attributes[SECONDS],
        curve=tuple(value for _, value in sorted(trial.intermediate_values.items())),
        trained=Trained(**attributes[TRAINED]) if trial.state == TrialState.COMPLETE else None,
    )


def ranked_trials(records: Sequence[TrialRecord]) -> list[tuple[TrialRecord, Trained]]:
    """The complete trials, the most accurate first.

    Equal accuracy is common where few examples are evaluated: the loss then decides, and then the
    order.
    """
    complete = [(record, record.trained) for record in records if record.trained is not None]
    return sorted(complete, key=lambda one: (-one[1].accuracy, one[1].loss, one[0].number))


@dataclass(frozen=True)
class Limits:
    """When a search ends, whichever comes first; none means no limit."""

    seconds: float | None = None  # of all trials, over all resumptions, with the refit of the best
    trials: int | None = None  # how many, the start included


class SearchCallback(Callback):
    """A training callback that is called for trials too; ``stop`` ends the search.

    Trainings in other processes do not report their steps and evaluations.
    """

    def on_trial(self, number: int) -> None:
        """A trial starts training."""

    def on_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        """A trial has finished; ``best`` is the best so far."""

    def on_time(self, seconds_left: float | None) -> None:
        """The time left for trials; none where there is no limit."""


class SearchBar(SearchCallback):
    """A bar over time or trials, and a line per trial; without a terminal only the lines."""

    def __init__(self, bar: "Bar", limits: Limits, measure: str) -> None:
        self.limits, self.measure, self._bar = limits, measure, bar
        self._best = self._trial = self._dev = ""
        self._task = bar.add_task("", total=limits.trials or limits.seconds, left="")

    def on_trial(self, number: int) -> None:
        """A trial begins."""
        self._dev, self._trial = "", f"trial {number}"
        self._bar.update(self._task, description=f"{self._trial}{self._best}")

    def on_step(self, progress: Progress) -> None:
        """Show the epoch."""
        epoch = f"epoch {progress.epoch}/{progress.epochs}"
        self._bar.update(self._task, description=f"{self._trial}, {epoch}{self._dev}{self._best}")

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """Keep the accuracy for the line."""
        self._dev = f", {100 * record.dev_accuracy:.1f} %"

    def on_time(self, seconds_left: float | None) -> None:
        """Show the time left for trials."""
        if seconds_left is None or self.limits.seconds is None:
            return
        left = max(0.0, seconds_left)
        self._bar.update(self._task, left=f"{timedelta(seconds=round(left))} left")
        if self.limits.trials is None:
            self._bar.update(self._task, completed=self.limits.seconds - left)

    def on_finished(self, record: TrialRecord, best: TrialRecord | None) -> None:
        """Print a line above the bar."""
        if best is not None and best.trained is not None:
            self._best = f"; best {100 * best.trained.accuracy:.2f} % (trial {best.number})"
        if self.limits.trials is not None:
            self._bar.update(self._task, completed=record.number + 1)
        reached = record.trained.accuracy if record.trained else next(reversed(record.curve), None)
        accuracy = "" if reached is None else f", {self.measure} {100 * reached:.2f} %"
        if accuracy and not record.trained:  # of some folds, which may be easy ones
            accuracy += " so far"
        trial = f"trial {record.number:>3}{'' if record.number else ' (first settings)'}"
        end = f"{record.outcome}{accuracy}, {record.seconds:.1f} s{self._best}"
        self._bar.console.print(f"{trial}: {end}")


class Task(NamedTuple):
    """A trial as the process that trains it gets it."""

    number: int
    config: Config
    medians: tuple[float, ...]  # per evaluation; a trial below its median is pruned
    max_seconds: float | None  # then it is cut off, to leave time for the refit


class Result(NamedTuple):
    """What became of a task."""

    outcome: str | None  # none if it was cut off
    seconds: float
    curve: tuple[float, ...] = ()
    trained: Trained | None = None
    out_of_time: bool = False


def run_task(
    task: Task,
    train: Train,
    callback: Callback,
    stopped: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    on_time: Callable[[float], None] = lambda _: None,
) -> Result:
    """Train a trial to its end, or until it is behind, out of time or ``stopped``.

    ``on_time`` is called with its seconds so far, after every step.
    """
    watch = _TaskCallback(task, callback, stopped, clock, on_time)
    outcome: str | None = None
    trained = None
    try:
        trained = train(task.config, watch)
        outcome = COMPLETE
    except TrainingStoppedError:
        outcome = PRUNED if watch.pruned else None
    except TrainingError:
        outcome = DIVERGED
    seconds = clock() - watch.began
    return Result(outcome, seconds, tuple(watch.curve), trained, watch.out_of_time)


class _TaskCallback(Callback):
    """Follows the training of one trial, and ends it where it is behind or time is up."""

    def __init__(
        self,
        task: Task,
        callback: Callback,
        stopped: Callable[[], bool],
        clock: Callable[[], float],
        on_time: Callable[[float], None],
    ) -> None:
        self.task, self.callback, self.stopped, self.clock = task, callback, stopped, clock
        self.on_time = on_time
        self.began = clock()
        self.pruned = self.out_of_time = False
        self.curve: list[float] = []

    @property
    def stop(self) -> bool:  # type: ignore[override]
        return self.pruned or self.out_of_time or self.stopped()

    def on_step(self, progress: Progress) -> None:
        self.callback.on_step(progress)
        limit, seconds = self.task.max_seconds, self.clock() - self.began
        self.out_of_time = limit is not None and seconds > limit
        self.on_time(seconds)

    def on_evaluation(self, record: EvaluationRecord) -> None:
        self.callback.on_evaluation(record)
        # What the weights have that training keeps.
        self.curve.append(record.dev_accuracy if record.kept else self.curve[-1])
        medians, last = self.task.medians, len(self.curve) - 1
        self.pruned = last < len(medians) and self.curve[-1] < medians[last]


# The arguments of a worker process: a pool can pass them to its tasks only through a global.
_in_worker: list[tuple[Train, Callable[[], bool]]] = []


def _start_worker(train: Train, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process of the search handles Ctrl-C
    _in_worker.append((train, stop.is_set))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when that of the search ends, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_in_worker(task: Task) -> Result:
    ((train, stopped),) = _in_worker
    return run_task(task, train, Callback(), stopped)


@dataclass
class Search:
    """A study, and what is needed to continue it."""

    study: Study
    space: SearchSpace
    fitted: Callable[[Config], Config | None]  # makes a config fit the size limit, if it can
    train: Train  # and evaluate; for several jobs it must be possible to pickle it
    limits: Limits
    seed: int = 0
    callback: SearchCallback = field(default_factory=SearchCallback)
    clock: Callable[[], float] = time.monotonic
    folds: int = 1  # trainings per trial; 1 where trials are evaluated on dev
    jobs: int = 1  # processes; the trials are the same for all numbers up to ``AHEAD``

    def __post_init__(self) -> None:
        self._trials = {trial.user_attrs[NUMBER]: trial for trial in finished(self.study)}
        self.records = [_record(trial) for trial in self._trials.values()]
        self._seconds_before = float(self.study.user_attrs.get(SECONDS, 0.0))
        self._began = self.clock()
        self._out_of_time = False

    @property
    def best(self) -> TrialRecord | None:
        """The best complete trial so far."""
        ranked = ranked_trials(self.records)
        return ranked[0][0] if ranked else None

    @property
    def measure(self) -> str:
        """What trials are compared by."""
        return "dev accuracy" if self.folds == 1 else "cross-validated accuracy"

    @property
    def seconds(self) -> float:
        """Time spent, over all resumptions, including trials that were cut off."""
        return self._seconds_before + self.clock() - self._began

    @property
    def is_done(self) -> bool:
        """Whether a limit is reached."""
        return self._has_enough(0)

    def _has_enough(self, running: int) -> bool:
        tried = len(self.records) + running
        last = [record.outcome for record in self.records[-MAX_TOO_LARGE_IN_A_ROW:]]
        if self._out_of_time or last.count(TOO_LARGE) == MAX_TOO_LARGE_IN_A_ROW:
            return True
        if self.limits.trials is not None and tried >= self.limits.trials:
            return True
        left = self.seconds_left(0.0)
        if left is None or not tried:  # the start is trained whatever it takes
            return False
        trainings = [record.seconds for record in self.records if record.trained is not None]
        return left <= min(trainings, default=0.0)  # too little for the fastest

    @_quiet()
    def run(self) -> None:
        """Try until a limit is reached, or the callback stops the training; trials are kept."""
        try:
            if self.jobs == 1:
                self._run_here()
            else:
                self._run_in_processes()
        finally:
            self.study.set_user_attr(SECONDS, self.seconds)

    def _run_here(self) -> None:
        while not self.is_done:
            if (started := self._start(())) is None:
                continue
            trial, task = started
            result = run_task(
                task,
                self.train,
                self.callback,
                stopped=lambda: self.callback.stop,
                clock=self.clock,
                on_time=lambda seconds: self.callback.on_time(self.seconds_left(seconds)),
            )
            self._finish(trial, task, result)
            if result.outcome is None and not result.out_of_time:
                raise TrainingStoppedError(f"stopped in trial {task.number}")

    def _run_in_processes(self) -> None:
        running: dict[Future[Result], tuple[Trial, Task]] = {}
        with _workers(self.train, self.jobs) as (pool, stop):
            while True:
                if self.callback.stop:
                    stop.set()
                while not stop.is_set() and self._may_start(running.values()):
                    numbers = [task.number for _, task in running.values()]
                    if (started := self._start(numbers)) is not None:
                        running[pool.submit(_run_in_worker, started[1])] = started
                if not running:
                    break
                done, _ = wait(running, POLL_SECONDS, FIRST_COMPLETED)
                self.callback.on_time(self.seconds_left(0.0))
                for future in done:
                    self._finish(*running.pop(future), future.result())
            if stop.is_set():
                raise TrainingStoppedError(f"stopped after {len(self.records)} trials")

    def _may_start(self, running: Iterable[tuple[Trial, Task]]) -> bool:
        numbers = [task.number for _, task in running]
        if len(numbers) >= self.jobs or self._has_enough(len(numbers)):
            return False
        # The trials that the next one is proposed from must be finished.
        return not numbers or min(numbers) > self._next(numbers) - self._ahead

    @property
    def _ahead(self) -> int:
        return max(AHEAD, self.jobs)

    def _next(self, running: Sequence[int]) -> int:
        return next(n for n in count() if n not in self._trials and n not in running)

    def _start(self, running: Sequence[int]) -> tuple[Trial, Task] | None:
        """Propose the next trial; none if it is too large to be trained."""
        number = self._next(running)
        trial = self._propose(number)
        suggested = self.space.suggest(trial)
        config = self.fitted(suggested)
        task = Task(number, config or suggested, self._medians(number), self._max_seconds(number))
        if config is None:
            self._finish(trial, task, Result(TOO_LARGE, 0.0))
            return None
        self.callback.on_trial(number)
        return trial, task

    def _propose(self, number: int) -> Trial:
        """A new trial of a study that has only the trials that ``number`` may depend on."""
        state = np.random.SeedSequence((self.seed, number)).generate_state(1)
        sampler = optuna.samplers.TPESampler(seed=int(state[0]), n_startup_trials=RANDOM_TRIALS)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(self._visible(number))
        if number < len(self.space.first_points):
            study.enqueue_trial(self.space.first_points[number])
        return study.ask()

    def _visible(self, number: int) -> list[FrozenTrial]:
        return [self._trials[n] for n in sorted(self._trials) if n <= number - self._ahead]

    def _medians(self, number: int) -> tuple[float, ...]:
        """Per evaluation, the median of the complete trials that trial ``number`` may know."""
        known = [_record(trial) for trial in self._visible(number)]
        curves = [record.curve for record in known if record.trained is not None]
        if number == 0 or len(curves) < UNPRUNED_TRIALS:
            return ()
        unpruned = UNPRUNED_EVALUATIONS if self.folds == 1 else UNPRUNED_FOLDS
        return tuple(
            statistics.median(curve[at] for curve in curves if at < len(curve))
            if at >= unpruned
            else 0.0
            for at in range(max(map(len, curves)))
        )

    @property
    def _refit_share(self) -> float:
        """The time of a refit relative to a trial, whose folds take ``folds - 1`` times as long."""
        return REFIT_MARGIN / max(1, self.folds - 1)

    def seconds_left(self, trial_seconds: float) -> float | None:
        """Time left for trials, with a refit of the running one reserved in case it is the best."""
        if self.limits.seconds is None:
            return None
        best = self.best
        refit = max(trial_seconds, best.seconds if best is not None else 0.0)
        return self.limits.seconds - self.seconds - self._refit_share * refit

    def _max_seconds(self, number: int) -> float | None:
        left = self.seconds_left(0.0)
        if left is None or self.limits.seconds is None or number == 0:
            return None
        return min(left, (self.limits.seconds - self.seconds) / (1 + self._refit_share))

    def _finish(self, trial: Trial, task: Task, result: Result) -> None:
        self._out_of_time |= result.outcome is None and result.out_of_time
        if result.outcome is None:
            return
        attributes = {
            NUMBER: task.number,
            OUTCOME: result.outcome,
            SETTINGS: task.config.to_dict(),
            SECONDS: result.seconds,
        }
        if result.trained is not None:
            attributes[TRAINED] = asdict(result.trained)
        kept = optuna.trial.create_trial(
            state=TrialState.PRUNED if result.trained is None else TrialState.COMPLETE,
            value=None if result.trained is None else result.trained.accuracy,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs=attributes,
            intermediate_values=dict(enumerate(result.curve, start=1)),
        )
        self.study.add_trial(kept)
        self.study.set_user_attr(SECONDS, self.seconds)
        self._trials[task.number] = kept
        record = _record(kept)
        self.records = sorted((*self.records, record), key=lambda one: one.number)
        self.callback.on_finished(record, self.best)


@contextmanager
def _workers(train: Train, jobs: int) -> Iterator[tuple[ProcessPoolExecutor, Any]]:
    """Processes that run tasks, and an event that makes them stop after the current step."""
    stop = multiprocessing.get_context("spawn").Event()
    with worker_pool(jobs, _start_worker, train, stop) as pool:
        try:
            yield pool, stop
        except BrokenExecutor as error:
            raise DcnnError(
                "a process was killed, perhaps out of memory; finished trials are kept: "
                "continue with --resume and fewer --jobs"
            ) from error
        finally:
            stop.set()  # after an error too: the pool waits for its processes
