"""Distillation: a DCNN learns the probabilities that a teacher gives to text of its domain.

The student's examples are the labelled texts, text that nobody labelled, and augmented texts. All
get the teacher's probabilities as soft targets; those of labelled texts are mixed with the label.
Texts of dev and test are left out of the unlabelled ones, so that scores are unbiased.

The teacher's answers are kept on disk by the hash of the text, a file per block. A labelling that
was interrupted continues with the texts that have no answer, and a second student costs nothing.
"""

import hashlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dcnn.artifact import Artifact
from dcnn.data.augment import augment
from dcnn.data.corpora.registry import cache_folder
from dcnn.data.labels import LabelledTexts
from dcnn.files import make_folder, write_atomically
from dcnn.metrics import apply_thresholds, choose_thresholds, micro_f1
from dcnn.predictor import Predictor
from dcnn.training.encoders import EncoderTeacher
from dcnn.training.objective import target_distributions
from dcnn.training.teachers import Probabilities, Report, Teacher, hash_of

COPIES = 20  # augmented texts per labelled one, where there is no unlabelled text
TIMED_TEXTS = 1000


class Answers:
    """What a teacher answered so far, by text; in memory alone if ``folder`` is none."""

    def __init__(self, folder: Path | None, classes: int) -> None:
        self.folder = None if folder is None else make_folder(folder)
        self._keys = np.empty(0, np.uint64)
        self._values = np.empty((0, classes), np.float32)
        self.seconds = 0.0  # that the teacher took for all of them
        for path in sorted(self.folder.glob("*.npz")) if self.folder is not None else ():
            with np.load(path) as block:
                self._append(block["keys"], block["values"], float(block["seconds"]))

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, texts: Sequence[str]) -> tuple[Probabilities, NDArray[np.int64]]:
        """Probabilities (N, classes), and the indices of the texts that have none yet."""
        keys, order = _keys(texts), np.argsort(self._keys)
        places = np.searchsorted(self._keys, keys, sorter=order)
        rows = order[np.minimum(places, len(order) - 1)] if len(order) else places
        known = self._keys[rows] == keys if len(order) else np.zeros(len(keys), np.bool_)
        values = np.full((len(texts), self._values.shape[1]), np.nan, np.float32)
        values[known] = self._values[rows[known]]
        return values, np.flatnonzero(~known)

    def add(self, texts: Sequence[str], values: Probabilities, seconds: float) -> None:
        """Keep the answers to ``texts``."""
        keys = _keys(texts)
        if self.folder is not None:
            name = hashlib.sha256(keys.tobytes()).hexdigest()[:16]
            with write_atomically(self.folder / f"{name}.npz") as stream:
                np.savez(stream, keys=keys, values=values, seconds=seconds)
        self._append(keys, values, seconds)

    def _append(self, keys: NDArray[np.uint64], values: Probabilities, seconds: float) -> None:
        self._keys = np.concatenate([self._keys, keys])
        self._values = np.concatenate([self._values, values])
        self.seconds += seconds


def cache() -> Path:
    """The folder of the answers of all teachers."""
    return cache_folder() / "teachers"


def _keys(texts: Sequence[str]) -> NDArray[np.uint64]:
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), np.uint64)


def label(
    teacher: Teacher, texts: Sequence[str], answers: Answers, report: Report = lambda *_: None
) -> Probabilities:
    """The teacher's probabilities (N, classes); only texts without an answer are asked."""
    values, missing = answers.find(texts)
    asked = list(dict.fromkeys(texts[index] for index in missing.tolist()))
    if asked:
        teacher.prepare()
    done, started = 0, time.monotonic()
    report("label", len(texts) - len(missing), len(texts), "texts")
    for block in teacher.stream(asked) if asked else ():
        answers.add(asked[done : done + len(block)], block, time.monotonic() - started)
        done, started = done + len(block), time.monotonic()
        report("label", len(texts) - len(asked) + done, len(texts), "texts")
    if len(missing):
        values, _ = answers.find(texts)
    return values


@dataclass(frozen=True)
class Score:
    """Teacher and student on a labelled set; fractions. Of several labels per text, micro F1."""

    examples: int
    teacher: float
    student: float
    agreement: float  # texts, or labels of texts, to which both give the same answer


@dataclass(frozen=True)
class Distillation:
    """How a distillation went, as the report and the model card show it."""

    teacher: str
    labelled: int
    unlabelled: int
    augmented: int
    teacher_weight: float  # in the targets of labelled texts
    dev: Score
    test: Score | None
    teacher_seconds_per_text: float | None  # if it was asked anything
    student_seconds_per_text: float
    teacher_bytes: int | None

    def added_to(self, artifact: Artifact) -> Artifact:
        """The artifact, with this in its metadata."""
        return replace(artifact, metadata=artifact.metadata | {"distillation": asdict(self)})


