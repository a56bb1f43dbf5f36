"""``dcnn distill`` as a user runs it: a teacher, texts, a model folder or one clear sentence."""

import csv
import io
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from dcnn.artifact import load
from dcnn.cli.distill import _stages
from dcnn.predictor import Predictor
from tiny_encoder import save_encoder

SMALL = (
    "--set", "model.dim=8", "--set", "model.widths=[4,3]", "--set", "model.maps=[2,2]",
    "--set", "model.k_top=2", "--set", "training.batch_size=8", "--epochs", "2",
)  # fmt: skip
ANSWER = """
import json, sys, time
for number, line in enumerate(sys.stdin):
    good = "good" in json.loads(line)["text"]
    print(json.dumps({"pos": 0.9 if good else 0.1, "neg": 0.1 if good else 0.9}), flush=True)
"""


def write_csv(path, rows, header=("text", "label")):
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def opinions(count, first=0):
    return [
        (f"the plot {i} was {'good' if i % 2 else 'bad'}", "pos" if i % 2 else "neg")
        for i in range(first, first + count)
    ]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("DCNN_CACHE", str(tmp_path / "cache"))
    write_csv(tmp_path / "train.csv", opinions(40))
    write_csv(tmp_path / "test.csv", opinions(20, 100))
    (tmp_path / "lines.txt").write_text("".join(f"{t}\n" for t, _ in opinions(80, 200)), "utf-8")
    (tmp_path / "teacher.py").write_text(ANSWER, "utf-8")
    return tmp_path


OTHER = {"pos": "neg", "neg": "pos"}
COMMAND = ("--teacher-command", f"{sys.executable} teacher.py")


