"""The result of a finished run: a JSON file, checked when it is made and when it is read.

The file is ``results/<experiment>/<model>-<recipe>-seed<N>.json``; ``docs/results.schema.json``
describes the fields for other programs. It holds the prediction for every test example and whether
it is right, so tables and significance tests need neither corpora nor models. Class numbers and
right-or-wrong marks are strings of digits: one line for a whole test set instead of thousands. It
also records where and with what a run was made: hardware, versions and commit. The test
probabilities are beside it in a file ``.npz``, for an ensemble of several runs.
"""

import hashlib
import json
import math
import os
import platform
import re
import reprlib
import subprocess
import typing
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from string import digits
from types import NoneType
from typing import Any, NamedTuple, cast
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dcnn import __version__
from dcnn.config import renamed
from dcnn.errors import DataError, StorageError
from dcnn.files import open_bytes, write_atomically

EXPERIMENTS = ("sst2", "sst5", "trec", "twitter")
ENSEMBLE = "dcnn-ensemble"
FEATURES = "svm-features"
LINEAR = ("nb", "binb", "svm", "maxent", FEATURES)  # of scikit-learn: one run, without a seed
MODELS = {  # in the order of the tables, and as they show them
    "nb": "NB",
    "binb": "BiNB",
    "svm": "SVM",
    "maxent": "MaxEnt",
    FEATURES: "SVM, engineered features",
    "recnn": "RecNN",
    "recntn": "RecNTN",
    "rnn": "RNN",
    "lstm": "LSTM",
    "max-tdnn": "Max-TDNN",
    "nbow": "NBoW",
    "dcnn": "DCNN",
    ENSEMBLE: "DCNN ensemble (several networks)",
}
SUMMARY_RECIPES = ("paper", "tuned", "distilled", "best")  # the columns of the README's table
# In the order of the tables; others follow by name.
RECIPES = ("paper", "tuned", "distilled", "three-teachers", "best")
SPLITS = ("train", "dev", "test")
# Written by benchmarks/default_recipe.py, without predictions; the README shows them on their own.
DEFAULT_RECIPE = "default"
MAX_CLASSES = 10  # a prediction is one digit
RECIPE_NAME_RULE = (
    f"lower-case letters, digits and hyphens, and not {DEFAULT_RECIPE}: "
    "files of that name hold no predictions"
)
_TOLERANCE = 1e-6  # of an accuracy: far less than one example is worth


def is_recipe_name(name: str) -> bool:
    """Whether results can be stored under ``name``."""
    return re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) is not None and name != DEFAULT_RECIPE


class _Form(NamedTuple):
    """How a type is stored in JSON: in words, as a test, and how it is read."""

    wanted: str
    fits: Callable[[Any], bool]
    read: Callable[[Any], Any] = lambda value: value


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda value: type(value) in kinds  # to isinstance, true is a number too


def _each(container: type, *kinds: type) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        items = value.values() if isinstance(value, dict) else value
        return type(value) is container and all(type(item) in kinds for item in items)

    return fits


def _digits(allowed: str) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and set(value) <= set(allowed)


_FORMS: dict[Any, _Form] = {
    str: _Form("a string", _is(str)),
    int: _Form("a whole number", _is(int)),
    int | None: _Form("a whole number or null", _is(int, NoneType)),
    float: _Form("a number", _is(int, float)),
    float | None: _Form("a number or null", _is(int, float, NoneType)),
    tuple[int, ...]: _Form("a string of digits", _digits(digits), lambda v: tuple(map(int, v))),
    tuple[bool, ...]: _Form(
        "a string of 0 and 1", _digits("01"), lambda v: tuple(digit == "1" for digit in v)
    ),
    tuple[str, ...]: _Form("a list of strings", _each(list, str), tuple),
    tuple[float, ...]: _Form("a list of numbers", _each(list, int, float), tuple),
    dict[str, int]: _Form("an object of whole numbers", _each(dict, int)),
    dict[str, str]: _Form("an object of strings", _each(dict, str)),
    dict[str, Any]: _Form("an object", _is(dict)),
}


def read_field(name: str, hint: Any, value: object) -> object:
    """A value from JSON as the type that ``hint`` asks for."""
    form = _FORMS[hint]
    if not form.fits(value):
        raise DataError(f"{name}={reprlib.repr(value)} must be {form.wanted}")
    return form.read(value)


def as_digits(numbers: Iterable[int]) -> str:
    """Numbers below ten as a string, one digit each; right and wrong are 1 and 0."""
    return "".join(str(int(number)) for number in numbers)


