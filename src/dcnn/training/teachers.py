"""Teachers: models that give texts the probabilities a student learns from.

A teacher is a pretrained encoder (``dcnn.training.encoders``), a Python function, a shell command,
behind which an LLM client may be, or a dcnn model. ``teacher.stream(texts)`` yields blocks of
probabilities, in the order of the texts.
"""

import hashlib
import json
import os
import shlex
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcnn.data.labels import Label
from dcnn.errors import DataError, DcnnError, UserError
from dcnn.files import file_sha256
from dcnn.predictor import Predictor

Probabilities = NDArray[np.float32]
Report = Callable[[str, int, int, str], None]  # stage, done, of how many, a remark

TEXTS_PER_BLOCK = 4096  # of a function; an interrupted labelling loses at most one block
TOLERANCE = 1e-2  # of the sum of a text's probabilities


class Teacher(ABC):
    """What labels texts."""

    name: str  # for reports
    key: str | None = None  # what its answers are kept under on disk; none: they are not kept
    bytes: int | None = None  # its size, if it is known

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Load or train what is needed to label; before the labelling is timed."""

    @abstractmethod
    def stream(self, texts: Sequence[str]) -> Iterator[Probabilities]:
        """Blocks (n, classes) that follow the order of ``texts``."""


def check_probabilities(
    values: Any, classes: Sequence[Label], multi_label: bool, where: str, first: int = 0
) -> Probabilities:
    """Probabilities (N, classes) that are finite, from 0 to 1 and, of one label, sum to one.

    Small deviations of the sum, as float16 or rounded decimals have, are normalized away. In
    messages ``where`` names a text, with its number from ``first`` on in its braces.
    """
    found = np.asarray(values, np.float32)
    if found.ndim != 2 or found.shape[1] != len(classes):
        raise DataError(
            f"{where.format(first)}: the teacher gave an array of shape {found.shape}; it must "
            f"give one probability for each of the {len(classes)} labels "
            f"{', '.join(map(str, classes))}"
        )
    odd = ~((found >= 0) & (found <= 1)).all(axis=1)
    if odd.any():
        row = int(odd.argmax())
        raise DataError(
            f"{where.format(first + row)}: probabilities must be from 0 to 1; got {found[row]}"
        )
    if multi_label:
        return found
    sums = found.sum(axis=1)
    odd = np.abs(sums - 1) > TOLERANCE
    if odd.any():
        row = int(odd.argmax())
        raise DataError(
            f"{where.format(first + row)}: the probabilities {found[row]} sum to {sums[row]:.3g}; "
            "those of one label per text must sum to 1"
        )
    normalized: Probabilities = found / sums[:, None]
    return normalized


class FunctionTeacher(Teacher):
    """A function from a list of texts to their probabilities, or an object with predict_proba.

    The columns follow ``classes``, or ``classes_`` of the object if it has them. The answers of a
    function can only be kept on disk under a ``key`` that the caller vouches for.
    """

    def __init__(
        self,
        function: Any,
        classes: Sequence[Label],
        multi_label: bool = False,
        key: str | None = None,
    ) -> None:
        self._call = getattr(function, "predict_proba", function)
        self.name = key or str(getattr(function, "__name__", type(function).__name__))
        self.key = None if key is None else hash_of("function", key, classes)
        self._classes, self._multi_label = classes, multi_label
        own = getattr(function, "classes_", None)
        self._columns = None if own is None else columns_of(self.name, list(own), classes)

    def stream(self, texts: Sequence[str]) -> Iterator[Probabilities]:
        """A call per block."""
        for start in range(0, len(texts), TEXTS_PER_BLOCK):
            block = list(texts[start : start + TEXTS_PER_BLOCK])
            values = np.asarray(self._call(block))
            if len(values) != len(block):
                raise DataError(
                    f"the teacher {self.name} answered {len(values)} of {len(block)} texts; "
                    "it must give each text its probabilities"
                )
            if self._columns is not None:
                values = values[:, self._columns]
            where = f"the teacher {self.name}, text {{}}"
            yield check_probabilities(values, self._classes, self._multi_label, where, start)


def columns_of(name: str, own: Sequence[Any], classes: Sequence[Label]) -> list[int]:
    """Where a teacher's labels ``own`` have those of the student, which must be the same."""
    places = {str(label): place for place, label in enumerate(own)}
    if set(places) != set(map(str, classes)):
        raise UserError(
            f"the teacher {name} has the labels {', '.join(map(str, own))}, and the training file "
            f"{', '.join(map(str, classes))}; they must be the same"
        )
    return [places[str(label)] for label in classes]


