"""Ctrl-C at any moment of ``dcnn train`` prints one line that says what is kept."""

import os
import signal
import subprocess
import sys

import pytest

from dcnn.cli.train import report_interrupt
from dcnn.errors import TrainingStoppedError


@pytest.mark.parametrize(
    ("there", "resumes", "saves", "continues"),
    [
        (False, False, False, False),
        (False, False, True, True),
        (False, True, False, False),
        (True, True, False, True),
        (True, False, False, False),  # what is there is of the run that --overwrite replaces
        (True, False, True, True),
    ],
)
def test_a_stopped_run_can_resume_from_its_checkpoint(tmp_path, there, resumes, saves, continues):
    checkpoint = tmp_path / "m.checkpoint"
    if there:
        checkpoint.write_text("before")
        os.utime(checkpoint, ns=(0, 0))

    def train():
        if saves:
            checkpoint.write_text("now")
        raise KeyboardInterrupt

    with (
        pytest.raises(TrainingStoppedError) as stopped,
        report_interrupt(checkpoint, resumes, stream=False),
    ):
        train()
    assert ("with --resume continues" in str(stopped.value)) == continues
    assert ("nothing was written" in str(stopped.value)) != continues
    assert stopped.value.exit_code == 130


def test_of_several_processes_the_first_reports_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
    monkeypatch.setenv("RANK", "1")
    with (
        pytest.raises(SystemExit) as ended,
        report_interrupt(tmp_path / "m.checkpoint", resume=False, stream=False),
    ):
        raise KeyboardInterrupt
    assert ended.value.code == 130


def test_other_errors_pass(tmp_path):
    with (
        pytest.raises(ValueError, match="this"),
        report_interrupt(tmp_path / "m.checkpoint", resume=False, stream=False),
    ):
        raise ValueError("this")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--no-stream", "nothing was written"),
        ("--stream", "fully encoded files are kept in cache"),
    ],
)
def test_ctrl_c_while_files_are_read_reports_what_is_kept(tmp_path, option, said):
    (tmp_path / "slow.csv").write_text("text,label\n" + "a good plot,good\n" * 2_000_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "dcnn", "train", "slow.csv", "--out", "m", option],
        cwd=tmp_path,
        env=os.environ | {"DCNN_CACHE": "cache"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "reading text from column" in process.stderr.readline()
    # With --stream the columns are known now, and the file is opened again to be encoded.
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.startswith("dcnn: stopped before training began;"), err
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "m").exists()
