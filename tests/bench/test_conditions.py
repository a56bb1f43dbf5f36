import os

import pytest
import torch

from dcnn.bench import conditions
from dcnn.bench.conditions import (
    busy_machine,
    computing_with,
    describe_backend,
    missing_native,
    too_few_cores,
)
from dcnn.ops import native


@pytest.fixture
def not_compiled(monkeypatch, tmp_path):
    monkeypatch.delenv("DCNN_BACKEND", raising=False)
    monkeypatch.setattr(native, "library_path", lambda: tmp_path / "_native.so")
    native._load.cache_clear()
    yield
    native._load.cache_clear()


@pytest.mark.parametrize("before", [None, "native"])
def test_backend_and_threads_are_what_they_were_afterwards(monkeypatch, before):
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


def test_without_a_library_a_note_says_what_ours_is(not_compiled):
    (note,) = missing_native()
    assert "native backend is not available (it was not compiled" in note
    assert "prediction is numpy and training is torch itself" in note
    assert "make native" in note


def test_a_forced_backend_is_told(monkeypatch):
    monkeypatch.setenv("DCNN_BACKEND", "reference")
    (note,) = missing_native()
    assert "DCNN_BACKEND=reference is forced" in note


@pytest.mark.skipif(not native.available(), reason="needs the native backend")
def test_with_the_library_there_is_nothing_to_say(monkeypatch):
    monkeypatch.delenv("DCNN_BACKEND", raising=False)
    assert missing_native() == []
    assert describe_backend("native") == f"native ({native.instruction_set()})"
    assert describe_backend("torch") == "torch"


def test_two_threads_on_one_core_get_a_note(monkeypatch):
    monkeypatch.setattr(conditions, "cores", lambda: 1)
    assert too_few_cores(1) == []
    assert "2 threads share 1 core" in too_few_cores(2)[0]


def test_a_busy_machine_gets_a_note(monkeypatch):
    monkeypatch.setattr(conditions, "cores", lambda: 2)
    assert busy_machine(1.9) == []
    assert "load 2.3, 2 cores" in busy_machine(2.3)[0]
