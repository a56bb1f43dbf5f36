"""Distillation: a DCNN learns the probabilities that a teacher gives to text of its domain.

The student's examples are the labelled texts, text that nobody labelled, and augmented texts. All
get the teacher's probabilities as soft targets; those of labelled texts are mixed with the label.
Texts of dev and test are left out of the unlabelled ones, so that scores are unbiased. Where labels
are few, all of them go to the teacher, and the student is selected on how often it agrees with it.

The teacher's probabilities are cached on disk by the hash of the text, one file per block.
Interrupted labelling continues with the missing texts, and a second student needs no new labels. A
teacher that was trained here is stored beside its labels, so that it can label later texts. If two
commands use the same teacher, the second waits for the labels of the first.
"""

import hashlib
import logging
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dcnn.artifact import Artifact
from dcnn.config import Config, TrainingConfig
from dcnn.data.augment import augment
from dcnn.data.corpora.registry import cache_folder
from dcnn.data.labels import LabelledTexts
from dcnn.data.split import hold_out
from dcnn.errors import DcnnError, StorageError
from dcnn.files import file_lock, make_folder, write_atomically
from dcnn.metrics import (
    Thresholds,
    apply_thresholds,
    choose_thresholds,
    cross_fitted_thresholds,
    micro_f1,
    target_distributions,
)
from dcnn.predictor import Predictor
from dcnn.text.encoder import one_tokenizing_thread
from dcnn.training.teachers import Probabilities, Report, Teacher, hash_of

logger = logging.getLogger("dcnn")

COPIES = 20  # augmented texts per labelled one, where there is no unlabelled text
STUDENT_TEXTS = 10_000  # with fewer, labelled and unlabelled texts are augmented to about so many
FEW_DEV = 100  # a dev set of fewer labels is better given to the teacher
MIN_UNLABELLED = 500  # of which a tenth can be dev in its place
MOST_DEV = 2_000
TIMED_TEXTS, TIMED_SECONDS = 1000, 2.0  # at most, of teacher and of student
SMALL_FILE = 1 << 16  # texts
MOST_SMALL_FILES = 32  # of a teacher, before they are merged


@dataclass(frozen=True)
class _Block:
    """What a teacher gave in one go, as a file holds it."""

    keys: NDArray[np.uint64]  # (N,)
    values: Probabilities  # (N, classes)
    seconds: float
    device: str

    @classmethod
    def read(cls, path: Path) -> "_Block":
        try:
            with path.open("rb") as stream, np.load(stream) as file:
                device = str(file["device"]) if "device" in file else ""
                return cls(file["keys"], file["values"], float(file["seconds"]), device)
        except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise DcnnError(
                f"{path} is damaged ({error}); remove it, and the teacher labels its texts again"
            ) from error

    def write(self, folder: Path) -> Path:
        path = folder / f"{hashlib.sha256(self.keys.tobytes()).hexdigest()[:16]}.npz"
        with write_atomically(path, shared=True) as stream:
            np.savez(stream, **vars(self))
        return path


