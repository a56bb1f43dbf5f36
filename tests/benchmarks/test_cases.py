"""Every case on a tiny network: its rows, their names and that both sides compute the same."""

import json
import os
import sys

import numpy as np
import pytest
import torch

import eager_torch
import gpu
import prediction
import rivals
import startup
import training
import workload
from dcnn import artifact as model_folder
from dcnn.config import DCNNConfig
from dcnn.errors import ConfigError, DcnnError
from dcnn.ops import native
from dcnn.predictor import Predictor
from dcnn.training.resident import ResidentBatches
from eager_torch import EagerTorchPredictor
from layer import LayerCall
from prediction import label_file, predict_batch, predict_one
from report import CASES
from run import run_case
from startup import peak_memory
from tiny import TINY
from workload import busy_machine, computing_with, describe_backend, missing_native, too_few_cores


def baselines(rows) -> list[str]:
    return [row.baseline_name for row in rows]


def test_one_sentence_is_compared_with_torch_and_others():
    outcome = predict_one(TINY)
    assert baselines(outcome.rows)[:2] == ["eager torch", "Kim-style CNN in eager torch"]
    assert baselines(outcome.rows)[-1] == "TF-IDF + logistic regression (scikit-learn)"
    assert {row.unit for row in outcome.rows} == {"us"}
    assert outcome.rows[0].repetitions == TINY.rounds * TINY.calls


def test_a_missing_rival_is_left_out_with_its_install_command(monkeypatch):
    found = rivals.importlib.util.find_spec
    monkeypatch.setattr(
        rivals.importlib.util,
        "find_spec",
        lambda name: None if name in ("fasttext", "sklearn") else found(name),
    )
    trained, notes = rivals.text_rivals(TINY, 18)
    assert trained == []
    assert notes[0].endswith("it is not installed: pip install fasttext-numpy2-wheel")
    assert notes[1].endswith("it is not installed: pip install scikit-learn")


def test_rivals_know_the_words_and_give_probabilities():
    trained, _ = rivals.text_rivals(TINY, 18)
    (text,) = TINY.texts(1, 18)
    for rival in trained:
        np.testing.assert_allclose(np.sum(_numbers(rival.classify(text))), 1, atol=1e-3)


def _numbers(answer: object) -> np.ndarray:
    """The probabilities: scikit-learn's array, or the second of fastText's labels and array."""
    return np.asarray(answer[1] if isinstance(answer, tuple) else answer)


def test_predict_batch_measures_two_threads_one_thread_and_a_file(monkeypatch):
    monkeypatch.setattr(prediction, "BATCH", 8)
    monkeypatch.setattr(workload, "cores", lambda: 1)
    outcome = predict_batch(TINY)
    assert [row.name.rpartition(", ")[2] for row in outcome.rows] == [
        *("2 threads", "1 thread", "2 threads"),
        *["1 thread"] * (len(outcome.rows) - 5),  # of each rival that is installed
        *("2 threads", "1 thread"),
    ]
    assert "file of 30 texts" in outcome.rows[-1].name
    assert {row.unit for row in outcome.rows} == {"sentences/s"}
    assert baselines(outcome.rows).count("ours, 1 thread") == 2
    assert (
        len([note for note in outcome.notes if "not installed" not in note]) == 1
    )  # two threads on one core: said, and measured all the same


def test_torch_computes_what_ours_computes(tmp_path):
    artifact = TINY.artifact()
    sentences = TINY.sentences(9, 7)
    ours, theirs = Predictor(artifact), EagerTorchPredictor(artifact)
    assert theirs.backend == "reference"  # no native network is built
    np.testing.assert_allclose(ours.logits(sentences), theirs.logits(sentences), atol=1e-5)
    (tmp_path / "texts.txt").write_text("\n".join(TINY.texts(5, 4)) + "\n")
    written = []
    for predictor in (ours, theirs):
        label_file(predictor, tmp_path / "texts.txt", tmp_path / "labels.tsv")
        written.append((tmp_path / "labels.tsv").read_text())
    assert written[0] == written[1]
    assert len(written[0].splitlines()) == 5


def test_train_step_measures_a_step_and_a_whole_training(monkeypatch):
    monkeypatch.setattr(training, "BATCH", 8)
    monkeypatch.setattr(training, "EXAMPLES", 16)
    monkeypatch.setattr(workload, "cores", lambda: 1)
    outcome = training.train_step(TINY)
    assert [row.unit for row in outcome.rows] == [*["sentences/s"] * 3, "s"]
    assert [row.name.rpartition(", ")[2] for row in outcome.rows[:2]] == ["1 thread", "2 threads"]
    assert baselines(outcome.rows)[2] == "ours, 1 thread"
    assert "40 sentences, 1 epochs" in outcome.rows[3].name
    assert len(outcome.notes) == 1


def test_the_layer_is_measured_forward_and_backward():
    report = run_case("layer", TINY)
    assert [row.name.split(", ")[:2] for row in report.rows] == [
        ["layer 1", "forward"],
        ["layer 1", "forward and backward"],
        ["layer 2", "forward"],
        ["layer 2", "forward and backward"],
    ]
    assert report.case == "layer"


def test_a_layer_is_given_what_the_one_below_keeps():
    call = LayerCall(DCNNConfig(), 2)  # 18 words, two layers: the first keeps 9
    assert call.x.shape == (64, 6, 24, 9)
    assert call.forward().shape == (64, 14, 12, 4)
    with torch.no_grad():
        assert call.forward_only() is None


@pytest.mark.parametrize("case", ["train-step", "layer"])
def test_a_backend_that_cannot_train_is_refused(monkeypatch, case):
    monkeypatch.setenv("DCNN_BACKEND", "reference")
    with pytest.raises(ConfigError, match="has no gradients"):
        run_case(case, TINY)


