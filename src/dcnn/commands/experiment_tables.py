"""``dcnn experiment tables``: the experiments' tables, from the results alone."""

from pathlib import Path

from dcnn.errors import DataError
from dcnn.experiments.marked_block import has_block, markers, replace_block
from dcnn.experiments.results import read_results
from dcnn.experiments.tables import experiment_tables, summary_table
from dcnn.files import open_bytes, write_atomically


def run_tables(results_folder: Path, write_into: list[Path]) -> None:
    """Print the tables, or put them into the marked blocks of the Markdown files ``write_into``.

    A block ``experiments`` takes the four tables, a block ``experiments-summary`` the short one.
    """
    results = read_results(results_folder)
    blocks = {
        "experiments-summary": summary_table(results),
        "experiments": experiment_tables(results),
    }
    if not write_into:
        print("\n\n".join(blocks.values()))
    # Every file is checked before the first is written.
    rendered = {path: _render(path, blocks) for path in write_into}
    for path, text in rendered.items():
        with write_atomically(path) as stream:
            stream.write(text.encode())


def _render(path: Path, blocks: dict[str, str]) -> str:
    with open_bytes(path) as stream:
        raw = stream.read()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} must be UTF-8 text ({error}); name a Markdown file") from None
    present = [name for name in blocks if has_block(text, name)]
    if not present:
        wanted = " or ".join(" and ".join(markers(name)) for name in blocks)
        raise DataError(f"{path} has no place for the tables; put {wanted} on lines of their own")
    for name in present:
        text = replace_block(text, name, blocks[name], path)
    return text
