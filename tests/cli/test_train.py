"""``dcnn train`` as a user runs it: files in, a model folder out, or one clear sentence."""

import csv
import json
import os
import re
import signal
import subprocess
import sys

import pytest
import safetensors
import safetensors.numpy

from dcnn import files
from dcnn.artifact import load
from dcnn.cli.train import is_large
from dcnn.training.callbacks import TrainingBar

SMALL = (
    "--set", "model.dim=8", "--set", "model.widths=[4,3]", "--set", "model.maps=[2,2]",
    "--set", "model.k_top=2", "--set", "training.batch_size=8",
    "--set", "training.dev_fraction=0.1",
)  # fmt: skip


def write_csv(path, rows, header=("text", "label")):
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def opinions(count):
    words = ["plot", "cast", "end", "score", "joke"]
    return [
        (f"the {words[i % 5]} was {'good' if i % 2 else 'bad'} {i % 7}", "pos" if i % 2 else "neg")
        for i in range(count)
    ]


@pytest.fixture
def data(tmp_path):
    return write_csv(tmp_path / "train.csv", opinions(60))


@pytest.mark.parametrize("command", ["train", "tune", "distill"])
def test_a_second_run_into_one_folder_is_refused(dcnn, tmp_path, data, monkeypatch, command):
    monkeypatch.setattr(files, "_PATIENCE", 0.1)
    (tmp_path / "m.checkpoint").write_text("of the first run")
    with files.only_writer(tmp_path / "m.run", "m"):
        done = dcnn(command, data, "--out", "m")
    assert done.code == 1
    assert "another process is writing m; wait until it ends, or choose another" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.checkpoint", "train.csv"]


def test_a_model_is_trained_scored_and_saved(dcnn, tmp_path, data):
    test = write_csv(tmp_path / "test.csv", opinions(20))
    done = dcnn("train", data, "--out", "m", "--test", test, "--epochs", 3, *SMALL)
    assert done.code == 0, done.err
    assert "54 training and 6 dev examples, 2 labels" in done.err
    assert len(re.findall(r"epoch +\d  loss [\d.]+  dev loss [\d.]+  dev accuracy", done.err)) == 3
    assert re.search(r"Trained 3 of 3 epochs .* and kept the last: dev accuracy", done.err)
    assert "Test (" in done.err
    assert "dcnn predict m 'a text'" in done.err
    model = load(tmp_path / "m")
    assert model.classes == ("neg", "pos")
    assert model.metadata["data"] == "train.csv"
    assert 0 <= model.metadata["test_accuracy"] <= 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "test.csv", "train.csv"]


def test_few_examples_are_all_trained_on(dcnn, tmp_path, data):
    done = dcnn("train", data, "--out", "m", "--epochs", 30, *SMALL[:-2])
    assert done.code == 0, done.err
    assert "60 training and 0 dev examples, 2 labels" in done.err
    assert "settings for 60 examples: training.dev_fraction=0.0, training.folds=5\n" in done.err
    assert re.search(
        r"Trained 30 of 30 epochs .* on all examples; accuracy [\d.]+ % by cross-validation, on "
        r"60 of them\nCalibrated on the folds: temperature",
        done.err,
    )
    card = (tmp_path / "m" / "README.md").read_text()
    assert "accuracy on the folds of a cross-validation" in card
    assert "which chose the epoch" not in card
    stored = load(tmp_path / "m").config.training
    assert (stored.epochs, stored.dev_fraction, stored.folds) == (30, 0, 5)


def test_guessed_columns_are_reported(dcnn, tmp_path):
    write_csv(tmp_path / "d.csv", opinions(20), header=("review", "stars"))
    done = dcnn("train", "d.csv", "--out", "m", "--epochs", 1, *SMALL)
    assert done.code == 0, done.err
    assert "reading text from column 'review' and labels from 'stars' (guessed" in done.err


def test_the_seed_decides_the_weights(dcnn, tmp_path, data):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert dcnn("train", data, "--out", name, "--epochs", 1, "--seed", seed, *SMALL).code == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]


