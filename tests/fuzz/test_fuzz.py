"""The fuzzer finds what it is for, and what it once found stays fixed."""

import json
import os
import time

import pytest

import fuzz


@pytest.mark.parametrize("case", fuzz.known_cases(), ids=lambda case: case[0])
def test_a_former_finding_is_fixed(case):
    assert fuzz.try_case(*case) == ""


def test_a_case_follows_from_the_seed_and_its_number_alone():
    first, again, other = ([fuzz.case_of(seed, n) for n in range(24)] for seed in (1, 1, 2))
    assert first == again != other
    assert {name for name, _ in first} == set(fuzz.TARGETS)


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        (lambda *_: 1 / 0, "ZeroDivisionError"),
        (lambda *_: os.kill(os.getpid(), 9), "the process died (-9)"),
        (lambda *_: time.sleep(60), "no end within 0.5 s"),
        (lambda *_: bytearray(8 << 30), "MemoryError"),
    ],
    ids=["exception", "crash", "hang", "memory"],
)
def test_what_a_target_must_not_do_is_found(monkeypatch, fault, reported):
    monkeypatch.setattr(fuzz, "SECONDS", 0.5)
    monkeypatch.setitem(fuzz.TARGETS, "text", fuzz.TARGETS["text"]._replace(use=fault))
    (found,) = fuzz.run_cases(iter([("text", b"x")]))
    assert reported in found[2]


def test_a_few_cases_of_every_target_are_used_or_refused():
    cases = [fuzz.case_of(0, number) for number in range(24)]
    found = list(fuzz.run_cases(iter(cases)))
    assert [one[:2] for one in found] == cases
    assert [one[2] for one in found] == [""] * len(cases)


def test_the_time_without_a_finding_begins_anew_with_other_code(tmp_path, monkeypatch):
    report = tmp_path / "fuzz.json"
    monkeypatch.setattr("sys.argv", ["fuzz.py", "--seconds", "0", "--out", str(report)])
    monkeypatch.setattr(fuzz, "known_cases", lambda: [("text", b"good")])
    clean = []
    for code in ("one", "one", "another"):
        monkeypatch.setattr(fuzz, "code_hash", lambda code=code: code)
        assert fuzz.main() == 0
        clean.append(json.loads(report.read_text())["clean"]["cases"])
    assert clean == [1, 2, 1]
