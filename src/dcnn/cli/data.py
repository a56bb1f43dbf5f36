"""``dcnn data``: list, download and verify the corpora of the paper's experiments."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from dcnn.cli import console as cli
from dcnn.data.corpora.download import fetch_corpus
from dcnn.data.corpora.registry import (
    CORPORA,
    Corpus,
    check_file,
    data_folder,
    find_corpus,
    find_form,
    get_corpus,
    require_form,
)
from dcnn.errors import DataError

ALL = "all"

data = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, download and verify the corpora of the paper's experiments.",
)


@data.command("list")
def list_corpora(folder: cli.DataFolder = None) -> None:
    """List the corpora: what they are, where they belong, and whether they are there.

    Example: dcnn data list --data corpora
    """
    root = data_folder(folder)
    table = cli.make_table("name", "what", "folder", "download", "files", left=3)
    table.columns[-1].justify = "left"
    for corpus in CORPORA.values():
        size = sum(download.file.size for download in corpus.downloads)
        there = "present" if find_form(corpus, root) else "missing"
        table.add_row(corpus.name, corpus.title, corpus.folder, f"{size / 1e6:,.1f} MB", there)
    console = cli.make_console()
    console.print(f"Data folder: {root}", soft_wrap=True)
    console.print(table)


@data.command("fetch")
def fetch_corpora(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="sst, trec, twitter, glove, or all.")
    ],
    folder: cli.DataFolder = None,
) -> None:
    """Download corpora from their authors' sites, and verify every file.

    An interrupted download continues where it stopped. Files that are there already are kept.

    \b
    Examples:
      dcnn data fetch sst trec
      dcnn data fetch all --data corpora
    """
    root = data_folder(folder)
    console = cli.make_console(stderr=True)
    for corpus in _named([] if ALL in names else names):
        place = root / corpus.folder
        if _is_there(corpus, root):
            console.print(f"{corpus.name} is in {place} already", soft_wrap=True)
            continue
        files = ", ".join(path.name for path in _fetch(console, corpus, root))
        console.print(f"{corpus.name}: {files} in {place}", soft_wrap=True)
        console.print(f"  {corpus.citation}", soft_wrap=True)


@data.command("verify")
def verify_corpora(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Which corpora; by default all that are there."),
    ] = None,
    folder: cli.DataFolder = None,
) -> None:
    """Check sizes, checksums and the number of examples of the corpora, one line per file.

    \b
    Examples:
      dcnn data verify
      dcnn data verify twitter --data corpora
    """
    root = data_folder(folder)
    chosen = _named(names or [])
    if not names:
        chosen = [corpus for corpus in chosen if find_form(corpus, root)]
    if not chosen:
        raise DataError(f"{root} holds none of the corpora; run: dcnn data fetch {ALL}")
    console = cli.make_console()
    faults = 0
    for corpus in chosen:
        for right, finding in _findings(corpus, root):
            console.print(f"{'right' if right else 'WRONG'}  {finding}", soft_wrap=True)
            faults += not right
    if faults:
        raise DataError(f"{faults} of the files in {root} cannot be used; see the lines above")


def _named(names: Sequence[str]) -> list[Corpus]:
    """The corpora of these names; without names, all."""
    return [get_corpus(name, CORPORA) for name in names or CORPORA]


def _is_there(corpus: Corpus, root: Path) -> bool:
    try:
        find_corpus(corpus.name, root, corpora={corpus.name: corpus})
    except DataError:
        return False
    return True


def _fetch(console: Console, corpus: Corpus, root: Path) -> list[Path]:
    bar = cli.progress_bar(
        console,
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    tasks = {
        download.file.name: bar.add_task(download.file.name, total=download.file.size)
        for download in corpus.downloads
    }
    with bar:
        return fetch_corpus(
            corpus, root, lambda name, done: bar.update(tasks[name], completed=done)
        )


def _findings(corpus: Corpus, root: Path) -> Iterator[tuple[bool, str]]:
    """For every part of a corpus, whether it is right, and what was found."""
    try:
        form = require_form(corpus, root)
    except DataError as error:
        yield False, str(error)
        return
    for part in form:
        path = root / corpus.folder / part.file.name
        try:
            check_file(corpus, path, part.file)
            count = corpus.count(path, part.member)
        except DataError as error:
            yield False, str(error)
            continue
        if count == part.count:
            name = part.member or part.file.name
            yield True, f"{corpus.name} {part.role}: {name}, {count:,} {corpus.unit}"
        else:
            expected = f"where {part.count:,} are expected"
            yield False, f"{path} holds {count:,} {corpus.unit} {expected}"
