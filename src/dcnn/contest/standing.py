"""The outcome of a comparison as values, best first, honest about what cannot be told apart."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dcnn.bench.timing import Measure
from dcnn.experiments.statistics import (
    Correct,
    Interval,
    Summary,
    bootstrap_difference,
    bootstrap_mean,
    summarize,
)


@dataclass(frozen=True)
class Score:
    """What was measured of one contender.

    Attributes:
        name: the model.
        recipe: how it was trained.
        correct: (runs, test examples), right or wrong.
        macro_f1: mean over the runs.
        train_seconds: mean over the runs.
        size: bytes on disk, of the first run.
        latency: seconds for one text.
        texts_per_second: of many texts at a time.
    """

    name: str
    recipe: str
    correct: Correct
    macro_f1: float
    train_seconds: float
    size: int
    latency: Measure
    texts_per_second: float


@dataclass(frozen=True)
class Place:
    """A contender in the ranking.

    Attributes:
        score: what was measured.
        accuracy: over its runs.
        interval: of its mean accuracy.
        behind: interval of the best's accuracy minus its own; none for the best.
    """

    score: Score
    accuracy: Summary
    interval: Interval
    behind: Interval | None

    @property
    def is_tied(self) -> bool:
        """Whether the test set does not tell it from the best."""
        return self.behind is not None and self.behind.low <= 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "model": self.score.name,
            "recipe": self.score.recipe,
            "accuracy": asdict(self.accuracy) | {"interval": asdict(self.interval)},
            "macro_f1": self.score.macro_f1,
            "behind_best": None if self.behind is None else asdict(self.behind),
            "tied_with_best": self.is_tied,
            "train_seconds": self.score.train_seconds,
            "bytes": self.score.size,
            "latency_us": 1e6 * self.score.latency.median,
            "texts_per_second": self.score.texts_per_second,
        }


def ranked(scores: Sequence[Score]) -> list[Place]:
    """Best first by mean accuracy; of equals, the quicker."""
    order = sorted(scores, key=lambda one: (-float(np.mean(one.correct)), one.latency.median))
    return [
        Place(
            score=score,
            accuracy=summarize([float(run.mean()) for run in score.correct]),
            interval=bootstrap_mean(score.correct),
            behind=bootstrap_difference(order[0].correct, score.correct) if number else None,
        )
        for number, score in enumerate(order)
    ]
