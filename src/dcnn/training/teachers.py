"""Teachers: models that give texts the probabilities a student learns from.

A teacher is a pretrained encoder (``dcnn.training.encoders``), a Python function, a shell command,
behind which an LLM client may be, or a dcnn model. ``teacher.stream(texts)`` yields blocks of
probabilities, in the order of the texts.
"""

import hashlib
import json
import logging
import os
import reprlib
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

from dcnn.data.columns import shown, shown_names
from dcnn.data.labels import Label
from dcnn.errors import DataError, DcnnError, UserError
from dcnn.files import file_sha256
from dcnn.predictor import Predictor

logger = logging.getLogger("dcnn")

Probabilities = NDArray[np.float32]
Report = Callable[[str, int, int, str], None]  # stage, done, of how many, a remark

TEXTS_PER_BLOCK = 4096  # of a function; an interrupted labelling loses at most one block
TOLERANCE = 1e-2  # of the sum of a text's probabilities


class Teacher(ABC):
    """What labels texts."""

    name: str  # for reports
    key: str | None = None  # what its labels are kept under on disk; none: they are not kept
    bytes: int | None = None  # its size, if it is known
    device_name: str = ""  # on which it runs, if that is known
    paid: bool = False  # whether a text may cost money, so that none are made for it unasked

    @property
    def unsaved(self) -> bool:
        """Whether it is to be saved in a folder that does not hold it yet."""
        return False

    def prepare(  # noqa: B027 - most have nothing to prepare
        self, networks: Path | None = None, forget: Callable[[], None] = lambda: None
    ) -> None:
        """Load or train what is needed to label; before the labelling is timed.

        Args:
            networks: a folder that keeps what is trained, and from which it is loaded later.
            forget: called before a new network is put there, to forget the labels of another.
        """

    def on_cpu(self) -> "Teacher":
        """A copy on the CPU, to measure the time per text; its weights may be untrained."""
        return self

    @abstractmethod
    def stream(self, texts: Sequence[str]) -> Iterator[Probabilities]:
        """Blocks (n, classes) that follow the order of ``texts``."""


def check_probabilities(
    values: Any, classes: Sequence[Label], multi_label: bool, where: Callable[[int], str]
) -> Probabilities:
    """Probabilities (N, classes) that are finite, from 0 to 1 and, of one label, sum to one.

    Small deviations of the sum, as float16 or rounded decimals have, are normalized away. In
    messages ``where`` names a row.
    """
    try:
        found = np.asarray(values, np.float32)
    except (TypeError, ValueError, RuntimeError):  # strings, rows of unequal length, a graph
        found = np.empty((), np.float32)
    if found.ndim != 2 or found.shape[1] != len(classes):
        given = f"an array of shape {found.shape}" if found.ndim else reprlib.repr(values)
        raise DataError(
            f"{where(0)}: the teacher gave {given}; it must give each text one probability for "
            f"each of the {len(classes)} labels {_names(classes)}"
        )
    odd = ~((found >= 0) & (found <= 1)).all(axis=1)
    if odd.any():
        row = int(odd.argmax())
        raise DataError(
            f"{where(row)}: probabilities must be from 0 to 1; got {_listed(found[row])}"
        )
    if multi_label:
        return found
    sums = found.sum(axis=1)
    odd = np.abs(sums - 1) > TOLERANCE
    if odd.any():
        row = int(odd.argmax())
        raise DataError(
            f"{where(row)}: the probabilities {_listed(found[row])} sum to {sums[row]:.3g}; "
            "those of one label per text must sum to 1"
        )
    normalized: Probabilities = found / sums[:, None]
    return normalized