class LabelCache:
    """The probabilities that a teacher gave so far, by text.

    Without a folder, or where nothing can be written there, new ones are in memory alone.
    """

    def __init__(self, folder: Path | None, classes: int) -> None:
        self.folder = folder
        self._is_kept = folder is not None  # whether new labels are written
        self._keys = np.empty(0, np.uint64)  # sorted
        self._values = np.empty((0, classes), np.float32)
        self._new: list[_Block] = []  # blocks that are not among the sorted ones yet
        self._times: dict[str, tuple[int, float]] = {}  # texts and seconds by device
        if folder is not None:
            try:
                make_folder(folder)
            except StorageError as error:
                self._give_up(error)
        self._hold(self._read())

    def _hold(self, blocks: Iterable[_Block]) -> None:
        """Forget what is in memory, and keep ``blocks`` there."""
        self._keys, self._values = self._keys[:0], self._values[:0]
        self._new, self._times = [], {}
        for block in blocks:
            self._append(block)

    def _append(self, block: _Block) -> None:
        self._new.append(block)
        texts, seconds = self._times.get(block.device, (0, 0.0))
        self._times[block.device] = texts + len(block.keys), seconds + block.seconds

    def _give_up(self, error: StorageError) -> None:
        if self._is_kept:
            logger.warning("the teacher's labels are not kept for later runs: %s", error)
        self._is_kept = False

    def hold(self) -> ExitStack:
        """Keep other commands from asking the same teacher, and read what they have added.

        If one is asking it already, wait until it is done.
        """
        held = ExitStack()
        if self.folder is not None and self._is_kept:
            message = "another command asks the same teacher; waiting for its labels"
            say_once = lru_cache(lambda: logger.info(message))
            try:
                held.enter_context(file_lock(self.folder / "lock", say_once))
            except StorageError as error:
                self._give_up(error)
            else:
                self._hold(self._read())
        return held

    def find(self, texts: Sequence[str]) -> tuple[Probabilities, NDArray[np.int64]]:
        """Probabilities (N, classes), and the indices of the texts that have none yet."""
        self._sort()
        values = np.full((len(texts), self._values.shape[1]), np.nan, np.float32)
        if not len(self._keys):
            return values, np.arange(len(texts))
        keys = _keys(texts)
        rows = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = self._keys[rows] == keys
        values[known] = self._values[rows[known]]
        return values, np.flatnonzero(~known)

    def add(
        self, texts: Sequence[str], values: Probabilities, seconds: float, device: str = ""
    ) -> None:
        """Keep the labels of ``texts``, which took the teacher so long."""
        block = _Block(_keys(texts), values, seconds, device)
        if self.folder is not None and self._is_kept:
            try:
                block.write(self.folder)
            except StorageError as error:
                self._give_up(error)
        self._append(block)

    def clear(self) -> None:
        """Forget all labels, on disk too."""
        try:
            if self.folder is not None and self._is_kept:
                for path in self.folder.glob("*.npz"):
                    path.unlink(missing_ok=True)
        except OSError as error:  # nothing is added to the labels of another network
            self._give_up(StorageError(f"{self.folder} cannot be cleared ({error.strerror})"))
        self._hold(())

    def time_per_text(self) -> tuple[float | None, str]:
        """Seconds, and the device on which the teacher labelled most of the texts."""
        device = max(self._times, key=lambda name: self._times[name][0], default="")
        texts, seconds = self._times.get(device, (0, 0.0))
        return (seconds / texts if seconds else None), device

    def _sort(self) -> None:
        if self._new:
            keys = np.concatenate([self._keys, *(block.keys for block in self._new)])
            values = np.concatenate([self._values, *(block.values for block in self._new)])
            self._keys, rows = np.unique(keys, return_index=True)
            self._values, self._new = values[rows], []

    def _read(self) -> Iterator[_Block]:
        """All files. Small ones, as slow teachers give every few seconds, are merged if many."""
        if self.folder is None:
            return
        small: dict[str, dict[Path, _Block]] = defaultdict(dict)
        read: set[Path] = set()
        while paths := sorted(set(self.folder.glob("*.npz")) - read):
            read.update(paths)
            for path in paths:
                try:
                    block = _Block.read(path)
                except FileNotFoundError:  # another process merged it into a file read next
                    continue
                if len(block.keys) < SMALL_FILE:
                    small[block.device][path] = block
                yield block
        for device, blocks in small.items():
            if len(blocks) > MOST_SMALL_FILES:
                with suppress(StorageError):  # a full disk still gives the labels that it has
                    self._merge(self.folder, device, blocks)

    @staticmethod
    def _merge(folder: Path, device: str, blocks: Mapping[Path, _Block]) -> None:
        """Write one merged file, then delete the others; a kill in between leaves duplicates."""
        keys = np.concatenate([block.keys for block in blocks.values()])
        values = np.concatenate([block.values for block in blocks.values()])
        seconds = sum(block.seconds for block in blocks.values())
        merged = _Block(keys, values, seconds, device).write(folder)
        for path in blocks:
            if path != merged:
                path.unlink(missing_ok=True)


def cache() -> Path:
    """The folder of what all teachers said, and of those that were trained."""
    return cache_folder() / "teachers"