@pytest.mark.parametrize("case", [case for case in CASES if case != "gpu"])
def test_an_unknown_backend_is_refused(monkeypatch, case):
    monkeypatch.setenv("DCNN_BACKEND", "nonsense")
    with pytest.raises(ConfigError, match="DCNN_BACKEND='nonsense' must be one of"):
        run_case(case, TINY)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_cuda_device_its_case_is_refused():
    with pytest.raises(ConfigError, match="no GPU can be used"):
        run_case("gpu", TINY)


def test_steps_and_layers_of_a_device_are_compared_with_torch_there(monkeypatch):
    """On a CPU in its place, which needs no waiting for."""
    monkeypatch.setattr(gpu, "DEVICE", "cpu")
    monkeypatch.setattr(gpu, "BATCHES", (2, 3))
    monkeypatch.setattr(gpu, "STEPS", 1)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(gpu.TorchRuns, "_fits", lambda *_: True)  # as it does on a GPU
    kinds = []
    step = gpu.Trainer.step
    monkeypatch.setattr(
        gpu.Trainer, "step", lambda self: (kinds.append(type(self.runs.batches)), step(self))
    )
    rows = gpu.gpu(TINY).rows
    assert set(kinds) == {ResidentBatches}  # both sides
    assert [row.name for row in rows[:2]] == [
        "training step of 2 sentences of 20 words",
        "training step of 3 sentences of 20 words",
    ]
    assert baselines(rows) == ["eager torch"] * 2 + ["eager torch", "a copy of the input"] * 4


def test_startup_is_compared_with_processes_that_only_import(monkeypatch):
    commands = []

    def fake_run(command: list[str]) -> str:
        commands.append(command)
        return "25000000"

    monkeypatch.setattr(startup, "run", fake_run)
    rows = startup.startup(TINY).rows
    assert [row.unit for row in rows] == ["ms"] * 4 + ["MB"]
    assert baselines(rows)[1:4] == [
        "python -c 'import torch'",
        "python -c 'import numpy'",
        "python -c pass",
    ]
    assert rows[-1].ours == 25
    assert commands[0][1:4] == ["-m", "dcnn", "predict"]
    assert commands[-1][:3] == [sys.executable, "-c", startup.PEAK_MEMORY]


def test_the_peak_is_that_of_the_command():
    small, large = (
        peak_memory(
            [sys.executable, "-c", f"x = bytearray({size}); x[::512] = b'1' * {size // 512}"]
        )
        for size in (512, 80 * 1024 * 1024)
    )
    assert large - small > 70e6
    assert small < 60e6  # though this process holds torch


def test_a_process_that_fails_is_an_error_with_its_last_line():
    with pytest.raises(DcnnError, match="ended with 3: no luck"):
        startup.run(
            [sys.executable, "-c", "import sys; print('no luck', file=sys.stderr); exit(3)"]
        )


def test_the_process_in_torch_prints_what_ours_prints(tmp_path, monkeypatch, capsys, dcnn):
    model_folder.save(tmp_path / "model", TINY.artifact())
    (text,) = TINY.texts(1, 5)
    monkeypatch.setattr(sys, "argv", ["eager_torch", str(tmp_path / "model"), text])
    eager_torch.main()
    assert capsys.readouterr().out == dcnn("predict", "model", text).out


def test_a_report_is_json():
    report = run_case("layer", TINY)
    assert json.loads(report.to_json())["rows"][0]["unit"] == "us"


@pytest.fixture
def not_compiled(monkeypatch, tmp_path):
    monkeypatch.delenv("DCNN_BACKEND", raising=False)
    monkeypatch.setattr(native, "library_path", lambda: tmp_path / "_native.so")
    native._load.cache_clear()
    yield
    native._load.cache_clear()


@pytest.mark.parametrize("before", [None, "native"])
def test_computing_with_restores_backend_and_threads(monkeypatch, before):
    monkeypatch.delenv("DCNN_BACKEND", raising=False)
    if before:
        monkeypatch.setenv("DCNN_BACKEND", before)
    threads = torch.get_num_threads()

    def fail() -> None:
        with computing_with("torch", threads + 1):
            assert os.environ["DCNN_BACKEND"] == "torch"
            assert torch.get_num_threads() == threads + 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert os.environ.get("DCNN_BACKEND") == before
    assert torch.get_num_threads() == threads


def test_a_missing_native_library_gets_a_note(not_compiled):
    (note,) = missing_native()
    assert "native backend is not available (it was not compiled" in note
    assert "prediction is numpy and training is torch itself" in note
    assert "make native" in note


def test_a_forced_backend_gets_a_note(monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", "reference")
    (note,) = missing_native()
    assert "DCNN_BACKEND=reference is forced" in note


@pytest.mark.skipif(not native.available(), reason="needs the native backend")
def test_the_native_library_gets_no_note(monkeypatch):
    monkeypatch.delenv("DCNN_BACKEND", raising=False)
    assert missing_native() == []
    assert describe_backend("native") == f"native ({native.instruction_set()})"
    assert describe_backend("torch") == "torch"


def test_two_threads_on_one_core_get_a_note(monkeypatch):
    monkeypatch.setattr(workload, "cores", lambda: 1)
    assert too_few_cores(1) == []
    assert "2 threads share 1 core" in too_few_cores(2)[0]


def test_a_busy_machine_gets_a_note(monkeypatch):
    monkeypatch.setattr(workload, "cores", lambda: 2)
    assert busy_machine(1.9) == []
    assert "load 2.3, 2 cores" in busy_machine(2.3)[0]