class ModelTeacher(Teacher):
    """A dcnn model."""

    def __init__(self, folder: Path, classes: Sequence[Label], multi_label: bool = False) -> None:
        self.name = folder.name
        self._predictor = Predictor.load(folder)
        if self._predictor.multi_label != multi_label:
            forms = ("single-label", "multi-label")
            raise UserError(
                f"the teacher {folder} is {forms[not multi_label]}, and the training data is "
                f"{forms[multi_label]}; they must be the same"
            )
        self._columns = columns_of(str(folder), self._predictor.classes, classes)
        self.key = hash_of("dcnn", *(file_sha256(file) for file in sorted(folder.iterdir())))
        self.bytes = sum(file.stat().st_size for file in folder.iterdir())

    def stream(self, texts: Sequence[str]) -> Iterator[Probabilities]:
        """A block at a time."""
        for start in range(0, len(texts), TEXTS_PER_BLOCK):
            block = texts[start : start + TEXTS_PER_BLOCK]
            yield self._predictor.probabilities(block)[:, self._columns]


class MeanTeacher(Teacher):
    """The mean of several teachers."""

    def __init__(self, teachers: Sequence["Teacher"]) -> None:
        self.teachers = teachers
        self.name = " + ".join(teacher.name for teacher in teachers)
        keys, sizes = [one.key for one in teachers], [one.bytes for one in teachers]
        self.key = None if None in keys else hash_of("mean", *keys)
        self.bytes = None if None in sizes else sum(filter(None, sizes))

    def prepare(self) -> None:
        """All of them."""
        for teacher in self.teachers:
            teacher.prepare()

    def stream(self, texts: Sequence[str]) -> Iterator[Probabilities]:
        """A block at a time, which all of them answer."""
        for start in range(0, len(texts), TEXTS_PER_BLOCK):
            block = texts[start : start + TEXTS_PER_BLOCK]
            found = [np.concatenate(list(teacher.stream(block))) for teacher in self.teachers]
            yield np.mean(found, axis=0, dtype=np.float32)


class CommandTeacher(Teacher):
    """A shell command: a JSON object with a text per line in, one with its probabilities out.

    It gets ``{"text": "..."}`` and answers ``{"label": probability, ...}``, a label that is left
    out has 0. The command runs once for all texts, may read ahead, and answers in order.
    """

    def __init__(self, command: str, classes: Sequence[Label], multi_label: bool = False) -> None:
        self.name, self._classes, self._multi_label = command, classes, multi_label
        # A program that was edited, such as a new prompt, is another teacher.
        programs = [Path(word) for word in command.split()[1:] if Path(word).is_file()]
        self.key = hash_of("command", command, *map(file_sha256, programs))

    def stream(self, texts: Sequence[str]) -> Iterator[Probabilities]:
        """Blocks of answers as they arrive, so that little is lost if the command dies."""
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command
                shlex.split(self.name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,  # so that what it starts is stopped with it
            )
        except (OSError, ValueError, IndexError) as error:
            raise UserError(f"the command {self.name!r} cannot be started ({error})") from error
        with process:
            feeder = threading.Thread(target=self._feed, args=(process, texts), daemon=True)
            feeder.start()
            try:
                yield from self._answers(process, len(texts))
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                feeder.join()

    @staticmethod
    def _feed(process: "subprocess.Popen[str]", texts: Sequence[str]) -> None:
        stdin = process.stdin
        assert stdin is not None  # noqa: S101
        try:
            with stdin:
                for text in texts:
                    stdin.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        except (BrokenPipeError, ValueError):
            pass  # the command ended; the reader reports it

    def _answers(self, process: "subprocess.Popen[str]", count: int) -> Iterator[Probabilities]:
        assert process.stdout is not None  # noqa: S101
        block: list[list[float]] = []
        done, last = 0, time.monotonic()
        for line in process.stdout:
            if done + len(block) == count:
                raise DataError(f"the command {self.name!r} wrote more than {count} lines")
            block.append(self._parse(line, done + len(block) + 1))
            if len(block) == TEXTS_PER_BLOCK or time.monotonic() - last > 5:
                yield self._checked(block, done)
                done, block, last = done + len(block), [], time.monotonic()
        if block:
            yield self._checked(block, done)
        if done + len(block) < count:
            raise DcnnError(
                f"the command {self.name!r} ended with exit code {process.wait()} after "
                f"{done + len(block)} of {count} texts; its answers so far are kept, and the same "
                "command continues with the others"
            )

    def _checked(self, block: list[list[float]], done: int) -> Probabilities:
        where = self._line("{}")
        return check_probabilities(block, self._classes, self._multi_label, where, done + 1)

    def _line(self, number: object) -> str:
        return f"the output of the command, line {number}"

    def _parse(self, line: str, number: int) -> list[float]:
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise DataError(
                f"{self._line(number)}: {line.strip()[:80]!r} is not a JSON object of "
                "probabilities by label"
            )
        unknown = set(answer) - set(map(str, self._classes))
        if unknown:
            raise DataError(
                f"{self._line(number)}: the label {min(unknown)!r} is not in the training file, "
                f"which has {', '.join(map(str, self._classes))}"
            )
        try:
            return [float(answer.get(str(label), 0)) for label in self._classes]
        except (TypeError, ValueError):
            raise DataError(
                f"{self._line(number)}: {line.strip()[:80]!r} holds no numbers"
            ) from None


def hash_of(*parts: object) -> str:
    """A key of what ``repr`` shows of ``parts``."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
