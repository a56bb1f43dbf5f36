"""``dcnn data``: list, fetch and verify the corpora of the paper's experiments."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from dcnn.data.corpora.download import fetch_corpus
from dcnn.data.corpora.registry import (
    CORPORA,
    Corpus,
    Part,
    check_file,
    data_folder,
    find_corpus,
    find_form,
    get_corpus,
    require_form,
)
from dcnn.errors import DataError
from dcnn.terminal import make_console

ALL = "all"


def run_list(data: Path | None, corpora: Mapping[str, Corpus] = CORPORA) -> None:
    """Print a table of the corpora: what they are, where they belong, and whether they are there.

    Args:
        data: the data folder; ``None`` is the user's.
        corpora: the corpora that are known.
    """
    data = data_folder(data)
    table = Table("name", "what", "folder", box=box.SIMPLE)
    table.add_column("download", justify="right")
    table.add_column("files")
    for corpus in corpora.values():
        size = sum(download.file.size for download in corpus.downloads)
        there = "present" if find_form(corpus, data) else "missing"
        table.add_row(corpus.name, corpus.title, corpus.folder, f"{size / 1e6:,.1f} MB", there)
    console = make_console()
    console.print(f"Data folder: {data}", soft_wrap=True)
    console.print(table)


def run_fetch(
    names: Sequence[str], data: Path | None, corpora: Mapping[str, Corpus] = CORPORA
) -> None:
    """Download the corpora of these names, except those that are there already.

    Raises:
        FetchError: the network or the server failed, or gave another file.
    """
    data = data_folder(data)
    console = make_console(stderr=True)
    for corpus in _chosen([] if ALL in names else names, corpora):
        folder = data / corpus.folder
        if _is_there(corpus, data):
            console.print(f"{corpus.name} is in {folder} already", soft_wrap=True)
            continue
        files = ", ".join(path.name for path in _fetch(console, corpus, data))
        console.print(f"{corpus.name}: {files} in {folder}", soft_wrap=True)
        console.print(f"  {corpus.citation}", soft_wrap=True)


def run_verify(
    names: Sequence[str], data: Path | None, corpora: Mapping[str, Corpus] = CORPORA
) -> None:
    """Compare every file with its known size and SHA-256, and count its examples.

    Without names, the corpora that are there.

    Raises:
        DataError: a file is missing or not as it should be; the lines printed say which.
    """
    data = data_folder(data)
    chosen = _chosen(names, corpora)
    if not names:
        chosen = [corpus for corpus in chosen if find_form(corpus, data)]
    if not chosen:
        raise DataError(f"{data} holds none of the corpora; run: dcnn data fetch {ALL}")
    console = make_console()
    faults = 0
    for corpus in chosen:
        for right, finding in _findings(corpus, data):
            console.print(f"{'right' if right else 'WRONG'}  {finding}", soft_wrap=True)
            faults += not right
    if faults:
        raise DataError(f"{faults} of the files in {data} cannot be used; see the lines above")


def _chosen(names: Sequence[str], corpora: Mapping[str, Corpus]) -> list[Corpus]:
    """The corpora of these names; without names, all."""
    return [get_corpus(name, corpora) for name in names or corpora]


def _is_there(corpus: Corpus, data: Path) -> bool:
    try:
        find_corpus(corpus.name, data, corpora={corpus.name: corpus})
    except DataError:
        return False
    return True


def _fetch(console: Console, corpus: Corpus, data: Path) -> list[Path]:
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    tasks = {
        download.file.name: bar.add_task(download.file.name, total=download.file.size)
        for download in corpus.downloads
    }
    with bar:
        return fetch_corpus(
            corpus, data, lambda name, have: bar.update(tasks[name], completed=have)
        )


def _findings(corpus: Corpus, data: Path) -> Iterator[tuple[bool, str]]:
    """For every part of a corpus, whether it is right, and what was found."""
    try:
        form = require_form(corpus, data)
    except DataError as error:
        yield False, str(error)
        return
    for part in form:
        path = data / corpus.folder / part.file.name
        try:
            check_file(corpus, path, part.file)
            count = _counted(corpus, path, part)
        except DataError as error:
            yield False, str(error)
        else:
            name = part.member or part.file.name
            yield True, f"{corpus.name} {part.role}: {name}, {count:,} {corpus.unit}"


def _counted(corpus: Corpus, path: Path, part: Part) -> int:
    count = corpus.count(path, part.member)
    if count != part.count:
        raise DataError(f"{path} holds {count:,} {corpus.unit} where {part.count:,} are expected")
    return count
