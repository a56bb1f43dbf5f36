"""Training, scoring and timing the contenders."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np

from dcnn.bench.timing import Contestant, take_turns
from dcnn.contest.contenders import Contender, Course, Fitted, warm_up
from dcnn.contest.standing import Score
from dcnn.evaluation import Evaluation, evaluate

ONE_ROUNDS, ONE_CALLS = 10, 10
MANY_ROUNDS, MANY_TEXTS = 3, 1000


@dataclass(frozen=True)
class Run:
    """One training: the model, its scores on test, and whether each answer is right."""

    fitted: Fitted
    evaluation: Evaluation
    correct: list[bool]
    seconds: float


def measure(
    contenders: Sequence[Contender],
    course: Course,
    seeds: int,
    folder: Path,
    report: Callable[[str], None],
) -> list[Score]:
    """Train all, then let them take turns at the clock; models are left in ``folder``."""
    runs: dict[str, list[Run]] = {}
    warm_up()
    for contender in contenders:
        runs[contender.name] = []
        for seed in range(seeds if contender.seeded else 1):
            run = _run(contender, course, seed, folder / f"{contender.name}-seed{seed}")
            runs[contender.name].append(run)
            which = f" seed {seed}" if contender.seeded else ""
            accuracy = 100 * run.evaluation.accuracy
            report(f"{contender.name}{which}: {accuracy:.2f} % on test, {run.seconds:.1f} s")
    fitted = {name: those[0].fitted for name, those in runs.items()}
    texts = course.test.texts
    one = take_turns([_one_text(*pair, texts) for pair in fitted.items()], ONE_ROUNDS, ONE_CALLS)
    some = (texts * (MANY_TEXTS // len(texts) + 1))[:MANY_TEXTS]
    many = take_turns([_all_texts(*pair, some) for pair in fitted.items()], MANY_ROUNDS)
    return [
        Score(
            name=contender.name,
            recipe=contender.recipe,
            correct=np.array([run.correct for run in those]),
            macro_f1=float(np.mean([run.evaluation.macro_f1 for run in those])),
            train_seconds=float(np.mean([run.seconds for run in those])),
            size=those[0].fitted.size,
            latency=one[contender.name],
            texts_per_second=many[contender.name].rate(len(some)).median,
        )
        for contender, those in ((contender, runs[contender.name]) for contender in contenders)
    ]


def _run(contender: Contender, course: Course, seed: int, folder: Path) -> Run:
    started = time.perf_counter()
    fitted = contender.fit(course, seed, folder)
    seconds = time.perf_counter() - started
    truth = course.test.class_numbers(course.classes)
    probabilities = fitted.probabilities(course.test.texts)
    correct = (probabilities.argmax(axis=1) == truth).tolist()
    return Run(fitted, evaluate(truth, probabilities, course.classes), correct, seconds)


def _one_text(name: str, fitted: Fitted, texts: Sequence[str]) -> Contestant:
    turn = cycle(texts)  # another one each time: no cache may remember the answer
    return Contestant(name, lambda: fitted.probabilities([next(turn)]))


def _all_texts(name: str, fitted: Fitted, texts: Sequence[str]) -> Contestant:
    return Contestant(name, lambda: fitted.probabilities(texts))
