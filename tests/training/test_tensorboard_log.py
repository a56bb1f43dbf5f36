"""The curves that TensorBoard reads back are those of the run, stopped or not."""

import logging
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dcnn.cli.train import train as train_command
from dcnn.config import Config
from dcnn.errors import MissingExtraError, UserError
from dcnn.training.callbacks import (
    Callback,
    CallbackList,
    EvaluationRecord,
    Progress,
    RunsReport,
    TensorBoardLog,
)

STEPS = 45
SETTINGS = ("model.dim=4", "model.widths=[3]", "model.maps=[2]", "model.k_top=2")


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(event.step, round(event.value, 4)) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def log_steps(folder: Path, first: int, last: int, resumed: bool = False) -> None:
    """What a run tells of its steps from ``first`` to ``last`` and of dev, after every twelfth."""
    with TensorBoardLog(folder, Config()) as log:
        if resumed:
            log.on_resume(1, first - 1)
        for step in range(first, last + 1):
            log.on_step(Progress(1, 1, step, STEPS, 1 / step, 9.0, 0.0, 0.1 - step / 1000))
            if step % 12 == 0:
                log.on_evaluation(EvaluationRecord(1, step, 1 / step, 2 / step, step / 50, True))


@settings(max_examples=12)
@given(st.integers(1, STEPS), st.data())
def test_a_run_that_was_killed_and_resumed_leaves_the_curves_of_one_that_was_not(
    tmp_path_factory, killed_after, data
):
    checkpoint = data.draw(st.integers(0, killed_after))
    folder = tmp_path_factory.mktemp("logs")
    log_steps(folder / "whole", 1, STEPS)
    log_steps(folder / "killed", 1, killed_after)
    log_steps(folder / "killed", checkpoint + 1, STEPS, resumed=True)
    assert curves(folder / "killed") == curves(folder / "whole")


def test_a_run_that_starts_again_takes_the_place_of_the_one_before(tmp_path):
    log_steps(tmp_path, 1, STEPS)
    log_steps(tmp_path, 1, 20)
    assert [step for step, _ in curves(tmp_path)["training/loss"]] == [1, 10, 20]


def train(folder: Path, **others: object) -> None:
    rows = [f"the plot is {('dull', 'good')[i % 2]} {i},{i % 2}" for i in range(80)]
    (folder / "data.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    given = {
        "data": folder / "data.csv",
        "out": folder / "model",
        "settings": (
            *SETTINGS,
            *("training.batch_size=4", "training.schedule=linear", "training.dev_fraction=0.1"),
        ),
        "epochs": 2,
        "seed": 0,
        "device": "cpu",
        "checkpoint_seconds": 60,
        "tensorboard": folder / "logs",
    }
    train_command(**given | others)


def test_training_logs_loss_rate_speed_dev_and_settings(tmp_path, capsys):
    train(tmp_path)
    found = curves(tmp_path / "logs" / "model")
    assert set(found) == {
        *("training/loss", "training/learning_rate", "training/sentences_per_second"),
        *("dev/loss", "dev/accuracy"),
    }
    steps = [step for step, _ in found["training/loss"]]
    assert steps == [1, 10, 20, 30]
    assert found["training/learning_rate"] == [
        (step, pytest.approx(0.1 * (1 - (step - 1) / 36), abs=1e-4)) for step in steps
    ]
    shown = [line for line in capsys.readouterr().err.splitlines() if "dev accuracy" in line]
    accuracies = [f"dev accuracy {100 * value:.2f} %" for _, value in found["dev/accuracy"]]
    assert len(accuracies) == 2
    for accuracy, line in zip(accuracies, shown, strict=False):
        assert accuracy in line
    read = EventAccumulator(str(tmp_path / "logs" / "model")).Reload()
    (text,) = read.Tensors("settings/text_summary")
    assert b"| model.dim | 4 |" in text.tensor_proto.string_val[0]


def test_where_a_text_may_have_several_labels_the_log_has_what_decides(tmp_path):
    with TensorBoardLog(tmp_path, Config()) as log:
        log.on_evaluation(EvaluationRecord(1, 7, 1.0, 2.0, 0.25, True, dev_micro_f1=0.75))
    found = curves(tmp_path)
    assert (found["dev/micro_f1"], found["dev/accuracy"]) == ([(7, 0.75)], [(7, 0.25)])


def test_a_log_that_cannot_be_written_does_not_end_the_run(tmp_path, caplog):
    folder = tmp_path / "log"
    with caplog.at_level(logging.WARNING, "dcnn"), TensorBoardLog(folder, Config()) as log:
        folder.rmdir()
        folder.write_text("in the way")
        for step in (1, 10, 20):
            log.on_step(Progress(1, 1, step, 30, 0.5, 9.0, 0.0))
    assert len(caplog.records) == 1
    assert "the log for TensorBoard ends here (" in caplog.text


def test_what_stands_in_the_way_is_said_before_training(tmp_path, monkeypatch):
    (tmp_path / "logs").write_text("")
    with pytest.raises(UserError, match=r"--tensorboard .*logs is a file; name a folder$"):
        train(tmp_path, data=tmp_path / "missing.csv")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match="--tensorboard needs the extra 'tensorboard': pip"):
        train(tmp_path, data=tmp_path / "missing.csv")


@pytest.mark.parametrize("logs", [".", "model"])
def test_logs_in_the_place_of_the_model_are_refused_before_training(tmp_path, logs):
    with pytest.raises(UserError, match=r"would put the curves into .*name another folder"):
        train(tmp_path, data=tmp_path / "missing.csv", tensorboard=tmp_path / logs)
    assert not (tmp_path / "model").exists()


def test_a_list_of_callbacks_calls_all_of_them():
    class Recorder(Callback):
        def __init__(self) -> None:
            self.calls: list[object] = []

        def on_resume(self, epoch: int, step: int) -> None:
            self.calls.append((epoch, step))

        def on_step(self, progress: Progress) -> None:
            self.calls.append(progress)

        def on_evaluation(self, record: EvaluationRecord) -> None:
            self.calls.append(record)

        def on_report(self, report: RunsReport) -> None:
            self.calls.append(report)

    first, second = Recorder(), Recorder()
    both = CallbackList(first, second)
    step, record = Progress(1, 1, 1, 1, 0.5, 1.0, 1.0), EvaluationRecord(1, 1, 0.5, 0.5, 0.5, True)
    epoch = RunsReport(1, 1, [0.5], [0.5])
    both.on_resume(2, 3)
    both.on_step(step)
    both.on_evaluation(record)
    both.on_report(epoch)
    assert first.calls == second.calls == [(2, 3), step, record, epoch]
    assert not both.stop
