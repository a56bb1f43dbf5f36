import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling
from command_scaling import command_curves
from curves import AXES, COMMANDS, Curve, Scaling, describe, growth, read_scaling, write_scaling
from dcnn.errors import DataError
from scaling import Situation, curves, peak, reset_peak, sizes
from tiny import TINY

SIZES = tuple(2**i for i in range(13))
ROOT = Path(__file__).parents[2]


def test_an_axis_changes_one_thing():
    points = {axis: Situation.at(axis, 9, TINY) for axis in AXES}
    assert points["length"].words == 9
    assert points["width"].workload.model.widths == (9, 3)
    assert points["batch"].sentences == 9
    assert points["threads"].threads == 9
    assert points["vocabulary"].workload.vocabulary == 9
    assert len(points["classes"].workload.artifact().classes) == 9
    assert {axis: p.sentences for axis, p in points.items() if p.sentences > 1} == {
        "batch": 9,
        "threads": 256,
    }


def test_lengths_reach_4096():
    assert sizes("length")[0] == 1
    assert sizes("length")[-1] == 4096
    assert all(list(sizes(axis)) == sorted(set(sizes(axis))) for axis in AXES)


def test_every_axis_has_its_curves(monkeypatch):
    small = dict.fromkeys(AXES, (4, 8)) | {"threads": (1, 2)}
    monkeypatch.setattr(scaling, "sizes", lambda axis, largest: small[axis])
    monkeypatch.setattr(scaling, "run", lambda command: "3000000")  # a process for each otherwise
    found = list(curves(TINY))
    assert [(c.axis, c.quantity) for c in found] == [
        (axis, quantity)
        for axis in AXES
        for quantity in ("time", "memory")
        if (axis, quantity) != ("threads", "memory")
    ]
    assert all(min(c.ours + c.torch) > 0 for c in found)
    assert found[1].ours == (3.0, 3.0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can reset a peak")
def test_a_long_sentence_takes_more_memory_than_a_short_one():
    # In a process of its own: this one may reuse memory that other tests have left.
    code = (
        "from scaling import memory_growth; from tiny import TINY\n"
        "for backend in ('ours', 'torch'):\n"
        "    for words in (1, 1, 60_000): print(memory_growth(backend, 'length', words, TINY))"
    )
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "benchmarks"), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    grown = [int(line) for line in done.stdout.split()]
    for _, short, long in (grown[:3], grown[3:]):
        assert long > short + 1_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can reset a peak")
def test_reset_peak_restarts_at_the_current_memory():
    held = bytearray(80_000_000)
    held[::512] = b"1" * len(held[::512])
    del held
    before = peak()
    reset_peak()
    assert peak() < before - 50_000_000


def test_print_memory_prints_the_bytes_of_a_point(monkeypatch, capsys):
    monkeypatch.setattr(scaling, "Workload", lambda **_: TINY)
    scaling.print_memory("ours", "batch", "3")
    assert int(capsys.readouterr().out) >= 1


def make_scaling(*curves: Curve) -> Scaling:
    return Scaling("native", curves, 1.5, "a machine", {"numpy": "2"}, "abc", "2026-01-01")


@given(power=st.floats(0, 3), factor=st.floats(0.1, 10), start=st.sampled_from(SIZES[:-1]))
def test_growth_finds_the_power_of_a_power_law(power, factor, start):
    values = [factor * size**power for size in SIZES]
    assert growth(SIZES, values, start) == pytest.approx(power, abs=1e-6)


@pytest.mark.parametrize("start", [4096, 9999])
def test_growth_of_a_single_size_is_0(start):
    assert growth(SIZES, SIZES, start) == 0


def test_write_then_read_is_the_identity(tmp_path):
    scaling = make_scaling(Curve("batch", "memory", (1, 2), (0.5, 1.5), (2.0, 3.0)))
    write_scaling(tmp_path / "scaling.json", scaling)
    assert read_scaling(tmp_path / "scaling.json") == scaling


def test_whole_commands_grow_with_labels_and_texts():
    found = list(command_curves((2, 4), (40, 80), 40))
    assert [(c.axis, c.quantity, c.sizes) for c in found] == [
        (axis, quantity, (2, 4) if axis == "labels" else (40, 80))
        for axis in COMMANDS
        for quantity in ("time", "memory")
    ]
    assert all(min(c.ours) > 10 and not c.torch for c in found)


def test_a_command_is_described_in_seconds_without_eager_torch():
    curve = Curve("corpus", "time", (1000, 10_000, 100_000), (900.0, 4000.0, 40_000.0))
    text = describe(make_scaling(curve))
    assert "`dcnn train`, texts of 8 words" in text
    assert (
        "time 0.9 s at 1,000 texts and 40 s at 100,000, from 10,000 on growing with the power 1.00."
    ) in text


def test_threads_are_described_without_a_growth_rate():
    curve = Curve("threads", "time", (1, 2), (4.0, 2.0), (40.0, 30.0))
    text = describe(make_scaling(curve))
    assert "time 2 ms at 2 threads (eager torch 30), at 1 4 (40)." in text
    assert "length" not in text
    assert "a machine; load 1.5 at the start" in text


@pytest.mark.parametrize(
    "curve",
    [
        ("height", "time", (1,), (1.0,), (1.0,)),
        ("length", "colour", (1,), (1.0,), (1.0,)),
        ("length", "time", (1, 2), (1.0,), (1.0, 2.0)),
        ("length", "time", (), (), ()),
        ("length", "time", (1,), (1.0,), ()),
        ("corpus", "time", (1,), (1.0,), (1.0,)),
    ],
)
def test_an_invalid_curve_is_refused(curve):
    with pytest.raises(DataError, match="must be"):
        Curve(*curve)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"curves": [{}]}', '{"curves": 1}'])
def test_a_file_without_curves_is_refused(tmp_path, text):
    (tmp_path / "scaling.json").write_text(text)
    with pytest.raises(DataError, match=r"run benchmarks/scaling\.py again"):
        read_scaling(tmp_path / "scaling.json")


def test_a_curve_is_described_by_its_chart_and_a_sentence():
    curve = Curve("length", "time", (256, 512, 1024), (1.0, 2.0, 4.0), (10.0, 20.0, 80.0))
    text = describe(make_scaling(curve))
    assert "![length](pictures/scaling-length.svg)" in text
    assert (
        "One sentence, one thread: time 4 ms at 1,024 words (eager torch 80), from 256 on growing "
        "with the power 1.00 (1.50)."
    ) in text