def versions() -> dict[str, str]:
    """Versions of dcnn, Python and the libraries that are installed."""
    found = {"dcnn": __version__, "python": platform.python_version()}
    for library in ("torch", "numpy", "scikit-learn"):
        with suppress(PackageNotFoundError):
            found[library] = version(library)
    return found


def hardware(device: str) -> str:
    """The machine in words: its GPU where it was used, else its processor."""
    if device == "cuda":
        import torch

        return str(torch.cuda.get_device_name())
    processor = machine = platform.machine()
    with suppress(OSError):  # not Linux: the architecture alone
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if name := re.search(r"^model name\s*:[ \t]*(\S.*?)\s*$", cpuinfo, re.MULTILINE):
            processor = f"{name[1]} ({machine})"
    return f"{processor}, {os.cpu_count()} cores, no GPU used"


def commit() -> str:
    """The commit of the code, with ``-dirty`` where files differ from it.

    ``DCNN_COMMIT`` gives it where there is no repository.
    """
    if given := os.environ.get("DCNN_COMMIT"):
        return given
    folder = Path(__file__).parent
    git = partial(subprocess.run, cwd=folder, capture_output=True, text=True, check=True)
    try:
        git(["git", "ls-files", "--error-unmatch", Path(__file__).name])  # else it is not ours
        described = git(["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return str(described.stdout).strip()


# The files of the package whose code decides a result; those of networks also `native/`.
_DECIDING = (
    *("config.py", "files.py", "data/**/*.py", "text/*.py"),
    *(f"experiments/{name}.py" for name in ("recipes", "tasks", "ngrams")),
)
_DECIDING_NETWORKS = (
    *("artifact.py", "metrics.py", "models/*.py", "ops/*.py", "training/*.py"),
    *(f"experiments/{name}.py" for name in ("runs", "distilled", "trees")),
)


@cache
def code_hash(model: str) -> str:
    """SHA-256 of the code that decides the results of ``model``, as it is now."""
    package = Path(__file__).parents[1]
    patterns = _DECIDING + (() if model in LINEAR else _DECIDING_NETWORKS)
    patterns += ("experiments/features.py",) if model == FEATURES else ()
    paths = [path for pattern in patterns for path in package.glob(pattern)]
    paths += package.parents[1].glob("native/text.*" if model in LINEAR else "native/*.[ch]*")
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def code_hashes() -> dict[str, str]:
    """``code_hash`` of every model."""
    return {model: code_hash(model) for model in MODELS}


@dataclass(frozen=True)
class Result:
    """A finished run; docs/results.schema.json describes each field. Accuracies are fractions."""

    experiment: str
    model: str
    recipe: str
    seed: int
    dev_accuracy: float | None
    selection: str
    test_accuracy: float
    test_predictions: tuple[int, ...]
    test_correct: tuple[bool, ...]
    test_truth_sha256: str
    classes: tuple[str, ...]
    examples: dict[str, int]
    epochs: int | None
    seconds: float
    sentences_per_second: float | None
    parameters: int | None
    backend: str
    hardware: str
    versions: dict[str, str]
    commit: str
    date: str
    settings: dict[str, Any]
    notes: dict[str, Any]

    def __post_init__(self) -> None:
        for name, holds, rule in self._rules():
            if not holds:
                raise DataError(f"{name}={reprlib.repr(getattr(self, name))} must be {rule}")

    def _rules(self) -> Iterator[tuple[str, bool, str]]:
        """Field, whether its rule holds, and the rule; a rule may rely on those before it."""
        yield "experiment", self.experiment in EXPERIMENTS, f"one of {', '.join(EXPERIMENTS)}"
        yield "model", self.model in MODELS, f"one of {', '.join(MODELS)}"
        yield "recipe", is_recipe_name(self.recipe), RECIPE_NAME_RULE
        for name in ("selection", "backend", "hardware", "commit"):
            yield name, bool(getattr(self, name)), "a text that is not empty"
        yield "date", _is_iso_date(self.date), "an ISO 8601 date"
        for name in ("seed", "epochs", "seconds", "sentences_per_second", "parameters"):
            value = getattr(self, name)
            yield name, value is None or 0 <= value < math.inf, "a finite number, 0 or more"
        for name in ("dev_accuracy", "test_accuracy"):
            value = getattr(self, name)
            yield name, value is None or 0 <= value <= 1, "a fraction from 0 to 1"
        counts = self.examples
        complete = sorted(counts) == sorted(SPLITS) and min(counts.values()) >= 0 < counts["test"]
        rule = f"the counts of {', '.join(SPLITS)}, with at least one test example"
        yield "examples", complete, rule
        distinct = 2 <= len(set(self.classes)) == len(self.classes) <= MAX_CLASSES
        yield "classes", distinct, f"2 to {MAX_CLASSES} distinct labels"
        count, known, predicted = counts["test"], len(self.classes), self.test_predictions
        rule = f"{count} numbers below {known}, as in examples and classes; there are "
        fits = len(predicted) == count and all(0 <= number < known for number in predicted)
        yield "test_predictions", fits, f"{rule}{len(predicted)}"
        rule = f"{count} marks, as in examples; there are {len(self.test_correct)}"
        yield "test_correct", len(self.test_correct) == count, rule
        share = sum(self.test_correct) / count
        rule = f"the fraction of right answers in test_correct, {share}"
        yield "test_accuracy", abs(self.test_accuracy - share) <= _TOLERANCE, rule
        hexadecimal = re.fullmatch(r"[0-9a-f]{64}", self.test_truth_sha256) is not None
        yield "test_truth_sha256", hexadecimal, "64 hexadecimal digits"


def fingerprint(truth: Iterable[int]) -> str:
    """SHA-256 of the true class numbers of a test set, written as a string of digits."""
    return hashlib.sha256(as_digits(truth).encode()).hexdigest()


def result_path(folder: Path, experiment: str, model: str, recipe: str, seed: int) -> Path:
    """The file of a run's result below ``folder``."""
    return folder / experiment / f"{model}-{recipe}-seed{seed}.json"


def _path_of(folder: Path, result: Result) -> Path:
    return result_path(folder, result.experiment, result.model, result.recipe, result.seed)


def write_result(
    folder: Path, result: Result, for_ensemble: dict[str, NDArray[Any]] | None = None
) -> Path:
    """Write ``result`` below ``folder``, atomically, and return its path.

    What an ensemble needs of a network is written beside it: ``probabilities`` (test examples,
    classes) and ``truth``.
    """
    path = _path_of(folder, result)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{path.parent} could not be made ({error.strerror}); choose another folder"
        ) from error
    if for_ensemble is not None:
        with write_atomically(path.with_suffix(".npz")) as stream:
            np.savez_compressed(stream, **cast("Any", for_ensemble))
    values = asdict(result)
    for name in ("test_predictions", "test_correct"):
        values[name] = as_digits(values[name])
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with write_atomically(path) as stream:
        stream.write(text.encode())
    return path


def read_probabilities(
    folder: Path, result: Result
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The test probabilities of a run, and the true class numbers."""
    path = _path_of(folder, result).with_suffix(".npz")
    try:
        with path.open("rb") as stream, np.load(stream) as stored:
            probabilities, truth = stored["probabilities"], stored["truth"]
    except (OSError, ValueError, LookupError, BadZipFile):
        probabilities = truth = np.zeros((0, 1))
    if probabilities.argmax(axis=-1).tolist() != list(result.test_predictions):
        raise DataError(
            f"no ensemble: {path} does not hold the probabilities of that run; remove the result "
            "beside it, and the same command runs that seed again"
        )
    return probabilities, truth


def read_results(folder: Path) -> list[Result]:
    """Read all results of the experiments below ``folder``, except those of the default recipe."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name the one that holds the results")
    results = []
    for experiment in EXPERIMENTS:
        for path in sorted((folder / experiment).glob("*.json")):
            if f"-{DEFAULT_RECIPE}-seed" in path.name:
                continue
            result = read_result(path)
            if (own := _path_of(folder, result)) != path:
                raise DataError(f"{path} holds the result that belongs in {own}; move it there")
            results.append(result)
    return results


def read_result(path: Path) -> Result:
    """Read and check one result."""
    with open_bytes(path) as stream:
        text = stream.read()
    try:
        values = json.loads(text)
        if not isinstance(values, dict):
            raise DataError(f"a result must be an object; got {reprlib.repr(values)}")
        hints = typing.get_type_hints(Result)
        if missing := [name for name in hints if name not in values]:
            raise DataError(f"a result must have the field {missing[0]!r}")
        if unknown := sorted(values.keys() - hints.keys()):
            raise DataError(f"a result must not have the field {unknown[0]!r}")
        checked: dict[str, Any] = {n: read_field(n, hints[n], values[n]) for n in hints}
        checked["settings"] = renamed(checked["settings"])
        return Result(**checked)
    except (ValueError, RecursionError) as error:  # a DataError is a ValueError too
        raise DataError(f"{path}: {error}; remove the file and run that experiment again") from None


def _is_iso_date(text: str) -> bool:
    with suppress(ValueError):
        return bool(datetime.fromisoformat(text))
    return False
