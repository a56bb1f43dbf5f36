"""Distillation: what the student learns from, what is kept on disk, what is reported."""

import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from dcnn.artifact import Artifact
from dcnn.classifier import DCNNClassifier
from dcnn.config import DEFAULT, Config
from dcnn.data.labels import LabelledTexts
from dcnn.errors import DataError, DcnnError, StorageError, UserError
from dcnn.model_card import compare_with_teacher, render_card
from dcnn.predictor import Predictor
from dcnn.training.distillation import (
    COPIES,
    FEW_DEV,
    MIN_UNLABELLED,
    Distillation,
    LabelCache,
    TeacherLabels,
    compare,
    hold_out_dev,
    label,
    pseudo_label,
)
from dcnn.training.encoders import choose_teacher
from dcnn.training.fit import RunOptions, fit
from dcnn.training.teachers import CommandTeacher, FunctionTeacher, Teacher
from tiny_encoder import save_encoder

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
    labels = pseudo_label(teacher, *parts, unlabelled=unlabelled, **options)
    artifact, _ = fit(labels.examples, labels.dev_set, config, RunOptions("cpu"))
    record = compare(artifact, labels, *parts[2:])
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


def test_few_labels_all_go_to_the_teacher_and_the_student_is_selected_on_unlabelled_text() -> None:
    more = list(dict.fromkeys(sentences(GOOD + BAD, 3000)))[: 2 * MIN_UNLABELLED]
    train, dev = hold_out_dev(TRAIN, TEST, more, CONFIG.training)
    assert (train, dev) == (TRAIN, None)
    assert hold_out_dev(TRAIN, TEST, more[: MIN_UNLABELLED - 1], CONFIG.training)[1] is not None
    many = labelled(GOOD, BAD, round(FEW_DEV / CONFIG.training.dev_fraction / 2))
    assert len(hold_out_dev(many, None, more, CONFIG.training)[1]) >= FEW_DEV
    same = replace(TEST, texts=more, targets=np.zeros(len(more), np.int64))
    assert hold_out_dev(TRAIN, same, more, CONFIG.training)[1] is not None  # nothing is new
    labels = pseudo_label(Counted(), TRAIN, None, TEST, more, copies=0)
    chosen = labels.dev_set
    assert labels.excluded == len(set(more) & set(TEST.texts))
    assert labels.dev_from_teacher
    assert len(chosen) == (labels.unlabelled + len(chosen)) // 10
    assert set(chosen.texts) <= set(more)
    assert not set(chosen.texts) & set(labels.examples.texts)
    assert (chosen.targets == knows(chosen.texts).argmax(axis=1)).all()
    assert labels.dev.shape == (len(chosen), 2)
    assert labels.test.shape == (len(TEST), 2)
    assert not labels.student_config(CONFIG).training.calibrate
    artifact, _ = fit(labels.examples, chosen, labels.student_config(ONE_EPOCH), RunOptions("cpu"))
    record = compare(artifact, labels, TEST)
    assert "dev_accuracy" in artifact.metadata
    artifact = record.added_to(artifact)
    assert "split: dev" not in render_card("m", artifact)  # it is no accuracy
    table, remarks = compare_with_teacher(artifact)
    assert table[0] == ["", "test accuracy", "time per text", "size"]
    assert f"of {len(chosen):,} unlabelled texts, by which it was selected" in remarks[0]


def test_a_multi_label_dev_set_of_the_teacher_has_each_label_that_is_probable() -> None:
    indicators = np.eye(2, dtype=np.float32)[TRAIN.targets]
    train = replace(TRAIN, targets=indicators, multi_label=True)
    teacher = FunctionTeacher(lambda texts: np.tile([0.6, 0.2], (len(texts), 1)), CLASSES, True)
    labels = pseudo_label(teacher, train, None, unlabelled=UNLABELLED)
    assert (labels.dev_set.targets == [1, 0]).all()


