"""Distillation: what the student learns from, what is kept on disk, what is reported."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.artifact import Artifact
from dcnn.classifier import DCNNClassifier
from dcnn.config import DEFAULT, Config
from dcnn.data.labels import LabelledTexts
from dcnn.errors import DataError, UserError
from dcnn.training.distillation import Answers, Distillation, ask, compare, label
from dcnn.training.fit import RunOptions, fit
from dcnn.training.teachers import FunctionTeacher, Teacher

CLASSES = ("neg", "pos")
GOOD = ["good", "great", "fine", "superb"]
BAD = ["bad", "awful", "poor", "dire"]


def sentences(words: Sequence[str], count: int) -> list[str]:
    rng = np.random.default_rng(0)
    others = ["film", "plot", "cast", "the", "a", "very"]
    return [" ".join([*rng.choice(others, 3), rng.choice(words)]) for _ in range(count)]


def labelled(good: Sequence[str], bad: Sequence[str], count: int) -> LabelledTexts:
    texts = sentences(good, count) + sentences(bad, count)
    return LabelledTexts(texts, np.repeat([1, 0], count), CLASSES)


TRAIN, DEV, TEST = labelled(GOOD[:2], BAD[:2], 30), labelled(GOOD, BAD, 20), labelled(GOOD, BAD, 25)
UNLABELLED = sentences(GOOD + BAD, 300)
CONFIG = replace(DEFAULT.with_training(epochs=8), model=replace(DEFAULT.model, dim=16))

ONE_EPOCH = CONFIG.with_training(epochs=1)


def knows(texts: list[str]) -> np.ndarray:
    good = np.array([text.split()[-1] in GOOD for text in texts], float)
    return 0.1 + 0.8 * np.stack([1 - good, good], axis=1)


class Counted(FunctionTeacher):
    def __init__(self, key: str | None = "knows") -> None:
        super().__init__(knows, CLASSES, key=key)
        self.asked: list[str] = []

    def stream(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        self.asked += texts
        return super().stream(texts)


def distill(
    unlabelled: Sequence[str],
    teacher: Teacher,
    config: Config = CONFIG,
    parts: Sequence[LabelledTexts] = (TRAIN, DEV, TEST),
    **options: object,
) -> tuple[Artifact, Distillation]:
    _, *others = parts
    answered = ask(teacher, *parts, unlabelled=unlabelled, **options)
    artifact, _ = fit(answered.examples, others[0], config, RunOptions("cpu"))
    record = compare(artifact, answered, *others)
    return record.added_to(artifact), record


def test_a_student_learns_words_that_only_unlabelled_text_has() -> None:
    teacher = FunctionTeacher(knows, CLASSES)
    artifact, record = distill(UNLABELLED, teacher)
    assert record.test is not None
    assert record.test.teacher == 1.0
    assert record.test.student > 0.95  # half of the words are in no labelled text
    assert record.test.agreement == record.test.student
    assert record.teacher == "knows"
    assert artifact.metadata["distillation"]["labelled"] == 60


def test_targets_of_labelled_texts_mix_the_label_and_the_teacher() -> None:
    answered = ask(Counted(), TRAIN, DEV, unlabelled=UNLABELLED, teacher_weight=0.25)
    labels = np.eye(2)[TRAIN.targets]
    targets, texts = answered.examples.targets, list(answered.examples.texts)
    np.testing.assert_allclose(
        targets[: len(TRAIN)], 0.25 * knows(texts[: len(TRAIN)]) + 0.75 * labels, atol=1e-6
    )
    np.testing.assert_allclose(targets[len(TRAIN) :], knows(texts[len(TRAIN) :]), atol=1e-6)


def test_weights_of_unlabelled_texts_are_the_mean() -> None:
    weights = np.linspace(0, 2, len(TRAIN)).astype(np.float32)
    answered = ask(Counted(), replace(TRAIN, weights=weights), DEV, unlabelled=UNLABELLED)
    found = answered.examples.weights
    assert found is not None
    np.testing.assert_array_equal(found[: len(TRAIN)], weights)
    np.testing.assert_allclose(found[len(TRAIN) :], 1, rtol=1e-6)


def test_texts_of_dev_and_test_are_not_learned() -> None:
    teacher = Counted()
    unlabelled = [*UNLABELLED, *(text.upper() + " " for text in [*DEV.texts, *TEST.texts])]
    _, record = distill(unlabelled, teacher, ONE_EPOCH, copies=5)
    held_out = {text.upper() + " " for text in [*DEV.texts, *TEST.texts]}
    assert not held_out & set(teacher.asked)
    distinct = set(UNLABELLED) - set(DEV.texts) - set(TEST.texts) - set(TRAIN.texts)
    assert record.unlabelled == len(distinct)
    assert record.augmented > 0


def test_without_unlabelled_text_some_is_made() -> None:
    _, record = distill([], Counted(), ONE_EPOCH, (TRAIN, DEV))
    assert record.unlabelled == 0
    assert record.augmented > len(TRAIN)
    assert record.test is None


def test_several_labels_per_text() -> None:
    def parts(data: LabelledTexts) -> LabelledTexts:
        indicators = knows(list(data.texts)).round().astype(np.float32)
        indicators[::3] = 1
        return replace(data, targets=indicators, multi_label=True)

    teacher = FunctionTeacher(lambda texts: np.full((len(texts), 2), 0.7), CLASSES, True)
    artifact, record = distill(UNLABELLED, teacher, ONE_EPOCH, (parts(TRAIN), parts(DEV)))
    assert artifact.thresholds is not None
    assert 0 <= record.dev.student <= 1


@given(st.lists(st.lists(st.text(max_size=5), max_size=8), max_size=4))
def test_answers_are_found_by_text(tmp_path_factory: object, blocks: list[list[str]]) -> None:
    def value(text: str) -> np.ndarray:
        seed = list(text.encode("utf-8", "surrogatepass"))
        return np.random.default_rng(seed).random(2, np.float32)

    answers = Answers(None, 2)
    for block in blocks:
        block = [text.encode("utf-8", "replace").decode() for text in block]
        if block:
            answers.add(block, np.stack([value(text) for text in block]), 1.0)
    texts = [text.encode("utf-8", "replace").decode() for block in blocks for text in block]
    found, missing = answers.find([*texts, "never asked"])
    assert missing.tolist() == [len(texts)]
    if texts:
        np.testing.assert_array_equal(found[:-1], np.stack([value(text) for text in texts]))


def test_a_second_student_asks_nothing(tmp_path: Path) -> None:
    first, second = Counted(), Counted()
    distill(UNLABELLED, first, ONE_EPOCH, cache=tmp_path)
    assert len(first.asked) > len(UNLABELLED) / 2
    distill(UNLABELLED, second, ONE_EPOCH, cache=tmp_path)
    assert not second.asked


def test_another_teacher_is_asked_again(tmp_path: Path) -> None:
    distill(UNLABELLED, Counted(), ONE_EPOCH, cache=tmp_path)
    other = Counted("another")
    distill(UNLABELLED, other, ONE_EPOCH, cache=tmp_path)
    assert other.asked


def test_an_interrupted_labelling_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcnn.training.teachers.TEXTS_PER_BLOCK", 50)
    texts = list(dict.fromkeys(UNLABELLED))
    calls = 0

    def dies(block: list[str]) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return knows(block)

    with pytest.raises(KeyboardInterrupt):
        label(FunctionTeacher(dies, CLASSES), texts, Answers(tmp_path, 2))
    again = Counted()
    found = label(again, texts, Answers(tmp_path, 2))
    assert again.asked == texts[100:]
    np.testing.assert_allclose(found, knows(texts), atol=1e-6)


def test_a_classifier_is_fitted_with_a_teacher() -> None:
    model = DCNNClassifier(dim=16, epochs=8)
    labels = [CLASSES[target] for target in TRAIN.targets]
    dev = (DEV.texts, [CLASSES[target] for target in DEV.targets])
    model.fit(TRAIN.texts, labels, dev=dev, teacher=knows, unlabelled=UNLABELLED)
    assert model.distillation_.unlabelled > 100
    assert model.score(TEST.texts, [CLASSES[target] for target in TEST.targets]) > 0.95
    assert model.predictor_.artifact.metadata["distillation"]["teacher"] == "knows"


def test_unlabelled_texts_need_a_teacher() -> None:
    with pytest.raises(DataError, match="unlabelled texts need a teacher"):
        DCNNClassifier().fit(TRAIN.texts, TRAIN.targets, unlabelled=UNLABELLED)


def test_what_cannot_teach_is_refused() -> None:
    with pytest.raises(UserError, match="teacher=7 must be a function of a list of texts"):
        DCNNClassifier().fit(TRAIN.texts, TRAIN.targets, teacher=7)


def test_answers_are_kept_by_the_order_of_the_labels(tmp_path: Path) -> None:
    class Ordered(Counted):
        def stream(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
            for block in super().stream(texts):
                yield block if self._classes == CLASSES else block[:, ::-1]

    reverse = [
        replace(part, classes=CLASSES[::-1], targets=1 - part.targets) for part in (TRAIN, DEV)
    ]
    other = Ordered()
    other._classes = CLASSES[::-1]
    ask(Ordered(), TRAIN, DEV, cache=tmp_path)
    answered = ask(other, *reverse, cache=tmp_path)
    assert (answered.dev.argmax(axis=1) == reverse[1].targets).all()


def test_the_time_per_text_leaves_out_the_training_of_the_teacher() -> None:
    class Trained(Counted):
        def prepare(self) -> None:
            time.sleep(0.3)

    answers = Answers(None, 2)
    label(Trained(), UNLABELLED, answers)
    assert answers.seconds < 0.3
