"""The search: ask for settings, train, prune what lags behind, and keep to the time.

The start is the first trial and is never pruned, so the best is at least as good on dev. Every
trial is drawn from the seed, its number and the trials before it, and from nothing else: a search
that was stopped and resumed tries what it would have tried.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from optuna import Study, Trial
from optuna.pruners import MedianPruner
from optuna.samplers import TPESampler
from optuna.trial import TrialState

from dcnn.config import Config
from dcnn.errors import TrainingError, TrainingStoppedError
from dcnn.training.progress import EvaluationRecord, Listener, Progress
from dcnn.tuning.search_space import SearchSpace
from dcnn.tuning.trials import (
    COMPLETE,
    DIVERGED,
    OUTCOME,
    PRUNED,
    SECONDS,
    SETTINGS,
    TOO_LARGE,
    Trained,
    TrialRecord,
    best_trial,
    finished_trials,
    record_of,
    seconds_spent,
)

RANDOM_TRIALS = 8  # before the sampler has seen enough to model
UNPRUNED_TRIALS = 4  # before there is a median worth the name
UNPRUNED_LOOKS = 2  # at the dev set: the first ones only tell who starts quickly
REFIT_MARGIN = 1.1  # a training takes not always as long
TOO_LARGE_IN_A_ROW = 50  # then nothing else will fit either

Train = Callable[[Config, Listener], Trained]
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


class SearchListener(Listener):
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
        listener: hears how it goes.
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
        listener: SearchListener | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.study, self.space, self.fitted, self.train = study, space, fitted, train
        self.limits, self.seed, self.clock = limits, seed, clock
        self.listener = listener or SearchListener()
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
        self.listener.on_trial(number)
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
        self.listener.on_finished(self.records[-1], self.best)

    def _cut_off(self, trial: Trial, began: float) -> None:
        trial.set_user_attr(SECONDS, self.clock() - began)
        self.study.tell(trial, state=TrialState.FAIL)


class TrialWatch(Listener):
    """Follows the training of one trial, and ends it where it lags behind or time is up."""

    def __init__(self, search: Search, trial: Trial, number: int, began: float) -> None:
        self.search, self.trial, self.number, self.began = search, trial, number, began
        self.pruned = self.out_of_time = False
        self._looks, self._best = 0, 0.0

    @property
    def stop(self) -> bool:  # type: ignore[override]
        """Whether to end after this step, for whatever reason."""
        return self.pruned or self.out_of_time or self.search.listener.stop

    def on_step(self, progress: Progress) -> None:
        """Look at the clock."""
        self.search.listener.on_step(progress)
        left = self.search.seconds_left(self.search.clock() - self.began)
        self.search.listener.on_time(left)
        if left is not None and left < 0 and self.number > 0:
            self.out_of_time = True

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """Report, and compare with the others at the same point."""
        self.search.listener.on_evaluation(record)
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