class FunctionTeacher(Teacher):
    """A function from a list of texts to their probabilities, or an object with predict_proba.

    A function's columns are in the order of ``classes``, an object's in that of its ``classes_``.
    If ``classes_`` are not label names, as in scikit-learn's multi-label models, the order of
    ``classes`` is assumed, with a warning. Labels are kept on disk only under a ``key`` by which
    the caller identifies the function.
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
        own = None if own is None else list(own)
        # Of an indicator matrix scikit-learn knows the positions alone, or 0 and 1 of each label.
        self._outputs = own if multi_label and own and np.ndim(own[0]) else None
        if multi_label and own in (self._outputs, list(range(len(classes)))):
            own = None
        self._columns = None if own is None else columns_of(self.name, own, classes)
        names = list(map(str, classes))
        if (
            own is None
            and self._call is not function
            and names != list(map(str, range(len(names))))
        ):
            logger.warning(
                "the teacher %s does not name its labels; its columns are taken to be %s, in this "
                "order",
                self.name,
                ", ".join(names),
            )

    def stream(self, texts: Sequence[str]) -> Iterator[Probabilities]:
        """A call per block."""
        for start in range(0, len(texts), TEXTS_PER_BLOCK):
            block = list(texts[start : start + TEXTS_PER_BLOCK])

            def where(row: int, start: int = start) -> str:
                return f"the teacher {self.name}, text {start + row}"

            given = self._call(block)
            if self._outputs is not None:
                given = _of_outputs(given, self._outputs)
            values = check_probabilities(given, self._classes, self._multi_label, where)
            if len(values) != len(block):
                raise DataError(
                    f"the teacher {self.name} labelled {len(values)} of {len(block)} texts; "
                    "it must give each text its probabilities"
                )
            yield values if self._columns is None else values[:, self._columns]


def _of_outputs(given: Any, outputs: Sequence[Any]) -> Any:
    """(N, labels) of a model with an output (N, 2) per label, ``outputs`` being their classes."""
    columns = [list(own).index(1) if 1 in own else None for own in outputs]
    return np.stack(
        [
            np.zeros(len(part)) if column is None else np.asarray(part)[:, column]
            for part, column in zip(given, columns, strict=True)
        ],
        axis=1,
    )


def _names(labels: Sequence[Any]) -> str:
    return shown_names(list(map(str, labels)))


def _listed(values: Probabilities) -> str:
    return reprlib.repr([float(f"{value:.3g}") for value in values])


def columns_of(name: str, own: Sequence[Any], classes: Sequence[Label]) -> list[int]:
    """The index in a teacher's labels ``own`` of each of ``classes``; both sets must be equal."""
    places = {str(label): place for place, label in enumerate(own)}
    wanted = dict.fromkeys(map(str, classes))
    if places.keys() != wanted.keys():
        only = {
            "the teacher": [label for label in places if label not in wanted],
            "the training data": [label for label in wanted if label not in places],
        }
        which = (f"only {who} has {shown_names(labels)}" for who, labels in only.items() if labels)
        raise UserError(
            f"the teacher {name} and the training data must have the same labels; "
            f"{', and '.join(which)}"
        )
    return [places[label] for label in wanted]


def check_multi_label(name: str, own: bool, multi_label: bool) -> None:
    """Check that a teacher is multi-label if and only if the training data is."""
    if own != multi_label:
        forms = ("single-label", "multi-label")
        raise UserError(
            f"the teacher {name} is {forms[own]}, and the training data is "
            f"{forms[multi_label]}; they must be the same"
        )


class ModelTeacher(Teacher):
    """A dcnn model."""

    device_name = "cpu"

    def __init__(self, folder: Path, classes: Sequence[Label], multi_label: bool = False) -> None:
        self.name = folder.name
        self._predictor = Predictor.load(folder)
        check_multi_label(str(folder), self._predictor.multi_label, multi_label)
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
        self.device_name = " + ".join(dict.fromkeys(one.device_name for one in teachers))
        self.paid = any(teacher.paid for teacher in teachers)

    @property
    def unsaved(self) -> bool:
        """Whether one of them is."""
        return any(teacher.unsaved for teacher in self.teachers)

    def prepare(
        self, networks: Path | None = None, forget: Callable[[], None] = lambda: None
    ) -> None:
        """All of them, each with a folder of its own."""
        for number, teacher in enumerate(self.teachers):
            teacher.prepare(None if networks is None else networks / str(number), forget)

    def on_cpu(self) -> Teacher:
        """All of them."""
        return MeanTeacher([teacher.on_cpu() for teacher in self.teachers])

    def stream(self, texts: Sequence[str]) -> Iterator[Probabilities]:
        """A block at a time, which all of them label."""
        for start in range(0, len(texts), TEXTS_PER_BLOCK):
            block = texts[start : start + TEXTS_PER_BLOCK]
            found = [np.concatenate(list(teacher.stream(block))) for teacher in self.teachers]
            yield np.mean(found, axis=0, dtype=np.float32)


