"""Measure a case against eager torch in the same run, or render the tables of finished cases.

    python benchmarks/run.py predict-one                 # prints a table
    python benchmarks/run.py layer --json                # prints JSON
    python benchmarks/run.py gpu --out results/bench/gpu.json
    python benchmarks/run.py tables --write README.md --write docs/performance.md

Calls of ours and of the baseline are interleaved, on the same network, that of SST binary. Figures
are medians, the spread is the quartiles. Measure on an idle machine.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from curves import SCALING, describe, read_scaling
from dcnn.cli.console import make_console
from dcnn.errors import DcnnError, MissingExtraError, UserError
from dcnn.experiments.tables import write_blocks
from report import (
    CASES,
    Outcome,
    Report,
    figure,
    machine_load,
    not_measured,
    render_tables,
    spread,
    summary_table,
    write_report,
)
from workload import Workload, busy_machine, missing_native

RESULTS = Path(__file__).parent.parent / "results" / "bench"


def load_cases() -> dict[str, Callable[[Workload], Outcome]]:
    """The function of each case; imports torch.

    Raises:
        MissingExtraError: a library that the cases compare with is not installed.
    """
    try:
        from gpu import gpu
        from layer import layer
        from prediction import predict_batch, predict_one
        from startup import startup
        from training import train_step
    except ImportError:
        raise MissingExtraError("benchmarks/run.py", "bench") from None
    functions = (predict_one, predict_batch, train_step, startup, layer, gpu)
    return dict(zip(CASES, functions, strict=True))


def run_case(name: str, workload: Workload) -> Report:
    """Measure the case ``name``, one of ``CASES``."""
    load = machine_load()
    outcome = load_cases()[name](workload)
    notes = missing_native() + busy_machine(load) + outcome.notes
    return Report.make(name, outcome._replace(notes=notes), load)


def print_report(console: Console, report: Report) -> None:
    """A table, ours above its baselines, then backend, machine and notes."""
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


def blocks(results: Path) -> dict[str, str]:
    """The Markdown of ``results``: all tables and curves, and the first row of each case."""
    curves = results / f"{SCALING}.json"
    scaling = (
        describe(read_scaling(curves))
        if curves.is_file()
        else not_measured("python benchmarks/scaling.py")
    )
    return {
        "bench-summary": summary_table(results),
        "bench": f"{render_tables(results)}\n\n### {SCALING}\n\n{scaling}",
    }


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; argparse ends the process with code 2 if one is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="case", required=True, metavar="CASE")
    for name in CASES:
        case = commands.add_parser(name)
        case.add_argument("--json", action="store_true", help="print JSON instead of a table")
        case.add_argument("--out", type=Path, help="write the JSON to this file too")
        case.add_argument(
            "--rounds",
            type=int,
            default=20,
            help="rounds of interleaved calls; slow ones take fewer",
        )
    tables = commands.add_parser("tables", help="render the tables; measure nothing")
    tables.add_argument("--results", type=Path, default=RESULTS, help="folder of the reports")
    tables.add_argument(
        "--write", type=Path, action="append", help="Markdown file whose blocks are replaced"
    )
    options = parser.parse_args(arguments)
    if options.case != "tables" and options.rounds < 1:
        parser.error(f"--rounds {options.rounds} must be 1 or more")
    return options


def run(options: argparse.Namespace) -> None:
    """Render the tables, or measure a case, print it and write it."""
    if options.case == "tables":
        rendered = blocks(options.results)
        if options.write:
            write_blocks(options.write, rendered)
        else:
            print(rendered["bench"])
        return
    if options.out is not None and options.out.is_dir():
        raise UserError(f"--out {options.out} is a folder; name a file")
    report = run_case(options.case, Workload(rounds=options.rounds))
    if options.out is not None:
        write_report(options.out, report)
    if options.json:
        print(report.to_json())
    else:
        print_report(make_console(), report)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and turn an error into one line on stderr and its exit code."""
    try:
        run(parse_arguments(arguments))
    except DcnnError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