def test_settings_come_from_a_file_and_the_command_line_wins(dcnn, tmp_path, data):
    (tmp_path / "s.toml").write_text("[model]\nkind = 'nbow'\ndim = 6\n[training]\nepochs = 9\n")
    done = dcnn(
        "train", data, "--out", "m", "--config", "s.toml", "--set", "model.dim=3", "--epochs", 1
    )
    assert done.code == 0, done.err
    config = load(tmp_path / "m").config
    assert (config.model.kind, config.model.dim, config.training.epochs) == ("nbow", 3, 1)


def test_weights_and_a_dev_file_are_used(dcnn, tmp_path):
    rows = [(text, label, 1 + i % 3) for i, (text, label) in enumerate(opinions(30))]
    write_csv(tmp_path / "d.csv", rows, header=("text", "label", "w"))
    write_csv(tmp_path / "dev.csv", opinions(10))
    command = ("train", "d.csv", "--dev", "dev.csv", "--epochs", 1, *SMALL)
    weighted = dcnn(*command, "--out", "weighted", "--weight-column", "w")
    assert weighted.code == 0, weighted.err
    assert "30 training and 10 dev examples" in weighted.err
    assert dcnn(*command, "--out", "plain").code == 0
    first, second = (load(tmp_path / name).weights["head.weight"] for name in ("weighted", "plain"))
    assert (first != second).any()


GOOD = "text,label\n" + "".join(f"{text},{label}\n" for text, label in opinions(20))
BAD_INPUTS = {
    "missing file": (None, (), r"train\.csv: no such file"),
    "empty file": (b"", (), r"train\.csv is empty"),
    "header only": (b"text,label\n", (), r"train\.csv has a header"),
    "missing column": (GOOD.encode(), ("--text-column", "txt"), r"'txt'.*'text'.*'label'"),
    "one class": (b"text,label\na,x\nb,x\nc,x\n", (), r"'x'"),
    "class with one example": (
        (GOOD + "odd one,rare\n").encode(), (), r"'rare'.*line 22|line 22.*'rare'"),
    "empty label": ((GOOD + "no label,\n").encode(), (), r"train\.csv.*line 22.*label"),
    "too few fields": ((GOOD + "alone\n").encode(), (), r"train\.csv.*line 22"),
    "too many fields": ((GOOD + "a,b,c\n").encode(), (), r"train\.csv.*line 22.*3"),
    "invalid utf-8": (GOOD.encode() + b"caf\xe9,pos\n", (), r"line 22.*--encoding"),
    "NUL byte": (GOOD.encode() + b"a\x00b,pos\n", (), r"line 22.*NUL"),
    "duplicated header": (b"text,label,text\na,x,b\n", (), r"more than one column is named 'text'"),
    "unclosed quote": ((GOOD + '"open,pos\n').encode(), (), r"line 22.*quote"),
    "bad setting": (
        GOOD.encode(), ("--set", "model.widths=[1]"), r"widths\[0\]=1 is below k_top"),
    "huge network": (GOOD.encode(), ("--set", "model.dim=1000000000"), r"would have .* weights"),
    "huge number": (GOOD.encode(), ("--seed", "9" * 30), r"seed=9.* must be a finite number below"),
    "no place": (GOOD.encode(), ("--out", "/"), r"/ is no place for a model folder"),
    "bad device": (GOOD.encode(), ("--device", "tpu"), r"device='tpu' must be auto, cpu or cuda"),
    "bad weight": (
        b"text,label,w\na,x,1\nb,y,heavy\n", ("--weight-column", "w"), r"line 3.*'heavy'"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "options", "message"), BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_bad_input_gets_one_sentence_exit_code_2_and_no_model(
    dcnn, tmp_path, content, options, message
):
    if content is not None:
        (tmp_path / "train.csv").write_bytes(content)
    done = dcnn("train", "train.csv", "--out", "m", *options)
    assert done.code == 2
    *_, sentence = done.err.strip().splitlines()
    assert sentence.startswith("dcnn: ")
    assert re.search(message, sentence), sentence
    assert not (tmp_path / "m").exists()
    assert not (tmp_path / "m.checkpoint").exists()


@pytest.mark.parametrize("option", ["--dev", "--test"])
def test_a_label_that_training_never_saw_is_named_before_training(dcnn, tmp_path, data, option):
    write_csv(tmp_path / "other.csv", [*opinions(4), ("what", "postive")])
    done = dcnn("train", data, option, "other.csv", "--out", "m")
    assert done.code == 2
    assert re.search(r"other\.csv.*line 6.*'postive'", done.err)
    assert "epoch" not in done.err


def test_bom_and_crlf_are_read(dcnn, tmp_path):
    (tmp_path / "d.csv").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert dcnn("train", "d.csv", "--out", "m", "--epochs", 1, *SMALL).code == 0
    assert load(tmp_path / "m").classes == ("neg", "pos")


def test_an_existing_folder_is_replaced_only_with_overwrite(dcnn, tmp_path, data):
    command = ("train", data, "--out", "m", "--epochs", 1, *SMALL)
    assert dcnn(*command).code == 0
    before = (tmp_path / "m" / "config.json").read_bytes()
    refused = dcnn(*command, "--seed", 3)
    assert refused.code == 2
    assert "m exists; pass --overwrite (in Python overwrite=True) to replace it" in refused.err
    assert (tmp_path / "m" / "config.json").read_bytes() == before
    assert dcnn(*command, "--seed", 3, "--overwrite").code == 0
    assert json.loads((tmp_path / "m" / "config.json").read_text())["training"]["seed"] == 3


def test_a_full_disk_is_reported(dcnn, tmp_path, data):
    # A limit on file sizes stands in for the full disk: the write really fails.
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "from dcnn.__main__ import main; sys.argv[0] = 'dcnn'; main()\n"
    )
    command = ("train", str(data), "--out", "m", "--epochs", "1", *SMALL)
    # Without coverage's own files, which the limit would break too.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", script, *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 1
    assert "dcnn: m.checkpoint could not be written (File too large)" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.csv"]