def _keys(texts: Sequence[str]) -> NDArray[np.uint64]:
    # Texts from Python may have lone surrogates, which UTF-8 proper does not encode.
    encoded = (text.encode("utf-8", "surrogatepass") for text in texts)
    digests = (hashlib.blake2b(text, digest_size=8).digest() for text in encoded)
    return np.frombuffer(b"".join(digests), np.uint64)


def label(
    teacher: Teacher,
    texts: Sequence[str],
    cache: LabelCache,
    report: Report = lambda *_: None,
    networks: Path | None = None,
) -> Probabilities:
    """The teacher's probabilities (N, classes); it labels only what is not in ``cache``.

    ``networks`` is a folder for networks that the teacher trains. All labels in a cache come from
    the same network; if it is lost, its labels are replaced by those of a new one.
    """
    distinct = list(dict.fromkeys(texts))
    with ExitStack() as held:
        if len(cache.find(distinct)[1]) or teacher.unsaved:
            held.enter_context(cache.hold())
        missing = cache.find(distinct)[1]
        counts = len(distinct), len(distinct) - len(missing), len(missing)
        logger.info(
            "%s texts for the teacher: %s labelled before, %s to label",
            *(f"{count:,}" for count in counts),
        )
        if len(missing) or teacher.unsaved:
            teacher.prepare(networks, cache.clear)
            missing = cache.find(distinct)[1]
        asked = [distinct[index] for index in missing.tolist()]
        done, started = 0, time.monotonic()
        report("label", len(distinct) - len(asked), len(distinct), "texts")
        for block in teacher.stream(asked) if asked else ():
            seconds = time.monotonic() - started
            cache.add(asked[done : done + len(block)], block, seconds, teacher.device_name)
            done, started = done + len(block), time.monotonic()
            report("label", len(distinct) - len(asked) + done, len(distinct), "texts")
    return cache.find(texts)[0]


@dataclass(frozen=True)
class Score:
    """Teacher and student on a labelled set: accuracy, or micro F1 if multi-label; fractions."""

    examples: int
    teacher: float
    student: float
    agreement: float  # of texts, or of labels of texts, on which both decide alike


@dataclass(frozen=True)
class StudentTexts:
    """What a student learns and is selected on."""

    labelled: int
    unlabelled: int
    augmented: int
    excluded: int  # unlabelled and augmented texts that occur in dev or test, and were left out
    repeated: int  # unlabelled texts that occur among the labelled ones, and were left out
    teacher_weight: float  # in the targets of labelled texts
    dev_from_teacher: bool  # whether dev is unlabelled text, with the teacher's labels


@dataclass(frozen=True)
class Distillation(StudentTexts):
    """How a distillation went, as the report and the model card show it."""

    teacher: str
    dev: Score
    test: Score | None
    teacher_seconds_per_text: float | None  # of one text at a time on one core, if it is known
    teacher_timed_while_labelling: bool  # whether it is the mean of all texts instead
    teacher_device: str  # on which it took so long, if that is known
    student_seconds_per_text: float
    teacher_bytes: int | None

    def added_to(self, artifact: Artifact) -> Artifact:
        """The artifact, with this in its metadata."""
        metadata = artifact.metadata | {"distillation": asdict(self)}
        if self.dev_from_teacher:  # these would be scores of agreeing with the teacher
            for name in ("abstention", "dev_accuracy", "dev_micro_f1", "dev_macro_f1"):
                metadata.pop(name, None)
        return replace(artifact, metadata=metadata)


@dataclass(frozen=True)
class TeacherLabels(StudentTexts):
    """What a student learns from, and its teacher's probabilities for dev and test."""

    examples: LabelledTexts  # labelled, unlabelled and augmented texts with soft targets
    teacher: Teacher
    dev_set: LabelledTexts  # that the student is selected on
    dev: Probabilities
    test: Probabilities
    seconds_per_text: float | None  # while labelling
    device: str
    networks: Path | None  # a folder with what the teacher learned, if it learned anything

    def student_config(self, config: Config) -> Config:
        """``config`` with the values of ``Config()``, which selects on dev, in place of ``auto``.

        Soft targets are not memorized, and there are many of them. The student is not calibrated
        where dev has the teacher's labels, which are not the truth.
        """
        config = replace(config, training=replace(config.training, auto=()))
        return config.with_training(calibrate=False) if self.dev_from_teacher else config


