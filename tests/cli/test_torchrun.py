"""Of several processes one reports a shared error; each reports an error of its own."""

import pytest
import torch

from dcnn.cli import train as torchrun
from dcnn.cli.train import first_reads_first, first_reports, require_distributed
from dcnn.errors import ConfigError, UserError, WorkerLostError


class Ended(BaseException):
    """What ``torchrun`` does to a process once another has ended."""


@pytest.fixture
def process(monkeypatch):
    """Makes this process one of several; returns how long it has waited."""
    waited = []

    def become(rank, *, ends=False):
        def sleep(seconds):
            waited.append(seconds)
            if ends:
                raise Ended

        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        monkeypatch.setattr(torchrun.time, "sleep", sleep)
        return waited

    return become


def fail(error):
    with first_reports(ConfigError, WorkerLostError):
        raise error


def test_the_first_process_reports_at_once(process):
    waited = process(0)
    with pytest.raises(ConfigError, match="dims"):
        fail(ConfigError("dims"))
    assert not waited


def test_the_others_are_ended_before_they_report(process):
    process(1, ends=True)
    with pytest.raises(Ended):
        fail(ConfigError("dims"))


def test_a_process_that_fails_alone_reports_a_moment_later(process):
    waited = process(1)
    with pytest.raises(ConfigError, match="dims"):
        fail(ConfigError("dims"))
    assert waited == [torchrun.WAIT_FOR_FIRST]


def test_errors_of_other_kinds_are_not_held_back(process):
    waited = process(1)
    with pytest.raises(UserError, match="the processes differ"):
        fail(UserError("the processes differ"))
    assert not waited


def test_without_torchrun_nobody_waits(process, monkeypatch):
    waited = process(1)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    with pytest.raises(ConfigError):
        fail(ConfigError("dims"))
    assert not waited


class LostWorkers:
    """The others have met the end of the first."""

    def first_before_others(self):
        raise WorkerLostError("another process has ended")


def test_if_the_first_cannot_read_the_others_print_nothing(process):
    process(1, ends=True)
    with pytest.raises(Ended), first_reads_first(LostWorkers()):
        pass


def test_a_process_alone_just_reads():
    with first_reads_first(None):
        pass


def test_a_torch_without_distributed_is_named(monkeypatch):
    require_distributed()
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"built with torch\.distributed, and this one was not; "):
        require_distributed()
