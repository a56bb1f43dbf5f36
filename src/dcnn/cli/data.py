"""``dcnn data``: list, download and verify the corpora of the paper's experiments."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich import progress
from typer import Argument

from dcnn.cli import COMMANDS
from dcnn.cli import console as cli
from dcnn.data.corpora import registry
from dcnn.data.corpora.download import fetch_corpus
from dcnn.data.corpora.registry import CORPORA, Corpus, Part, data_folder, find_form
from dcnn.errors import DataError

data = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=COMMANDS["data"])


@data.command("list")
def list_corpora(folder: cli.DataFolder = None) -> None:
    """List the corpora: what they are, where they belong, and whether they are there."""
    root = data_folder(folder)
    table = cli.make_table("name", "what", "folder", "download", "files", left=3)
    table.columns[-1].justify = "left"
    for corpus in CORPORA.values():
        size = sum(download.file.size for download in corpus.downloads)
        there = "present" if find_form(corpus, root) else "missing"
        shown = f"{size / 1e6:,.1f} MB" if size else ""
        table.add_row(corpus.name, corpus.title, corpus.folder, shown, there)
    console = cli.make_console()
    console.print(f"Data folder: {root}")
    console.print(table)


@data.command("fetch")
def fetch_corpora(
    names: Annotated[list[str], Argument(metavar="NAME")], folder: cli.DataFolder = None
) -> None:
    """Download corpora from their authors' sites, and verify every file.

    An interrupted download continues where it stopped. Files that are there already are kept.
    """
    root = data_folder(folder)
    console = cli.make_console(stderr=True)
    speed, left = progress.TransferSpeedColumn(), progress.TimeRemainingColumn()
    bar = cli.progress_bar(console, "{task.description}", progress.DownloadColumn(), speed, left)
    tasks: dict[str, progress.TaskID] = {}
    for corpus in _named([] if "all" in names else names):
        place = root / corpus.folder
        with suppress(DataError):  # a file is missing or damaged
            registry.find_corpus(corpus.name, root, corpora=CORPORA)
            console.print(f"{corpus.name} is in {place} already")
            continue
        if not corpus.downloads:  # made of several sources; the error says which
            if corpus.name in names:
                registry.require_form(corpus, root)
            continue
        for file in (download.file for download in corpus.downloads):
            tasks[file.name] = bar.add_task(file.name, total=file.size)
        with bar:
            fetched = fetch_corpus(
                corpus, root, lambda name, done: bar.update(tasks[name], completed=done)
            )
        console.print(f"{corpus.name}: {', '.join(path.name for path in fetched)} in {place}")
        console.print(f"  {corpus.citation}")


@data.command("verify")
def verify_corpora(
    names: Annotated[list[str] | None, Argument(metavar="NAME")] = None,
    folder: cli.DataFolder = None,
) -> None:
    """Check sizes, checksums and the number of examples of the corpora, one line per file."""
    root = data_folder(folder)
    chosen = [corpus for corpus in _named(names or []) if names or find_form(corpus, root)]
    if not chosen:
        raise DataError(f"{root} holds none of the corpora; run: dcnn data fetch all")
    console = cli.make_console()
    faults = 0
    for corpus in chosen:
        for part in find_form(corpus, root) or corpus.forms[0][:1]:  # one line if files are missing
            try:
                console.print(f"OK      {_verify(corpus, part, root)}")
            except DataError as error:
                console.print(f"FAILED  {error}")
                faults += 1
    if faults:
        raise DataError(f"{faults} of the files in {root} cannot be used; see the lines above")


def _named(names: Sequence[str]) -> list[Corpus]:
    """The corpora of these names; without names, all."""
    return [registry.get_corpus(name, CORPORA) for name in names or CORPORA]


def _verify(corpus: Corpus, part: Part, root: Path) -> str:
    """What a part of a corpus holds; DataError if it is not what it must be."""
    registry.require_form(corpus, root)
    path = root / corpus.folder / part.file.name
    registry.check_file(corpus, path, part.file)
    count = corpus.count(path, part.member)
    if count != part.count:
        raise DataError(f"{path} holds {count:,} {corpus.unit} where {part.count:,} are expected")
    return f"{corpus.name} {part.role}: {part.member or part.file.name}, {count:,} {corpus.unit}"