@pytest.mark.parametrize(("unlabelled", "per_text"), [([], COPIES), (UNLABELLED, COPIES)])
def test_texts_are_augmented_until_a_student_has_enough(unlabelled, per_text) -> None:
    labels = pseudo_label(Counted(), TRAIN, DEV, unlabelled=unlabelled)
    texts = len(TRAIN) + labels.unlabelled
    assert 0.2 * per_text * texts < labels.augmented <= per_text * texts


def test_enough_unlabelled_text_is_not_augmented(monkeypatch) -> None:
    monkeypatch.setattr("dcnn.training.distillation.STUDENT_TEXTS", 2 * len(TRAIN))
    labels = pseudo_label(Counted(), TRAIN, DEV, unlabelled=UNLABELLED)
    assert labels.unlabelled
    assert labels.augmented == 0


def test_targets_of_labelled_texts_mix_the_label_and_the_teacher() -> None:
    labels = pseudo_label(Counted(), TRAIN, DEV, unlabelled=UNLABELLED, teacher_weight=0.25)
    hard = np.eye(2)[TRAIN.targets]
    targets, texts = labels.examples.targets, list(labels.examples.texts)
    np.testing.assert_allclose(
        targets[: len(TRAIN)], 0.25 * knows(texts[: len(TRAIN)]) + 0.75 * hard, atol=1e-6
    )
    np.testing.assert_allclose(targets[len(TRAIN) :], knows(texts[len(TRAIN) :]), atol=1e-6)


def test_weights_of_unlabelled_texts_are_the_mean() -> None:
    weights = np.linspace(0, 2, len(TRAIN)).astype(np.float32)
    train = replace(TRAIN, weights=weights)
    labels = pseudo_label(Counted(), train, DEV, unlabelled=UNLABELLED, copies=0)
    found = labels.examples.weights
    assert found is not None
    np.testing.assert_array_equal(found[: len(TRAIN)], weights)
    np.testing.assert_allclose(found[len(TRAIN) :], 1, rtol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 20])
@pytest.mark.parametrize("scale", [None, 1, 3])
def test_augmented_texts_weigh_as_much_as_those_they_are_made_of(count: int, scale) -> None:
    train = TRAIN
    if scale is not None:
        weights = np.linspace(0, 2 * scale, len(TRAIN)).astype(np.float32)
        train = replace(TRAIN, weights=weights)
    unlabelled = [f"{text} {number}" for number, text in enumerate(UNLABELLED[:count])]
    labels = pseudo_label(Counted(), train, DEV, unlabelled=unlabelled, copies=5)
    n_real = len(TRAIN) + labels.unlabelled
    assert labels.unlabelled == count
    assert labels.augmented > n_real
    found = labels.examples.weights
    assert found is not None
    own = np.ones(len(TRAIN)) if train.weights is None else train.weights
    np.testing.assert_array_equal(found[: len(TRAIN)], own)
    np.testing.assert_allclose(found[len(TRAIN) : n_real], own.mean(), rtol=1e-6)
    assert found[n_real:].sum() == pytest.approx(found[:n_real].sum(), rel=1e-5)
    assert np.ptp(found[n_real:]) == 0


def test_few_augmented_texts_weigh_as_all_others() -> None:
    few = TRAIN.select(np.arange(0, 60, 20))
    labels = pseudo_label(Counted(), few, DEV, copies=1)
    assert 0 < labels.augmented <= 3
    assert labels.examples.weights is None
    weighted = pseudo_label(Counted(), replace(few, weights=np.full(3, 2.0)), DEV, copies=1)
    np.testing.assert_array_equal(weighted.examples.weights, np.full(3 + labels.augmented, 2.0))


