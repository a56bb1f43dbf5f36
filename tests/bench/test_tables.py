from dataclasses import replace

import pytest

from dcnn.bench.curves import Curve, Scaling, write_scaling
from dcnn.bench.report import CASES, Outcome, Report, Row, write_report
from dcnn.bench.tables import figure, render_tables, spread, summary_table
from dcnn.compare import Measure
from dcnn.errors import DataError

ONE, TWO = Measure(20.04, 19.0, 21.0, 8), Measure(310.0, 300.0, 1234.5, 8)


def make_report(case: str) -> Report:
    rows = [
        Row.compare("the bar", "us", ONE, TWO, "eager torch"),
        Row.compare("more", "sentences/s", TWO, ONE, "fastText"),
    ]
    report = Report.make(case, Outcome("native (avx2)", rows, ["a note"]), 0.25)
    return replace(report, hardware="a machine", commit="c" * 40)


def test_without_figures_the_commands_that_make_them_stand_there(tmp_path):
    text = render_tables(tmp_path)
    for case in CASES:
        assert f"Not yet measured: `dcnn bench {case} --out results/bench/{case}.json`" in text
    assert "`python benchmarks/scaling.py`" in text
    assert summary_table(tmp_path).count("not yet measured") == len(CASES)


def test_a_case_shows_its_rows_machine_and_notes(tmp_path):
    write_report(tmp_path / "layer.json", make_report("layer"))
    section = render_tables(tmp_path).partition("### layer\n")[2].partition("###")[0]
    line = "| the bar | us | 20.0 | 19.0 to 21.0 | eager torch | 310 | 300 to 1,230 | 15.5 |"
    assert line in section
    assert "| more | sentences/s | 310 |" in section
    assert "Ours: native (avx2). a machine; load 0.2 at the start" in section
    assert "commit cccccccccccc," in section
    assert "A note." in section


def test_the_summary_has_the_first_row_of_a_case_and_names_the_machine_once(tmp_path):
    for case in ("layer", "startup"):
        write_report(tmp_path / f"{case}.json", make_report(case))
    text = summary_table(tmp_path)
    assert text.count("| the bar | 20.0 us | 310 us (eager torch) | 15.5 |") == 2
    assert "more" not in text
    assert text.count("a machine; native (avx2).") == 1


def test_curves_are_shown_with_a_sentence_each(tmp_path):
    curve = Curve("length", "time", (256, 512, 1024), (1.0, 2.0, 4.0), (10.0, 20.0, 80.0))
    scaling = Scaling("native", (curve,), 0.0, "a machine", {}, "c" * 40, "2026-01-01")
    write_scaling(tmp_path / "scaling.json", scaling)
    section = render_tables(tmp_path).partition("### scaling\n")[2]
    assert "![length](pictures/scaling-length.svg)" in section
    assert (
        "One sentence, one thread: time 4 ms at 1,024 words (eager torch 80), from 256 on growing "
        "with the power 1.00 (1.50)."
    ) in section


def test_a_report_under_another_name_is_refused(tmp_path):
    write_report(tmp_path / "layer.json", make_report("startup"))
    with pytest.raises(DataError, match=r"holds the case 'startup'; it belongs in startup\.json"):
        render_tables(tmp_path)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.123456, "0.12"), (9.876, "9.88"), (12.34, "12.3"), (123.4, "123"), (67289, "67,300")],
)
def test_figures_have_three_digits_that_count(value, shown):
    assert figure(value) == shown
    assert spread((value, value)) == f"{shown} to {shown}"
