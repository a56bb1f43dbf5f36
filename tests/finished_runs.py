"""Results of runs that never were, for the tests of what is made from results."""

import numpy as np

from dcnn.experiments.results import Result, fingerprint


def make_result(**changes) -> Result:
    """A complete result; ``changes`` replace its fields.

    Unless told otherwise, accuracy and counts follow from ``test_correct``, and every true class
    is 0.
    """
    correct = tuple(bool(mark) for mark in changes.pop("test_correct", (1, 1, 0, 1)))
    values = {
        "experiment": "trec",
        "model": "dcnn",
        "recipe": "tuned",
        "seed": 0,
        "dev_accuracy": 0.9,
        "selection": "dev",
        "test_accuracy": sum(correct) / len(correct),
        "test_predictions": tuple(0 if mark else 1 for mark in correct),
        "test_correct": correct,
        "test_truth_sha256": fingerprint([0] * len(correct)),
        "classes": ("LOC", "NUM", "ÄÖ"),
        "examples": {"train": 10, "dev": 2, "test": len(correct)},
        "epochs": 3,
        "seconds": 1.5,
        "sentences_per_second": 1000.0,
        "parameters": 123,
        "backend": "torch",
        "hardware": "a machine",
        "versions": {"python": "3.11"},
        "commit": "0123abc",
        "date": "2014-04-08T12:00:00+00:00",
        "settings": {"training": {"epochs": 3, "widths": [7, 5]}},
        "notes": {},
    }
    return Result(**(values | changes))


def right(count: int, of: int, start: int = 0) -> tuple[bool, ...]:
    """``count`` right answers in a row from ``start`` on, the others wrong."""
    marks = np.zeros(of, dtype=bool)
    marks[start : start + count] = True
    return tuple(marks.tolist())