def start(tmp_path, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "dcnn", "train", "train.csv", *map(str, arguments)],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


LONG = ("--epochs", 24, "--set", "training.patience=0", "--checkpoint-seconds", 0, *SMALL)


def wait_for_epoch(process, epoch):
    for line in process.stderr:
        if line.startswith(f"epoch {epoch:>3}".encode()):
            return
    raise AssertionError(f"the run ended before epoch {epoch}")


def test_a_killed_run_resumes_to_the_very_same_weights(dcnn, tmp_path):
    write_csv(tmp_path / "train.csv", opinions(200))
    assert dcnn("train", "train.csv", "--out", "straight", *LONG).code == 0
    for epoch in (2, 8):
        resumed = ["--resume"] if epoch > 2 else []
        process = start(tmp_path, "--out", "killed", *LONG, *resumed)
        wait_for_epoch(process, epoch)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
        assert not (tmp_path / "killed").exists()
        assert (tmp_path / "killed.checkpoint").exists()
    refused = dcnn("train", "train.csv", "--out", "killed", *LONG)
    assert refused.code == 2
    assert "killed.checkpoint holds an unfinished run; pass --resume" in refused.err

    done = dcnn("train", "train.csv", "--out", "killed", *LONG, "--resume")
    assert done.code == 0, done.err
    assert "Resumed in epoch" in done.err
    straight, killed = (
        safetensors.numpy.load_file(tmp_path / name / "model.safetensors")
        for name in ("straight", "killed")
    )
    assert {k: v.tobytes() for k, v in straight.items()} == {
        k: v.tobytes() for k, v in killed.items()
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "straight", "train.csv"]
    again = dcnn("train", "train.csv", "--out", "killed", *LONG, "--resume")
    assert again.code == 0
    assert "finished already; there is nothing to resume" in again.err


