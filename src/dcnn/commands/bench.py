"""``dcnn bench``: measure a case and show it, and render the tables of finished ones."""

from itertools import groupby
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from dcnn.bench.report import Report, write_report
from dcnn.bench.tables import figure, render_tables, spread, summary_table
from dcnn.errors import MissingExtraError, UserError
from dcnn.experiments.tables import write_blocks
from dcnn.terminal import make_console


def run_bench(case: str, rounds: int, as_json: bool, out: Path | None) -> None:
    """Measure ``case``; print a table, or JSON, and keep the JSON at ``out``."""
    if out is not None and out.is_dir():
        raise UserError(f"--out {out} is a folder; name a file")
    try:
        from dcnn.bench.cases import run_case
        from dcnn.bench.workload import Workload
    except ImportError:
        raise MissingExtraError("dcnn bench", "bench") from None
    report = run_case(case, Workload(rounds=rounds))
    if out is not None:
        write_report(out, report)
    if as_json:
        print(report.to_json())
    else:
        print_report(make_console(), report)


def print_report(console: Console, report: Report) -> None:
    """A table, ours above what it is compared with, and below it where the figures come from."""
    table = Table(report.case, box=box.SIMPLE)
    for column in ("median", "quartiles", "ours is better"):
        table.add_column(column, justify="right", no_wrap=True)
    for (name, unit), rows in groupby(report.rows, key=lambda row: (row.name, row.unit)):
        table.add_section()
        table.add_row(f"{name}, {unit}")
        for number, row in enumerate(rows):
            if number == 0:
                table.add_row("  ours", figure(row.ours), spread(row.ours_spread))
            theirs = (figure(row.baseline), spread(row.baseline_spread))
            table.add_row(f"  {row.baseline_name}", *theirs, f"{figure(row.ratio)} x")
    console.print(table)
    console.print(f"ours: {report.ours}; {report.hardware}; load {report.load:.1f} at the start")
    for note in report.notes:
        console.print(f"note: {note}")


def run_tables(results: Path, write_into: list[Path]) -> None:
    """Print the tables of ``results``, or put them into the marked blocks of ``write_into``.

    A block ``bench`` takes all of them, a block ``bench-summary`` the first row of each case.
    """
    blocks = {"bench-summary": summary_table(results), "bench": render_tables(results)}
    if write_into:
        write_blocks(write_into, blocks)
    else:
        print(blocks["bench"])