def test_texts_of_dev_and_test_are_not_learned() -> None:
    teacher = Counted()
    unlabelled = [*UNLABELLED, *(text.upper() + " " for text in [*DEV.texts, *TEST.texts])]
    _, record = distill(unlabelled, teacher, ONE_EPOCH, copies=5)
    held_out = {text.upper() + " " for text in [*DEV.texts, *TEST.texts]}
    assert not held_out & set(teacher.asked)
    distinct = set(UNLABELLED) - set(DEV.texts) - set(TEST.texts) - set(TRAIN.texts)
    assert record.unlabelled == len(distinct)
    assert record.augmented > 0
    in_dev_or_test = {text.lower() for text in [*DEV.texts, *TEST.texts]}
    assert record.excluded >= len(held_out) + len(in_dev_or_test & set(UNLABELLED))


def test_what_is_left_out_and_what_is_to_label_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    new = [f"{text} {number}" for number, text in enumerate(UNLABELLED[:50])]
    known = len(set(TRAIN.texts) | set(DEV.texts))
    first, made = [*new[:30], *DEV.texts], {"copies": 0, "cache": tmp_path}
    labels = pseudo_label(Counted(), TRAIN, DEV, unlabelled=first, **made)
    assert labels.excluded == len(set(DEV.texts))
    assert f"{labels.excluded} texts occur in dev or test and are left out" in caplog.text
    assert f"{known + 30} texts for the teacher: 0 labelled before, {known + 30} to" in caplog.text
    pseudo_label(Counted(), TRAIN, DEV, unlabelled=new, **made)
    assert f"{known + 50} texts for the teacher: {known + 30} labelled before, 20" in caplog.text


def test_without_unlabelled_text_some_is_made() -> None:
    _, record = distill([], Counted(), ONE_EPOCH, (TRAIN, DEV))
    assert record.unlabelled == 0
    assert record.augmented > len(TRAIN)
    assert record.test is None


def test_no_text_is_made_for_a_teacher_that_costs_money() -> None:
    teacher = Counted()
    teacher.paid = True
    assert pseudo_label(teacher, TRAIN, DEV).augmented == 0
    assert pseudo_label(teacher, TRAIN, DEV, copies=2).augmented > 0
    assert CommandTeacher("cat", CLASSES).paid


def test_multi_label_texts() -> None:
    def parts(data: LabelledTexts) -> LabelledTexts:
        indicators = knows(list(data.texts)).round().astype(np.float32)
        indicators[::3] = 1
        return replace(data, targets=indicators, multi_label=True)

    teacher = FunctionTeacher(lambda texts: np.full((len(texts), 2), 0.7), CLASSES, True)
    artifact, record = distill(UNLABELLED, teacher, ONE_EPOCH, (parts(TRAIN), parts(DEV)))
    assert artifact.thresholds is not None
    assert 0 <= record.dev.student <= 1


@given(st.lists(st.lists(st.text(st.characters(), max_size=5), max_size=8), max_size=4))
@example([["\ud800", "half of \udfff a pair"]])
def test_answers_are_found_by_text(tmp_path_factory: object, blocks: list[list[str]]) -> None:
    def value(text: str) -> np.ndarray:
        seed = list(text.encode("utf-8", "surrogatepass"))
        return np.random.default_rng(seed).random(2, np.float32)

    cache = LabelCache(None, 2)
    for block in blocks:
        if block:
            cache.add(block, np.stack([value(text) for text in block]), 1.0)
    texts = [text for block in blocks for text in block]
    found, missing = cache.find([*texts, "never asked"])
    assert missing.tolist() == [len(texts)]
    if texts:
        np.testing.assert_array_equal(found[:-1], np.stack([value(text) for text in texts]))


def many_files(folder: Path) -> list[str]:
    """Labels as a slow command leaves them, and their texts; some by another machine."""
    texts = [f"text {number} good" for number in range(100)]
    cache = LabelCache(folder, 2)
    for number in range(0, 100, 2):
        block = texts[number : number + 2]
        cache.add(block, knows(block), 0.5, "gpu" if number < 10 else "cpu")
    return texts


def test_many_small_files_are_merged(tmp_path: Path) -> None:
    texts = many_files(tmp_path)
    for files in (50, 6, 6):  # five of the other device, which are few
        assert len(list(tmp_path.glob("*.npz"))) == files
        cache = LabelCache(tmp_path, 2)
        np.testing.assert_allclose(cache.find(texts)[0], knows(texts), atol=1e-6)
        assert cache.time_per_text() == (0.25, "cpu")


