import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcnn.bench.curves import Curve, Scaling, describe, growth, read_scaling, write_scaling
from dcnn.errors import DataError

SIZES = tuple(2**i for i in range(13))


def make_scaling(*curves: Curve) -> Scaling:
    return Scaling("native", curves, 1.5, "a machine", {"numpy": "2"}, "abc", "2026-01-01")


@given(power=st.floats(0, 3), factor=st.floats(0.1, 10), start=st.sampled_from(SIZES[:-1]))
def test_growth_finds_the_power_of_a_power_law(power, factor, start):
    values = [factor * size**power for size in SIZES]
    assert growth(SIZES, values, start) == pytest.approx(power, abs=1e-6)


@pytest.mark.parametrize("start", [4096, 9999])
def test_growth_of_a_single_size_is_none(start):
    assert growth(SIZES, SIZES, start) == 0


def test_write_then_read_is_the_identity(tmp_path):
    scaling = make_scaling(Curve("batch", "memory", (1, 2), (0.5, 1.5), (2.0, 3.0)))
    write_scaling(tmp_path / "scaling.json", scaling)
    assert read_scaling(tmp_path / "scaling.json") == scaling


def test_threads_are_told_without_a_power():
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
    ],
)
def test_a_curve_breaks_no_rule(curve):
    with pytest.raises(DataError, match="must be"):
        Curve(*curve)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"curves": [{}]}', '{"curves": 1}'])
def test_what_holds_no_curves_is_told(tmp_path, text):
    (tmp_path / "scaling.json").write_text(text)
    with pytest.raises(DataError, match=r"run benchmarks/scaling\.py again"):
        read_scaling(tmp_path / "scaling.json")
