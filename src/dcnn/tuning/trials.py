"""The trials of a study as plain values, and which of them is the best."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from dcnn.config import Config

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