def test_no_label_is_lost_if_merging_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = many_files(tmp_path)
    removed = 0
    unlink = Path.unlink

    def killed(path: Path, missing_ok: bool = False) -> None:
        nonlocal removed
        removed += path.suffix == ".npz"
        if removed > 10:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            LabelCache(tmp_path, 2)
    assert len(list(tmp_path.glob("*.npz"))) == 50 - 10 + 1
    cache = LabelCache(tmp_path, 2)
    found, missing = cache.find(texts)
    assert not len(missing)
    np.testing.assert_allclose(found, knows(texts), atol=1e-6)
    assert cache.time_per_text() == (0.25, "cpu")


def test_files_that_another_process_merges_meanwhile_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = many_files(tmp_path)
    load, calls = np.load, 0

    def merged_meanwhile(stream: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            LabelCache(tmp_path, 2)
        return load(stream)

    monkeypatch.setattr(np, "load", merged_meanwhile)
    assert not len(LabelCache(tmp_path, 2).find(texts)[1])


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "damaged.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DcnnError, match=r"damaged.npz is damaged .*; remove it, and the teacher"):
        LabelCache(tmp_path, 2)


def test_a_second_student_asks_nothing(tmp_path: Path) -> None:
    first, second = Counted(), Counted()
    pseudo_label(first, TRAIN, DEV, TEST, UNLABELLED, cache=tmp_path)
    assert len(first.asked) > len(UNLABELLED) / 2
    pseudo_label(second, TRAIN, DEV, TEST, UNLABELLED, cache=tmp_path)
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
        label(FunctionTeacher(dies, CLASSES), texts, LabelCache(tmp_path, 2))
    again = Counted()
    found = label(again, texts, LabelCache(tmp_path, 2))
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
    pseudo_label(Ordered(), TRAIN, DEV, cache=tmp_path)
    labels = pseudo_label(other, *reverse, cache=tmp_path)
    assert (labels.dev.argmax(axis=1) == reverse[1].targets).all()


def test_the_time_per_text_leaves_out_the_training_of_the_teacher() -> None:
    class Trained(Counted):
        device_name = "abacus"

        def prepare(self, *_: object) -> None:
            time.sleep(0.3)

    cache = LabelCache(None, 2)
    label(Trained(), UNLABELLED, cache)
    seconds, device = cache.time_per_text()
    assert seconds is not None
    assert seconds * len(set(UNLABELLED)) < 0.3
    assert device == "abacus"


def test_the_time_of_the_student_leaves_out_its_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = pseudo_label(Counted(), TRAIN, DEV, copies=0)
    artifact, _ = fit(labels.examples, DEV, ONE_EPOCH, RunOptions("cpu"))
    probabilities, calls = Predictor.probabilities, 0

    def slow_at_first(self: Predictor, texts: list[str]) -> np.ndarray:
        nonlocal calls
        calls += 1
        time.sleep(1.0 if calls == 1 else 0)
        return probabilities(self, texts)

    monkeypatch.setattr(Predictor, "probabilities", slow_at_first)
    record = compare(artifact, labels)
    assert record.student_seconds_per_text * len(labels.examples) < 1.0


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = [word for text in [*TRAIN.texts, *UNLABELLED] for word in text.split()]
    return save_encoder(tmp_path_factory.mktemp("encoder"), words)


def taught(
    encoder: Path, cache: Path, unlabelled: Sequence[str], count: int = 1, **options: object
) -> tuple[TeacherLabels, set[str]]:
    """What encoders, fine-tuned for two steps, give; and the stages that this took."""
    stages: set[str] = set()
    teacher = choose_teacher(
        [str(encoder)] * count, TRAIN, DEV, mode="finetune",
        report=lambda stage, *_: stages.add(stage), **options,
    )  # fmt: skip
    return pseudo_label(teacher, TRAIN, DEV, unlabelled=unlabelled, cache=cache), stages


@pytest.mark.parametrize("count", [1, 2])
def test_later_texts_are_labelled_by_the_same_network(
    encoder: Path, tmp_path: Path, count: int
) -> None:
    both, _ = taught(encoder, tmp_path / "at once", UNLABELLED, count)
    half, stages = taught(encoder, tmp_path / "cache", UNLABELLED[:100], count)
    assert stages == {"fine-tune"}
    assert half.networks is not None
    assert len(list(half.networks.rglob("model.safetensors"))) == count
    rest, stages = taught(encoder, tmp_path / "cache", UNLABELLED, count)
    assert not stages
    np.testing.assert_allclose(rest.examples.targets, both.examples.targets, atol=1e-5)


def test_labels_of_two_networks_are_never_mixed(encoder: Path, tmp_path: Path) -> None:
    first, _ = taught(encoder, tmp_path, UNLABELLED[:100])
    assert first.networks is not None
    shutil.rmtree(first.networks)
    again, stages = taught(encoder, tmp_path, UNLABELLED[:100])
    assert not stages  # all labels are there
    assert again.networks is None
    files = set(first.networks.parent.glob("*.npz"))
    for file in files:  # of another network
        with np.load(file) as block:
            values = dict(block)
        np.savez(file, **values | {"values": np.full_like(values["values"], 0.5)})
    more, stages = taught(encoder, tmp_path, UNLABELLED)
    assert stages == {"fine-tune"}
    assert not (more.dev == 0.5).any()


def test_of_two_processes_that_train_one_teacher_the_first_labels(
    encoder: Path, tmp_path: Path
) -> None:
    networks = tmp_path / "networks"

    def meanwhile(*_: object) -> None:
        if networks.exists():
            return
        choose_teacher([str(encoder)], TRAIN, DEV, mode="finetune").prepare(networks)
        head = load_file(networks / "head.safetensors")
        save_file({name: 0 * value for name, value in head.items()}, networks / "head.safetensors")

    teacher = choose_teacher([str(encoder)], TRAIN, DEV, mode="finetune", report=meanwhile)
    teacher.prepare(networks, pytest.fail)
    (found,) = teacher.stream(DEV.texts)
    np.testing.assert_array_equal(found, 0.5)


def test_a_teacher_is_saved_even_if_every_text_is_labelled(encoder: Path, tmp_path: Path) -> None:
    labels, _ = taught(encoder, tmp_path / "cache", UNLABELLED)
    _, stages = taught(encoder, tmp_path / "cache", UNLABELLED, folder=tmp_path / "saved")
    assert not stages  # the network that gave the labels
    saved = choose_teacher([str(tmp_path / "saved")], TRAIN, DEV)
    (found,) = saved.stream(DEV.texts)
    np.testing.assert_allclose(found, labels.dev, atol=1e-5)


def test_a_frozen_encoder_is_not_copied_into_the_cache(encoder: Path, tmp_path: Path) -> None:
    teacher = choose_teacher([str(encoder)], TRAIN, DEV, mode="frozen")
    labels = pseudo_label(teacher, TRAIN, DEV, copies=0, cache=tmp_path)
    assert labels.networks is not None
    assert {file.name for file in labels.networks.iterdir()} == {"head.safetensors", "teacher.json"}
    again = choose_teacher([str(encoder)], TRAIN, DEV, mode="frozen", report=pytest.fail)
    pseudo_label(again, TRAIN, DEV, unlabelled=UNLABELLED, cache=tmp_path)


def student_of(labels: TeacherLabels) -> Artifact:
    return fit(labels.examples, labels.dev_set, ONE_EPOCH, RunOptions("cpu"))[0]


def test_teacher_and_student_are_timed_with_one_text_at_a_time_on_one_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[str, int, int]] = []

    def watched(texts: list[str]) -> np.ndarray:
        calls.append(("teacher", len(texts), torch.get_num_threads()))
        return knows(texts)

    def probabilities(self: Predictor, texts: list[str]) -> np.ndarray:
        calls.append(("student", len(texts), torch.get_num_threads()))
        return original(self, texts)

    labels = pseudo_label(FunctionTeacher(watched, CLASSES), TRAIN, DEV, copies=0)
    artifact = student_of(labels)
    original = Predictor.probabilities
    monkeypatch.setattr(Predictor, "probabilities", probabilities)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    calls.clear()
    try:
        record = compare(artifact, labels)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"
    timed = [call for call in calls if call[2] == 1]
    assert set(timed) == {("teacher", 1, 1), ("student", 1, 1)}
    assert {call[0] for call in calls if call[2] != 1} == {"student"}  # on dev
    assert record.teacher_device == "cpu"
    assert record.teacher_seconds_per_text > 0
    assert not record.teacher_timed_while_labelling
    remarks = compare_with_teacher(record.added_to(artifact))[1]
    assert remarks[-1] == "The time is that of one text at a time on one CPU core."


