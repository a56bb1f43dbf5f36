"""Teachers: encoders, functions, commands and models, and the errors they give."""

import json
import logging
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline

from dcnn.data.labels import LabelledTexts
from dcnn.errors import DataError, DcnnError, UserError
from dcnn.training.encoders import EncoderTeacher, FineTuning, choose_teacher, encoder_name
from dcnn.training.logistic import fit_logistic
from dcnn.training.teachers import (
    CommandTeacher,
    FunctionTeacher,
    MeanTeacher,
    Teacher,
    columns_of,
)
from tiny_encoder import save_encoder

CLASSES = ("neg", "pos")
TEXTS = ["a good film", "a bad film", "very good", "so bad", "good plot", "bad plot"] * 4
TARGETS = np.array([1, 0] * 12)
TRAIN = LabelledTexts(TEXTS, TARGETS, CLASSES)


def ask(teacher: Teacher, texts: list[str]) -> np.ndarray:
    return np.concatenate(list(teacher.stream(texts)))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of random weights, saved as the hub has them."""
    words = [word for text in TEXTS for word in text.split()]
    return save_encoder(tmp_path_factory.mktemp("encoder"), words)


@pytest.mark.parametrize("mode", ["finetune", "frozen"])
def test_an_encoder_learns_the_labels(encoder: Path, mode: str) -> None:
    settings = FineTuning(learning_rate=1e-2, epochs=10)
    teacher = EncoderTeacher(str(encoder), TRAIN, TRAIN, mode=mode, settings=settings)
    found = ask(teacher, TEXTS)
    assert found.shape == (24, 2)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    assert (found.argmax(axis=1) == TARGETS).all()


def unit_vectors(teacher: EncoderTeacher) -> np.ndarray:
    vectors = teacher.embed(TEXTS).astype(float)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_frozen_encoder_gives_the_probabilities_of_logistic_regression(
    encoder: Path, classes: int, weighted: bool
) -> None:
    targets = np.arange(len(TEXTS)) % classes
    weights = np.linspace(0.2, 1.8, len(TEXTS)).astype(np.float32) if weighted else None
    train = LabelledTexts(TEXTS, targets, ("a", "b", "c")[:classes], weights)
    teacher = EncoderTeacher(str(encoder), train, None, mode="frozen")
    vectors = unit_vectors(teacher)
    expected = LogisticRegression(C=10.0, max_iter=2000, tol=1e-9).fit(vectors, targets, weights)
    np.testing.assert_allclose(ask(teacher, TEXTS), expected.predict_proba(vectors), atol=2e-4)


def test_a_frozen_encoder_learns_probabilities(encoder: Path) -> None:
    targets = np.random.default_rng(0).dirichlet([1, 1, 0.2], len(TEXTS)).astype(np.float32)
    targets[:, 2] = np.minimum(targets[:, 2], 0.2)  # a class that is never the most probable
    targets /= targets.sum(axis=1, keepdims=True)
    train = LabelledTexts(TEXTS, targets, ("a", "b", "c"))
    teacher = EncoderTeacher(str(encoder), train, None, mode="frozen")
    vectors, classes = unit_vectors(teacher), np.tile(np.arange(3), len(TEXTS))
    expected = LogisticRegression(C=10.0, max_iter=2000, tol=1e-9).fit(
        np.repeat(vectors, 3, axis=0), classes, targets.reshape(-1)
    )
    found = ask(teacher, TEXTS)
    np.testing.assert_allclose(found, expected.predict_proba(vectors), atol=2e-4)
    np.testing.assert_allclose(found.mean(axis=0), targets.mean(axis=0), atol=1e-4)


def test_a_frozen_encoder_learns_probabilities_of_each_label(encoder: Path) -> None:
    targets = np.random.default_rng(0).random((len(TEXTS), 2)).astype(np.float32)
    train = LabelledTexts(TEXTS, targets, CLASSES, multi_label=True)
    teacher = EncoderTeacher(str(encoder), train, None, mode="frozen")
    vectors, found = unit_vectors(teacher), ask(teacher, TEXTS)
    for column in range(2):
        own = targets[:, column]
        expected = LogisticRegression(C=10.0, max_iter=2000, tol=1e-9).fit(
            np.concatenate([vectors, vectors]), np.repeat([1, 0], len(TEXTS)), [*own, *(1 - own)]
        )
        np.testing.assert_allclose(
            found[:, column], expected.predict_proba(vectors)[:, 1], atol=2e-4
        )


def test_a_class_without_an_example_is_improbable_and_changes_nothing(encoder: Path) -> None:
    targets = np.arange(len(TEXTS)) % 3
    three = LabelledTexts(TEXTS, targets, ("a", "b", "c"))
    four = LabelledTexts(TEXTS, targets + (targets > 0), ("a", "b", "c", "d"))
    dev = LabelledTexts(TEXTS[:2], np.array([1, 3]), four.classes)
    expected = ask(EncoderTeacher(str(encoder), three, None, mode="frozen"), TEXTS)
    found = ask(EncoderTeacher(str(encoder), four, None, mode="frozen"), TEXTS)
    assert (found[:, 1] < 0.1).all()
    rest = found[:, [0, 2, 3]]
    np.testing.assert_allclose(rest / rest.sum(axis=1, keepdims=True), expected, atol=2e-4)
    assert np.isfinite(ask(EncoderTeacher(str(encoder), four, dev, mode="frozen"), TEXTS)).all()


def test_a_label_that_no_text_or_every_text_has_gets_its_frequency(encoder: Path) -> None:
    targets = np.zeros((len(TEXTS), 3), np.float32)
    targets[:, 1], targets[:, 2] = 1, TARGETS
    train = LabelledTexts(TEXTS, targets, ("never", "always", "pos"), multi_label=True)
    found = ask(EncoderTeacher(str(encoder), train, train, mode="frozen"), TEXTS)
    np.testing.assert_allclose(found[:, 0], 0.02, atol=1e-4)  # half a text of 25
    np.testing.assert_allclose(found[:, 1], 0.98, atol=1e-4)
    assert ((found[:, 2] > 0.5) == TARGETS).all()


def test_logistic_regression_of_one_class_alone_is_certain() -> None:
    x, targets = torch.randn(8, 3), torch.eye(3)[[1] * 8]
    ((weight, bias),) = fit_logistic(x, targets, None, [1.0], multi_label=False)
    assert (weight == 0).all()
    assert bias.argmax() == 1


@pytest.mark.parametrize("mode", ["finetune", "frozen"])
def test_texts_of_weight_zero_are_not_learned(encoder: Path, mode: str) -> None:
    weights = np.repeat([1, 0], len(TEXTS)).astype(np.float32)
    wrong = LabelledTexts(TEXTS * 2, np.concatenate([TARGETS, 1 - TARGETS]), CLASSES, weights)
    settings = FineTuning(learning_rate=1e-2, epochs=10)
    teacher = EncoderTeacher(str(encoder), wrong, None, mode=mode, settings=settings)
    assert (ask(teacher, TEXTS).argmax(axis=1) == TARGETS).all()
    same = replace(wrong, weights=None)
    other = EncoderTeacher(str(encoder), same, None, mode=mode, settings=settings)
    assert teacher.key != other.key


@pytest.mark.parametrize("mode", ["finetune", "frozen"])
def test_an_encoder_learns_multi_label_texts(encoder: Path, mode: str) -> None:
    indicators = np.stack([TARGETS, [text.startswith("a ") for text in TEXTS]], axis=1)
    train = LabelledTexts(TEXTS, indicators.astype(np.float32), CLASSES, multi_label=True)
    settings = FineTuning(learning_rate=1e-2, epochs=20)
    found = ask(EncoderTeacher(str(encoder), train, train, mode=mode, settings=settings), TEXTS)
    assert ((found > 0.5) == indicators).mean() > 0.9


def test_an_encoder_labels_empty_texts_and_lone_surrogates(encoder: Path) -> None:
    found = ask(EncoderTeacher(str(encoder), TRAIN, None, mode="frozen"), ["", "\ud800 good"])
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    alone = ask(EncoderTeacher(str(encoder), TRAIN, None, mode="frozen"), [""])
    np.testing.assert_allclose(alone, found[:1], atol=1e-5)


def test_padding_and_batch_mates_do_not_change_a_sentence_vector(encoder: Path) -> None:
    teacher = EncoderTeacher(str(encoder), TRAIN, None)
    alone = np.concatenate([teacher.embed([text]) for text in TEXTS[:6]])
    np.testing.assert_allclose(teacher.embed(TEXTS[:6]), alone, atol=1e-5)
    assert teacher.embed([]).shape == (0, alone.shape[1])


def saved_teacher(encoder: Path, folder: Path, mode: str = "finetune") -> EncoderTeacher:
    teacher = EncoderTeacher(str(encoder), TRAIN, TRAIN, mode=mode, folder=folder)
    teacher.prepare()
    return teacher


def test_a_saved_teacher_is_loaded_and_not_trained_again(encoder: Path, tmp_path: Path) -> None:
    stages: list[str] = []

    def teacher() -> EncoderTeacher:
        return EncoderTeacher(
            str(encoder), TRAIN, TRAIN, mode="finetune", folder=tmp_path / "teacher",
            report=lambda stage, *_: stages.append(stage),
        )  # fmt: skip

    def label() -> np.ndarray:
        one = teacher()
        one.prepare()
        return ask(one, TEXTS)

    first = label()
    assert "fine-tune" in stages
    stages.clear()
    np.testing.assert_allclose(label(), first, atol=1e-6)
    assert not stages


@pytest.mark.parametrize("mode", ["finetune", "frozen"])
def test_the_folder_of_a_saved_teacher_is_that_teacher(
    encoder: Path, tmp_path: Path, mode: str
) -> None:
    first = saved_teacher(encoder, tmp_path / "saved", mode)
    other = LabelledTexts(["another text", "and one more"], np.array([0, 1]), CLASSES[::-1])
    again = EncoderTeacher(str(tmp_path / "saved"), other, None, report=pytest.fail)
    again.prepare()
    np.testing.assert_allclose(ask(again, TEXTS)[:, ::-1], ask(first, TEXTS), atol=1e-6)
    assert again.name == first.name
    assert ("fine-tuned" if mode == "finetune" else "frozen") in again.name


def test_a_saved_teacher_of_other_labels_is_refused(encoder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    saved_teacher(encoder, folder, "frozen")
    other = LabelledTexts(TEXTS, TARGETS, ("bad", "good"))
    with pytest.raises(UserError, match="only the teacher has 'neg', 'pos', and only the tr"):
        EncoderTeacher(str(folder), other, None)
    several = replace(TRAIN, targets=np.eye(2)[TARGETS], multi_label=True)
    with pytest.raises(UserError, match="is single-label, and the training data is multi-label"):
        EncoderTeacher(str(folder), several, None)
    with pytest.raises(UserError, match="is a trained one already; copy its folder"):
        EncoderTeacher(str(folder), TRAIN, None, folder=tmp_path / "copy")


def test_a_teacher_is_not_saved_over_other_files(encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "thesis.txt", encoder):
        before = sorted(encoder.iterdir())
        with pytest.raises(UserError, match="does not hold this teacher, so it is left alone"):
            EncoderTeacher(str(encoder), TRAIN, None, folder=folder)
        assert sorted(encoder.iterdir()) == before


def test_encoders_of_the_same_name_are_saved_apart(encoder: Path, tmp_path: Path) -> None:
    teacher = choose_teacher([str(encoder)] * 2, TRAIN, None, folder=tmp_path / "saved")
    assert teacher.unsaved
    teacher.prepare()
    assert not teacher.unsaved
    assert len(list((tmp_path / "saved").glob("*/head.safetensors"))) == 2


def test_the_key_follows_from_weights_data_and_settings(encoder: Path) -> None:
    def key(train: LabelledTexts = TRAIN, **options: object) -> str:
        return EncoderTeacher(str(encoder), train, None, **options).key

    assert key() == key()
    others = [
        key(LabelledTexts(TEXTS, 1 - TARGETS, CLASSES)),
        key(mode="finetune"),
        key(settings=FineTuning(seed=1)),
    ]
    assert len({key(), *others}) == 4


def test_an_encoder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the teacher .*nowhere.* is neither a folder"):
        EncoderTeacher(str(tmp_path / "nowhere"), TRAIN, None)


def test_a_folder_without_an_encoder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is a folder without config.json, so it holds neither"):
        EncoderTeacher(str(tmp_path), TRAIN, None)


def test_a_download_is_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    caplog.set_level(logging.INFO, "dcnn")
    with pytest.raises(UserError, match="can be loaded from the teacher some-one/no-encoder"):
        EncoderTeacher("some-one/no-encoder", TRAIN, None)
    assert "downloading some-one/no-encoder from the Hugging Face Hub" in caplog.text


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"needs the extra 'distill'"):
        EncoderTeacher("any/encoder", TRAIN, None)


class Classifier:
    classes_ = ("pos", "neg")

    def predict_proba(self, texts: list[str]) -> list[list[float]]:
        return [[0.9, 0.1] if "good" in text else [0.2, 0.8] for text in texts]


def test_the_columns_of_a_classifier_follow_its_classes() -> None:
    found = ask(FunctionTeacher(Classifier(), CLASSES), ["good", "bad"])
    np.testing.assert_allclose(found, [[0.1, 0.9], [0.8, 0.2]])


def test_a_classifier_with_other_labels_is_refused() -> None:
    message = "only the teacher has 'pos', 'neg', and only the training data has 'bad', 'good'"
    with pytest.raises(UserError, match=message):
        FunctionTeacher(Classifier(), ("bad", "good"))


def test_of_many_labels_those_that_differ_are_named() -> None:
    classes = [f"label {number}" for number in range(77)]
    with pytest.raises(UserError) as caught:
        columns_of("t", [*classes[1:], "other"], classes)
    difference = "only the teacher has 'other', and only the training data has 'label 0'"
    assert str(caught.value) == (
        f"the teacher t and the training data must have the same labels; {difference}"
    )
    with pytest.raises(DataError) as caught:
        ask(FunctionTeacher(lambda texts: np.full((len(texts), 77), 0.02), classes), ["a text"])
    assert str(caught.value) == (
        "the teacher <lambda>, text 0: the probabilities [0.02, 0.02, 0.02, 0.02, 0.02, 0.02, ...]"
        " sum to 1.54; those of one label per text must sum to 1"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[0.5, 0.2]], r"text 0: the probabilities \[0.5, 0.2\] sum to 0.7"),
        ([[1.5, -0.5]], "text 0: probabilities must be from 0 to 1"),
        ([[float("nan"), 1]], "text 0: probabilities must be from 0 to 1"),
        ([[1.0]], r"shape \(1, 1\); it must give each text one probability for each of the 2"),
        ([[0, 1], [1, 0]], "labelled 2 of 1 texts"),
        (None, "text 0: the teacher gave None; it must give each text one probability"),
        (["pos"], r"text 0: the teacher gave \['pos'\]; it must give each text"),
        ([[0.5, 0.5], [1.0]], r"the teacher gave \[\[0.5, 0.5\], \[1.0\]\]; it must"),
    ],
)
def test_answers_that_are_no_probabilities_are_refused(values: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ask(FunctionTeacher(lambda _: values, CLASSES), ["a text"])


def test_a_multi_label_classifier_of_positions_teaches_the_labels_in_their_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    indicators = np.stack([TARGETS, [text.startswith("a ") for text in TEXTS], TARGETS], axis=1)
    model = make_pipeline(CountVectorizer(), OneVsRestClassifier(LogisticRegression()))
    model.fit(TEXTS, indicators)
    assert list(model.classes_) == [0, 1, 2]
    found = ask(FunctionTeacher(model, ("x", "y", "z"), multi_label=True), TEXTS)
    np.testing.assert_allclose(found, model.predict_proba(TEXTS), atol=1e-6)
    assert "does not name its labels; its columns are taken to be x, y, z, in this" in caplog.text
    caplog.clear()
    FunctionTeacher(model, (0, 1, 2), multi_label=True)
    FunctionTeacher(Classifier(), CLASSES, multi_label=True)
    FunctionTeacher(Classifier().predict_proba, CLASSES)
    assert not caplog.text
    with pytest.raises(
        UserError, match="has '0', '1', '2', and only the training data has 'x', 'y'"
    ):
        FunctionTeacher(model, ("x", "y"), multi_label=True)


def test_a_multi_label_classifier_is_matched_by_the_names_of_its_labels() -> None:
    found = ask(FunctionTeacher(Classifier(), CLASSES, multi_label=True), ["good", "bad"])
    np.testing.assert_allclose(found, [[0.1, 0.9], [0.8, 0.2]])


def test_a_classifier_with_an_output_per_label_teaches(caplog: pytest.LogCaptureFixture) -> None:
    indicators = np.stack([TARGETS, [text.startswith("a ") for text in TEXTS], TARGETS], axis=1)
    model = make_pipeline(CountVectorizer(), MultiOutputClassifier(LogisticRegression()))
    model.fit(TEXTS, indicators)
    found = ask(FunctionTeacher(model, ("x", "y", "z"), multi_label=True), TEXTS)
    expected = np.stack([part[:, 1] for part in model.predict_proba(TEXTS)], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert "taken to be x, y, z" in caplog.text
    constant = Outputs()
    np.testing.assert_array_equal(
        ask(FunctionTeacher(constant, ("x", "y"), multi_label=True), ["a"]), [[0, 0.25]]
    )


class Outputs:
    classes_ = (np.array([0]), np.array([1, 0]))  # a label that no text has, and another order

    def predict_proba(self, texts: list[str]) -> list[np.ndarray]:
        return [np.ones((len(texts), 1)), np.tile([0.25, 0.75], (len(texts), 1))]


def command(tmp_path: Path, body: str) -> CommandTeacher:
    script = tmp_path / "teacher.py"
    script.write_text(f"import json, sys\nfor number, line in enumerate(sys.stdin):\n    {body}\n")
    return CommandTeacher(f"{sys.executable} {script}", CLASSES)


ANSWER = (
    "good = 'good' in json.loads(line)['text']; "
    "print(json.dumps({'pos': 1.0 * good, 'neg': 1.0 - good}))"
)


def test_a_command_answers_json_lines(tmp_path: Path) -> None:
    found = ask(command(tmp_path, ANSWER), ["good", "bad\nline", "gute Ähre, good"])
    np.testing.assert_array_equal(found.argmax(axis=1), [1, 0, 1])


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("sys.exit(3)", DcnnError, r"3 after 0 of 2 texts; try it with one line"),
        ("print('hello')", DataError, r"line 1, for the text 'good': 'hello' is not a JSON obj"),
        ("print(json.dumps({'other': 1}))", DataError, r"line 1.*: the label 'other' is not in"),
        ("print(json.dumps({'pos': 'x'}))", DataError, r"line 1, .* holds no numbers"),
        (
            "print(json.dumps({'pos': 0.2}))",
            DataError,
            r"line 1, for the text 'good': .* sum to 0.2",
        ),
        (f"{ANSWER}; print('{{}}')", DataError, "wrote more than 2 lines|sum to 0"),
    ],
)
def test_a_command_that_fails_is_reported(
    tmp_path: Path, body: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ask(command(tmp_path, body), ["good", "bad"])


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match="'no-such-program' cannot be started"):
        ask(CommandTeacher("no-such-program", CLASSES), ["good"])


@pytest.mark.parametrize("command", ["python 'x", " "])
def test_a_command_that_cannot_be_parsed_is_named(command: str) -> None:
    with pytest.raises(UserError, match="cannot be started"):
        ask(CommandTeacher(command, CLASSES), ["good"])


def test_output_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1, .* is not a JSON object"):
        ask(command(tmp_path, r"sys.stdout.buffer.write(b'\xff\n')"), ["good"])


def test_the_mean_of_teachers_without_a_key_has_none() -> None:
    functions = [FunctionTeacher(Classifier(), CLASSES) for _ in range(2)]
    assert MeanTeacher(functions).key is None
    assert MeanTeacher(functions).bytes is None


def test_what_a_command_starts_is_stopped_with_it() -> None:
    texts = [f"a text of some length, number {number}" for number in range(20_000)]
    with pytest.raises(DataError, match=r"line 1, .*: the label 'text' is not in"):
        ask(CommandTeacher("sh -c 'cat; true'", CLASSES), texts)


def test_a_command_whose_program_was_edited_is_another_teacher(tmp_path: Path) -> None:
    first, second = command(tmp_path, ANSWER).key, command(tmp_path, ANSWER).key
    assert first == second != command(tmp_path, "sys.exit(3)").key


def test_lines_before_a_bad_one_are_handed_over(tmp_path: Path) -> None:
    teacher = command(tmp_path, f"{ANSWER} if number < 2 else print('sorry')")
    text = f"a {{good}} text that is {'very ' * 30}long"
    blocks = teacher.stream(["good", "bad", text])
    np.testing.assert_array_equal(next(blocks).argmax(axis=1), [1, 0])
    shown = r"line 3, for the text 'a \{good\} text that is (very )+ver\.\.\.': 'sorry' is not"
    with pytest.raises(DataError, match=shown) as raised:
        next(blocks)
    assert len(str(raised.value)) < 200


def test_lines_before_ctrl_c_are_handed_over(tmp_path: Path) -> None:
    stop = "import os, signal, time; sys.stdout.flush(); "
    stop += "number < 2 or time.sleep(0.3) or os.kill(os.getppid(), signal.SIGINT); "
    teacher = command(tmp_path, f"{stop}{ANSWER} if number < 2 else time.sleep(60)")
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        blocks = teacher.stream(["good", "bad", "good"])
        np.testing.assert_array_equal(next(blocks).argmax(axis=1), [1, 0])
        with pytest.raises(KeyboardInterrupt):
            next(blocks)
    finally:
        signal.signal(signal.SIGINT, previous)


def test_a_command_gets_texts_with_lone_surrogates(tmp_path: Path) -> None:
    found = ask(command(tmp_path, ANSWER), ["\ud800 good", "bad \udfff"])
    np.testing.assert_array_equal(found.argmax(axis=1), [1, 0])


@pytest.mark.parametrize("command", ["./ask.py", "python 'a b/ask.py'"])
def test_an_edited_program_is_another_teacher_however_it_is_named(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b").mkdir()
    programs = [tmp_path / "ask.py", tmp_path / "a b" / "ask.py"]
    keys = set()
    for content in ("#!/bin/sh\n", "#!/bin/sh\nexit\n"):
        for program in programs:
            program.write_text(content)
            program.chmod(0o755)
        keys.add(CommandTeacher(command, ("a", "b")).key)
    assert len(keys) == 2


def test_a_command_whose_quote_is_open_is_refused_at_once():
    with pytest.raises(UserError, match="cannot be started"):
        CommandTeacher("python 'x", ("a", "b"))


def test_a_saved_teacher_is_readable_by_others_and_a_damaged_one_is_named(tmp_path):
    save_encoder(tmp_path / "encoder", ["a", "b"])
    folder = tmp_path / "saved"
    EncoderTeacher(str(tmp_path / "encoder"), TRAIN, TRAIN, mode="frozen", folder=folder).prepare()
    modes = {file.stat().st_mode & 0o777 for file in folder.iterdir()}
    new = tmp_path / "new"
    new.touch()
    assert modes == {new.stat().st_mode & 0o777}
    (folder / "head.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"head\.safetensors cannot be read"):
        EncoderTeacher(str(folder), TRAIN, None)
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match="no pretrained encoder can be loaded"):
        EncoderTeacher(str(folder), TRAIN, None)


def test_an_encoder_is_named_after_the_hub_or_its_folder_and_never_after_other_folders(
    encoder: Path, tmp_path: Path
) -> None:
    assert encoder_name("some-one/small-encoder") == "some-one/small-encoder"
    folder = tmp_path / "mpnet" / "model"
    shutil.copytree(encoder, folder)
    teacher = EncoderTeacher(str(folder), TRAIN, None, mode="frozen")
    assert teacher.name == "model (bert), frozen"
    config = json.loads((folder / "config.json").read_text("utf-8"))
    for origin, name in (
        ("microsoft/mpnet-base", "model (from microsoft/mpnet-base)"),
        ("/models/mpnet", "model (bert)"),
    ):
        (folder / "config.json").write_text(json.dumps(config | {"_name_or_path": origin}), "utf-8")
        assert encoder_name(str(folder)) == name
    (folder / "config.json").write_text("[]")
    assert encoder_name(str(folder)) == "model"
    assert encoder_name(".") == Path.cwd().name
    snapshot = tmp_path / "hub" / "models--some-one--small-encoder" / "snapshots" / "0a1b"
    shutil.copytree(encoder, snapshot)
    assert encoder_name(str(snapshot)) == "some-one/small-encoder"
