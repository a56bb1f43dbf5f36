"""The soak finds what it is for; ``make soak`` runs it."""

import random
import signal
from pathlib import Path

import pytest

import soak


def test_memory_that_grows_with_the_requests_is_found():
    warm = [(n, 200.0 - 10 / (n + 1)) for n in range(0, 4000, 50)]
    leaking = [(n, 200.0 + 0.002 * n) for n in range(0, 4000, 50)]
    assert abs(soak.slope(warm)) < soak.LEAK < soak.slope(leaking)


def test_a_request_may_fail_only_while_a_worker_is_killed():
    assert soak.is_lost_with_a_worker([1.0, 5.0], 4.5, 5.5)
    assert not soak.is_lost_with_a_worker([1.0, 5.0], 1.5, 4.5)


@pytest.mark.parametrize(
    ("content", "fault"), [("once\n", ""), ("twice\n", "ended with another result")]
)
def test_a_killed_command_is_repeated_and_compared(tmp_path, monkeypatch, content, fault):
    started: list[list[object]] = []

    class Process:
        """A command that is killed once, and then writes its output."""

        pid, returncode = 0, 0

        def __init__(self, folder: Path, arguments: list[object]) -> None:
            started.append(arguments)
            self.returncode = -signal.SIGKILL if len(started) == 2 else 0
            if not self.returncode:
                written = "once\n" if len(started) == 1 else content
                (folder / str(arguments[0])).write_text(written)

        def poll(self) -> int:
            return self.returncode

        def communicate(self, timeout: float) -> tuple[str, str]:
            return "", ""

    def make(one: soak.Soak, name: str) -> soak.Killable:
        def result() -> dict[str, str]:
            return {"out": (one.folder / name).read_text()}

        return soak.Killable([name, "first"], [name, "again"], lambda: False, result)

    monkeypatch.setattr(soak, "start", Process)
    one = soak.Soak(random.Random(0), tmp_path)
    soak.kill_and_compare("it", make)(one, 0.0)
    assert [arguments[-1] for arguments in started] == ["first", "first", "again"]
    assert [fault in found for found in one.faults] == ([True] if fault else [])
