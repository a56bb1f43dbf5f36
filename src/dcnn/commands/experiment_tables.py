"""``dcnn experiment tables``: the experiments' tables, from the results alone."""

from pathlib import Path

from dcnn.experiments.results import read_results
from dcnn.experiments.tables import experiment_tables, summary_table, write_blocks


def run_tables(results_folder: Path, write_into: list[Path]) -> None:
    """Print the tables, or put them into the marked blocks of the Markdown files ``write_into``.

    A block ``experiments`` takes the four tables, a block ``experiments-summary`` the short one.
    """
    results = read_results(results_folder)
    blocks = {
        "experiments-summary": summary_table(results),
        "experiments": experiment_tables(results),
    }
    if write_into:
        write_blocks(write_into, blocks)
    else:
        print("\n\n".join(blocks.values()))