class CommandTeacher(Teacher):
    """A shell command that reads a JSON object per line and writes one for each.

    It reads ``{"text": "..."}`` and writes ``{"label": probability, ...}``; a label left out has
    probability 0. The command runs once for all texts, may read ahead, and keeps their order.
    """

    paid = True

    def __init__(self, command: str, classes: Sequence[Label], multi_label: bool = False) -> None:
        self.name, self._classes, self._multi_label = command, classes, multi_label
        # A program that was edited, for instance its prompt, is another teacher. Programs found on
        # the PATH, such as python, are not hashed: an update must not discard all labels.
        try:
            words = shlex.split(command)
        except ValueError as error:  # a quote that is not closed
            raise UserError(f"the command {command!r} cannot be started ({error})") from error
        files = [Path(word) for word in words if Path(word).is_file()]
        self.key = hash_of("command", command, *map(file_sha256, files))

    def stream(self, texts: Sequence[str]) -> Iterator[Probabilities]:
        """Blocks as their lines arrive, so that little is lost if the command dies."""
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command
                shlex.split(self.name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # so that what it starts is stopped with it
            )
        except (OSError, ValueError, IndexError) as error:
            raise UserError(f"the command {self.name!r} cannot be started ({error})") from error
        with process:
            feeder = threading.Thread(target=self._feed, args=(process, texts), daemon=True)
            feeder.start()
            try:
                yield from self._read(process, texts)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                feeder.join()

    @staticmethod
    def _feed(process: "subprocess.Popen[bytes]", texts: Sequence[str]) -> None:
        stdin = process.stdin
        assert stdin is not None  # noqa: S101
        try:
            with stdin:
                for text in texts:
                    line = json.dumps({"text": text}, ensure_ascii=False) + "\n"
                    stdin.write(line.encode("utf-8", "replace"))  # it may have a lone surrogate
        except (BrokenPipeError, ValueError):
            pass  # the command ended; the reader reports it

    def _read(
        self, process: "subprocess.Popen[bytes]", texts: Sequence[str]
    ) -> Iterator[Probabilities]:
        assert process.stdout is not None  # noqa: S101
        block: list[Probabilities] = []
        done, last = 0, time.monotonic()
        failure: BaseException | None = None
        while failure is None:
            try:
                if not (line := process.stdout.readline()):  # bytes, of which Ctrl-C loses none
                    break
                if done + len(block) == len(texts):
                    block = []  # which line is too much is not known
                    failure = DataError(
                        f"the command {self.name!r} wrote more than {len(texts)} lines; "
                        "it must write one for each text, in their order"
                    )
                    break
                read = line.decode("utf-8", "replace")
                block.append(self._parse(read, texts, done + len(block)))
            except (DataError, KeyboardInterrupt) as error:
                failure = error  # raised when the lines before it have been handed over
            if len(block) == TEXTS_PER_BLOCK or (block and time.monotonic() - last > 5):
                yield np.concatenate(block)
                done, block, last = done + len(block), [], time.monotonic()
        if block:
            yield np.concatenate(block)
        done += len(block)
        if failure is not None:
            raise failure
        if done < len(texts):
            remedy = "their labels are kept, and the same command continues with the others"
            if not done:
                remedy = """try it with one line, such as {"text": "a text"}"""
            raise DcnnError(
                f"the command {self.name!r} ended with exit code {process.wait()} after {done:,} "
                f"of {len(texts):,} texts; {remedy}"
            )

    def _parse(self, line: str, texts: Sequence[str], index: int) -> Probabilities:
        """(1, classes) of a line."""
        where = f"the output of the command, line {index + 1}, for the text {shown(texts[index])}"
        try:
            given = json.loads(line)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise DataError(
                f"{where}: {line.strip()[:80]!r} is not a JSON object of probabilities by label"
            )
        unknown = set(given) - set(map(str, self._classes))
        if unknown:
            raise DataError(
                f"{where}: the label {shown(min(unknown))} is not in the training data, which has "
                f"{_names(self._classes)}"
            )
        try:
            values = [[float(given.get(str(label), 0)) for label in self._classes]]
        except (TypeError, ValueError):
            raise DataError(f"{where}: {line.strip()[:80]!r} holds no numbers") from None
        return check_probabilities(values, self._classes, self._multi_label, lambda _: where)


def hash_of(*parts: object) -> str:
    """A key of what ``repr`` shows of ``parts``."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
