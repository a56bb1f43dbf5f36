"""Teachers: encoders, functions, commands and models, and the errors they give."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dcnn.data.labels import LabelledTexts
from dcnn.errors import DataError, DcnnError, UserError
from dcnn.training.encoders import EncoderTeacher, FineTuning
from dcnn.training.teachers import CommandTeacher, FunctionTeacher, MeanTeacher, Teacher
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


@pytest.mark.parametrize("classes", [2, 3])
def test_a_frozen_encoder_gives_the_probabilities_of_logistic_regression(
    encoder: Path, classes: int
) -> None:
    targets = np.arange(len(TEXTS)) % classes
    train = LabelledTexts(TEXTS, targets, ("a", "b", "c")[:classes])
    teacher = EncoderTeacher(str(encoder), train, None, mode="frozen")
    vectors = teacher.embed(TEXTS)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = LogisticRegression(C=10.0, max_iter=2000).fit(vectors, targets)
    np.testing.assert_allclose(ask(teacher, TEXTS), expected.predict_proba(vectors), atol=1e-4)


@pytest.mark.parametrize("mode", ["finetune", "frozen"])
def test_an_encoder_learns_several_labels_per_text(encoder: Path, mode: str) -> None:
    indicators = np.stack([TARGETS, [text.startswith("a ") for text in TEXTS]], axis=1)
    train = LabelledTexts(TEXTS, indicators.astype(np.float32), CLASSES, multi_label=True)
    settings = FineTuning(learning_rate=1e-2, epochs=20)
    found = ask(EncoderTeacher(str(encoder), train, train, mode=mode, settings=settings), TEXTS)
    assert ((found > 0.5) == indicators).mean() > 0.9


def test_padding_and_batch_mates_do_not_change_a_sentence_vector(encoder: Path) -> None:
    teacher = EncoderTeacher(str(encoder), TRAIN, None)
    alone = np.concatenate([teacher.embed([text]) for text in TEXTS[:6]])
    np.testing.assert_allclose(teacher.embed(TEXTS[:6]), alone, atol=1e-5)


def test_a_saved_teacher_is_loaded_and_not_trained_again(encoder: Path, tmp_path: Path) -> None:
    stages: list[str] = []

    def teacher() -> EncoderTeacher:
        return EncoderTeacher(
            str(encoder), TRAIN, TRAIN, mode="finetune", folder=tmp_path / "teacher",
            report=lambda stage, *_: stages.append(stage),
        )  # fmt: skip

    first = ask(teacher(), TEXTS)
    assert "fine-tune" in stages
    stages.clear()
    np.testing.assert_allclose(ask(teacher(), TEXTS), first, atol=1e-6)
    assert not stages


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
    with pytest.raises(UserError, match=r"--teacher .*nowhere.* is neither a folder"):
        EncoderTeacher(str(tmp_path / "nowhere"), TRAIN, None)


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
    with pytest.raises(UserError, match="has the labels pos, neg, and the training file bad, good"):
        FunctionTeacher(Classifier(), ("bad", "good"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[0.5, 0.2]], r"text 0: the probabilities \[0.5 0.2\] sum to 0.7"),
        ([[1.5, -0.5]], "text 0: probabilities must be from 0 to 1"),
        ([[float("nan"), 1]], "text 0: probabilities must be from 0 to 1"),
        ([[1.0]], r"shape \(1, 1\); it must give one probability for each of the 2 labels"),
        ([[0, 1], [1, 0]], "answered 2 of 1 texts"),
    ],
)
def test_answers_that_are_no_probabilities_are_refused(values: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ask(FunctionTeacher(lambda _: values, CLASSES), ["a text"])


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
        ("sys.exit(3)", DcnnError, r"ended with exit code 3 after 0 of 2 texts"),
        ("print('hello')", DataError, r"line 1: 'hello' is not a JSON object"),
        ("print(json.dumps({'other': 1}))", DataError, r"line 1: the label 'other' is not in"),
        ("print(json.dumps({'pos': 'x'}))", DataError, r"line 1: .* holds no numbers"),
        ("print(json.dumps({'pos': 0.2}))", DataError, r"line 1: .* sum to 0.2"),
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
    with pytest.raises(DataError, match=r"line 1: .* is not a JSON object"):
        ask(command(tmp_path, r"sys.stdout.buffer.write(b'\xff\n')"), ["good"])


def test_the_mean_of_teachers_without_a_key_has_none() -> None:
    functions = [FunctionTeacher(Classifier(), CLASSES) for _ in range(2)]
    assert MeanTeacher(functions).key is None
    assert MeanTeacher(functions).bytes is None


def test_what_a_command_starts_is_stopped_with_it() -> None:
    texts = [f"a text of some length, number {number}" for number in range(20_000)]
    with pytest.raises(DataError, match="line 1: the label 'text' is not in"):
        ask(CommandTeacher("sh -c 'cat; true'", CLASSES), texts)


def test_a_command_whose_program_was_edited_is_another_teacher(tmp_path: Path) -> None:
    first, second = command(tmp_path, ANSWER).key, command(tmp_path, ANSWER).key
    assert first == second != command(tmp_path, "sys.exit(3)").key