def hold_out_dev(
    train: LabelledTexts,
    test: LabelledTexts | None,
    unlabelled: Sequence[str],
    training: TrainingConfig,
) -> tuple[LabelledTexts, LabelledTexts | None]:
    """Hold out a dev set, unless labels are few and unlabelled text can take its place."""
    if training.dev_fraction * len(train) < FEW_DEV:
        labelled = {_normalized(text) for part in (train, test) if part for text in part.texts}
        if len(set(map(_normalized, unlabelled)) - labelled) >= MIN_UNLABELLED:
            return train, None
    return hold_out(train, training.dev_fraction, training.seed)


def pseudo_label(
    teacher: Teacher,
    train: LabelledTexts,
    dev: LabelledTexts | None,
    test: LabelledTexts | None = None,
    unlabelled: Sequence[str] = (),
    *,
    copies: int | None = None,
    teacher_weight: float = 0.7,
    seed: int = 0,
    cache: Path | None = None,
    report: Report = lambda *_: None,
) -> TeacherLabels:
    """Let ``teacher`` label all texts.

    Args:
        teacher: what labels.
        train: labelled texts.
        dev: labelled texts of the same classes; none takes a tenth of the unlabelled texts, with
            the teacher's labels.
        test: labelled texts of the same classes.
        unlabelled: further texts; those of dev and test are left out.
        copies: augmented texts per text, labelled or not; none means 20 if nothing is unlabelled,
            else as many as make 10,000 texts, and 0 if the teacher's labels cost money. All
            together weigh at most as much as the texts that they are made of.
        teacher_weight: of the teacher in the targets of labelled texts; the rest is the label.
        seed: for the augmentation, and for choosing dev from the unlabelled texts.
        cache: folder for the teacher's labels and networks; none keeps them in memory.
        report: called with the stage, how much is done, of how much, and a remark.
    """
    held_out = {_normalized(text) for part in (dev, test) if part for text in part.texts}
    labelled = {_normalized(text) for text in train.texts} - held_out
    known = held_out | labelled
    normalized = {text: _normalized(text) for text in unlabelled}
    extra = [text for text, form in normalized.items() if form not in known]
    excluded = sum(form in held_out for form in normalized.values())
    repeated = sum(form in labelled for form in normalized.values())
    dev_texts = [] if dev is None else dev.texts
    if dev is None:
        order = np.random.default_rng(seed).permutation(len(extra))
        count = min(MOST_DEV, max(1, len(extra) // 10))
        dev_texts = [extra[index] for index in np.sort(order[:count])]
        extra = [extra[index] for index in np.sort(order[count:])]
        held_out |= {_normalized(text) for text in dev_texts}
    if copies is None:
        enough = STUDENT_TEXTS // (len(train) + len(extra)) - 1 if extra else COPIES
        copies = 0 if teacher.paid else max(0, min(COPIES, enough))
    made = augment([*train.texts, *extra], copies, seed)
    new = [text for text in made if _normalized(text) not in held_out]
    excluded += len(made) - len(new)
    if excluded:
        logger.info("%s texts occur in dev or test and are left out", f"{excluded:,}")
    if repeated:
        logger.info(
            "%s unlabelled texts occur among the labelled ones and are left out", f"{repeated:,}"
        )
    texts, n_train = [*train.texts, *extra, *new], len(train)
    folder = networks = None
    if cache is not None and teacher.key is not None:  # the order of the labels is that of train
        folder = cache / hash_of(teacher.key, list(train.classes), train.multi_label)
        networks = folder / "networks"
    label_cache = LabelCache(folder, len(train.classes))
    every = [*texts, *dev_texts, *(test.texts if test else ())]
    found = label(teacher, every, label_cache, report, networks)
    seconds_per_text, device = label_cache.time_per_text()
    targets, of_dev, of_test = np.split(found, [len(texts), len(texts) + len(dev_texts)])
    targets, counts = targets.copy(), (n_train, len(extra), len(new), excluded, repeated)
    dev_from_teacher = dev is None
    if dev is None:
        hard = of_dev >= 0.5 if train.multi_label else of_dev.argmax(axis=1)
        hard = hard.astype(np.float32 if train.multi_label else np.int64)
        dev = replace(train, texts=dev_texts, targets=hard, weights=None, places=None)
    own = target_distributions(train.targets, len(train.classes))
    targets[:n_train] = teacher_weight * targets[:n_train] + (1 - teacher_weight) * own
    weights = text_weights(train.weights, n_train, len(extra), len(new))
    return TeacherLabels(
        *(*counts, teacher_weight, dev_from_teacher),
        replace(train, texts=texts, targets=targets, weights=weights, places=None),
        teacher,
        dev,
        of_dev,
        of_test,
        seconds_per_text,
        device,
        networks if networks is not None and networks.exists() else None,
    )


def text_weights(
    given: NDArray[np.float32] | None, labelled: int, unlabelled: int, augmented: int
) -> NDArray[np.float32] | None:
    """Weights of so many texts, in this order; none if all are alike.

    Many augmented texts would drown the real ones: together they weigh at most as much as these.
    """
    real = labelled + unlabelled
    if given is None and augmented <= real:
        return None
    own = np.ones(labelled, np.float32) if given is None else given
    shares = np.repeat([1.0, min(1.0, real / max(1, augmented))], [unlabelled, augmented])
    return np.concatenate([own, (own.mean() * shares).astype(np.float32)])


def compare(
    student: Artifact, labels: TeacherLabels, test: LabelledTexts | None = None
) -> Distillation:
    """Teacher and student on dev and test, and what they cost."""
    dev, teacher = labels.dev_set, labels.teacher
    predictor, texts = Predictor(student), list(labels.examples.texts[:TIMED_TEXTS])
    of_teacher, device = labels.seconds_per_text, labels.device
    with one_core():
        seconds = _time_per_text(predictor.probabilities, texts)
        if not teacher.paid:
            on_cpu, of_teacher, device = teacher.on_cpu(), None, "cpu"
            try:
                of_teacher = _time_per_text(lambda one: list(on_cpu.stream(one)), texts)
            except Exception as error:
                logger.warning("the teacher could not be timed: %s", error)
    thresholds = choose_thresholds(dev.targets, labels.dev) if dev.multi_label else None
    return Distillation(
        **{one.name: getattr(labels, one.name) for one in fields(StudentTexts)},
        teacher=teacher.name,
        dev=_score(dev, labels.dev, predictor, thresholds, on_dev=True),
        test=_score(test, labels.test, predictor, thresholds) if test else None,
        teacher_seconds_per_text=of_teacher,
        teacher_timed_while_labelling=teacher.paid,
        teacher_device=device,
        student_seconds_per_text=seconds,
        teacher_bytes=teacher.bytes,
    )


@contextmanager
def one_core() -> Iterator[None]:
    """Let torch and tokenizers use one core, as the native code of a student does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with one_tokenizing_thread():
            yield
    finally:
        torch.set_num_threads(threads)


def _time_per_text(call: Callable[[list[str]], object], texts: Sequence[str]) -> float:
    call([texts[0]])  # the first call also loads code and fills caches
    times: list[float] = []
    for text in texts:
        started = time.perf_counter()
        call([text])
        times.append(time.perf_counter() - started)
        if sum(times) > TIMED_SECONDS:
            break
    return float(np.median(times))


def _normalized(text: str) -> str:
    return " ".join(text.casefold().split())


def _score(
    data: LabelledTexts,
    of_teacher: Probabilities,
    student: Predictor,
    thresholds: Sequence[float] | None,
    *,
    on_dev: bool = False,
) -> Score:
    of_student = student.probabilities(data.texts)
    if thresholds is None:
        decided = [part.argmax(axis=1) for part in (of_teacher, of_student)]
        scores = [float((part == data.class_numbers).mean()) for part in decided]
    else:
        own: list[Thresholds] = [thresholds, student.artifact.thresholds or thresholds]
        if on_dev:  # which chose these
            own = [cross_fitted_thresholds(data.targets, part) for part in (of_teacher, of_student)]
        decided = [
            apply_thresholds(part, chosen)
            for part, chosen in zip((of_teacher, of_student), own, strict=True)
        ]
        scores = [micro_f1(data.targets >= 0.5, part) for part in decided]
    return Score(len(data), scores[0], scores[1], float((decided[0] == decided[1]).mean()))