def test_a_command_teaches_a_student(dcnn, files, monkeypatch):
    monkeypatch.chdir(files)
    done = dcnn(
        "distill", "train.csv", *COMMAND, "--unlabelled", "lines.txt", "--test", "test.csv",
        "--out", "m", *SMALL,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "80 unlabelled texts" in done.err
    assert "140 texts for the teacher: 0 labelled before, 140 to label" in done.err
    assert re.search(r"label: 140 in [\d.]+ s \([\d,]+/s\)", done.err)
    assert re.search(r"teacher +100.00 % +100.00 %", done.err)
    student = re.search(r"student +([\d.]+ %) +([\d.]+ %) +([\d,]+ us \(cpu\)) +(\d+ KB)", done.err)
    assert "36 labelled, 80 unlabelled and 0 augmented texts" in done.err
    record = load(files / "m").metadata["distillation"]
    assert record["test"]["teacher"] == 1.0
    assert load(files / "m").metadata["test_accuracy"] == record["test"]["student"]
    card = (files / "m" / "README.md").read_text("utf-8")
    assert card.index('name: "train.csv"') < card.index("split: dev")
    assert card.index("split: dev") < card.index('name: "test.csv"') < card.index("split: test")
    assert "distillation." not in card
    assert "|  | dev accuracy | test accuracy | time per text | size |" in card
    assert f"| student | {' | '.join(student.groups())} |" in card
    for line in ("36 labelled, 80 unlabelled and 0 augmented texts", "of the texts of test."):
        assert line in card
        assert line in done.err


def test_example_weights_decide_what_is_learned(dcnn, files, monkeypatch):
    monkeypatch.chdir(files)
    # Every text has both labels; only the weights say which of them counts.
    both = [(text, label, int(label == own)) for text, own in opinions(60) for label in OTHER]
    write_csv(files / "both.csv", both, header=("text", "label", "w"))
    flipped = [(text, label, 1 - weight) for text, label, weight in both]
    write_csv(files / "flipped.csv", flipped, header=("text", "label", "w"))
    (files / "few.txt").write_text("the plot\n", "utf-8")
    for name in ("both", "flipped"):
        done = dcnn(
            "distill", f"{name}.csv", *COMMAND, "--teacher-weight", "0", "--unlabelled", "few.txt",
            "--dev", "test.csv", "--weight-column", "w", "--out", name, *SMALL,
            "--set", "training.keep=last", "--set", "training.learning_rate=0.3", "--epochs", "10",
        )  # fmt: skip
        assert done.code == 0, done.err
    texts = [text for text, _ in opinions(20, 100)]
    labels = [
        [p.label for p in Predictor.load(name).predict(texts)] for name in ("both", "flipped")
    ]
    assert [OTHER[label] for label in labels[0]] == labels[1]
    wrong = dcnn("distill", "both.csv", *COMMAND, "--weight-column", "v", "--out", "m", *SMALL)
    assert wrong.code == 2
    assert "both.csv: --weight-column 'v' is no column" in wrong.err


def test_without_unlabelled_text_the_command_says_that_real_text_is_better(
    dcnn, files, monkeypatch
):
    monkeypatch.chdir(files)
    done = dcnn("distill", "train.csv", *COMMAND, "--augment", "2", "--out", "m", *SMALL)
    assert done.code == 0, done.err
    assert "real text of the domain teaches more: pass it with --unlabelled" in done.err
    assert re.search(r"0 unlabelled and [1-9]\d* augmented texts", done.err)


def test_no_text_is_made_for_a_command_unasked(dcnn, files, monkeypatch):
    monkeypatch.chdir(files)
    done = dcnn("distill", "train.csv", *COMMAND, "--out", "m", *SMALL)
    assert done.code == 0, done.err
    assert "none is made of the words of TRAIN, since each text may cost a call" in done.err
    assert "0 unlabelled and 0 augmented texts" in done.err
    again = dcnn("distill", "train.csv", *COMMAND, "--out", "m", "--resume", *SMALL)
    assert again.code == 0
    assert again.err == "m is finished already; there is nothing to resume.\n"


def test_a_saved_teacher_teaches_again(dcnn, files):
    save_encoder(files / "encoder", [word for text, _ in opinions(300) for word in text.split()])
    arguments = ("distill", "train.csv", "--unlabelled", "lines.txt", *SMALL, "--out")
    encoder = ("--teacher", "encoder", "--teacher-mode", "finetune")
    for out in ("m", "m2"):  # the second time, all labels are there
        done = dcnn(*arguments, out, *encoder, *(() if out == "m" else ("--save-teacher", "kept")))
        assert done.code == 0, done.err
    kept = re.search(r"What the teacher learned is kept in (\S+) \(\d", done.err)
    assert (Path(kept[1]) / "model.safetensors").exists()
    done = dcnn(*arguments, "m3", "--teacher", "kept")
    assert done.code == 0, done.err
    assert "Teacher: encoder (bert), fine-tuned" in done.err
    assert load(files / "m3").metadata["distillation"]["teacher"] in done.err
    assert "fine-tune " not in done.err
    scores = [load(files / out).metadata["distillation"]["dev"]["teacher"] for out in ("m", "m3")]
    assert scores[0] == scores[1]
    done = dcnn(*arguments, "m4", "--teacher", "kept", "--teacher-mode", "frozen")
    assert done.code == 2
    assert "--teacher-mode frozen: the teacher" in done.err
    assert "is a trained one and used as it is; leave it out" in done.err
    assert dcnn(*arguments, "m5", "--teacher", "kept", "--teacher-mode", "finetune").code == 0
    both = ("--teacher", "kept", "--teacher", "encoder", "--teacher-mode", "frozen")
    assert dcnn(*arguments, "m6", *both).code == 0
    done = dcnn(*arguments, "m4", *encoder, "--save-teacher", "m")
    assert done.code == 2
    assert "m exists and does not hold this teacher, so it is left alone" in done.err


def test_a_stage_shows_its_rate_and_the_time_left_while_it_runs():
    stream = io.StringIO()
    with _stages(Console(file=stream, force_terminal=True, width=100)) as report:
        report("label", 100, 1000, "texts")
        time.sleep(0.2)
        report("label", 104, 1000, "texts")
        time.sleep(0.2)
    plain = Text.from_ansi(stream.getvalue()).plain
    shown = re.search(r"104/1,000 texts (\d+(\.\d)?)/s \d:\d\d:\d\d", plain)
    assert 1 < float(shown[1]) <= 20


def test_models_teach_a_student(dcnn, files):
    for name in ("first", "second"):
        assert dcnn("train", "train.csv", "--out", name, *SMALL).code == 0
    teachers = ("--teacher", "first", "--teacher", "second")
    done = dcnn(
        "distill", "train.csv", *teachers, "--unlabelled", "lines.txt", "--out", "new/m", *SMALL
    )
    assert done.code == 0, done.err
    assert "Teacher: first + second" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "pass --teacher or --teacher-command, and not both"),
        (("--teacher", "nowhere", *COMMAND), "pass --teacher or --teacher-command, and not both"),
        ((*COMMAND, "--unlabelled", "empty.txt"), "empty.txt"),
        ((*COMMAND, "--unlabelled", "nowhere.txt"), "nowhere.txt"),
        (("--teacher", "./nowhere"), "the teacher ./nowhere is neither a folder"),
        (("--teacher", "bare"), "the teacher bare is a folder without config.json"),
        ((*COMMAND, "--save-teacher", "t"), "--save-teacher t: a command is not trained"),
        (("--teacher", "m2", "--save-teacher", "t"), "m2 is a dcnn model, so no encoder is tr"),
        ((*COMMAND, "--teacher-mode", "frozen"), "--teacher-mode frozen: a command is used as it"),
        (("--teacher", "m4", "--teacher-mode", "frozen"), "the teacher m4 is a trained one and"),
        (
            ("--teacher", "m2"),
            "the teacher m2 and the training data must have the same labels; only the",
        ),
        (
            ("--teacher", "m3"),
            "the teacher m3 is multi-label, and the training data is single-label",
        ),
    ],
)
def test_wrong_input_is_reported(dcnn, files, monkeypatch, arguments, message):
    monkeypatch.chdir(files)
    (files / "empty.txt").write_text("\n\n", "utf-8")
    (files / "bare").mkdir()
    if "m2" in arguments:
        write_csv(files / "other.csv", [(text, f"is {label}") for text, label in opinions(40)])
        assert dcnn("train", "other.csv", "--out", "m2", *SMALL).code == 0
    if "m4" in arguments:
        assert dcnn("train", "train.csv", "--out", "m4", *SMALL).code == 0
    if "m3" in arguments:
        rows = [json.dumps({"text": text, "labels": [label]}) for text, label in opinions(40)]
        (files / "several.jsonl").write_text("\n".join(rows))
        assert dcnn("train", "several.jsonl", "--out", "m3", *SMALL).code == 0
    done = dcnn("distill", "train.csv", *arguments, "--out", "m", *SMALL)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (files / "m").exists()


def test_an_interrupted_labelling_continues(files, monkeypatch):
    monkeypatch.chdir(files)
    slow = "    time.sleep(0.05 if number > 60 and os.path.exists('slow') else 0); good ="
    (files / "teacher.py").write_text("import os" + ANSWER.replace("    good =", slow), "utf-8")
    (files / "slow").touch()
    monkeypatch.setattr("dcnn.training.teachers.TEXTS_PER_BLOCK", 20)
    code = (
        "import sys, dcnn.training.teachers as t; t.TEXTS_PER_BLOCK = 20; "
        "from dcnn.__main__ import main; main()"
    )
    command = [
        sys.executable, "-c", code, "distill", "train.csv", *COMMAND, "--unlabelled", "lines.txt",
        "--out", "m", *SMALL,
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    answers = files / "cache" / "teachers"
    for _ in range(600):
        if len(list(answers.glob("*/*.npz"))) >= 3:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "the labels that the teacher gave so far are kept" in err
    (files / "slow").unlink()
    again = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert again.returncode == 0, again.stderr
    labelled = int(re.search(r"label: (\d+) in", again.stderr)[1])
    assert 0 < labelled <= 120 - 60
    assert json.loads((files / "m" / "config.json").read_text("utf-8"))