def test_a_resumed_run_replaces_nothing_but_a_model(dcnn, tmp_path, data):
    command = ("train", data, "--out", "m", "--epochs", 1, *SMALL)
    assert dcnn(*command).code == 0
    (tmp_path / "m").rename(tmp_path / "other")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "thesis.txt").write_text("years of work")
    (tmp_path / "m.checkpoint").write_text("of a run that was killed")
    done = dcnn(*command, "--resume")
    assert done.code == 2
    assert "is not just a model folder" in done.err
    assert (tmp_path / "m" / "thesis.txt").exists()


def send_at_epoch(monkeypatch, epoch, number):
    """Let this process get a signal when a run has reached ``epoch``."""
    report = TrainingBar.on_evaluation

    def on_evaluation(bar, record):
        report(bar, record)
        if record.epoch == epoch:
            signal.raise_signal(number)

    monkeypatch.setattr(TrainingBar, "on_evaluation", on_evaluation)


def test_a_diverged_run_is_not_in_the_way_of_the_next(dcnn, tmp_path, data):
    done = dcnn("train", data, "--out", "m", *SMALL, "--set", "training.learning_rate=1e9")
    assert done.code == 1
    assert "training diverged; lower training.learning_rate" in done.err
    assert not (tmp_path / "m.checkpoint").exists()
    assert dcnn("train", data, "--out", "m", *SMALL, "--epochs", 1).code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_with_a_checkpoint_and_reports_how_to_continue(
    tmp_path, dcnn, data, monkeypatch, number
):
    options = ("--epochs", 400, "--set", "training.patience=0", *SMALL)
    with monkeypatch.context() as patch:
        send_at_epoch(patch, 2, number)
        stopped = dcnn("train", data, "--out", "m", *options)
    assert stopped.code == 130
    assert "the same command with --resume continues from there" in stopped.err
    assert "epoch   3" not in stopped.err
    assert not (tmp_path / "m").exists()

    other = dcnn("train", data, "--out", "m", *options, "--resume", "--seed", 7)
    assert other.code == 2
    assert "belongs to another run" in other.err
    assert "training.seed was 0 and is now 7" in other.err
    fresh = dcnn("train", data, "--out", "m", "--epochs", 1, *SMALL, "--overwrite")
    assert fresh.code == 0
    assert not (tmp_path / "m.checkpoint").exists()


def test_a_corpus_is_trained_on_from_disk_in_shards(dcnn, tmp_path):
    shards = tmp_path / "shards"
    shards.mkdir()
    for number in range(3):
        write_csv(shards / f"{number}.csv", opinions(60)[20 * number : 20 * number + 20])
    test = write_csv(tmp_path / "test.csv", opinions(20))
    options = ("--stream", "--epochs", 1, "--test", test, *SMALL)
    done = dcnn("train", shards, "--out", "a", *options, DCNN_CACHE="cache")
    assert done.code == 0, done.err
    assert "60 examples of 3 files are encoded in cache" in done.err
    assert "54 training and 6 dev examples, 2 labels" in done.err
    assert "Test (" in done.err
    assert load(tmp_path / "a").metadata["examples"] == {"train": 54, "dev": 6}

    (shards / "1.csv").write_bytes(b"text,label\nfine\xff,pos\n")
    done = dcnn("train", shards, "--out", "c", *options, DCNN_CACHE="cache")
    assert done.code == 2
    assert "1.csv" in done.err
    assert "2 of 3 files are encoded and kept" in done.err


def test_large_files_are_streamed_from_disk_and_small_ones_read_into_memory(tmp_path):
    for name, size in (("a.csv", 300), ("b.csv.gz", 60), ("c.parquet", 40)):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(size << 20)  # takes no room on the disk
    assert not is_large(tmp_path / "a.csv")
    assert not is_large(tmp_path / "no.csv")
    assert is_large(tmp_path)
    (tmp_path / "c.parquet").unlink()
    assert not is_large(tmp_path)
