import os
import subprocess
import sys
from pathlib import Path

import pytest

from dcnn.bench import memory_growth, scaling
from dcnn.bench.curves import AXES
from dcnn.bench.memory_growth import forget_peak, peak
from dcnn.bench.scaling import Situation, curves, sizes
from tiny import TINY


def test_an_axis_changes_one_thing():
    points = {axis: Situation.at(axis, 9, TINY) for axis in AXES}
    assert points["length"].words == 9
    assert points["width"].workload.model.widths == (9, 3)
    assert points["batch"].sentences == 9
    assert points["threads"].threads == 9
    assert points["vocabulary"].workload.vocabulary == 9
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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget a peak")
@pytest.mark.parametrize("backend", ["ours", "torch"])
def test_a_long_sentence_takes_more_memory_than_a_short_one(backend):
    # In a process of its own: here other tests have left memory that would be taken first.
    code = (
        "from dcnn.bench.memory_growth import growth; from tiny import TINY\n"
        f"for words in (1, 1, 60_000): print(growth({backend!r}, 'length', words, TINY))"
    )
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    _, short, long = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout.split()
    assert int(long) > int(short) + 1_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget a peak")
def test_a_peak_that_is_forgotten_begins_at_what_is_held():
    held = bytearray(80_000_000)
    held[::512] = b"1" * len(held[::512])
    del held
    before = peak()
    forget_peak()
    assert peak() < before - 50_000_000


def test_a_point_is_measured_as_a_process(monkeypatch, capsys):
    monkeypatch.setattr(memory_growth, "Workload", lambda **_: TINY)
    monkeypatch.setattr(sys, "argv", ["memory_growth", "ours", "batch", "3"])
    memory_growth.main()
    assert int(capsys.readouterr().out) >= 1