def test_slow_teachers_are_timed_with_a_few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcnn.training.distillation.TIMED_SECONDS", 0.05)
    labels = pseudo_label(Counted(), TRAIN, DEV, copies=0)
    asked: list[str] = []

    def slow(texts: list[str]) -> np.ndarray:
        time.sleep(0.02)
        asked.extend(texts)
        return knows(texts)

    record = compare(student_of(labels), replace(labels, teacher=FunctionTeacher(slow, CLASSES)))
    assert 0.02 <= record.teacher_seconds_per_text < 0.05
    assert len(asked) <= 4


def test_a_teacher_that_costs_money_is_not_asked_to_be_timed() -> None:
    teacher = Counted()
    teacher.paid, teacher.device_name = True, "abacus"
    labels = pseudo_label(teacher, TRAIN, DEV, copies=0)
    teacher.asked.clear()
    record = compare(student_of(labels), labels)
    assert not teacher.asked
    assert record.teacher_timed_while_labelling
    assert record.teacher_seconds_per_text == labels.seconds_per_text
    assert record.teacher_device == "abacus"


def test_a_teacher_that_fails_when_it_is_timed_costs_no_student(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def tired(texts: list[str]) -> np.ndarray:
        raise RuntimeError("no more calls today")

    labels = pseudo_label(Counted(), TRAIN, DEV, copies=0)
    record = compare(student_of(labels), replace(labels, teacher=FunctionTeacher(tired, CLASSES)))
    assert record.teacher_seconds_per_text is None
    assert "the teacher could not be timed: no more calls today" in caplog.text


@pytest.mark.parametrize("count", [1, 2])
def test_an_encoder_is_timed_without_being_trained(
    encoder: Path, tmp_path: Path, count: int
) -> None:
    taught(encoder, tmp_path / "cache", UNLABELLED, count)
    labels, stages = taught(encoder, tmp_path / "cache", UNLABELLED, count)
    record = compare(student_of(labels), labels)
    assert record.teacher_seconds_per_text is not None
    assert not stages
    assert record.teacher_bytes == labels.teacher.bytes


def test_unlabelled_texts_that_have_a_label_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    train = replace(TRAIN, texts=[f"{text} {number}" for number, text in enumerate(TRAIN.texts)])
    train.texts[0] = DEV.texts[0]  # counted once
    more = [f"new text {number}" for number in range(20)]
    again = [text.upper() for text in train.texts]
    labels = pseudo_label(Counted(), train, DEV, None, [*more, *again], copies=0)
    assert (labels.unlabelled, labels.repeated, labels.excluded) == (20, len(train) - 1, 1)
    assert f"{labels.repeated} unlabelled texts occur among the labelled ones" in caplog.text
    artifact = student_of(labels)
    remarks = compare_with_teacher(compare(artifact, labels).added_to(artifact))[1]
    assert f"in dev or test and {labels.repeated} that occur in the labelled texts" in remarks[1]


def test_the_time_of_labelling_grows_in_proportion_to_the_texts() -> None:
    def seconds(count: int) -> float:
        own, others = ([f"{name} {i}" for i in range(count)] for name in ("a", "b"))
        train = LabelledTexts(own, np.arange(count) % 2, CLASSES)
        started = time.process_time()
        pseudo_label(Counted(), train, DEV, None, others, copies=0)
        return time.process_time() - started

    seconds(2_000)
    assert seconds(32_000) < 40 * seconds(2_000)  # in proportion 16 times, quadratic 256 times


def test_a_cache_that_cannot_be_made_is_done_without(
    encoder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    labels, stages = taught(encoder, tmp_path / "file" / "cache", UNLABELLED)
    assert stages == {"fine-tune"}
    assert labels.networks is None
    assert np.isfinite(labels.examples.targets).all()
    warned = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert "the teacher's labels are not kept for later runs" in warned[0].message
    assert len([one for one in warned if "labels are not kept" in one.message]) == 1


def test_a_cache_that_cannot_be_written_is_warned_of_once_and_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dcnn.training.teachers.TEXTS_PER_BLOCK", 20)
    texts = list(dict.fromkeys(UNLABELLED))
    label(Counted(), texts[:40], LabelCache(tmp_path / "cache", 2))
    files = sorted((tmp_path / "cache").iterdir())
    monkeypatch.setattr("dcnn.training.distillation.write_atomically", read_only)
    teacher = Counted()
    found = label(teacher, texts, LabelCache(tmp_path / "cache", 2))
    assert teacher.asked == texts[40:]
    np.testing.assert_allclose(found, knows(texts), atol=1e-6)
    assert [one.message for one in caplog.records if one.levelno >= logging.WARNING] == [
        "the teacher's labels are not kept for later runs: a read-only disk"
    ]
    assert sorted((tmp_path / "cache").iterdir()) == files


def test_a_lock_that_cannot_be_made_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = LabelCache(tmp_path, 2)
    (tmp_path / "lock").mkdir()
    np.testing.assert_allclose(label(Counted(), TRAIN.texts, cache), knows(TRAIN.texts), atol=1e-6)
    assert "the teacher's labels are not kept for later runs" in caplog.text


def test_labels_of_another_network_that_cannot_be_removed_are_not_added_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = LabelCache(tmp_path, 2)
    cache.add(["good"], knows(["good"]), 1.0)
    files = sorted(tmp_path.iterdir())

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        cache.clear()
    assert f"{tmp_path} cannot be cleared (Permission denied)" in caplog.text
    cache.add(["bad"], knows(["bad"]), 1.0)
    assert cache.find(["good", "bad"])[1].tolist() == [0]
    assert sorted(tmp_path.iterdir()) == files


def read_only(*_: object, **__: object) -> None:
    raise StorageError("a read-only disk")


def test_of_two_commands_with_one_teacher_the_second_waits_for_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dcnn")
    asking, waiting = threading.Event(), threading.Event()

    class Slow(Counted):
        def stream(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
            asking.set()
            assert waiting.wait(30)
            return super().stream(texts)

    class Waits(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "another command asks the same teacher" in record.getMessage():
                waiting.set()

    handler = Waits()
    logging.getLogger("dcnn").addHandler(handler)
    first, second = Slow(), Counted()
    texts = list(dict.fromkeys(UNLABELLED))
    thread = threading.Thread(target=label, args=(first, texts, LabelCache(tmp_path, 2)))
    try:
        empty = LabelCache(tmp_path, 2)  # before the first has labelled anything
        thread.start()
        assert asking.wait(30)
        found = label(second, texts, empty)
    finally:
        waiting.set()
        thread.join(30)
        logging.getLogger("dcnn").removeHandler(handler)
    assert first.asked == texts
    assert not second.asked
    np.testing.assert_allclose(found, knows(texts), atol=1e-6)
    assert f"{len(texts)} texts for the teacher: {len(texts)} labelled before" in caplog.text