@dataclass(frozen=True)
class Answered:
    """What a student learns from, and what its teacher said of dev and test."""

    examples: LabelledTexts  # labelled, unlabelled and augmented texts with soft targets
    teacher: Teacher
    labelled: int
    unlabelled: int
    augmented: int
    teacher_weight: float
    dev: Probabilities
    test: Probabilities
    seconds_per_text: float | None


def ask(
    teacher: Teacher,
    train: LabelledTexts,
    dev: LabelledTexts,
    test: LabelledTexts | None = None,
    unlabelled: Sequence[str] = (),
    *,
    copies: int | None = None,
    teacher_weight: float = 0.7,
    seed: int = 0,
    cache: Path | None = None,
    report: Report = lambda *_: None,
) -> Answered:
    """Let ``teacher`` label all texts.

    Args:
        teacher: what labels.
        train: labelled texts.
        dev: labelled texts of the same classes.
        test: the same.
        unlabelled: further texts; those of dev and test are left out.
        copies: augmented texts per labelled one; none means some if nothing is unlabelled.
        teacher_weight: of the teacher in the targets of labelled texts; the rest is the label.
        seed: of the augmentation.
        cache: folder of the teacher's answers; none keeps them in memory.
        report: called with the stage, how much is done, of how much, and a remark.
    """
    held_out = {_normalized(text) for part in (dev, test) if part for text in part.texts}
    known = held_out | {_normalized(text) for text in train.texts}
    extra = [text for text in dict.fromkeys(unlabelled) if _normalized(text) not in known]
    if copies is None:
        copies = 0 if extra else COPIES
    new = augment(train.texts, copies, seed) if copies else []
    new = [text for text in new if _normalized(text) not in held_out]
    texts, n_train = [*train.texts, *extra, *new], len(train)
    folder = None
    if cache is not None and teacher.key is not None:  # the order of the labels is that of train
        folder = cache / hash_of(teacher.key, list(train.classes), train.multi_label)
    answers = Answers(folder, len(train.classes))
    kept = None  # where a fine-tuned encoder waits for an interrupted labelling to continue
    if isinstance(teacher, EncoderTeacher) and teacher.folder is None and folder is not None:
        kept = teacher.folder = folder / "encoder"
    every = [*texts, *dev.texts, *(test.texts if test else ())]
    found = label(teacher, every, answers, report)
    if kept is not None and kept.exists():
        shutil.rmtree(kept)
    targets = found[: len(texts)].copy()
    own = target_distributions(train.targets, len(train.classes))
    targets[:n_train] = teacher_weight * targets[:n_train] + (1 - teacher_weight) * own
    weights = None
    if train.weights is not None:
        mean = np.full(len(texts) - n_train, train.weights.mean(), np.float32)
        weights = np.concatenate([train.weights, mean])
    return Answered(
        replace(train, texts=texts, targets=targets, weights=weights, places=None),
        teacher,
        n_train,
        len(extra),
        len(new),
        teacher_weight,
        found[len(texts) : len(texts) + len(dev)],
        found[len(texts) + len(dev) :],
        answers.seconds / len(answers) if answers.seconds else None,
    )


def compare(
    student: Artifact, answered: Answered, dev: LabelledTexts, test: LabelledTexts | None = None
) -> Distillation:
    """Teacher and student on dev and test, and what they cost."""
    predictor, texts = Predictor(student), answered.examples.texts[:TIMED_TEXTS]
    started = time.perf_counter()
    predictor.probabilities(list(texts))
    seconds = (time.perf_counter() - started) / len(texts)
    thresholds = choose_thresholds(dev.targets, answered.dev) if dev.multi_label else None
    return Distillation(
        teacher=answered.teacher.name,
        labelled=answered.labelled,
        unlabelled=answered.unlabelled,
        augmented=answered.augmented,
        teacher_weight=answered.teacher_weight,
        dev=_score(dev, answered.dev, predictor, thresholds),
        test=_score(test, answered.test, predictor, thresholds) if test else None,
        teacher_seconds_per_text=answered.seconds_per_text,
        student_seconds_per_text=seconds,
        teacher_bytes=answered.teacher.bytes,
    )


def _normalized(text: str) -> str:
    return " ".join(text.casefold().split())


def _score(
    data: LabelledTexts,
    of_teacher: Probabilities,
    student: Predictor,
    thresholds: Sequence[float] | None,
) -> Score:
    of_student = student.probabilities(data.texts)
    if thresholds is None:
        answers = [part.argmax(axis=1) for part in (of_teacher, of_student)]
        scores = [float((part == data.class_numbers).mean()) for part in answers]
    else:
        answers = [
            apply_thresholds(of_teacher, thresholds),
            apply_thresholds(of_student, student.artifact.thresholds or thresholds),
        ]
        scores = [micro_f1(data.targets >= 0.5, part) for part in answers]
    return Score(len(data), scores[0], scores[1], float((answers[0] == answers[1]).mean()))
